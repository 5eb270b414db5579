"""What people are shown of a search: rows with a snippet, the file to open, and the reasons.

A snippet leaves out layout: the passage's own heading, which is shown above it, attribute blocks,
HTML tags, rules, and the fences of code and admonitions.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from kb.errors import EmbeddingError
from kb.model_in_use import ModelInUse
from kb.search.files import SearchedFile, Together
from kb.search.highlight import excerpts, merged, spans
from kb.search.query import Query
from kb.search.ranking import explained
from kb.search.run import SearchRequest, run
from kb.sources.address import document_file
from kb.store.connection import Connection, Row
from kb.store.contents import stored_file
from kb.text.file_names import storable
from kb.text.sentences import first_sentences, sentences

MAX_NEAREST = 10  # rows without a word of the query that get a nearest sentence
WIDTH = 220  # characters
MAX_SENTENCES = 12  # of a passage compared with a question: each is embedded
# Where a sentence ends without punctuation: at blank lines, items, headings and rows.
_PARTS = re.compile(r"\n\s*\n|\n(?=[ \t]*(?:[-*+|#>]|\d+[.)])[ \t])")

_CODE_FENCE = re.compile(r"^[ \t>]*(?P<fence>`{3,}|~{3,})")
_BLOCK_FENCE = re.compile(r"^[ \t>]*(?::{3,}|/{3,})[^|]*(?:\|\s*(?P<title>.*))?$")
_ADMONITION = re.compile(r"^[ \t>]*(?:!{3}|\?{3}\+?)[ \t]+[\w-]+[ \t]*(?P<title>.*)$")
_ALERT = re.compile(r"^[ \t>]*\[!\w+\][+-]?[ \t]*")
_ATTRIBUTE = r"""(?:[#.][\w.:-]+|[\w-]+=(?:"[^"\n]*"|'[^'\n]*'|[^\s{}"']+))"""
_ATTRIBUTES = re.compile(rf"[ \t]*\{{:?\s*{_ATTRIBUTE}(?:\s+{_ATTRIBUTE})*\s*\}}")
# Tags of documents; `List<int>` and `<path>` are text.
_TAGS = (
    "a|abbr|article|b|blockquote|br|button|center|code|dd|del|details|div|dl|dt|em|figcaption|figure"
    "|font|h[1-6]|hr|i|iframe|img|ins|kbd|li|mark|nav|ol|p|picture|pre|s|section|small|source|span"
    "|strong|sub|summary|sup|table|tbody|td|th|thead|tr|u|ul|video"
)
_TAG = re.compile(rf"""</?(?:{_TAGS})(?:\s+[\w:-]+(?:=(?:"[^"]*"|'[^']*'|[^\s"'<>]+))?)*\s*/?>""")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(?P<text>.*?)(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r"^[ \t]*(?:=+|-+)[ \t]*$")
# Between a table's header and its rows, below a title, between two parts.
_RULE = re.compile(r"^[ \t>]*[-=+|:*_ \t]{3,}$")
_MARKUP = re.compile(r"[`*_\\]")
# Markdown's inline marks. `a[0](x)` and `__init__` are not marks: a link begins a word, and text
# between underscores contains a blank.
_LINK = re.compile(
    r"!?(?<![\w\]])\[([^\[\]\n]*)\](?:\([^()\s]*(?:[ \t]+\"[^\"\n]*\")?\)|\[[^\[\]\n]*\])"
)
_WIKI_LINK = re.compile(r"!?\[\[(?:[^\[\]|\n]*\|)?([^\[\]|\n]+)\]\]")
_EMPHASIS = re.compile(
    r"(?<![\w*_~\\])(?:(?P<stars>\*{1,3}|~~)(?=[^\s*~])(?P<text>[^\n*~]*[^\s*~])(?P=stars)"
    r"|(?P<lines>_{1,3})(?=[^\s_])(?P<words>[^\n_]* [^\n_]*[^\s_])(?P=lines))(?![\w*_~])"
)
_CODE_SPAN = re.compile(r"(?<!`)(`{1,3})(?!`)([^`\n]+)(?<!`)\1(?!`)")


def search_for_people(
    files: Sequence[SearchedFile], request: SearchRequest, *, explain: bool = False
) -> tuple[list[dict[str, Any]], str]:
    """The rows, best first, and a notice; raises as `run`. Besides what a client gets, a row has
    `snippet` with `marks` (start and end of each matched word in it), `file` ("" if the document is
    not a file), `changedSinceSync`, and with `explain` its ranks and the reasons."""
    result = run(files, request)
    rows: list[dict[str, Any]] = [dict(row) for row in result.rows]
    if explain:
        compared = {
            file
            for file, hit in zip(result.files, result.hits, strict=True)
            if hit.evidence is not None and hit.evidence.cosine is not None
        }
        for row, hit, file in zip(rows, result.hits, result.files, strict=True):
            by_words = hit.is_by_words or file not in compared
            row |= {
                "keywordRank": hit.keyword_rank,
                "vectorRank": hit.vector_rank,
                "why": explained(hit.evidence, by_words=by_words),
            }
    by_file: dict[SearchedFile, tuple[Query, list[dict[str, Any]]]] = {}
    for row, file in zip(rows, result.files, strict=True):
        by_file.setdefault(file, (result.queries[file], []))[1].append(row)
    together = Together([*by_file])
    with together.read():
        finished = together.each(_for_people, of=by_file)
    for file, of_file in finished.items():
        if file.is_far:
            for row in of_file:
                row |= {"file": "", "changedSinceSync": False}
        if not result.queries[file].is_exact:  # else every row has its words; spare the model
            _add_nearest(file.model, result.queries[file], of_file)
    left = {file: iter(of_file) for file, of_file in finished.items()}
    rows = [next(left[file]) for file in result.files if file in left]
    return rows, " ".join(filter(None, [result.notice, *together.lost]))


def _for_people(
    file: SearchedFile, connection: Connection, part: tuple[Query, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """A file's rows with their snippets, and the files to open."""
    query, rows = part
    collections = {
        file.names.called(row).collection: row
        for row in file.names.collections(connection, named=True)
    }
    for row in rows:
        _add_file(connection, row, collections.get(row["collection"]))
        piece = snippet(connection, query, row["content"], _shown_above(row))
        row |= {"snippet": piece.text, "marks": piece.marks}
    return rows


def file_of(row: Row, sources: Mapping[str, str]) -> str:
    """The file that a row's document was read from, as text; "" if there is none."""
    name = str(row.get("collectionId", row["collection"]))
    file = document_file(sources.get(name, ""), row["documentId"])
    return storable(file) if os.path.isfile(file) else ""


def _add_file(connection: Connection, row: dict[str, Any], collection: Row | None) -> None:
    """Note a row's file, and whether it has changed since the sync."""
    row |= {"file": "", "changedSinceSync": False}
    if collection is None:  # of an index in memory
        return
    file = document_file(collection["source"], row["documentId"])
    with contextlib.suppress(OSError, ValueError):
        status = file.stat()
        if stat.S_ISREG(status.st_mode):
            stored = stored_file(connection, collection["collection_id"], row["documentId"])
            row["file"] = storable(file)
            row["changedSinceSync"] = _has_changed(stored, status, collection)


def _has_changed(stored: Row | None, status: os.stat_result, collection: Row) -> bool:
    """Whether a file's size or time differs from what is stored."""
    if stored is None or stored["file_size"] is None:
        return False
    if stored["file_size"] != status.st_size:
        return True
    if stored["modified_ns"] is not None:
        return bool(stored["modified_ns"] != status.st_mtime_ns)
    # It was too new for its time to be trusted: compare with the end of the sync.
    synced = collection["synced_at"]
    return synced is not None and datetime.fromisoformat(synced).timestamp() + 1 < status.st_mtime


def _add_nearest(model: ModelInUse, query: Query, rows: Sequence[dict[str, Any]]) -> None:
    """Give rows without a word of the query the sentence nearest to it."""
    wordless = [row for row in rows if not row["marks"]][:MAX_NEAREST]
    passages = [(row["content"], _shown_above(row)) for row in wordless]
    for row, sentence in zip(wordless, nearest_snippets(model, query, passages), strict=True):
        row["snippet"] = sentence or row["snippet"]


def _shown_above(row: Mapping[str, Any]) -> list[str]:
    return [row["documentTitle"], row.get("sectionHeading", "")]


class Snippet(NamedTuple):
    """A piece of a passage on one line, and where the query's words are in it."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()


def snippet(
    connection: Connection, query: Query, content: str, headings: Sequence[str] = ()
) -> Snippet:
    """The piece of a passage with the most of a query's words, else its first sentence; `headings`
    are shown above the passage and not repeated."""
    text = readable(content, headings)
    query, variants = query.without_stop_words(), dict(query.guesses)
    matches = spans(connection, text, query, variants=variants)
    pieces = excerpts(text, matches, most=1, width=WIDTH, mark=False)
    if not pieces:
        return Snippet(first_sentences(text, WIDTH))
    return Snippet(pieces[0], tuple(merged(spans(connection, pieces[0], query, variants=variants))))


def nearest_snippets(
    model: ModelInUse, query: Query, contents: Sequence[tuple[str, Sequence[str]]]
) -> list[str]:
    """For passages (with the headings above them) without a word of a query, the text from the
    nearest sentence on; "" without a model, or for a single sentence."""
    passages = [_sentences(readable(content, headings)) for content, headings in contents]
    together = [sentence for passage in passages if len(passage) > 1 for sentence in passage]
    none = [""] * len(contents)
    if not together:
        return none
    try:
        vectors = model.embed_queries([query.words_to_embed])
        if not vectors:
            return none
        scores = iter((model.embedder().embed(together) @ vectors[0]).tolist())
    except EmbeddingError:
        return none
    texts: list[str] = []
    for passage in passages:
        if len(passage) < 2:
            texts.append("")
            continue
        of_passage = [next(scores) for _ in passage]
        number = of_passage.index(max(of_passage))
        text = first_sentences(" ".join(passage[number:]), WIDTH)
        texts.append(f"... {text}" if number else text)
    return texts


def _sentences(text: str) -> list[str]:
    """The first sentences of a passage; of code and tables the lines."""
    first: list[str] = []
    for part in _PARTS.split(text):
        first += sentences(part)
        if len(first) >= MAX_SENTENCES:
            break
    return first[:MAX_SENTENCES]


def readable(content: str, headings: Sequence[str] = ()) -> str:
    """A passage without layout and without some headings."""
    stored = {_plain(heading) for heading in headings if heading}
    kept: list[str] = []
    code = ""  # the fence of the code that the line is in
    for line in _COMMENT.sub(" ", content).splitlines():
        fence = _CODE_FENCE.match(line)
        if fence and fence["fence"].startswith(code):
            code = "" if code else fence["fence"]
        elif code:
            kept.append(line)
        elif _UNDERLINE.match(line) and kept and _plain(kept[-1]) in stored:
            kept.pop()
        elif not _RULE.match(line):
            text = _without_marks(line)
            if not (_HEADING.match(line) and _plain(text) in stored):
                kept.append(text)
    return "\n".join(kept).strip() or content.strip()


def _without_marks(line: str) -> str:
    """A line outside code without marks; an admonition's fence leaves its title."""
    if fence := _BLOCK_FENCE.match(line):
        line = fence["title"] or ""
    elif admonition := _ADMONITION.match(line):
        line = admonition["title"].strip("\"' ")
    elif heading := _HEADING.match(line):
        line = heading["text"]
    line = _TAG.sub("", _ATTRIBUTES.sub("", _ALERT.sub("", line))).rstrip()
    parts = _CODE_SPAN.split(_WIKI_LINK.sub(r"\1", _LINK.sub(r"\1", line)))
    for number in range(0, len(parts), 3):  # text, fence and code in turn
        parts[number] = _EMPHASIS.sub(_emphasised, _EMPHASIS.sub(_emphasised, parts[number]))
    del parts[1::3]
    return "".join(parts)


def _emphasised(match: re.Match[str]) -> str:
    return match["text"] or match["words"]


def _plain(text: str) -> str:
    return " ".join(_MARKUP.sub("", text).split()).casefold()

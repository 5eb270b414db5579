"""What a person is shown of a passage: the text round the words that were asked for.

Marks of layout say nothing of the matter and are left out: the passage's own heading, which is
shown above it, attribute blocks, HTML tags, rules, and the fences of code and admonitions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kb.errors import EmbeddingError
from kb.model_in_use import ModelInUse
from kb.search.highlight import excerpts, merged, spans
from kb.search.query import Query
from kb.store.connection import Connection
from kb.text.sentences import first_sentences, sentences

WIDTH = 220  # characters
MOST_SENTENCES = 12  # of a passage that are compared with a question: each is embedded
# Where a sentence ends without a sign: at blank lines, items, headings and rows.
_PARTS = re.compile(r"\n\s*\n|\n(?=[ \t]*(?:[-*+|#>]|\d+[.)])[ \t])")

_CODE_FENCE = re.compile(r"^[ \t>]*(?P<fence>`{3,}|~{3,})")
_BLOCK_FENCE = re.compile(r"^[ \t>]*(?::{3,}|/{3,})[^|]*(?:\|\s*(?P<title>.*))?$")
_ADMONITION = re.compile(r"^[ \t>]*(?:!{3}|\?{3}\+?)[ \t]+[\w-]+[ \t]*(?P<title>.*)$")
_ALERT = re.compile(r"^[ \t>]*\[!\w+\][+-]?[ \t]*")
_ATTRIBUTE = r"""(?:[#.][\w.:-]+|[\w-]+=(?:"[^"\n]*"|'[^'\n]*'|[^\s{}"']+))"""
_ATTRIBUTES = re.compile(rf"[ \t]*\{{:?\s*{_ATTRIBUTE}(?:\s+{_ATTRIBUTE})*\s*\}}")
# Those that documents hold; `List<int>` and `<path>` are text.
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


class Snippet(NamedTuple):
    """A piece of a passage on one line, and where in it the query's words stand."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()


def snippet(
    connection: Connection, query: Query, content: str, headings: Sequence[str] = ()
) -> Snippet:
    """The piece of a passage that holds the most of a query's words, or else its first sentence.

    Args:
        headings: what is shown above the passage and need not be said again.
    """
    text = readable(content, headings)
    asked = query.without_stop_words()
    found = spans(connection, text, asked, variants=_variants(query))
    pieces = excerpts(text, found, most=1, width=WIDTH, mark=False)
    if not pieces:
        return Snippet(first_sentences(text, WIDTH))
    piece = pieces[0]
    again = spans(connection, piece, asked, variants=_variants(query))
    return Snippet(piece, tuple(merged(again)))


def nearest_snippets(
    model: ModelInUse, query: Query, contents: Sequence[tuple[str, Sequence[str]]]
) -> list[str]:
    """Of passages that hold no word of a query the text from the nearest sentence on.

    Args:
        contents: pairs of a passage and the headings shown above it.

    Returns:
        "" where nothing can be said to be nearest: without a model, or of a single sentence.
    """
    pieces = [_sentences(readable(content, headings)) for content, headings in contents]
    together = [sentence for some in pieces if len(some) > 1 for sentence in some]
    if not together:
        return [""] * len(contents)
    try:
        vectors = model.embed_queries([query.words_to_embed])
        scores = iter(model.embedder().embed(together) @ vectors[0]) if vectors else iter(())
    except EmbeddingError:
        return [""] * len(contents)
    found: list[str] = []
    for some in pieces:
        near = [next(scores, None) for _ in some] if len(some) > 1 else []
        known = [(score, -number) for number, score in enumerate(near) if score is not None]
        number = -max(known)[1] if known else 0
        text = first_sentences(" ".join(some[number:]), WIDTH)
        found.append((f"... {text}" if number else text) if known else "")
    return found


def _sentences(text: str) -> list[str]:
    """The first sentences of a passage; of code and tables the lines."""
    found: list[str] = []
    for part in _PARTS.split(text):
        found += sentences(part)
        if len(found) >= MOST_SENTENCES:
            break
    return found[:MOST_SENTENCES]


def readable(content: str, headings: Sequence[str] = ()) -> str:
    """A passage without what only lays it out, and without the headings that are given."""
    known = {_plain(heading) for heading in headings if heading}
    kept: list[str] = []
    code = ""  # the fence that the code began with
    for line in _COMMENT.sub(" ", content).splitlines():
        fence = _CODE_FENCE.match(line)
        if fence and fence["fence"].startswith(code):
            code = "" if code else fence["fence"]
        elif code:
            kept.append(line)
        elif _UNDERLINE.match(line) and kept and _plain(kept[-1]) in known:
            kept.pop()
        elif not _RULE.match(line):
            text = _without_marks(line)
            if not (_HEADING.match(line) and _plain(text) in known):
                kept.append(text)
    return "\n".join(kept).strip() or content.strip()


def _without_marks(line: str) -> str:
    """A line outside code; of an admonition's fence its title stays."""
    if fence := _BLOCK_FENCE.match(line):
        line = fence["title"] or ""
    elif admonition := _ADMONITION.match(line):
        line = admonition["title"].strip("\"' ")
    elif heading := _HEADING.match(line):
        line = heading["text"]
    return _TAG.sub("", _ATTRIBUTES.sub("", _ALERT.sub("", line))).rstrip()


def _plain(text: str) -> str:
    return " ".join(_MARKUP.sub("", text).split()).casefold()


def _variants(query: Query) -> Mapping[str, Sequence[str]]:
    return dict(query.guesses)

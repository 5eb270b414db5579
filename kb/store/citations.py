"""Citations: stored with their document, resolved once the target is there, and only then.

A citation keeps the key of its target; a document has the keys it answers to. Whenever a document
comes, goes or changes its keys, the citations of these keys are resolved anew in the same
transaction, so the order of arrival does not matter.

Keys are equal when a link and a document meet: `path:<collection>/guide/wind.md`,
`page:radio link`, `url:example.com/page`. A document answers to several; each has a rank, 0 for the
most literal one. Its tags (`tag:boats/sails`) and its date (`date:2026-01-31`, of a file with its
time) are keys too: no link has such a one, but searches look them up. To a link that leads to no
document a sync may give a key that says where it leads instead: `file:`, `external:` or
`elsewhere:`.
"""

from __future__ import annotations

import datetime
import json
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from kb.formats.metadata import normal_tag, tags_of
from kb.store.connection import Connection, Row
from kb.store.contents import title_and_text
from kb.text.headings import TERM_MARK
from kb.text.sentences import MAXIMUM_CONTEXT
from kb.text.suffixes import PAGE_SUFFIX

if TYPE_CHECKING:
    from kb.formats.outline import Link, ParsedDocument
    from kb.store.documents import NewDocument


FOLDER_PAGES = {"readme": 2, "index": 3}
_TRACKING = re.compile(
    r"utm_\w+|fbclid|gclid|dclid|gbraid|wbraid|msclkid|yclid|twclid|igshid|mc_[ce]id|_hs(?:enc|mi)"
    r"|ref_src|ref_url|mkt_tok|vero_id|oly_(?:anon|enc)_id|_ga",
    re.IGNORECASE,
)
_COLLECTION = re.compile(r"\A((?:path|label|file|external|elsewhere):)\d+/")
_SPACES = re.compile(r"[\s_-]+")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ZETTEL_ID = re.compile(r"\d{8,17}(?!\d)")
_JOURNAL = re.compile(r"(?:.*/)?journals/(?P<date>\d{4}[_-]\d{2}[_-]\d{2})\Z")
EXPLICIT = 1.0  # confidence of a link that somebody wrote
FURTHEST = 2 * MAXIMUM_CONTEXT  # characters around a link's line in which its sentence is searched
LONGEST_LINE = 100_000  # characters of a line in which it is


def link_key(link: Link, path: str, collection_id: int) -> str:
    """The key of a link's target, seen from the document at `path`; "" when it has none."""
    if link.key:  # found in another collection, or another file
        return _COLLECTION.sub(rf"\g<1>{collection_id}/", link.key)
    if link.kind in ("ref", "term"):
        return label_key(link.url, collection_id, link.kind)
    if link.url.startswith("#"):
        return path_key(path, "", collection_id)
    if link.kind == "wiki":
        page = link.url.partition("#")[0]
        if not page.startswith(("./", "../")):
            return page_key(page)
        return path_key(PAGE_SUFFIX.sub("", page), posixpath.dirname(path), collection_id)
    if link.kind in ("doc", "toctree") and link.url.startswith("/"):
        return page_key(link.url)  # from the top of the Sphinx project, wherever that lies
    if re.match(r"(?:https?:)?//", link.url, re.IGNORECASE):
        return url_key(link.url)
    # The fragment goes first: a "%23" in a file's name is not one.
    name = unquote(link.url.partition("#")[0].partition("?")[0])
    return path_key(name, posixpath.dirname(path), collection_id) if name else ""


def path_key(name: str, folder: str, collection_id: int) -> str:
    """The key of a path relative to a folder of a collection; "/" begins at its root."""
    joined = name.lstrip("/") if name.startswith("/") else posixpath.join(folder, name)
    normal = posixpath.normpath(joined)
    return f"path:{collection_id}/" + unicodedata.normalize("NFC", "" if normal == "." else normal)


def label_key(label: str, collection_id: int, kind: str = "ref") -> str:
    """The key of a label, or of a glossary's term, that is known in a whole collection."""
    mark = TERM_MARK if kind == "term" else ""
    return f"label:{collection_id}/{mark}" + " ".join(label.split()).casefold()


def page_key(name: str) -> str:
    """The key of a wiki page: no suffix, no difference of case, blanks, hyphens, underscores."""
    bare = PAGE_SUFFIX.sub("", name.strip().lstrip("/"))
    normal = unicodedata.normalize("NFKC", bare).casefold()
    return "page:" + _SPACES.sub(" ", normal).strip()


def url_key(url: str) -> str:
    """The key of a web page.

    Without scheme, `www.`, the host's case, user, default port, trailing slash, fragment and
    tracking parameters; percent-encoding is made uniform and parameters are sorted.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:  # brackets or a port that are none
        return "url:" + url.strip()
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            host = host.casefold()
    host = host.removeprefix("www.")
    if port and port not in (80, 443):
        host += f":{port}"
    path = quote(unquote(parts.path), safe="/:@!$&'()*+,;=~").rstrip("/")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query = urlencode(sorted(pair for pair in pairs if not _TRACKING.fullmatch(pair[0])))
    return f"url:{host}{path}" + (f"?{query}" if query else "")


def document_keys(
    path: str,
    parsed: ParsedDocument,
    metadata: Mapping[str, Any],
    collection_id: int,
    published: Iterable[tuple[str, str]],
    date: str,
) -> dict[str, int]:
    """Every key that a document answers to, with its rank.

    Args:
        metadata: what is stored with it; its captured URL is in `archive`, or it is the front
            matter's `url` or `source`.
        published: pairs of a web address and the folder of the collection that is seen there.
    """
    bare = PAGE_SUFFIX.sub("", path)
    folder, stem = posixpath.split(bare)
    keys: dict[str, int] = {}

    def add(key: str, rank: int) -> None:
        if not key.endswith(":"):
            keys[key] = min(rank, keys.get(key, rank))

    add(path_key(path, "", collection_id), 0)
    add(path_key(bare, "", collection_id), 1)
    add(path_key(f"{bare}.html", "", collection_id), 4)  # what site generators make of it
    if stem.casefold() in FOLDER_PAGES:
        add(path_key(folder or ".", "", collection_id), FOLDER_PAGES[stem.casefold()])
    parts = bare.split("/")
    for start in range(len(parts)):
        add(page_key("/".join(parts[start:])), 0)
    add(page_key(parsed.title), 1)
    for label in parsed.labels:
        add(label_key(label, collection_id), 0)
    for name, rank in _other_names(bare, metadata):
        add(page_key(name), rank)
    for tag in (*tags_of(metadata), *parsed.tags):
        add(f"tag:{normal_tag(tag)}", 0)
    add(f"date:{date}", 0)
    for rank, urls in enumerate(_urls(metadata)):
        for url in urls:
            add(url_key(url), rank)
    for address, below in published:
        if not below or path.startswith(f"{below}/"):
            name = bare[len(below) + 1 :] if below else bare
            suffix = path[len(bare) :]
            for ending in (suffix, "", ".html"):
                add(url_key(f"{address.rstrip('/')}/{quote(name)}{ending}"), 1)
    return keys


def _other_names(bare: str, metadata: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """What notes are called besides their file and title: aliases, ids, names of journals."""
    for key in ("aliases", "alias", "id", "uid", "zettel-id"):
        value = metadata.get(key)
        if isinstance(value, str) and key == "alias":
            value = [part.strip().strip("[]") for part in value.split(",")]
        for name in value if isinstance(value, list) else [value]:
            if isinstance(name, str | int) and not isinstance(name, bool):
                yield str(name), 2
    stem = posixpath.basename(bare)
    if zettel := _ZETTEL_ID.match(stem):
        yield zettel[0], 2
    if "___" in stem or "%2F" in stem:  # a namespace of Logseq
        yield stem.replace("___", "/").replace("%2F", "/"), 1
    if journal := _JOURNAL.match(bare):
        try:
            day = datetime.date.fromisoformat(journal["date"].replace("_", "-"))
        except ValueError:
            return
        ending = "th" if 10 < day.day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
        yield f"{_MONTHS[day.month - 1]} {day.day}{ending}, {day.year}", 1
        yield day.isoformat(), 1


def _urls(metadata: Mapping[str, Any]) -> list[list[str]]:
    archive = metadata.get("archive")
    captured = archive.get("urls", []) if isinstance(archive, dict) else []
    addresses = [[url for url in captured if isinstance(url, str)]]
    for key in ("url", "source"):
        value = metadata.get(key)
        is_url = isinstance(value, str) and value.startswith(("http://", "https://"))
        addresses.append([str(value).strip()] if is_url else [])
    return addresses


class _Candidate(NamedTuple):
    document_id: int
    collection_id: int
    path: str
    rank: int
    is_shared: bool  # its collection belongs to no project


def store_citations(
    connection: Connection,
    document_id: int,
    collection_id: int,
    new: NewDocument,
    metadata: Mapping[str, Any],
    date: str,
) -> None:
    """Store a document's citations and replace its keys. Call when its own row is stored."""
    path, parsed = new.path, new.parsed
    options = json.loads(connection.value("collection_options", collection_id=collection_id))
    published = [(str(url), str(folder)) for url, folder, *_ in options.get("published", [])]
    if base_url := options.get("base_url"):
        published.append((str(base_url), ""))
    before = keys_of(connection, document_id)
    after = document_keys(path, parsed, metadata, collection_id, published, date)
    if before != after:
        connection.run("delete_document_keys", document_id=document_id)
        connection.run(
            "insert_document_keys",
            document_id=document_id,
            keys=json.dumps([[key, rank] for key, rank in after.items()], ensure_ascii=False),
        )
    links = [(link, key) for link in parsed.links if (key := link_key(link, path, collection_id))]
    if links:
        candidates = _candidates(connection, (key for _, key in links))
        is_shared = bool(connection.value("is_shared_collection", collection_id=collection_id))
        citing = _Candidate(document_id, collection_id, path, 0, is_shared)
        sentences = _Sentences(new.text)
        insert_citations(
            connection,
            (
                {
                    "source_document_id": document_id,
                    "target_document_id": _best(candidates.get(key, ()), citing),
                    "target_url": link.url,
                    "target_key": key,
                    "kind": link.kind,
                    **sentences.columns(link),
                    "confidence": EXPLICIT,
                    "line": link.line,
                }
                for link, key in links
            ),
        )
    resolve_again(connection, {key for key, _ in before.items() ^ after.items()})


class _Sentences:
    """Where the sentences around links stand: ranges of the text, or kept if blanks differ."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("\n", " ")
        self._starts = list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))
        self._last = 0  # where the sentence before began: most links come in order

    def columns(self, link: Link) -> dict[str, Any]:
        line = min(link.line, len(self._starts) - 1)
        start, end = self._starts[line - 1], self._starts[line]
        low = max(start - FURTHEST, self._last if self._last < end else 0)
        high = min(end, low + LONGEST_LINE) + FURTHEST + len(link.context)
        at = self._text.find(link.context, low, high)
        if at < 0 or not link.context:
            return {"context": link.context, "start_character": None, "end_character": None}
        self._last = at
        end = at + len(link.context)
        return {"context": None, "start_character": at, "end_character": end}


def with_sentences(connection: Connection, rows: Iterable[Row]) -> list[Row]:
    """Rows of `citations` with sentences, cut here: SQL's substr rereads the text each time."""
    document_id, text = None, ""
    complete = []
    for row in rows:
        if row["context"] is None:
            if row["source_document_id"] != document_id:
                document_id = row["source_document_id"]
                _, text = title_and_text(connection, document_id) or ("", "")
            sentence = text[row["start_character"] : row["end_character"]].replace("\n", " ")
            row = {**row, "context": sentence}
        complete.append(row)
    return complete


def insert_citations(connection: Connection, citations: Iterable[Mapping[str, Any]]) -> None:
    connection.run_many("insert_citation", map(dict, citations))


def resolve_again(connection: Connection, keys: Iterable[str]) -> None:
    """Give every citation of these keys the target that is best by now, or none."""
    waiting = connection.rows("citations_of_keys", keys=[*keys])
    candidates = _candidates(connection, {row["target_key"] for row in waiting})
    changes = []
    for row in waiting:
        citing = _Candidate(
            row["source_document_id"], row["collection_id"], row["path"], 0, row["is_shared"]
        )
        best = _best(candidates.get(row["target_key"], ()), citing)
        if best != row["target_document_id"]:
            changes.append({"citation_id": row["citation_id"], "target_document_id": best})
    connection.run_many("set_citation_target", changes)


def unresolved_links(
    connection: Connection, collection_id: int, *, with_resolved: bool
) -> list[Row]:
    """The links of a collection that no document's key answers, or all."""
    return connection.rows("unresolved_links", collection_id=collection_id, resolved=with_resolved)


def unresolved_keys(connection: Connection, document_ids: Sequence[int] | None) -> list[str]:
    """The keys of links without a target, of some documents or of all."""
    listed = None if document_ids is None else [*document_ids]
    return connection.column("unresolved_keys", document_ids=listed)


def documents_of_keys(connection: Connection, keys: Iterable[str]) -> list[tuple[Any, ...]]:
    """Key, row id, collection's id, path, rank and whether it is everybody's, of each document."""
    return connection.tuples("documents_of_keys", keys=[*keys])


def documents_for_links(connection: Connection, collection_id: int) -> list[Row]:
    """What tells where a collection's documents are read."""
    return connection.rows("documents_for_links", collection_id=collection_id)


def labels_of_collection(connection: Connection, collection_id: int) -> dict[str, str]:
    prefix = label_key("", collection_id)
    rows = connection.tuples("labels_of_collection", collection_id=collection_id)
    return {key.removeprefix(prefix): path for key, path in rows}


def has_label(connection: Connection, label: str, collection_id: int) -> bool:
    """Whether a document of the collection answers to the label."""
    return bool(_candidates(connection, [label_key(label, collection_id)]))


def set_citation_keys(connection: Connection, changes: Iterable[Mapping[str, Any]]) -> None:
    """Say where links lead, each by `citation_id`, `target_key` and `target_document_id`."""
    connection.run_many("set_citation_key", map(dict, changes))


def keys_of(connection: Connection, document_id: int) -> dict[str, int]:
    return dict(connection.tuples("keys_of_document", document_id=document_id))


def _candidates(connection: Connection, keys: Iterable[str]) -> dict[str, list[_Candidate]]:
    candidates: dict[str, list[_Candidate]] = {}
    if unique := [*dict.fromkeys(keys)]:
        for key, *columns in documents_of_keys(connection, unique):
            candidates.setdefault(key, []).append(_Candidate(*columns))
    return candidates


def _best(candidates: Sequence[_Candidate], citing: _Candidate) -> int | None:
    """The document that a citation means. What one project holds stays invisible to the others."""
    visible = [
        candidate
        for candidate in candidates
        if candidate.collection_id == citing.collection_id
        or (candidate.is_shared and citing.is_shared)
    ]
    best = min(visible, key=lambda candidate: _preference(candidate, citing), default=None)
    return None if best is None else best.document_id


def _preference(candidate: _Candidate, citing: _Candidate) -> tuple[Any, ...]:
    is_foreign = candidate.collection_id != citing.collection_id
    folders, others = (
        posixpath.dirname(document.path).split("/") for document in (candidate, citing)
    )
    pairs = takewhile(lambda pair: pair[0] and pair[0] == pair[1], zip(folders, others))  # noqa: B905
    shared = 0 if is_foreign else len([*pairs])
    return (
        is_foreign,
        candidate.rank,
        candidate.document_id != citing.document_id,  # a page names its own address
        -shared,
        len(folders) if folders[0] else 0,
        candidate.path,
        candidate.document_id,
    )

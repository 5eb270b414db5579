"""Citations: stored with their document, resolved once the target is there, and only then.

A citation keeps the key of its target; a document has the keys it answers to, both made in
`kb.store.citation_keys`. Whenever a document comes, goes or changes its keys, the citations of
these keys are resolved anew in the same transaction, so the order of arrival does not matter.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any

from kb.store.citation_keys import document_keys, label_key, link_key
from kb.store.connection import Connection, Row
from kb.store.contents import title_and_text
from kb.text.sentences import MAXIMUM_CONTEXT

if TYPE_CHECKING:
    from kb.formats.outline import Link, ParsedDocument

EXPLICIT = 1.0  # confidence of a link that somebody wrote
FURTHEST = 2 * MAXIMUM_CONTEXT  # characters around a link's line in which its sentence is searched
LONGEST_LINE = 100_000  # characters of a line in which it is


@dataclass(frozen=True, slots=True)
class _Candidate:
    document_id: int
    collection_id: int
    path: str
    rank: int
    is_shared: bool  # its collection belongs to no project


def store_citations(
    connection: Connection,
    document_id: int,
    collection_id: int,
    path: str,
    parsed: ParsedDocument,
    metadata: Mapping[str, Any],
    text: str,
    date: str,
) -> None:
    """Store a document's citations and replace its keys. Call when its own row is stored."""
    options = json.loads(connection.value("collection_options", collection_id=collection_id))
    published = [(str(url), str(folder)) for url, folder, *_ in options.get("published", [])]
    if base_url := options.get("base_url"):
        published.append((str(base_url), ""))
    before = keys_of(connection, document_id)
    after = document_keys(
        *(path, parsed.title, metadata, collection_id, published, parsed.labels, parsed.tags),
        date=date,
    )
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
        sentences = _Sentences(text)
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
        for key, *columns in connection.tuples("documents_of_keys", keys=unique):
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

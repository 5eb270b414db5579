"""Citations: stored with their document, resolved when the target is there, and only then.

A citation keeps the key of its target; a document has the keys it answers to, both made in
`kb.store.citation_keys`.
Whenever a document comes, changes its keys or goes, the citations that wait for one of the keys
concerned are resolved anew, in the same transaction. So the order of arrival does not matter.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from kb.store.citation_keys import document_keys, link_key
from kb.store.connection import Connection, Row
from kb.store.contents import title_and_text
from kb.text.sentences import MAXIMUM_CONTEXT

if TYPE_CHECKING:
    from kb.formats.outline import Link

EXPLICIT = 1.0  # confidence of a link that somebody wrote
# Characters in front of a link's line and behind it in which its sentence is looked for.
FURTHEST = 2 * MAXIMUM_CONTEXT
LONGEST_LINE = 100_000  # characters of a line in which it is


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A document that answers to a key."""

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
    title: str,
    metadata: Mapping[str, Any],
    text: str,
    links: Sequence[Link],
    labels: Sequence[str] = (),
    tags: Sequence[str] = (),
) -> None:
    """Replace a document's citations and keys. Call when its own row is stored."""
    options = json.loads(connection.value("collection_options", collection_id=collection_id))
    published = [(str(one[0]), str(one[1])) for one in options.get("published", [])]
    if base_url := options.get("base_url"):
        published.append((str(base_url), ""))
    before = _keys_of(connection, document_id)
    after = document_keys(path, title, metadata, collection_id, published, labels, tags)
    if before != after:
        connection.run("delete_document_keys", document_id=document_id)
        connection.run(
            "insert_document_keys",
            document_id=document_id,
            keys=json.dumps([[key, rank] for key, rank in after.items()], ensure_ascii=False),
        )
    connection.run("delete_citations", document_id=document_id)
    keyed = [(one, key) for one in links if (key := link_key(one, path, collection_id))]
    if keyed:
        candidates = _candidates(connection, (key for _, key in keyed))
        is_shared = bool(connection.value("is_shared_collection", collection_id=collection_id))
        own = _Candidate(document_id, collection_id, path, 0, is_shared)
        place = _Places(text)
        insert_citations(
            connection,
            (
                {
                    "source_document_id": document_id,
                    "target_document_id": _best(candidates.get(key, ()), own),
                    "target_url": one.url,
                    "target_key": key,
                    "kind": one.kind,
                    **place.of(one),
                    "confidence": EXPLICIT,
                    "line": one.line,
                }
                for one, key in keyed
            ),
        )
    changed = {key for key, _ in before.items() ^ after.items()}
    resolve_again(connection, changed)


class _Places:
    """Where the sentences round a document's links stand in its text.

    A sentence has one blank where the text has several or a line end. Where nothing but single
    line ends differ it is a range of the text; else, as between the marks of a quote, it is kept.
    """

    def __init__(self, text: str) -> None:
        self._text = text.replace("\n", " ")
        self._starts = list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))
        self._last = 0  # where the sentence before began: most links come in order

    def of(self, link: Link) -> dict[str, Any]:
        """The columns for a link's sentence."""
        line = min(link.line, len(self._starts) - 1)
        start, end = self._starts[line - 1], self._starts[line]
        low = max(start - FURTHEST, self._last if self._last < end else 0)
        found = self._text.find(
            link.context, low, min(end, low + LONGEST_LINE) + FURTHEST + len(link.context)
        )
        if found < 0 or not link.context:
            return {"context": link.context, "start_character": None, "end_character": None}
        self._last = found
        end = found + len(link.context)
        return {"context": None, "start_character": found, "end_character": end}


def with_sentences(connection: Connection, rows: Iterable[Row]) -> list[Row]:
    """Rows of `citations` with the sentences that are ranges of the citing document's text.

    Each text is read once for the rows that follow each other, and cut here: SQL's substr reads it
    once more for each link.
    """
    document_id, text = None, ""
    found = []
    for row in rows:
        if row["context"] is None:
            if row["source_document_id"] != document_id:
                document_id = row["source_document_id"]
                _, text = title_and_text(connection, document_id) or ("", "")
            sentence = text[row["start_character"] : row["end_character"]].replace("\n", " ")
            row = {**row, "context": sentence}
        found.append(row)
    return found


def insert_citations(connection: Connection, citations: Iterable[Mapping[str, Any]]) -> None:
    """Store citations, each with all columns of the table."""
    connection.run_many("insert_citation", map(dict, citations))


def forget_citations(connection: Connection, document_id: int) -> set[str]:
    """The keys that nobody may answer to once the document is deleted: for `resolve_again`."""
    return set(_keys_of(connection, document_id))


def resolve_again(connection: Connection, keys: Iterable[str]) -> None:
    """Give every citation of these keys the target that is best by now, or none."""
    keys = list(keys)
    if not keys:
        return
    waiting = connection.rows("citations_of_keys", keys=json.dumps(keys, ensure_ascii=False))
    if not waiting:
        return
    candidates = _candidates(connection, {row["target_key"] for row in waiting})
    changes = []
    for row in waiting:
        own = _Candidate(
            row["source_document_id"], row["collection_id"], row["path"], 0, row["is_shared"]
        )
        best = _best(candidates.get(row["target_key"], ()), own)
        if best != row["target_document_id"]:
            changes.append({"citation_id": row["citation_id"], "target_document_id": best})
    connection.run_many("set_citation_target", changes)


def _keys_of(connection: Connection, document_id: int) -> dict[str, int]:
    return dict(connection.tuples("keys_of_document", document_id=document_id))


def _candidates(connection: Connection, keys: Iterable[str]) -> dict[str, list[_Candidate]]:
    wanted = json.dumps(list(dict.fromkeys(keys)), ensure_ascii=False)
    found: dict[str, list[_Candidate]] = {}
    for key, *values in connection.tuples("documents_of_keys", keys=wanted):
        found.setdefault(key, []).append(_Candidate(*values))
    return found


def _best(candidates: Sequence[_Candidate], own: _Candidate) -> int | None:
    """The document that a citation of `own` means.

    Its own collection first, then the most literal key, then the document itself (a page names
    its own address), then the nearest folder. Another collection counts only if neither of the
    two belongs to a project: what one project holds stays invisible to the others.
    """
    seen = [
        one
        for one in candidates
        if one.collection_id == own.collection_id or (one.is_shared and own.is_shared)
    ]
    if not seen:
        return None
    return min(seen, key=lambda one: _preference(one, own)).document_id


def _preference(one: _Candidate, own: _Candidate) -> tuple[Any, ...]:
    is_foreign = one.collection_id != own.collection_id
    folder, own_folder = posixpath.dirname(one.path), posixpath.dirname(own.path)
    shared = 0 if is_foreign else _shared_folders(folder, own_folder)
    return (
        is_foreign,
        one.rank,
        one.document_id != own.document_id,
        -shared,
        folder.count("/") + bool(folder),
        one.path,
        one.document_id,
    )


def _shared_folders(one: str, other: str) -> int:
    count = 0
    for mine, yours in zip(one.split("/"), other.split("/"), strict=False):
        if not mine or mine != yours:
            break
        count += 1
    return count

"""What a person is shown of a search: rows with a snippet, the file to open, and the reasons."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from kb.model_in_use import ModelInUse
from kb.search.files import SearchedFile
from kb.search.hybrid import FARTHEST
from kb.search.passages import search_files
from kb.search.query import Query
from kb.search.ranking import explained
from kb.search.snippet import nearest_snippets, snippet
from kb.sources.address import document_file
from kb.store.connection import Connection, Row
from kb.store.contents import stored_file
from kb.text.file_names import storable

__all__ = ["file_of", "search_for_people"]

MOST_NEAREST = 10  # rows without a word of the query whose nearest sentence is looked for


def search_for_people(
    files: Sequence[SearchedFile],
    text: str,
    collections: Sequence[str] = (),
    *,
    limit: int = 10,
    rerank: bool = False,
    explain: bool = False,
    distances: bool = True,
    paths: Sequence[str] = (),
) -> tuple[list[dict[str, Any]], str]:
    """The rows, best first, and what to tell the reader.

    To what a client gets of a row come `snippet` with `marks` (start and end of each matched word
    in it), `file` ("" where the document is no file), `changedSinceSync`, and with `explain` its
    ranks and the reasons.

    Args:
        distances: False where nobody sees them, as in `search_passages`.
        paths: globs, as in `search_passages`.

    Raises as `search_passages`.
    """
    asked = [(text, collections)]
    found = search_files(
        files, asked, limit, FARTHEST, True, rerank, distances=distances, paths=paths
    )
    rows: list[dict[str, Any]] = [dict(row) for row in found.rows[0]]
    if explain:
        for row, hit in zip(rows, found.hits[0], strict=True):
            row |= {
                "keywordRank": hit.keyword_rank,
                "vectorRank": hit.vector_rank,
                "why": explained(hit.evidence),
            }
    for file in dict.fromkeys(found.files[0]):
        own = [row for row, origin in zip(rows, found.files[0], strict=True) if origin is file]
        with file.database.read() as connection:
            collections_ = {
                file.names.called(row).collection: row for row in file.names.collections(connection)
            }
            for row in own:
                _add_file(connection, row, collections_.get(row["collection"]))
            query = found.queries[file][0]
            _add_snippets(connection, query, own)
        if not query.is_exact:  # what is there holds its words, and no model is loaded
            _add_nearest(file.model, query, own)
    return rows, found.notice


def file_of(row: Row, sources: Mapping[str, str]) -> str:
    """The file that a row's document was read from, as text; "" where it is not there."""
    name = str(row.get("collectionId", row["collection"]))
    file = document_file(sources.get(name, ""), row["documentId"])
    return storable(file) if os.path.isfile(file) else ""


def _add_file(connection: Connection, row: dict[str, Any], collection: Row | None) -> None:
    """The file that a row's document was read from, and whether it is another one by now."""
    row |= {"file": "", "changedSinceSync": False}
    if collection is None:  # of an index in memory
        return
    file = document_file(collection["source"], row["documentId"])
    with contextlib.suppress(OSError, ValueError):
        status = file.stat()
        if stat.S_ISREG(status.st_mode):
            known = stored_file(connection, collection["collection_id"], row["documentId"])
            row["file"] = storable(file)
            row["changedSinceSync"] = _has_changed(known, status, collection)


def _has_changed(known: Row | None, status: os.stat_result, collection: Row) -> bool:
    """Whether a file is another one than what is stored of it, by its size and time."""
    if known is None or known["file_size"] is None:
        return False
    if known["file_size"] != status.st_size:
        return True
    if known["modified_ns"] is not None:
        return bool(known["modified_ns"] != status.st_mtime_ns)
    # It was too young for its time to be trusted: then the end of the sync must do.
    synced = collection["synced_at"]
    return synced is not None and datetime.fromisoformat(synced).timestamp() + 1 < status.st_mtime


def _add_snippets(connection: Connection, query: Query, rows: Sequence[dict[str, Any]]) -> None:
    """Give each row the piece of its passage that a person is shown, and what to mark in it."""
    for row in rows:
        found = snippet(connection, query, row["content"], _shown_above(row))
        row |= {"snippet": found.text, "marks": found.marks}


def _add_nearest(model: ModelInUse, query: Query, rows: Sequence[dict[str, Any]]) -> None:
    """For rows that hold no word of the query, the sentence that comes nearest to it."""
    wordless = [row for row in rows if not row["marks"]][:MOST_NEAREST]
    passages = [(row["content"], _shown_above(row)) for row in wordless]
    for row, sentence in zip(wordless, nearest_snippets(model, query, passages), strict=True):
        row["snippet"] = sentence or row["snippet"]


def _shown_above(row: Mapping[str, Any]) -> list[str]:
    return [row["documentTitle"], row.get("sectionHeading", "")]

"""What the page shows of the files: collections, a document, what was done and learned."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kb.errors import SourceError
from kb.formats.parse import is_markdown_text
from kb.ingest.discoveries import all_discoveries
from kb.ingest.reach import permitted
from kb.library.citations import links_of_document
from kb.library.resolve import OpenDocument, read_document
from kb.library.workspace import Workspace
from kb.search.files import SearchedFile
from kb.search.results import file_of
from kb.sources.address import local
from kb.store.citation_graph import (
    ENDS,
    Elsewhere,
    citations_made,
    citations_received,
    with_targets,
)
from kb.store.collections import all_collections
from kb.store.connection import Connection, Row
from kb.store.contents import (
    documents_of_collections,
    documents_shown,
    sections_of,
    sizes,
    with_source,
)
from kb.store.sessions import (
    call_statistics,
    details_of_session,
    files_of_session,
    logged_calls,
    newest_sessions,
)


class DocumentView(NamedTuple):
    """A document with all that is shown around it.

    Attributes:
        collection: as `Names.shown` has it, and its own name as "name".
        file: where it was read; "" if that is not a file.
        folder: of its source; None if the file may not read it.
        ends: the documents that it cites or that cite it, by row id, with `shown`: what their
            collection is called.
    """

    collection: dict[str, Any]
    document: Row
    file: str
    folder: Path | None
    is_markdown: bool
    sections: list[Row]
    made: list[Row]
    received: list[Row]
    ends: dict[int, Row]


def view_document(
    workspace: Workspace, collection: str, document: str, max_citations: int
) -> DocumentView:
    """A document, its outline and its citations."""
    elsewhere, received = links_of_document(workspace, f"{collection}/{document}")
    view, file = read_document(
        workspace, document, collection, _view, max_citations, elsewhere, received
    )
    return view._replace(file="", folder=None) if file.is_far else view


def _view(
    reading: OpenDocument, max_citations: int, elsewhere: Elsewhere, from_elsewhere: Sequence[Row]
) -> DocumentView:
    stored, connection, row, file = reading
    sections = sections_of(connection, stored["document_id"])
    made = citations_made(connection, stored["document_id"], max_citations)
    made = with_targets(made, elsewhere)
    received = citations_received(connection, stored["document_id"], max_citations)
    ids = {row[end] for row in (*made, *received) for end in ENDS} - {None}
    shown = documents_shown(connection, ids)
    shown |= {row["document_id"]: row for row in elsewhere.values()}
    for number, citation in enumerate(from_elsewhere[:max_citations], len(elsewhere) + 1):
        shown[-number] = citation["shown"]
        received.append({**citation, "source_document_id": -number})
    ends = {
        id_: {**row, "shown": file.names.called({"name": row["collection"]}).collection}
        for id_, row in shown.items()
    }
    sources = {other["name"]: other["source"] for other in all_collections(connection)}
    folder = None
    with contextlib.suppress(SourceError):
        folder = _folder(file, connection, row)
    place = file_of({"collection": row["name"], "documentId": stored["path"]}, sources)
    called = {**file.names.shown(row), "name": row["name"]}
    is_text = is_markdown_text(stored["content"], stored["path"])
    return DocumentView(called, stored, place, folder, is_text, sections, made, received, ends)


def source_folder(workspace: Workspace, collection: str) -> Path:
    """Where the documents of a collection are; raises SourceError if the file may not read it."""
    with workspace.read_collection(collection) as (connection, row, file):
        return _folder(file, connection, row)


def list_everything(workspace: Workspace) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The collections of all files, each with its file, and totals."""
    rows: dict[str, dict[str, Any]] = {}
    counts: Counter[str] = Counter()
    for file, connection in _read_each(workspace):
        counts.update(sizes(connection))
        documents = documents_of_collections(connection)
        for row in file.names.collections(connection):
            shown = file.names.called(row).collection
            first = {**row, "shown": shown, "documents": 0, "file": file.database.path.name}
            # Other shards have the collection as well.
            rows.setdefault(shown, first)["documents"] += documents[row["collection_id"]]
    return [*rows.values()], counts


def recent_sessions(workspace: Workspace, sessions: int, events: int) -> list[dict[str, Any]]:
    """The newest sessions of all files: what was asked, read and learned in each."""
    rows = []
    for _, connection in _read_each(workspace):
        learned = {row["id"]: row for row in all_discoveries(connection)}
        for row in newest_sessions(connection, sessions):
            details = details_of_session(connection, row["id"], "discovery", events)
            rows.append(
                {
                    **row,
                    "asked": details_of_session(connection, row["id"], "query", events),
                    "read": files_of_session(connection, row["id"], events),
                    "learned": [
                        learned[event["detail"]] for event in details if event["detail"] in learned
                    ],
                }
            )
    rows.sort(key=lambda row: str(row["startedAt"]), reverse=True)
    return rows[:sessions]


def statistics_of_calls(workspace: Workspace) -> list[dict[str, Any]]:
    return call_statistics(logged_calls(connection) for _, connection in _read_each(workspace))


def discoveries_of_files(workspace: Workspace) -> list[dict[str, Any]]:
    """Every discovery; `elsewhere` is the file of one that is not in the writable file."""
    rows: list[dict[str, Any]] = []
    for file, connection in _read_each(workspace):
        elsewhere = "" if file.database is workspace.database else file.database.path.name
        rows += [{**row, "elsewhere": elsewhere} for row in all_discoveries(connection)]
    return rows


def _folder(file: SearchedFile, connection: Connection, row: Row) -> Path:
    return local(permitted(file.database, with_source(connection, row))["source"])


def _read_each(workspace: Workspace) -> Iterator[tuple[SearchedFile, Connection]]:
    for file in workspace.files:
        if not file.database.in_memory:
            with file.database.read() as connection:
                yield file, connection

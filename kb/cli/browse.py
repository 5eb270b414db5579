"""`kb search` and `kb list`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.cli import render, search_results
from kb.search.files import SearchedFile, Together
from kb.store.chunks import count_waiting
from kb.store.connection import Connection, Row
from kb.store.contents import count_documents, documents_page
from kb.store.ids import collection_range
from kb.text.counted import counted
from kb.text.file_names import storable
from kb.tools.session import Session

if TYPE_CHECKING:
    from kb.ingest.registration import SourceRegistration

FEW = 100  # passages that are embedded in two seconds: not worth an answer before


def search(kb: Session, options: argparse.Namespace) -> int:
    """Search, after adding a folder if one is given."""
    names = options.collection
    if options.folder is not None:
        from kb.cli.collect import embed_for_search, register, sync_for_search
        from kb.search.query import parse_query

        parse_query(options.query)  # a query that cannot be asked adds nothing
        registration = register(kb.database, options.folder)
        _require_names(kb, names, registration)
        report = sync_for_search(kb, registration, options)
        if not report.is_stored:
            return search_results.show([], f"{options.folder} holds no document", options)
        names = names or [report.collection]
        waiting = _waiting(kb, report.collection) if not options.no_embed else 0
        if waiting > FEW and render.is_read_as_it_comes(options):
            _answer(kb, names, options)
            render.remark(f"embedding {counted(waiting, 'passage')} for a better answer", options)
        if waiting:
            embed_for_search(kb, report, options)
    return _answer(kb, names, options)


def _waiting(kb: Session, name: str) -> int:
    with kb.database.read() as connection:
        collection = kb.names.collection(connection, name)
        return count_waiting(connection, collection_range(collection["collection_id"]))


def _answer(kb: Session, names: list[str], options: argparse.Namespace) -> int:
    """Print what is found; the exit code."""
    from kb.search.results import search_for_people

    rows, notice = search_for_people(
        kb.files,
        options.query,
        names,
        limit=options.limit,
        rerank=options.rerank,
        explain=options.explain,
        distances=search_results.shows_distances(options),
        paths=options.path,
    )
    notice = " ".join(filter(None, (notice, kb.lost)))
    return search_results.show(rows, notice, options)


def _require_names(kb: Session, names: list[str], registration: SourceRegistration) -> None:
    """Refuse unknown collections before a folder is added, which may be one of them."""
    with kb.database.read() as connection:
        added = registration.plan(connection).row["name"]
        for name in names:
            if name != added:
                kb.names.collection(connection, name)


def list_names(kb: Session, options: argparse.Namespace) -> int:
    """List collections, or one collection's documents."""
    if options.name is None:
        together = Together(kb.files)
        with together.read():
            listed = together.each(_collection_rows)
        rows = [row for own in listed.values() for row in own]
        for notice in filter(None, (*together.lost, kb.lost)):
            render.remark(notice, options)
        columns = ("collection", "documentCount", "kind", "source", "description")
        shown = rows
        if sys.stdout.isatty():
            shown = [{**row, "source": _near(row["source"])} for row in rows]
        render.table({"collections": rows}, shown, columns, options)
        if not rows:
            render.remark("the file holds no collection yet: add one with `kb add FOLDER`", options)
    else:
        with kb.read_collection(options.name) as (connection, collection, file):
            rows = documents_page(connection, collection["collection_id"])
            result = {**file.names.shown(collection), "documents": rows, "total": len(rows)}
        render.table(result, rows, ("id", "title", "size"), options)
    return 0 if rows else 1


def _collection_rows(file: SearchedFile, connection: Connection) -> list[dict[str, Any]]:
    return [
        {
            **file.names.shown(row),
            "documentCount": count_documents(connection, row["collection_id"]),
            "kind": row["kind"],
            "source": row["source"],
            "description": row["description"] or "",
            **({"version": row["version"]} if row["version"] else {}),
            **_told(row),
        }
        for row in file.names.collections(connection)
    ]


def _told(row: Row) -> dict[str, Any]:
    """What a manifest says of a collection beside its version and description."""
    options = json.loads(row["options"])
    pairs = (("baseUrl", options.get("base_url")), ("metadata", options.get("manifest")))
    return {key: value for key, value in pairs if value}


def _near(source: str) -> str:
    """A source as a person would call it."""
    here, home = storable(Path.cwd()), storable(Path.home())
    for folder, short in ((here, ""), (home, "~/")):
        if source.startswith(f"{folder}/"):
            return short + source[len(folder) + 1 :]
    return source

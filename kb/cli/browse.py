"""`kb search`, `kb list`, `kb get`, `kb outline`, `kb section`, `kb related`."""

from __future__ import annotations

import argparse
import json
import os
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.cli import render
from kb.errors import DocumentNotFound, UsageError
from kb.sources.address import local
from kb.store.chunks import count_waiting
from kb.store.contents import count_documents, document_paths, documents_page
from kb.store.database import Row
from kb.store.ids import collection_range
from kb.text.file_names import on_disk, storable
from kb.text.nearest import nearest
from kb.tools.session import Session

if TYPE_CHECKING:
    from kb.ingest.registration import SourceRegistration

FEW = 100  # passages that are embedded in two seconds: not worth an answer before
NO_BUDGET = 1 << 60  # a person's terminal has no context window
_LINES = re.compile(r"(.+?):(\d++)(-?)(\d*+)$")  # "a.md:3", "a.md:3-5", "a.md:3-"


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
            render.search_results([], f"{options.folder} holds no document", options)
            return 1
        names = names or [report.collection]
        waiting = _waiting(kb, report.collection) if not options.no_embed else 0
        if waiting > FEW and render.is_read_as_it_comes(options):
            _answer(kb, names, options)
            render.remark(f"embedding {waiting:,} passages for a better answer", options)
        if waiting:
            embed_for_search(kb, report, options)
    return 0 if _answer(kb, names, options) else 1


def _waiting(kb: Session, name: str) -> int:
    with kb.database.read() as connection:
        collection = kb.names.collection(connection, name)
        return count_waiting(connection, collection_range(collection["collection_id"]))


def _answer(kb: Session, names: list[str], options: argparse.Namespace) -> bool:
    """Print what is found; whether anything is."""
    from kb.search.results import search_for_people

    rows, notice = search_for_people(
        kb.model,
        kb.names,
        options.query,
        names,
        limit=options.limit,
        rerank=options.rerank,
        explain=options.explain,
        distances=options.json or options.format == "json",
    )
    render.search_results(rows, notice, options)
    return bool(rows)


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
        with kb.database.read() as connection:
            rows = [
                {
                    **kb.names.shown(row),
                    "documentCount": count_documents(connection, row["collection_id"]),
                    "kind": row["kind"],
                    "source": row["source"],
                    "description": row["description"] or "",
                    **({"version": row["version"]} if row["version"] else {}),
                    **_told(row),
                }
                for row in kb.names.collections(connection)
            ]
        columns = ("collection", "documentCount", "kind", "source", "description")
        render.table({"collections": rows}, rows, columns, options)
        if not rows:
            render.remark("the file holds no collection yet: add one with `kb add FOLDER`", options)
    else:
        with kb.database.read() as connection:
            collection = kb.names.collection(connection, options.name)
            rows = documents_page(connection, collection["collection_id"])
            result = {**kb.names.shown(collection), "documents": rows, "total": len(rows)}
        render.table(result, rows, ("id", "title", "size"), options)
    return 0 if rows else 1


def _told(row: Row) -> dict[str, Any]:
    """What a manifest says of a collection beside its version and description."""
    options = json.loads(row["options"])
    pairs = (("baseUrl", options.get("base_url")), ("metadata", options.get("manifest")))
    return {key: value for key, value in pairs if value}


def get(kb: Session, options: argparse.Namespace) -> int:
    """Print a document, or some of its lines."""
    text, first, last = options.document, 0, 0
    try:
        collection, document = resolve(kb, text, options.collection)
    except DocumentNotFound:
        if not (match := _LINES.match(text)):
            raise
        text, first = match[1], int(match[2])
        last = int(match[4] or 0) if match[3] else first
        if not first:
            raise UsageError("lines count from 1") from None
        collection, document = resolve(kb, text, options.collection)
    result = _call(
        kb,
        "documents_get_document",
        collection=collection,
        document=document,
        start_line=first,
        end_line=last,
    )
    render.text(result, result["content"], options)
    return 0


def outline(kb: Session, options: argparse.Namespace) -> int:
    """Print a document's headings, indented by level, with their lines."""
    collection, document = resolve(kb, options.document, options.collection)
    result = _call(
        kb,
        "documents_get_outline",
        collection=collection,
        document=document,
        max_depth=options.depth,
    )
    lines = [
        f"{row['line']:>6}  {'  ' * (row['level'] - 1)}{row['text']}" for row in result["outline"]
    ]
    render.text(result, "\n".join(lines), options)
    if not lines:
        render.remark(f"{document} has no headings", options)
    return 0 if lines else 1


def section(kb: Session, options: argparse.Namespace) -> int:
    """Print one section."""
    collection, document = resolve(kb, options.document, options.collection)
    result = _call(
        kb,
        "documents_get_section",
        collection=collection,
        document=document,
        section=options.heading,
        include_subsections=not options.no_subsections,
    )
    render.text(result, result["content"], options)
    return 0


def related(kb: Session, options: argparse.Namespace) -> int:
    """List documents close in meaning."""
    collection, document = resolve(kb, options.document, options.collection)
    result = _call(
        kb, "documents_find_related", collection=collection, document=document, limit=options.limit
    )
    rows = [
        {"score": row["relevanceScore"], "document": row["document"], "title": row["documentTitle"]}
        for row in result["related"]
    ]
    render.table(result, rows, ("score", "document", "title"), options)
    render.remark(result.get("notice", "" if rows else "nothing found"), options)
    return 0 if rows else 1


def _call(kb: Session, name: str, **arguments: Any) -> dict[str, Any]:
    """Run a tool's function for a person: without budget, and with errors raised."""
    # Only now: they bring pydantic, which a search needs not.
    from kb.tools.call import Call
    from kb.tools.registry import load_tools
    from kb.tools.replies import as_json

    result: dict[str, Any] = as_json(
        load_tools()[name].function(Call(kb, budget=NO_BUDGET), **arguments)
    )
    return result


def resolve(kb: Session, text: str, name: str) -> tuple[str, str]:
    """The collection and id of the document that somebody means.

    Tried in order: an id in the named or any collection, `COLLECTION/id`, a path on disk inside
    a collection's folder, the end of one id.
    """
    with kb.database.read() as connection:
        rows = [kb.names.collection(connection, name)] if name else kb.names.collections(connection)
        documents = {row["name"]: document_paths(connection, row["collection_id"]) for row in rows}
    wanted = _normal(text)
    everything = [(name, path) for name, paths in documents.items() for path in paths]
    found = [(name, path) for name, path in everything if _normal(path) == wanted]
    if not found:
        called = {name: name for name in documents} | {
            alias: name for alias, name in kb.names.aliases.items() if name in documents
        }
        found = [
            (name, path)
            for shown, name in called.items()
            for path in documents[name]
            if wanted in (f"{_normal(shown)}/{_normal(path)}", f"{_normal(shown)}:{_normal(path)}")
        ]
    if not found:
        found = _on_disk(text, rows, documents)
    if not found:
        found = [(name, path) for name, path in everything if _normal(path).endswith(f"/{wanted}")]
    if len(found) == 1:
        return found[0]
    if found:
        choices = ", ".join(f"{name}/{path}" for name, path in found[:5])
        raise UsageError(f"{text} names {len(found)} documents: say {choices}")
    where = f'collection "{name}"' if name else "any collection"
    raise DocumentNotFound(
        f'Document "{text}" not found in {where}.',
        suggestions=nearest(text, [path for _, path in everything]),
    )


def _normal(text: str) -> str:
    """A name as it compares: a Mac writes accents apart, keyboards do not."""
    return unicodedata.normalize("NFC", text)


def _on_disk(text: str, rows: list[Row], documents: dict[str, list[str]]) -> list[tuple[str, str]]:
    file = Path(text if os.path.lexists(text) else on_disk(text)).expanduser()
    places = {Path(os.path.normpath(file.absolute())), file.resolve()}
    found = []
    for row in rows:
        root = local(row["source"])
        for place in places:
            if place == root:  # a collection of one file
                path = storable(root.name)
            elif place.is_relative_to(root):
                path = storable(place.relative_to(root).as_posix())
            else:
                continue
            found += [
                (row["name"], p) for p in documents[row["name"]] if _normal(p) == _normal(path)
            ]
    return list(dict.fromkeys(found))

"""`kb cite` and `kb graph`: citations."""

from __future__ import annotations

import argparse
import os
from typing import Any

from kb.cli import render
from kb.cli.graph_formats import FORMATS, to_html
from kb.cli.resolve import resolve
from kb.errors import FileError
from kb.sources.address import document_file
from kb.store.citation_graph import (
    BrokenLink,
    broken_links,
    citation_graph,
    citations_made,
    citations_received,
    document_addresses,
    document_names,
    graph_dict,
    whole_graph,
)
from kb.store.collections import all_collections
from kb.store.database import Connection
from kb.store.graph_picture import graph_picture
from kb.text.file_names import storable
from kb.tools.session import Session

CONTEXT_CHARACTERS = 120


def cite(kb: Session, options: argparse.Namespace) -> int:
    """List what a document cites and what cites it; further away, what the graph holds."""
    collection, path = resolve(kb, options.document, options.collection)
    with kb.database.read() as connection:
        document_id = _document_id(kb, connection, collection, path)
        made = citations_made(connection, document_id)
        received = citations_received(connection, document_id)
        ids = {row[key] for row in (*made, *received) for key in _ENDS} - {None}
        names = document_names(connection, ids | {document_id})
        addresses = document_addresses(connection, ids | {document_id})
        graph = citation_graph(connection, [document_id], options.depth)
    rows = [
        {
            "way": way,
            "line": row["line"],
            "document": names.get(row[end], "") if row[end] is not None else "",
            "target": row["target_url"],
            **addresses.get(row[end], {}),
            "kind": row["kind"],
            "confidence": row["confidence"],
            "context": row["context"],
        }
        for way, end, part in (("cites", _ENDS[1], made), ("cited by", _ENDS[0], received))
        for row in part
    ]
    result: dict[str, Any] = {
        "document": names[document_id],
        **addresses[document_id],
        "citations": rows,
    }
    if options.depth > 1:
        result["citationGraph"] = graph_dict(graph)
    shown = [
        {
            "way": row["way"],
            "page": row["document"] or row["target"],
            "line": row["line"],
            "context": row["context"][:CONTEXT_CHARACTERS],
        }
        for row in rows
    ]
    near = {row["page"] for row in shown} | {result["document"]}
    shown += [
        {"way": "further", "page": node.id, "line": "", "context": node.label}
        for node in (graph.nodes if options.depth > 1 else ())
        if node.id not in near
    ]
    render.table(result, shown, ("way", "page", "line", "context"), options)
    return 0 if rows else 1


def graph(kb: Session, options: argparse.Namespace) -> int:
    """Export the graph of the whole file or round some documents, or report broken links."""
    if options.broken:
        return _broken(kb, options)
    places = [resolve(kb, text, options.collection) for text in options.documents]
    with kb.database.read() as connection:
        if places:
            ids = [_document_id(kb, connection, *place) for place in places]
            found = citation_graph(connection, ids, options.depth)
        else:
            found = whole_graph(connection)
        if options.format == "html":
            shown = {node.id for node in found.nodes}
            text = to_html(graph_picture(connection, _address, shown if places else None))
    if options.format != "html":
        text = FORMATS[options.format or "json"](found)
    if options.output is None:
        print(text)
    else:
        try:
            options.output.expanduser().write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise FileError(f"cannot write {options.output}: {error.strerror}") from error
        if not options.quiet:
            pages, links = len(found.nodes), len(found.edges)
            render.say(f"{options.output}: {pages} pages, {links} citations")
    return 0 if found.nodes else 1


def _address(_: str, path: str, source: str) -> str:
    """The file of a document, for a page that lies on the same disk."""
    file = document_file(source, path)
    return file.resolve().as_uri() if file.is_file() else ""


def _broken(kb: Session, options: argparse.Namespace) -> int:
    with kb.database.read() as connection:
        names = (
            [kb.names.collection(connection, options.collection)["name"]]
            if options.collection
            else ()
        )
        found = broken_links(connection, names)
        sources = {row["name"]: row["source"] for row in all_collections(connection)}
    rows = [
        {
            "collection": one.collection,
            "document": one.path,
            "line": one.line,
            "target": one.url,
            "kind": one.kind,
        }
        for one in found
    ]
    if options.json:
        render.print_json({"broken": rows})
    else:
        for one in found:
            print(f"{_file(one, sources)}:{one.line}: {one.url}")
        if not options.quiet:
            render.say(f"{len(found) or 'no'} broken links")
    return 1 if found else 0


def _file(link: BrokenLink, sources: dict[str, str]) -> str:
    """The file as seen from here, where it is there; else COLLECTION/id."""
    file = document_file(sources.get(link.collection, ""), link.path)
    if not file.is_file():
        return f"{link.collection}/{link.path}"
    near = os.path.relpath(file)
    return storable(file if near.startswith("..") else near)


def _document_id(kb: Session, connection: Connection, collection: str, path: str) -> int:
    found = kb.names.collection(connection, collection)
    return int(kb.names.document(connection, found, path, collection)["document_id"])


_ENDS = ("source_document_id", "target_document_id")

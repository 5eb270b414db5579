"""`kb cite` and `kb graph`: citations."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from kb.cli import render
from kb.cli.graph_formats import FORMATS, to_html
from kb.cli.resolve import resolve
from kb.errors import FileError
from kb.search.files import SearchedFile, Together
from kb.sources.address import document_file
from kb.store.citation_graph import (
    BrokenLink,
    Graph,
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
from kb.store.connection import Connection, Row
from kb.store.database import Database
from kb.store.graph_picture import graph_picture
from kb.text.counted import counted
from kb.text.file_names import storable
from kb.tools.session import Session

T = TypeVar("T")

CONTEXT_CHARACTERS = 120


def cite(kb: Session, options: argparse.Namespace) -> int:
    """List what a document cites and what cites it; further away, what the graph holds."""
    collection, path = resolve(kb, options.document, options.collection)
    with kb.read_collection(collection) as (connection, row, file):
        document_id = _document_id(file, connection, row, path)
        made = citations_made(connection, document_id)
        received = citations_received(connection, document_id)
        ids = {row[key] for row in (*made, *received) for key in _ENDS} - {None}
        names = {
            id_: file.names.everywhere(name)
            for id_, name in document_names(connection, ids | {document_id}).items()
        }
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
    asked: dict[Database, list[int]] = {}
    for collection, path in places:
        with kb.read_collection(collection) as (connection, row, file):
            asked.setdefault(file.database, []).append(_document_id(file, connection, row, path))

    def part(file: SearchedFile, connection: Connection) -> Graph:
        if not places:
            return _renamed(whole_graph(connection), file)
        ids = asked.get(file.database, [])
        return _renamed(citation_graph(connection, ids, options.depth), file) if ids else Graph()

    found = _joined(_each(kb, part, options))
    if options.format == "html":
        # A picture shows the clusters of one file.
        shown = {node.id for node in found.nodes}
        with kb.database.read() as connection:
            text = to_html(graph_picture(connection, _address, shown if places else None))
    else:
        text = FORMATS[options.format or "json"](found)
    if options.output is None:
        print(text)
    else:
        try:
            options.output.expanduser().write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise FileError(f"cannot write {options.output}: {error.strerror}") from error
        if not options.quiet:
            pages = counted(len(found.nodes), "page")
            render.say(f"{options.output}: {pages}, {counted(len(found.edges), 'citation')}")
    return 0 if found.nodes else 1


def _address(_: str, path: str, source: str) -> str:
    """The file of a document, for a page that lies on the same disk."""
    file = document_file(source, path)
    return file.resolve().as_uri() if os.path.isfile(file) else ""


def _renamed(graph: Graph, file: SearchedFile) -> Graph:
    """A file's graph with names as they are among all files."""
    name = file.names.everywhere
    return Graph(
        [replace(node, id=name(node.id)) for node in graph.nodes],
        [replace(edge, source=name(edge.source), target=name(edge.target)) for edge in graph.edges],
    )


def _joined(parts: Sequence[Graph]) -> Graph:
    """Graphs of several files as one; a page that two of them cite is there once."""
    nodes = {node.id: node for part in reversed(parts) for node in part.nodes}
    ids = dict.fromkeys(node.id for part in parts for node in part.nodes)
    return Graph([nodes[id_] for id_ in ids], [edge for part in parts for edge in part.edges])


def _each(
    kb: Session,
    work: Callable[[SearchedFile, Connection], T],
    options: argparse.Namespace,
) -> list[T]:
    """What some work on each file gives; what cannot be read is told."""
    together = Together(kb.files)
    with together.read():
        found = list(together.each(work).values())
    for notice in filter(None, (*together.lost, kb.lost)):
        render.remark(notice, options)
    return found


def _broken(kb: Session, options: argparse.Namespace) -> int:
    if options.collection:
        with kb.read_collection(options.collection):
            pass  # raises, with the near names

    def look(file: SearchedFile, connection: Connection) -> tuple[list[BrokenLink], dict[str, str]]:
        names: list[str] = []
        if options.collection:
            row = file.names.find(connection, options.collection)
            if row is None:
                return [], {}
            names = [row["name"]]
        rename = file.names.everywhere
        links = [
            replace(link, collection=rename(link.collection))
            for link in broken_links(connection, names)
        ]
        return links, {rename(row["name"]): row["source"] for row in all_collections(connection)}

    parts = _each(kb, look, options)
    found = [link for links, _ in parts for link in links]
    sources = {name: source for _, own in parts for name, source in own.items()}
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
            render.say(counted(len(found), "broken link") if found else "no broken links")
    return 1 if found else 0


def _file(link: BrokenLink, sources: dict[str, str]) -> str:
    """The file as seen from here, where it is there; else COLLECTION/id."""
    file = document_file(sources.get(link.collection, ""), link.path)
    if not os.path.isfile(file):
        return f"{link.collection}/{link.path}"
    near = os.path.relpath(file)
    return storable(file if near.startswith("..") else near)


def _document_id(file: SearchedFile, connection: Connection, collection: Row, path: str) -> int:
    shown = file.names.called(collection).collection
    return int(file.names.document(connection, collection, path, shown)["document_id"])


_ENDS = ("source_document_id", "target_document_id")

"""The citation graph: who cites whom round some documents, and links that lead nowhere."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from kb.sources.address import local
from kb.store.addresses import address_fields
from kb.store.citation_keys import PAGE_SUFFIX
from kb.store.citations import with_sentences
from kb.store.collections import with_source
from kb.store.connection import Connection, Row
from kb.store.contents import documents_shown

ALL = -1  # a LIMIT


@dataclass(frozen=True, slots=True)
class Node:
    """A document, or a cited page that the file does not hold."""

    id: str  # COLLECTION/path, or the address as written
    label: str  # title, or the address
    type: str  # "source" cites, "target" is cited, "both"; a lone document is a source
    is_external: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """A document cites something; the surest of its citations of it counts."""

    source: str
    target: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes (documents first, in the order of their ids) and edges, one for each ordered pair."""

    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class BrokenLink:
    """A link whose target is neither a document nor, where that can be seen, a file."""

    collection: str
    path: str
    line: int
    url: str
    kind: str


def citations_made(connection: Connection, document_id: int, limit: int = ALL) -> list[Row]:
    """The citations that a document makes, in order."""
    rows = connection.rows("citations_made", document_id=document_id, limit=limit)
    return with_sentences(connection, rows)


def citations_received(connection: Connection, document_id: int, limit: int = ALL) -> list[Row]:
    """The citations that other documents make to one, the surest first."""
    rows = connection.rows("citations_received", document_id=document_id, limit=limit)
    return with_sentences(connection, rows)


def citation_graph(connection: Connection, document_ids: Sequence[int], depth: int) -> Graph:
    """The graph within `depth` steps of some documents, followed both ways."""
    rows = connection.rows(
        "citation_graph", document_ids=json.dumps(list(document_ids)), depth=depth
    )
    return _graph(connection, rows, document_ids)


def whole_graph(connection: Connection) -> Graph:
    """The graph of all documents that cite or are cited."""
    return _graph(connection, connection.rows("whole_citation_graph"), ())


def document_names(connection: Connection, document_ids: Iterable[int]) -> dict[int, str]:
    """COLLECTION/path of each document: an id that is unique in the file."""
    rows = documents_shown(connection, document_ids).values()
    return {row["document_id"]: f"{row['collection']}/{row['path']}" for row in rows}


def document_addresses(
    connection: Connection, document_ids: Iterable[int]
) -> dict[int, dict[str, str]]:
    """Where each of these documents is read on the web, as `address_fields`."""
    rows = documents_shown(connection, document_ids).values()
    return {row["document_id"]: address_fields(row, row["path"]) for row in rows}


def broken_links(connection: Connection, collections: Iterable[str] = ()) -> list[BrokenLink]:
    """Links to files and pages that resolve nowhere, by file and line.

    A link to a file that is no document, such as a picture or a script, is broken only if its
    collection's folder is there and does not hold it.
    """
    names = set(collections)
    return [
        BrokenLink(row["collection"], row["path"], row["line"], row["target_url"], row["kind"])
        for row in _unresolved(connection)
        if (not names or row["collection"] in names) and not leads_to_file(row)
    ]


def _unresolved(connection: Connection) -> Iterator[Row]:
    return (with_source(connection, row) for row in connection.rows("unresolved_links"))


def graph_dict(graph: Graph) -> dict[str, Any]:
    """Nodes and edges as in the archive tool's `citationGraph`."""
    return {
        "nodes": [{"id": node.id, "label": node.label, "type": node.type} for node in graph.nodes],
        "edges": [
            {"from": edge.source, "to": edge.target, "confidence": edge.confidence}
            for edge in graph.edges
        ],
    }


def _graph(connection: Connection, rows: Sequence[Row], start: Sequence[int]) -> Graph:
    ids = {*start, *(row["source"] for row in rows)}
    ids |= {row["target"] for row in rows if row["target"] is not None}
    documents = documents_shown(connection, ids).values()
    names = {row["document_id"]: f"{row['collection']}/{row['path']}" for row in documents}
    titles = {names[row["document_id"]]: row["title"] for row in documents}
    # One spelling for every way in which a page's address was written.
    spelled: dict[str, str] = {}
    for row in rows:
        if row["target"] is None:
            known = spelled.get(row["target_key"], row["target_url"])
            spelled[row["target_key"]] = min(known, row["target_url"])
    external = {key: _unlike(url, titles) for key, url in spelled.items()}
    edges = [
        Edge(
            names[row["source"]],
            external[row["target_key"]] if row["target"] is None else names[row["target"]],
            row["confidence"],
        )
        for row in rows
    ]
    citing = {edge.source for edge in edges}
    cited = {edge.target for edge in edges}

    def kind(id_: str) -> str:
        if id_ in cited:
            return "both" if id_ in citing else "target"
        return "source"

    nodes = [Node(id_, titles[id_], kind(id_)) for id_ in sorted(titles)]
    nodes += [Node(url, url, "target", True) for url in sorted(set(external.values()))]
    edges.sort(key=lambda edge: (edge.source, edge.target))
    return Graph(nodes, edges)


def _unlike(url: str, taken: Iterable[str]) -> str:
    """A broken relative link may look like a document's id."""
    return f"{url} (missing)" if url in taken else url


def is_web_key(target_key: str) -> bool:
    """Whether a citation's key is that of a page of the web, not of a document or file."""
    return target_key.startswith("url:")


def leads_to_file(row: Row) -> bool:
    """Whether an unresolved link leads to a file that is no document, such as a picture."""
    root = local(row["source"]) if row["source"] else None
    if root is not None and root.is_file():
        root = root.parent
    if row["kind"] == "ref":  # a label is no file
        return False
    if row["kind"] in ("wiki", "doc", "toctree"):
        name = row["target_url"].partition("#")[0]
        places = [os.path.join(os.path.dirname(row["path"]), name), name.lstrip("/")]
    else:
        # The key holds the path below the root; it may lead out of it.
        places = [row["target_key"].partition("/")[2]]
        name = unquote(row["target_url"].partition("#")[0].partition("?")[0])
    if root is None or not root.is_dir():
        # Nobody can look: what is no document by its name gets the benefit of the doubt.
        suffix = os.path.splitext(name.rstrip("/"))[1]
        return bool(suffix) and not PAGE_SUFFIX.search(name)
    try:
        return any((root / place).exists() for place in places)
    except (OSError, ValueError):
        return False

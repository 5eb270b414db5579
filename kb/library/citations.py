"""Citations between documents, and broken links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from kb.errors import UsageError
from kb.library.resolve import OpenDocument, read_document
from kb.library.workspace import Workspace
from kb.results.citations import BrokenLink, BrokenLinks, CitationRow, Citations, Graph
from kb.search.files import SearchedFile
from kb.store.citation_graph import (
    ENDS,
    STATES,
    Address,
    citation_graph,
    citations_made,
    citations_received,
    drawn_citations,
    links_and_states,
    picture_of,
)
from kb.store.connection import Connection
from kb.store.contents import address_fields, documents_shown
from kb.store.database import Database


class Citing(Workspace):
    def cite(self, document: str, *, collection: str = "", depth: int = 1) -> Citations:
        """What a document cites and what cites it, with lines and sentences.

        Args:
            depth: from 2 on, also the graph that far around the document.
        """
        return read_document(self, document, collection, _citations, depth)[0]

    def graph(
        self,
        documents: Sequence[str] = (),
        *,
        collection: str = "",
        depth: int = 1,
        states: bool = True,
    ) -> Graph:
        """The citation graph of all documents, or around some of them.

        Args:
            states: give nodes and edges the state of their links: see `BrokenLinks`.
        """
        roots: dict[Database, list[int]] = {}
        for document in documents:
            document_id, holder = read_document(self, document, collection, _document_id)
            if holder.is_far:
                raise UsageError(f"{document} lies with a worker: graphs are of files here")
            roots.setdefault(holder.database, []).append(document_id)

        def part(file: SearchedFile, connection: Connection) -> Graph:
            ids = roots.get(file.database, []) if documents else None
            if ids == []:
                return Graph([], [])
            return _renamed(citation_graph(connection, ids, depth, with_states=states), file)

        parts, notice = self.read_each(part)
        # A page that two files cite is there once.
        nodes = {node.id: node for graph in reversed(parts) for node in graph.nodes}
        ids = dict.fromkeys(node.id for graph in parts for node in graph.nodes)
        edges = [edge for graph in parts for edge in graph.edges]
        return Graph([nodes[id_] for id_ in ids], edges, notice)

    def graph_picture(
        self, address: Address, within: Collection[str] | None = None
    ) -> dict[str, Any]:
        """The graph as a page draws it: nodes with their folders, edges with their sentences.

        Args:
            address: maps a document's collection, id and source to where it opens, or "".
            within: ids (COLLECTION/id) of the first file's documents to draw; by default all
                documents of all files that have a citation.
        """
        if within is not None:  # a picture shows the clusters of one file
            with self.database.read() as connection:
                return picture_of(drawn_citations(connection), address, within)
        parts, _ = self.read_each(
            lambda file, connection: drawn_citations(connection, file.names.told_apart)
        )
        return picture_of((row for part in parts for row in part), address)

    def broken_links(self, *, collection: str = "") -> BrokenLinks:
        """Broken links by file and line, of all collections unless one is named; and how many links
        are resolved, external, not in the tree and broken.
        """
        if collection:
            with self.read_collection(collection):
                pass  # raises with the nearest names

        def look(
            file: SearchedFile, connection: Connection
        ) -> tuple[list[BrokenLink], dict[str, int]]:
            names: list[str] = []
            if collection:
                if (row := file.names.find(connection, collection)) is None:
                    return [], {}
                names = [row["name"]]
            links, counts = links_and_states(connection, names)
            name = file.names.everywhere
            return [replace(link, collection=name(link.collection)) for link in links], counts

        parts, notice = self.read_each(look)
        states = sum((Counter(counts) for _, counts in parts), Counter[str]())
        return BrokenLinks(
            broken=[link for links, _ in parts for link in links],
            states={state: states[state] for state in STATES},
            notice=notice,
        )


def _document_id(reading: OpenDocument) -> int:
    return int(reading.row["document_id"])


def _citations(reading: OpenDocument, depth: int) -> Citations:
    connection, file = reading.connection, reading.file
    document_id = reading.row["document_id"]
    made = citations_made(connection, document_id)
    received = citations_received(connection, document_id)
    ids = {row[end] for row in (*made, *received) for end in ENDS} - {None} | {document_id}
    shown = documents_shown(connection, ids)
    names = file.names.of_documents(shown)
    addresses = {id_: address_fields(row, row["path"]) for id_, row in shown.items()}
    graph = None
    if depth > 1:
        graph = _renamed(citation_graph(connection, [document_id], depth), file)
    return Citations(
        document=names[document_id],
        **addresses[document_id],
        citations=[
            CitationRow.from_dict(
                {
                    **row,
                    **addresses.get(row[end], {}),
                    "way": way,
                    "document": names.get(row[end], ""),
                    "target": row["target_url"],
                }
            )
            for way, end, part in (("cites", ENDS[1], made), ("cited by", ENDS[0], received))
            for row in part
        ],
        citation_graph=graph,
    )


def _renamed(part: Graph, file: SearchedFile) -> Graph:
    name = file.names.everywhere
    return Graph(
        [replace(node, id=name(node.id)) for node in part.nodes],
        [replace(edge, source=name(edge.source), target=name(edge.target)) for edge in part.edges],
    )

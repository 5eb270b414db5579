"""Citations between documents, and broken links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kb.library.resolve import OpenDocument, read_document, resolve
from kb.library.shard_links import citations_from_elsewhere, ids_of, links_elsewhere
from kb.library.workspace import Workspace
from kb.results.citations import (
    BrokenLink,
    BrokenLinks,
    CitationRow,
    Citations,
    Graph,
    GraphEdge,
    GraphNode,
)
from kb.search.files import SearchedFile, Together, read_together
from kb.store.citation_graph import (
    ENDS,
    NOWHERE,
    RESOLVED,
    STATES,
    Address,
    Elsewhere,
    citation_graph,
    citations_made,
    citations_received,
    drawn_citations,
    links_and_states,
    picture_of,
    with_targets,
)
from kb.store.connection import Connection, Row
from kb.store.contents import address_fields, documents_shown
from kb.text.counted import as_texts


class Citing(Workspace):
    def cite(self, document: str, *, collection: str = "", depth: int = 1) -> Citations:
        """What a document cites and what cites it, with lines and sentences.

        Args:
            depth: from 2 on, also the graph that far around the document.
        """
        elsewhere, received = NOWHERE, list[Row]()
        if len(self.everywhere) > 1:
            if not collection:
                collection, document = resolve(self, document, "")
            name, _ = read_document(self, document, collection, _name_of)
            elsewhere, received = links_of_document(self, name)
        citations, _ = read_document(self, document, collection, _citations, elsewhere)
        rows = [*citations]
        for row in received:
            address = address_fields(row["shown"], row["shown"]["path"])
            rows.append(_row(row, "cited by", row["source"], address))
        if received:
            made = sum(row.way == "cites" for row in rows)
            rows[made:] = sorted(rows[made:], key=lambda row: (-row.confidence, row.document))
        graph = None
        if depth > 1:
            graph = self.graph([document], collection=collection, depth=depth, states=False)
        return replace(citations, citations=rows, citation_graph=graph)

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
        names = None
        if documents:
            reads = (
                read_document(self, name, collection, _name_of) for name in as_texts(documents)
            )
            names = {name for name, _ in reads}
        files, notice = self.everywhere, self.lost

        def read(together: Together) -> list[Graph]:
            if names is None or len(files) == 1:
                return _graphs(together, names, depth, states)
            parts: list[Graph] = []
            near, seen = names, set[str]()
            for _ in range(depth):  # step by step, since each may lead to another file
                parts += _graphs(together, near - seen, 1, states)
                seen |= near
                near = {n.id for part in parts for n in part.nodes if not n.is_external}
            return parts

        parts, lost = read_together(files, read)
        return _joined(parts, " ".join(filter(None, [*lost, notice])))

    def graph_picture(
        self, address: Address, within: Collection[str] | None = None
    ) -> dict[str, Any]:
        """The graph as a page draws it: nodes with their folders, edges with their sentences.

        Args:
            address: maps a document's collection, id and source to where it opens, or "".
            within: ids (COLLECTION/id) of the documents to draw; by default all that have a
                citation.
        """
        parts, _ = read_together(
            self.everywhere,
            lambda together: together.each(_drawn, of=links_elsewhere(together)),
        )
        return picture_of((row for part in parts.values() for row in part), address, within)

    def broken_links(self, *, collection: str = "") -> BrokenLinks:
        """Broken links by file and line, of all collections unless one is named; and how many links
        are resolved, external, not in the tree and broken.
        """
        if collection:
            with self.read_collection(collection):
                pass  # raises with the nearest names

        files, notice = self.everywhere, self.lost
        answers, lost = read_together(
            files,
            lambda together: together.each(_links, collection, of=links_elsewhere(together)),
        )
        parts = answers.values()
        states = sum((Counter(counts) for _, counts in parts), Counter[str]())
        return BrokenLinks(
            broken=[link for links, _ in parts for link in links],
            states={state: states[state] for state in STATES},
            notice=" ".join(filter(None, [*lost, notice])),
        )


def links_of_document(workspace: Workspace, name: str) -> tuple[Elsewhere, list[Row]]:
    """What a document's links to other shards lead to, and the citations that come from there."""
    if len(files := workspace.everywhere) == 1:
        return NOWHERE, []
    (of_files, received), _ = read_together(
        files,
        lambda together: (
            links_elsewhere(together, [name]),
            citations_from_elsewhere(together, [name]),
        ),
    )
    elsewhere = {key: row for of_file in of_files.values() for key, row in of_file.items()}
    return elsewhere, received.get(name, [])


def _name_of(reading: OpenDocument) -> str:
    row = reading.row
    return reading.file.names.everywhere(f"{reading.collection['name']}/{row['path']}")


def _graphs(
    together: Together, names: Collection[str] | None, depth: int, states: bool
) -> list[Graph]:
    """The graph of each file, and what shards say of documents of others."""
    elsewhere = links_elsewhere(together, names)
    parts = [*together.each(_graph, names, depth, states, of=elsewhere).values()]
    received = citations_from_elsewhere(together, names) if names else {}
    state = RESOLVED if states else ""
    for target, rows in received.items():
        edges = [GraphEdge(row["source"], target, row["confidence"], state) for row in rows]
        titles = {row["source"]: row["shown"]["title"] for row in rows}
        nodes = [GraphNode(id_, title, "source", state=state) for id_, title in titles.items()]
        parts.append(Graph(nodes, edges))
    return parts


def _graph(
    file: SearchedFile,
    connection: Connection,
    names: Collection[str] | None,
    depth: int,
    states: bool,
    elsewhere: Elsewhere,
) -> Graph:
    """A file's part of a graph, a step."""
    ids = None if names is None else [*ids_of(file, connection, names).values()]
    if ids == []:
        return Graph([], [])
    graph = citation_graph(connection, ids, depth, with_states=states, elsewhere=elsewhere)
    name = file.names.everywhere
    return Graph(
        [replace(node, id=name(node.id)) for node in graph.nodes],
        [replace(edge, source=name(edge.source), target=name(edge.target)) for edge in graph.edges],
    )


def _joined(parts: Sequence[Graph], notice: str) -> Graph:
    """Graphs of several files, or steps, as one: a page that two files cite is there once."""
    if len(parts) == 1:
        return replace(parts[0], notice=notice)
    edges: dict[tuple[str, str], GraphEdge] = {}
    for edge in (edge for part in parts for edge in part.edges):
        other = edges.get((edge.source, edge.target), edge)
        surest, worst = max(edge.confidence, other.confidence), max(edge, other, key=_badness).state
        edges[edge.source, edge.target] = replace(edge, confidence=surest, state=worst)
    citing, cited = {source for source, _ in edges}, {target for _, target in edges}
    nodes: dict[str, GraphNode] = {}
    for node in (node for part in parts for node in part.nodes):
        kind = "target" if node.id in cited else "source"
        kind = "both" if node.id in citing & cited else kind
        if node.id not in nodes or nodes[node.id].is_external:
            nodes[node.id] = replace(node, type=kind)
    ordered = sorted(nodes.values(), key=lambda node: (node.is_external, node.id))
    return Graph(ordered, [edges[ends] for ends in sorted(edges)], notice)


def _badness(edge: GraphEdge) -> int:
    return ("", *STATES).index(edge.state)


def _drawn(file: SearchedFile, connection: Connection, elsewhere: Elsewhere) -> list[Row]:
    return drawn_citations(connection, file.names.told_apart, elsewhere)


def _links(
    file: SearchedFile, connection: Connection, collection: str, elsewhere: Elsewhere
) -> tuple[list[BrokenLink], dict[str, int]]:
    """A file's broken links, and how many are in each state, a step."""
    names: list[str] = []
    if collection:
        if (row := file.names.find(connection, collection)) is None:
            return [], {}
        names = [row["name"]]
    links, counts = links_and_states(connection, names, elsewhere)
    name = file.names.everywhere
    return [replace(link, collection=name(link.collection)) for link in links], counts


def _citations(reading: OpenDocument, elsewhere: Elsewhere) -> Citations:
    connection, file = reading.connection, reading.file
    document_id = reading.row["document_id"]
    made = with_targets(citations_made(connection, document_id), elsewhere)
    received = citations_received(connection, document_id)
    ids = {row[end] for row in (*made, *received) for end in ENDS} - {None} | {document_id}
    others = {row["document_id"]: row for row in elsewhere.values()}
    shown = documents_shown(connection, ids) | others
    names = file.names.of_documents(shown)
    addresses = {id_: address_fields(row, row["path"]) for id_, row in shown.items()}
    return Citations(
        document=names[document_id],
        **addresses[document_id],
        citation_graph=None,
        citations=[
            _row(row, way, names.get(row[end], ""), addresses.get(row[end], {}))
            for way, end, part in (("cites", ENDS[1], made), ("cited by", ENDS[0], received))
            for row in part
        ],
    )


def _row(row: Row, way: str, document: str, address: Mapping[str, str]) -> CitationRow:
    fields = {"way": way, "document": document, "target": row["target_url"]}
    return CitationRow.from_dict({**row, **address, **fields})

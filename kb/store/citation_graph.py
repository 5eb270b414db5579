"""The citation graph: who cites whom round some documents, and links that are broken."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kb.results.citations import BrokenLink, Graph, GraphEdge, GraphNode
from kb.sources.address import document_file
from kb.store.citations import with_sentences
from kb.store.connection import Connection, Row
from kb.store.contents import address_fields, documents_shown
from kb.store.link_states import BROKEN, RESOLVED, STATES, link_states

ALL = -1  # a LIMIT


def citations_made(connection: Connection, document_id: int, limit: int = ALL) -> list[Row]:
    rows = connection.rows("citations_made", document_id=document_id, limit=limit)
    return with_sentences(connection, rows)


def citations_received(connection: Connection, document_id: int, limit: int = ALL) -> list[Row]:
    """The citations that other documents make to one, the surest first."""
    rows = connection.rows("citations_received", document_id=document_id, limit=limit)
    return with_sentences(connection, rows)


def citation_graph(
    connection: Connection,
    document_ids: Sequence[int] | None,
    depth: int = 1,
    *,
    with_states: bool = False,
) -> Graph:
    """The graph within some steps of some documents, both ways; of all with None.

    `with_states`: nodes and edges have the state of their links, an edge that of the worst.
    """
    if document_ids is None:
        rows = connection.rows("whole_citation_graph")
    else:
        rows = connection.rows("citation_graph", document_ids=[*document_ids], depth=depth)
    states: dict[tuple[int, int | str], str] = {}
    if with_states:
        for row in link_states(connection, sorted({row["source"] for row in rows})):
            pair = row["source_document_id"], row["target_document_id"] or row["target_key"]
            states[pair] = max(states.get(pair, ""), row["state"], key=("", *STATES).index)
    return _graph(connection, rows, document_ids or (), states)


def document_names(connection: Connection, document_ids: Iterable[int]) -> dict[int, str]:
    """COLLECTION/path of each document, unique in the file."""
    rows = documents_shown(connection, document_ids).values()
    return {row["document_id"]: f"{row['collection']}/{row['path']}" for row in rows}


def document_addresses(
    connection: Connection, document_ids: Iterable[int]
) -> dict[int, dict[str, str]]:
    """Where each document is read on the web, as `address_fields`."""
    rows = documents_shown(connection, document_ids).values()
    return {row["document_id"]: address_fields(row, row["path"]) for row in rows}


def links_and_states(
    connection: Connection, collections: Iterable[str] = ()
) -> tuple[list[BrokenLink], dict[str, int]]:
    """Broken links, by file and line, and how many links are in each state."""
    names = set(collections)
    rows = [row for row in link_states(connection) if not names or row["collection"] in names]
    counts = Counter(row["state"] for row in rows)
    broken = [
        BrokenLink(
            collection=row["collection"],
            document=row["path"],
            line=row["line"],
            target=row["target_url"],
            kind=row["kind"],
            missing="target" if row["has_section"] else "section",
            file=str(file) if os.path.isfile(file) else "",
        )
        for row in rows
        if row["state"] == BROKEN
        for file in [document_file(row["source"] or "", row["path"])]
    ]
    return broken, {state: counts[state] for state in STATES}


def broken_links(connection: Connection, collections: Iterable[str] = ()) -> list[BrokenLink]:
    return links_and_states(connection, collections)[0]


def _graph(
    connection: Connection,
    rows: Sequence[Row],
    start: Sequence[int],
    states: Mapping[tuple[int, int | str], str],
) -> Graph:
    ids = {*start, *(row["source"] for row in rows)}
    ids |= {row["target"] for row in rows if row["target"] is not None}
    documents = documents_shown(connection, ids).values()
    names = {row["document_id"]: f"{row['collection']}/{row['path']}" for row in documents}
    titles = {names[row["document_id"]]: row["title"] for row in documents}
    collections = {row["document_id"]: row["collection"] for row in documents}
    # One spelling for every way in which a page's address was written.
    spelled: dict[str, str] = {}
    external: dict[str, str] = {}
    for row in rows:
        if row["target"] is None:
            key, url = row["target_key"], row["target_url"]
            spelled[key] = min(spelled.get(key, url), url)
            external[key] = place_of(key, spelled[key], collections[row["source"]])
    labels: dict[str, str] = {}  # of what is not a document
    for key, place in sorted(external.items()):
        while place in titles or place in labels:
            place += " (missing)"
        external[key] = place
        labels[place] = spelled[key]
    edges = [
        GraphEdge(
            names[row["source"]],
            external[row["target_key"]] if row["target"] is None else names[row["target"]],
            row["confidence"],
            states.get((row["source"], row["target"] or row["target_key"]), ""),
        )
        for row in rows
    ]
    edges.sort(key=lambda edge: (edge.source, edge.target))
    citing = {edge.source for edge in edges}
    cited = {edge.target for edge in edges}
    kinds = {id_: "target" if id_ in cited else "source" for id_ in titles}
    kinds |= dict.fromkeys(citing & cited, "both")
    state = RESOLVED if states else ""
    nodes = [GraphNode(id_, titles[id_], kinds[id_], False, state) for id_ in sorted(titles)]
    worst = {edge.target: edge.state for edge in edges}
    nodes += [
        GraphNode(place, url, "target", True, worst[place]) for place, url in sorted(labels.items())
    ]
    return Graph(nodes, edges)


def place_of(target_key: str, url: str, collection: str) -> str:
    """A unique name for a citation's target that is not a document.

    A path or label counts from the citing document's collection: two folders that each lack their
    own `missing.md` lack two files. A page is the same for everybody, however it is written.
    """
    scope, _, place = target_key.partition(":")
    is_of_collection = scope in ("path", "label", "file", "elsewhere")
    return f"{collection}/{place.partition('/')[2]}" if is_of_collection else url

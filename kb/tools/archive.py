"""The archive family: search research reports and captured pages, with their citations."""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from typing import Annotated

from pydantic import Field

from kb.errors import KbError
from kb.results.archives import ArchiveRow
from kb.results.base import Listing, Result, estimate_tokens
from kb.results.citations import Graph, GraphEdge, GraphNode
from kb.tools.call import Call, join
from kb.tools.registry import tool

log = logging.getLogger("kb.tools")

FAILURE = "Failed to search local archives: "
GRAPH_SHARE = 0.4  # of the reply, at most


class Metadata(Result):
    total_results: int
    query: str
    fuzzy: bool
    include_citations: bool
    citation_depth: int
    limit: int


class ArchiveReply(Listing[ArchiveRow]):
    results: list[ArchiveRow]
    citation_graph: Graph | None = None
    metadata: Metadata
    truncated: bool | None = None
    notice: str | None = None


@tool(
    name="searchLocalArchives",
    title="Search local archives",
    example={"query": "machine learning", "fuzzy": True, "includeCitations": True, "limit": 5},
    read_only=False,  # the first call brings the environment's archives up to date
    serves_readers=True,
)
def search_local_archives(
    call: Call,
    query: Annotated[
        str, Field(description='Words. Operators: +must -mustnot "exact phrase" prefix*.')
    ],
    fuzzy: Annotated[
        bool, Field(description="Also misspelt and longer words, below exact ones.")
    ] = True,
    include_citations: Annotated[bool, Field(description="With citations.")] = False,
    citation_depth: Annotated[
        int, Field(description="Steps that the graph follows.", ge=1, le=3)
    ] = 1,
    limit: Annotated[int, Field(description="Most documents.", ge=1, le=50)] = 10,
) -> ArchiveReply:
    """Search the local archives of research reports and captured web pages, best document first.

    With includeCitations each result lists what it cites (citing) and what cites it (cited);
    citationGraph is the neighbourhood to citationDepth steps.
    """
    settings = Metadata(
        total_results=0,
        query=query,
        fuzzy=fuzzy,
        include_citations=include_citations,
        citation_depth=citation_depth,
        limit=limit,
    )
    try:
        return _search(call, settings)
    except KbError as error:
        raise type(error)(FAILURE + error.message, **error.details) from error


def _search(call: Call, metadata: Metadata) -> ArchiveReply:
    problems: list[str] = []
    try:
        if call.session.rights.may_write:
            is_synced, problems = call.base.sync_archives()
            if is_synced:
                call.session.activity.added.set()
        documents = call.base.search_archives(
            metadata.query,
            fuzzy=metadata.fuzzy,
            limit=metadata.limit,
            citations=metadata.include_citations,
        )
        has_graph = metadata.include_citations and documents.results
        for_graph = int(call.reply_tokens * GRAPH_SHARE) if has_graph else 0
        notice = join(documents.notice or "", *(f"{problem}." for problem in problems))
        reply = call.shorten(
            ArchiveReply(results=documents.results, metadata=metadata, notice=notice),
            "{total} documents were found; lower the limit.",
            spare=for_graph,
        )
        graph, cut = None, documents.citations_cut
        if for_graph:
            ids = [row.document.id for row in documents.results[: len(reply)]]
            graph, less = _graph(call, ids, metadata.citation_depth, for_graph)
            cut = ", ".join(filter(None, (cut, less)))
    except KbError:
        raise
    except Exception as error:
        call.base.require_sound(error)
        log.exception("searchLocalArchives failed")
        raise KbError(f"{type(error).__name__}: {error}") from error
    left_out = f"The reply is full: {cut}; `kb graph` exports all." if cut else ""
    return replace(
        reply,
        citation_graph=graph,
        metadata=replace(metadata, total_results=len(reply)),
        truncated=bool(cut) or reply.truncated,
        notice=join(left_out, reply.notice or ""),
    )


def _graph(call: Call, documents: list[str], depth: int, tokens: int) -> tuple[Graph, str]:
    """The citations around some documents, as many as fit, and what was left out."""
    graph = call.base.graph(documents, depth=depth, states=False)
    if estimate_tokens(str(graph.to_dict())) <= tokens:
        return graph, ""
    kept = _graph_within(graph, set(documents), tokens)
    if len(kept.edges) == len(graph.edges):
        return kept, ""
    return kept, f"the graph shows {len(kept.edges)} of {len(graph.edges)} citations"


def _graph_within(graph: Graph, results: set[str], tokens: float) -> Graph:
    """Edges at the results first, as many as fit, with their nodes."""
    nodes = {node.id: node for node in graph.nodes}
    kept: list[GraphEdge] = []
    used: dict[str, GraphNode] = {}
    for id_ in sorted(results & nodes.keys()):
        tokens -= _cost(nodes[id_])
        if tokens < 0:
            break
        used[id_] = nodes[id_]
    for edge in sorted(graph.edges, key=lambda e: not (e.source in results or e.target in results)):
        ends = [id_ for id_ in (edge.source, edge.target) if id_ not in used]
        tokens -= _cost(edge) + sum(_cost(nodes[id_]) for id_ in ends)
        if tokens < 0:
            break
        kept.append(edge)
        used |= {id_: nodes[id_] for id_ in ends}
    return Graph([node for node in graph.nodes if node.id in used], kept)


def _cost(part: GraphNode | GraphEdge) -> int:
    values = {name: value for name, value in asdict(part).items() if name not in part.unsent}
    return estimate_tokens(" ".join(f"{name}={value!r}" for name, value in values.items()))

"""The archive family: search research reports and captured pages, and who cites whom."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from kb.errors import KbError
from kb.formats.archive import RESEARCH
from kb.ingest.archives import sync_configured_archives
from kb.search.archives import FoundDocument, search_archives
from kb.store.citation_graph import citation_graph, document_names, graph_dict
from kb.store.database import Connection, Row
from kb.tools.call import Call
from kb.tools.registry import tool
from kb.tools.replies import add_notice, cut, estimate_tokens

log = logging.getLogger("kb.tools")

FAILURE = "Failed to search local archives: "
MOST_CITATIONS = 100  # of one document, one way
GRAPH_SHARE = 0.4  # of the reply, at most


class ArchiveDocument(TypedDict):
    id: str
    title: str
    path: str
    source: str
    date: str
    score: float
    collection: str
    startLine: int
    endLine: int


class Highlight(TypedDict):
    field: str
    snippets: list[str]


class Citation(TypedDict):
    sourceId: str
    targetId: NotRequired[str]
    targetUrl: str
    context: str
    confidence: float


class Citations(TypedDict):
    citing: list[Citation]
    cited: list[Citation]


class ArchiveRow(TypedDict):
    document: ArchiveDocument
    highlights: list[Highlight]
    citations: NotRequired[Citations]


class GraphNode(TypedDict):
    id: str
    label: str
    type: str


GraphEdge = TypedDict("GraphEdge", {"from": str, "to": str, "confidence": float})


class CitationGraph(TypedDict):
    nodes: list[GraphNode]
    edges: list[GraphEdge]


class Metadata(TypedDict):
    totalResults: int
    query: str
    fuzzy: bool
    includeCitations: bool
    citationDepth: int
    limit: int


class ArchiveResults(TypedDict):
    results: list[ArchiveRow]
    citationGraph: NotRequired[CitationGraph]
    metadata: Metadata
    truncated: NotRequired[bool]
    notice: NotRequired[str]


@tool(
    family="archive",
    title="Search local archives",
    example={"query": "machine learning", "fuzzy": True, "includeCitations": True, "limit": 5},
    read_only=False,  # the first call brings the environment's archives up to date
)
def searchLocalArchives(  # noqa: N802 - the contract's name
    call: Call,
    query: Annotated[
        str,
        Field(description='The search query. Operators: +must, -mustnot, "exact phrase", prefix*.'),
    ],
    fuzzy: Annotated[
        bool, Field(description="Also find misspelt and longer words, below exact matches.")
    ] = True,
    includeCitations: Annotated[  # noqa: N803
        bool, Field(description="Include citation information.")
    ] = False,
    citationDepth: Annotated[  # noqa: N803
        int, Field(description="How many steps of citations the graph follows.", ge=1, le=3)
    ] = 1,
    limit: Annotated[int, Field(description="Maximum number of results.", ge=1, le=50)] = 10,
) -> ArchiveResults:
    """Search the local archives of research reports and captured web pages, best document first.

    With includeCitations each result says which pages it cites (citing) and which documents cite
    it (cited), and citationGraph holds the neighbourhood to citationDepth steps.
    """
    try:
        if sync_configured_archives(call.database):
            call.session.activity.note_addition()
        found, notice = search_archives(call.model, call.names, query, fuzzy=fuzzy, limit=limit)
        result: Any = {"results": [_row(one) for one in found]}
        if includeCitations:
            with call.read() as connection:
                _add_citations(call, connection, result, found, citationDepth)
    except KbError as error:
        raise type(error)(FAILURE + error.message, **error.details) from error
    except Exception as error:
        log.exception("searchLocalArchives failed")
        raise KbError(f"{FAILURE}{type(error).__name__}: {error}") from error
    kept = call.fit(result["results"])
    if len(kept) < len(found):
        cut(result, f"The reply is full: {len(found)} documents were found; lower the limit.")
    result["results"] = kept
    result["metadata"] = {
        "totalResults": len(kept),
        "query": query,
        "fuzzy": fuzzy,
        "includeCitations": includeCitations,
        "citationDepth": citationDepth,
        "limit": limit,
    }
    add_notice(result, notice)
    return result  # type: ignore[no-any-return]


def _row(found: FoundDocument) -> dict[str, Any]:
    row = found.row
    return {
        "document": {
            "id": f"{row['collection']}/{row['path']}",
            "title": row["title"],
            "path": f"{_folder_name(row)}/{row['path']}",
            "source": row["source"] or RESEARCH,
            "date": row["date"] or "",
            "score": round(found.score, 4),
            "collection": row["collection"],
            "startLine": found.passage["start_line"],
            "endLine": found.passage["end_line"],
        },
        "highlights": [{"field": name, "snippets": pieces} for name, pieces in found.highlights],
    }


def _folder_name(row: Row) -> str:
    """The name of an archive's folder, which a person looks for on the disk."""
    folder: str = row["folder"] or row["collection"]
    return folder.rstrip("/").rpartition("/")[2] or folder


def _add_citations(
    call: Call,
    connection: Connection,
    result: Any,
    found: Sequence[FoundDocument],
    depth: int,
) -> None:
    if not found:
        return
    ids = [one.row["document_id"] for one in found]
    listed = [_citations(connection, document_id) for document_id in ids]
    names = document_names(connection, _documents_in(listed))
    shortened = False
    for row, (citing, cited) in zip(result["results"], listed, strict=True):
        row["citations"] = {
            "citing": [_citation(one, names) for one in citing[:MOST_CITATIONS]],
            "cited": [_citation(one, names) for one in cited[:MOST_CITATIONS]],
        }
        shortened |= len(citing) > MOST_CITATIONS or len(cited) > MOST_CITATIONS
    graph = graph_dict(citation_graph(connection, ids, depth))
    whole = len(graph["edges"])
    budget = int(call.reply_tokens * GRAPH_SHARE)
    if estimate_tokens(str(graph)) > budget:
        graph = _graph_within(graph, {row["document"]["id"] for row in result["results"]}, budget)
    result["citationGraph"] = graph
    left_out = []
    if shortened:
        left_out.append(f"of a document's citations the first {MOST_CITATIONS} are listed")
    if len(graph["edges"]) < whole:
        left_out.append(f"the graph shows {len(graph['edges'])} of {whole} citations")
    if left_out:
        cut(result, f"The reply is full: {', '.join(left_out)}; `kb graph` exports all.")


def _citations(connection: Connection, document_id: int) -> tuple[list[Row], list[Row]]:
    most = MOST_CITATIONS + 1
    return (
        connection.rows("citations_made", document_id=document_id, limit=most),
        connection.rows("citations_received", document_id=document_id, limit=most),
    )


def _documents_in(listed: Sequence[tuple[list[Row], list[Row]]]) -> set[int]:
    ids: set[int] = set()
    for ways in listed:
        for rows in ways:
            for row in rows:
                ids |= {row["source_document_id"], row["target_document_id"]} - {None}
    return ids


def _citation(row: Row, names: dict[int, str]) -> dict[str, Any]:
    citation = {
        "sourceId": names[row["source_document_id"]],
        "targetUrl": row["target_url"],
        "context": row["context"],
        "confidence": row["confidence"],
    }
    if row["target_document_id"] is not None:
        citation["targetId"] = names[row["target_document_id"]]
    return citation


def _graph_within(graph: dict[str, Any], results: set[str], tokens: int) -> dict[str, Any]:
    """The edges at the results first, as many as fit, with their nodes."""
    nodes = {node["id"]: node for node in graph["nodes"]}
    near = sorted(graph["edges"], key=lambda e: not (e["from"] in results or e["to"] in results))
    edges, used = [], {id_: nodes[id_] for id_ in sorted(results)}
    tokens -= estimate_tokens(str(list(used.values())))
    for edge in near:
        ends = [id_ for id_ in (edge["from"], edge["to"]) if id_ not in used]
        tokens -= estimate_tokens(str(edge)) + sum(estimate_tokens(str(nodes[i])) for i in ends)
        if tokens < 0:
            break
        edges.append(edge)
        used |= {id_: nodes[id_] for id_ in ends}
    return {"nodes": [node for node in graph["nodes"] if node["id"] in used], "edges": edges}

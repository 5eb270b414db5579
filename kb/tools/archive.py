"""The archive family: search research reports and captured pages, and who cites whom."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from kb.errors import KbError
from kb.formats.archive_kinds import RESEARCH
from kb.search.archives import NO_ARCHIVE, FoundDocument, search_archives
from kb.search.files import SearchedFile
from kb.store.addresses import address_of
from kb.store.citation_graph import (
    Graph,
    citation_graph,
    citations_made,
    citations_received,
    document_names,
    graph_dict,
)
from kb.store.connection import Connection, Row
from kb.tools.call import Call
from kb.tools.registry import tool
from kb.tools.replies import CamelReply, CamelRow, estimate_tokens, said
from kb.tools.searches import from_each

log = logging.getLogger("kb.tools")

FAILURE = "Failed to search local archives: "
MOST_CITATIONS = 100  # of one document, one way
GRAPH_SHARE = 0.4  # of the reply, at most


class ArchiveDocument(CamelReply):
    id: str
    title: str
    path: str
    url: str | None = None
    source: str
    date: str
    score: float
    collection: str
    start_line: int
    end_line: int


class Highlight(CamelReply):
    field: str
    snippets: list[str]


class Citation(CamelReply):
    source_id: str
    target_id: str | None = None
    target_url: str
    context: str
    confidence: float


class Citations(CamelReply):
    citing: list[Citation]
    cited: list[Citation]


class ArchiveRow(CamelRow):
    document: ArchiveDocument
    highlights: list[Highlight]
    citations: Citations | None = None


class GraphNode(CamelReply):
    id: str
    label: str
    type: str


class GraphEdge(CamelReply):
    source: Annotated[str, Field(alias="from")]
    target: Annotated[str, Field(alias="to")]
    confidence: float


class CitationGraph(CamelReply):
    nodes: list[GraphNode]
    edges: list[GraphEdge]


class Metadata(CamelReply):
    total_results: int
    query: str
    fuzzy: bool
    include_citations: bool
    citation_depth: int
    limit: int


class ArchiveResults(CamelReply):
    results: list[ArchiveRow]
    citation_graph: CitationGraph | None = None
    metadata: Metadata
    truncated: bool | None = None
    notice: str | None = None


@tool(
    family="archive",
    name="searchLocalArchives",
    title="Search local archives",
    example={"query": "machine learning", "fuzzy": True, "includeCitations": True, "limit": 5},
    read_only=False,  # the first call brings the environment's archives up to date
    serves_readers=True,
)
def search_local_archives(
    call: Call,
    query: Annotated[
        str,
        Field(description='The search query. Operators: +must, -mustnot, "exact phrase", prefix*.'),
    ],
    fuzzy: Annotated[
        bool, Field(description="Also find misspelt and longer words, below exact matches.")
    ] = True,
    include_citations: Annotated[bool, Field(description="Include citation information.")] = False,
    citation_depth: Annotated[
        int, Field(description="How many steps of citations the graph follows.", ge=1, le=3)
    ] = 1,
    limit: Annotated[int, Field(description="Maximum number of results.", ge=1, le=50)] = 10,
) -> ArchiveResults:
    """Search the local archives of research reports and captured web pages, best document first.

    With includeCitations each result says which pages it cites (citing) and which documents cite
    it (cited), and citationGraph holds the neighbourhood to citationDepth steps.
    """
    from kb.ingest.archives import sync_configured_archives  # here: it brings all that syncs

    graph = None
    try:
        named, wrong = call.project.archives()
        knowledge = call.session.knowledge
        if call.session.rights.may_write and sync_configured_archives(knowledge, named):
            call.session.activity.note_addition()
        found, notice = _search(call, query, fuzzy, limit)
        citing, cut = _all_citations(found) if include_citations else ([None] * len(found), "")
        rows = [
            _row(file, one, citations) for (file, one), citations in zip(found, citing, strict=True)
        ]
        for_graph = int(call.reply_tokens * GRAPH_SHARE) if include_citations and found else 0
        fitted = replace(call, budget=call.reply_tokens - for_graph).fit(
            rows, "{total} documents were found; lower the limit."
        )
        if for_graph:
            graph, less = _whole_graph(found[: len(fitted.rows)], citation_depth, for_graph)
            cut = ", ".join(filter(None, (cut, less)))
    except KbError as error:
        raise type(error)(FAILURE + error.message, **error.details) from error
    except Exception as error:
        _require_sound(call, error)
        log.exception("searchLocalArchives failed")
        raise KbError(f"{FAILURE}{type(error).__name__}: {error}") from error
    left_out = f"The reply is full: {cut}; `kb graph` exports all." if cut else ""
    return ArchiveResults(
        results=fitted.rows,
        citation_graph=graph,
        metadata=Metadata(
            total_results=len(fitted.rows),
            query=query,
            fuzzy=fuzzy,
            include_citations=include_citations,
            citation_depth=citation_depth,
            limit=limit,
        ),
        truncated=bool(fitted.notice or left_out) or None,
        notice=said(left_out, fitted.notice, notice, *(f"{problem}." for problem in wrong)),
    )


def _require_sound(call: Call, failure: Exception) -> None:
    from kb.store.health import require_sound  # here: it is hardly ever needed

    try:
        require_sound(call.database, failure)
    except KbError as error:
        raise type(error)(FAILURE + error.message, **error.details) from error


def _search(
    call: Call, query: str, fuzzy: bool, limit: int
) -> tuple[list[tuple[SearchedFile, FoundDocument]], str]:
    """The best documents of all files, each with its file, and what to tell the reader."""
    parts, lost = from_each(
        call.session,
        lambda file: search_archives(file.model, file.names, query, fuzzy=fuzzy, limit=limit),
    )
    notices = {notice for _, (_, notice) in parts}
    worth = [notice for notice in notices if notice != NO_ARCHIVE or len(notices) == 1]
    found = [(file, one) for file, (own, _) in parts for one in own]
    if len(parts) > 1:
        found.sort(key=lambda pair: -pair[1].score)
    return found[:limit], " ".join(filter(None, [*sorted(worth), lost]))


def _by_file(
    found: Sequence[tuple[SearchedFile, FoundDocument]],
) -> dict[SearchedFile, list[FoundDocument]]:
    by_file: dict[SearchedFile, list[FoundDocument]] = {}
    for file, one in found:
        by_file.setdefault(file, []).append(one)
    return by_file


def _all_citations(
    found: Sequence[tuple[SearchedFile, FoundDocument]],
) -> tuple[list[Citations | None], str]:
    """Who cites whom in each document's own file, in order, and what of it was left out."""
    cited: dict[tuple[SearchedFile, int], Citations] = {}
    cut = ""
    for file, own in _by_file(found).items():
        with file.database.read() as connection:
            some, less = _cited(file, connection, own)
        cited |= {(file, document_id): citations for document_id, citations in some.items()}
        cut = cut or less
    return [cited.get((file, one.row["document_id"])) for file, one in found], cut


def _whole_graph(
    found: Sequence[tuple[SearchedFile, FoundDocument]], depth: int, tokens: int
) -> tuple[CitationGraph, str]:
    """The citations round some documents, those of each file, and what of them was left out."""
    whole = CitationGraph(nodes=[], edges=[])
    cut: list[str] = []
    by_file = _by_file(found)
    for file, own in by_file.items():
        ids = [one.row["document_id"] for one in own]
        with file.database.read() as connection:
            graph, less = _graph(connection, ids, depth, tokens * len(own) // len(found))
        whole.nodes += [
            node.model_copy(update={"id": file.names.everywhere(node.id)}) for node in graph.nodes
        ]
        whole.edges += [
            edge.model_copy(
                update={
                    "source": file.names.everywhere(edge.source),
                    "target": file.names.everywhere(edge.target),
                }
            )
            for edge in graph.edges
        ]
        cut.append(less)
    return whole, ", ".join(filter(None, cut))


def _row(file: SearchedFile, found: FoundDocument, citations: Citations | None) -> ArchiveRow:
    row = found.row
    return ArchiveRow(
        document=ArchiveDocument(
            id=file.names.everywhere(f"{row['collection']}/{row['path']}"),
            title=row["title"],
            path=f"{_folder_name(row)}/{row['path']}",
            url=address_of(row, row["path"]),
            source=row["source"] or RESEARCH,
            date=row["date"] or "",
            score=round(found.score, 4),
            collection=file.names.everywhere(row["collection"]),
            start_line=found.passage["start_line"],
            end_line=found.passage["end_line"],
        ),
        highlights=[Highlight(field=name, snippets=pieces) for name, pieces in found.highlights],
        citations=citations,
    )


def _folder_name(row: Row) -> str:
    """The name of an archive's folder, which a person looks for on the disk."""
    folder: str = row["folder"] or row["collection"]
    return folder.rstrip("/").rpartition("/")[2] or folder


def _cited(
    file: SearchedFile, connection: Connection, found: Sequence[FoundDocument]
) -> tuple[dict[int, Citations], str]:
    """Who cites whom, by document, and what of it was left out."""
    ids = [one.row["document_id"] for one in found]
    listed = [_citations(connection, document_id) for document_id in ids]
    names = {
        document_id: file.names.everywhere(name)
        for document_id, name in document_names(connection, _documents_in(listed)).items()
    }
    shortened = any(len(rows) > MOST_CITATIONS for ways in listed for rows in ways)
    return (
        {
            document_id: Citations(
                citing=[_citation(one, names) for one in citing[:MOST_CITATIONS]],
                cited=[_citation(one, names) for one in cited[:MOST_CITATIONS]],
            )
            for document_id, (citing, cited) in zip(ids, listed, strict=True)
        },
        f"of a document's citations the first {MOST_CITATIONS} are listed" if shortened else "",
    )


def _graph(
    connection: Connection, ids: Sequence[int], depth: int, tokens: int
) -> tuple[CitationGraph, str]:
    """The citations round some documents, as many as fit, and what of them was left out."""
    graph = citation_graph(connection, ids, depth)
    kept = _graph_within(graph, set(document_names(connection, ids).values()), tokens)
    if len(kept.edges) == len(graph.edges):
        return kept, ""
    return kept, f"the graph shows {len(kept.edges)} of {len(graph.edges)} citations"


def _citations(connection: Connection, document_id: int) -> tuple[list[Row], list[Row]]:
    most = MOST_CITATIONS + 1
    return (
        citations_made(connection, document_id, most),
        citations_received(connection, document_id, most),
    )


def _documents_in(listed: Sequence[tuple[list[Row], list[Row]]]) -> set[int]:
    ids: set[int] = set()
    for ways in listed:
        for rows in ways:
            for row in rows:
                ids |= {row["source_document_id"], row["target_document_id"]} - {None}
    return ids


def _citation(row: Row, names: dict[int, str]) -> Citation:
    target = row["target_document_id"]
    return Citation(
        source_id=names[row["source_document_id"]],
        target_id=names[target] if target is not None else None,
        target_url=row["target_url"],
        context=row["context"],
        confidence=row["confidence"],
    )


def _graph_within(graph: Graph, results: set[str], tokens: float) -> CitationGraph:
    """The edges at the results first, as many as fit, with their nodes."""
    nodes = {
        node.id: GraphNode(id=node.id, label=node.label, type=node.type) for node in graph.nodes
    }
    edges = [
        GraphEdge(source=edge.source, target=edge.target, confidence=edge.confidence)
        for edge in graph.edges
    ]
    if estimate_tokens(str(graph_dict(graph))) <= tokens:
        return CitationGraph(nodes=list(nodes.values()), edges=edges)
    kept: list[GraphEdge] = []
    used: dict[str, GraphNode] = {}
    for id_ in sorted(results & nodes.keys()):
        tokens -= estimate_tokens(str(nodes[id_]))
        if tokens < 0:
            break
        used[id_] = nodes[id_]
    for edge in sorted(edges, key=lambda e: not (e.source in results or e.target in results)):
        ends = [id_ for id_ in (edge.source, edge.target) if id_ not in used]
        tokens -= estimate_tokens(str(edge)) + sum(estimate_tokens(str(nodes[i])) for i in ends)
        if tokens < 0:
            break
        kept.append(edge)
        used |= {id_: nodes[id_] for id_ in ends}
    return CitationGraph(nodes=[node for node in nodes.values() if node.id in used], edges=kept)

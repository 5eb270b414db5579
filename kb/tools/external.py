"""The external family: a project's own documentation folder, searched and never written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from kb.errors import (
    DamagedFileError,
    EmbeddingError,
    ExternalDocsNotConfigured,
    FileError,
    ProjectNotActivated,
)
from kb.model_in_use import calibration_of, has_english_model
from kb.models.choose import how_to_get
from kb.search.hybrid import search
from kb.search.operators import enforced
from kb.search.query import parse_query
from kb.store.chunks import count_waiting
from kb.store.contents import count_documents, counts_by_kind
from kb.store.ids import collection_range
from kb.store.projects import external_documents
from kb.text.counted import counted
from kb.tools.call import Call
from kb.tools.parameters import LONGEST_NAME
from kb.tools.registry import tool
from kb.tools.replies import Reply, Row, said

if TYPE_CHECKING:
    from kb.project.config import ActiveProject

# Passages of each list that are ranked: all of a documentation of some thousand pages, so that
# total_matches counts every document.
DEPTH = 2000


DEFAULT_LIMIT = 10
EMBEDDING_SECONDS = 10.0  # an activation waits so long for vectors
UNFINISHED = (
    "Not all passages are embedded yet: the rest is done in the background and found as it comes."
)


class DocumentType(Reply):
    name: str
    doc_count: int


class SyncProblem(Reply):
    path: str
    message: str


class ExternalDocsReport(Reply):
    path: str
    added: int
    updated: int
    deleted: int
    unchanged: int
    errors: list[SyncProblem]


class ActivationResult(Reply):
    status: str
    project_name: str
    branch_name: str
    path_hash: str
    doc_types: list[DocumentType]
    total_docs: int
    external_docs: ExternalDocsReport | None = None
    warnings: list[str] | None = None
    notice: str | None = None


class ExternalRow(Row):
    path: str
    title: str
    summary: str | None = None
    char_count: int
    relevance_score: float
    start_line: int
    end_line: int


class ExternalResults(Reply):
    results: list[ExternalRow]
    total_matches: int
    external_docs_path: str
    truncated: bool | None = None
    notice: str | None = None


@tool(family="external", title="Activate a project", example={}, read_only=False)
def activate_project(
    call: Call,
    config_path: Annotated[
        str,
        Field(
            description="The project's .kb/config.json or .csharp-compounding-docs/config.json, or "
            "its folder; empty: the nearest one upwards from the working directory.",
            max_length=LONGEST_NAME,
        ),
    ] = "",
    branch_name: Annotated[
        str,
        Field(
            description="Branch to file the documents under; empty: as git says.",
            max_length=LONGEST_NAME,
        ),
    ] = "",
) -> ActivationResult:
    """Make a project the active one and sync its external documentation.

    Call it once before search_external_docs. Later changes of the files are followed by
    themselves; call it again after the configuration changed, or for another project.
    """
    result = call.project.activate(
        config_path,
        branch_name,
        progress=call.progress,
        seconds=EMBEDDING_SECONDS,
    )
    active = result.active
    with call.read() as connection:
        types = counts_by_kind(connection, active.project_id)
    docs = None
    if result.report is not None:
        docs = ExternalDocsReport(
            path=_docs_path(active),
            added=result.report.added,
            updated=result.report.updated,
            deleted=result.report.removed,
            unchanged=result.report.unchanged,
            errors=[SyncProblem(**problem) for problem in result.report.errors],
        )
    return ActivationResult(
        status="activated",
        project_name=active.project.config.project_name,
        branch_name=active.project.branch,
        path_hash=active.project.path_hash,
        doc_types=[DocumentType(**row) for row in types],
        total_docs=sum(row["doc_count"] for row in types),
        external_docs=docs,
        warnings=result.warnings or None,
        notice=UNFINISHED if result.waiting else None,
    )


@tool(
    family="external",
    title="Search external documentation",
    example={"query": "how is a request authenticated?", "limit": 5},
)
def search_external_docs(
    call: Call,
    query: Annotated[
        str,
        Field(description="Search query, words or a question.", min_length=1, max_length=10_000),
    ],
    limit: Annotated[
        int,
        Field(
            description="Maximum results.",
            ge=1,
            le=100,
            # 0 stands for "not asked for", when the configuration's default_limit counts.
            json_schema_extra={"default": DEFAULT_LIMIT},
        ),
    ] = 0,
    min_relevance_score: Annotated[
        float,
        Field(
            description="Minimum relevance threshold; the project config's "
            "semantic_search.min_relevance_score wins over it.",
            ge=0,
            le=1,
        ),
    ] = 0.7,
) -> ExternalResults:
    """Search external project documentation (read-only). Requires `external_docs` to be configured in project config.

    One row a document, at its most relevant passage. Call activate_project first.
    """  # noqa: E501 - the first line is what clients of the founding specification know
    active = call.project.active
    if active is None:
        raise ProjectNotActivated(
            "No project is currently activated. Call activate_project first.",
            requiredTool="activate_project",
        )
    if active.collection is None:
        raise _not_configured(active.project.config_file)
    settings = active.project.config.semantic_search
    if settings is not None and settings.min_relevance_score is not None:
        min_relevance_score = settings.min_relevance_score
    if not limit:
        limit = (settings.default_limit if settings is not None else None) or DEFAULT_LIMIT
    try:
        scored, waiting, notice = _matches(call, active, query)
    except FileError as error:
        raise DamagedFileError(
            "Failed to search external documents.", innerMessage=error.message
        ) from error
    rows = [row for row in scored if row.relevance_score >= min_relevance_score]
    fitted = call.fit(rows[:limit], "lower the limit.")
    below = ""
    if scored and not rows:
        best = scored[0]
        below = (
            f"No document reaches the relevance {min_relevance_score:g}; the nearest, "
            f"{best.path}, has {best.relevance_score:g}."
        )
    unseen = (
        f"{counted(waiting, 'passage is', 'passages are')} not embedded yet: judged by words alone."
        if waiting
        else ""
    )
    return ExternalResults(
        results=fitted.rows,
        total_matches=len(rows),
        external_docs_path=_docs_path(active),
        truncated=fitted.truncated,
        notice=said(fitted.notice, below, notice, unseen),
    )


def _matches(call: Call, active: ActiveProject, text: str) -> tuple[list[ExternalRow], int, str]:
    """One row for each document, best first, how many passages wait for vectors, and a notice."""
    assert active.collection is not None
    query = parse_query(text)
    place = collection_range(active.collection["collection_id"])
    with call.read() as connection:
        waiting = count_waiting(connection, place)
        if query.is_blank or not count_documents(connection, active.collection["collection_id"]):
            return [], waiting, query.notice
    vector = _embedded(call, query.words_to_embed)
    with call.read() as connection:
        query, filters, loosened = enforced(connection, query, [place])
        hits = search(
            connection,
            query,
            vector,
            ranges=[place],
            limit=2 * DEPTH,
            depth=DEPTH,
            calibration=calibration_of(connection),
            english_model=has_english_model(connection),
            filters=filters,
        )
        by_chunk = external_documents(connection, (hit.chunk_id for hit in hits))
    prefix = _docs_path(active).replace("\\", "/").rstrip("/")
    rows: dict[int, ExternalRow] = {}
    for hit in hits:  # best first, so that each document is met at its best passage
        document = by_chunk.get(hit.chunk_id)
        if document is None or document["document_id"] in rows:
            continue
        rows[document["document_id"]] = ExternalRow(
            path=f"{prefix}/{document['path']}",
            title=document["title"],
            summary=document["summary"] or None,
            char_count=document["character_count"],
            relevance_score=hit.score,
            start_line=document["start_line"],
            end_line=document["end_line"],
        )
    return list(rows.values()), waiting, " ".join(filter(None, (query.notice, loosened)))


def _embedded(call: Call, text: str) -> Any:
    try:
        vectors = call.model.embed_queries([text])
        if vectors is None:
            # There are documents but no vector: the model failed when they were synced.
            call.model.embedder().embed_queries([text])
            raise EmbeddingError(
                "the documents have no embeddings yet; call activate_project again"
            )
    except EmbeddingError as error:
        model = call.model.model_name()
        raise EmbeddingError(
            f"Failed to generate embeddings with the model {model}: {error.message}. "
            f"If the model is missing, {how_to_get(model)}.",
            innerMessage=error.message,
            model=model,
        ) from error
    return vectors[0]


def _not_configured(config_file: str) -> ExternalDocsNotConfigured:
    return ExternalDocsNotConfigured(
        "external_docs is not configured in project config. "
        f"Add 'external_docs.path' to your {config_file} file.",
        configFile=config_file,
        exampleConfig={
            "external_docs": {
                "path": "./docs",
                "include_patterns": ["**/*.md"],
                "exclude_patterns": ["**/node_modules/**"],
            }
        },
    )


def _docs_path(active: ActiveProject) -> str:
    """The folder as the configuration writes it."""
    docs = active.project.config.external_docs
    return docs.path if docs is not None else ""

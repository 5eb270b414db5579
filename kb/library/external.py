"""A project's own documentation folder: activated and searched, never written."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Unpack

from kb.errors import DamagedFileError, ExternalDocsNotConfigured, FileError, ProjectNotActivated
from kb.ingest.report import Progress
from kb.library.workspace import Workspace
from kb.results.external import (
    ActivationResult,
    DocumentType,
    ExternalDocsReport,
    ExternalResults,
    ExternalRow,
    SyncProblem,
)
from kb.results.filters import FilterOptions
from kb.search.families import ExternalPolicy
from kb.search.files import SearchedFile
from kb.search.filters import DocumentFilter
from kb.search.run import SearchRequest, run
from kb.store.contents import collection_range, count_waiting, counts_by_kind
from kb.text.counted import counted

if TYPE_CHECKING:
    from kb.project.in_use import ActiveProject

DEFAULT_LIMIT = 10
UNFINISHED = (
    "Not all passages are embedded yet: the rest is done in the background and found as it comes."
)


class External(Workspace):
    def activate(
        self,
        config_path: str = "",
        *,
        branch: str = "",
        progress: Progress | None = None,
        seconds: float = math.inf,
    ) -> ActivationResult:
        """Make a project the active one and sync its external documentation.

        Args:
            config_path: its configuration or folder; by default the nearest upwards.
            branch: to file the documents under; by default git's.
            seconds: how long to embed.

        Raises:
            ConfigurationError: the configuration is missing or unusable.
            PermissionDenied: another project is being served.
        """
        result = self.project.activate(config_path, branch, progress=progress, seconds=seconds)
        active, report = result.active, result.report
        types: Counter[str] = Counter()
        for base in self.shards_here:
            with base.database.read() as connection:
                # Only the first has what belongs to projects.
                project_id = active.project_id if base.database is self.database else 0
                for row in counts_by_kind(connection, project_id):
                    types[row["name"]] += row["doc_count"]
        docs = None
        if report is not None:
            docs = ExternalDocsReport(
                path=docs_path(active),
                added=report.added,
                updated=report.updated,
                deleted=report.removed,
                unchanged=report.unchanged,
                errors=[SyncProblem(**problem) for problem in report.errors],
            )
        return ActivationResult(
            status="activated",
            project_name=active.project.config.project_name,
            branch_name=active.project.branch,
            path_hash=active.project.path_hash,
            doc_types=[DocumentType(name=name, doc_count=types[name]) for name in sorted(types)],
            total_docs=types.total(),
            external_docs=docs,
            warnings=result.warnings or None,
            notice=UNFINISHED if result.waiting else None,
        )

    def search_external(
        self,
        query: str,
        *,
        limit: int = 0,
        min_relevance_score: float = 0.7,
        **filters: Unpack[FilterOptions],
    ) -> ExternalResults:
        """The active project's documentation: documents of some relevance or more, best first.

        Args:
            limit: 0 for the project's configured limit.
            min_relevance_score: 0 to 1; the configuration overrides it.

        Raises:
            ProjectNotActivated, ExternalDocsNotConfigured: there is nothing to search.
            DamagedFileError, EmbeddingError: the file or the model cannot be used.
        """
        active = self.project.active
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
        documents = DocumentFilter.of(filters)
        try:
            scored, waiting, notice = _matches(self, active, query, documents)
        except FileError as error:
            raise DamagedFileError(
                "Failed to search external documents.", innerMessage=error.message
            ) from error
        rows = [row for row in scored if row.relevance_score >= min_relevance_score]
        notices = [notice]
        if scored and not rows:
            notices.insert(
                0,
                f"No document reaches the relevance {min_relevance_score:g}; the nearest, "
                f"{scored[0].path}, has {scored[0].relevance_score:g}.",
            )
        if waiting:
            are = counted(waiting, "passage is", "passages are")
            notices.append(f"{are} not embedded yet: judged by words alone.")
        shown = rows[:limit]
        if documents.sort == "date":
            shown.sort(key=lambda row: row.date or "", reverse=True)
        return ExternalResults(
            results=shown,
            total_matches=len(rows),
            external_docs_path=docs_path(active),
            notice=" ".join(filter(None, notices)) or None,
        )


def _matches(
    workspace: Workspace, active: ActiveProject, text: str, documents: DocumentFilter
) -> tuple[list[ExternalRow], int, str]:
    """One row per document, best first; how many passages wait for vectors; and a notice."""
    assert active.collection is not None
    collection_id = active.collection["collection_id"]
    with workspace.database.read() as connection:
        waiting = count_waiting(connection, collection_range(collection_id))
    file = SearchedFile(workspace.model, workspace.names)
    result = run([file], SearchRequest(text, documents=documents), ExternalPolicy(collection_id))
    prefix = docs_path(active).replace("\\", "/").rstrip("/")
    rows = [
        ExternalRow(
            path=f"{prefix}/{row['path']}",
            title=row["title"],
            summary=row["summary"] or None,
            date=(documents.shows_dates and row["date"]) or None,
            char_count=row["character_count"],
            relevance_score=row["score"],
            start_line=row["start_line"],
            end_line=row["end_line"],
        )
        for row in result.rows
    ]
    return rows, waiting, result.notice


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


def docs_path(active: ActiveProject) -> str:
    """The documentation folder as the configuration spells it."""
    docs = active.project.config.external_docs
    return docs.path if docs is not None else ""

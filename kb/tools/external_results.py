"""Result types of the external family."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict


class DocumentType(TypedDict):
    name: str
    doc_count: int


class SyncProblem(TypedDict):
    path: str
    message: str


class ExternalDocsReport(TypedDict):
    path: str
    added: int
    updated: int
    deleted: int
    unchanged: int
    errors: list[SyncProblem]


class ActivationResult(TypedDict):
    status: str
    project_name: str
    branch_name: str
    path_hash: str
    doc_types: list[DocumentType]
    total_docs: int
    external_docs: NotRequired[ExternalDocsReport]
    warnings: NotRequired[list[str]]


class ExternalRow(TypedDict):
    path: str
    title: str
    summary: NotRequired[str]
    char_count: int
    relevance_score: float
    start_line: int
    end_line: int


class ExternalResults(TypedDict):
    results: list[ExternalRow]
    total_matches: int
    external_docs_path: str
    truncated: NotRequired[bool]
    notice: NotRequired[str]

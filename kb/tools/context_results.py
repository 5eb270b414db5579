"""Result types of the context family."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict


class DiscoveryRow(TypedDict):
    id: str
    type: str
    content: str
    module: NotRequired[str]
    session: NotRequired[str]
    date: str
    score: NotRequired[float]
    source: str


class ContextResults(TypedDict):
    results: list[DiscoveryRow]
    query: str
    totalFound: int
    searchTime: int
    truncated: NotRequired[bool]
    notice: NotRequired[str]


class RecordResult(TypedDict):
    id: str
    type: str
    module: NotRequired[str]
    status: str
    notice: NotRequired[str]


class FileContent(TypedDict):
    path: str
    content: str
    size: int
    lines: int
    language: str
    startLine: NotRequired[int]
    endLine: NotRequired[int]


class DependencyRow(TypedDict):
    path: str
    type: str
    level: int
    content: str
    truncated: NotRequired[bool]


class FileMetadata(TypedDict):
    module: str
    role: str
    lastModified: NotRequired[str]
    origin: str


class FileResult(TypedDict):
    file: FileContent
    dependencies: list[DependencyRow]
    metadata: FileMetadata
    truncated: NotRequired[bool]
    notice: NotRequired[str]


class MatchContext(TypedDict):
    before: list[str]
    after: list[str]


class MatchRow(TypedDict):
    file: str
    line: int
    column: int
    text: str
    context: MatchContext


class GrepResults(TypedDict):
    matches: list[MatchRow]
    pattern: str
    totalMatches: int
    filesSearched: int
    searchTime: int
    searched: str
    message: NotRequired[str]
    truncated: NotRequired[bool]
    notice: NotRequired[str]

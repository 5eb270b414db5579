"""The context family: an assistant's working memory of a project, and its files."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from kb.errors import KbError, NoEmbeddings, UsageError
from kb.tools.call import Call
from kb.tools.parameters import LONGEST_GLOB, LONGEST_NAME, EndLine, StartCharacter, StartLine
from kb.tools.reading import first_line, read_lines
from kb.tools.registry import tool
from kb.tools.replies import CamelReply, CamelRow, estimate_tokens, lines_within, said
from kb.tools.searches import from_each

if TYPE_CHECKING:
    from kb.project.tree import TextFile


class DiscoveryRow(CamelRow):
    id: str
    type: str
    content: str
    module: str | None = None
    session: str | None = None
    date: str
    score: float | None = None
    source: str


class ContextResults(CamelReply):
    results: list[DiscoveryRow]
    query: str
    total_found: int
    search_time: int
    truncated: bool | None = None
    notice: str | None = None


class RecordResult(CamelReply):
    id: str
    type: str
    module: str | None = None
    status: str
    notice: str | None = None


class FileContent(CamelReply):
    path: str
    content: str
    size: int
    lines: int
    language: str
    start_line: int | None = None
    end_line: int | None = None


class DependencyRow(CamelReply):
    path: str
    type: str
    level: int
    content: str
    truncated: bool | None = None


class FileMetadata(CamelReply):
    module: str
    role: str
    last_modified: str | None = None
    origin: str


class FileResult(CamelReply):
    file: FileContent
    dependencies: list[DependencyRow]
    metadata: FileMetadata
    truncated: bool | None = None
    notice: str | None = None


class MatchContext(CamelReply):
    before: list[str]
    after: list[str]


class MatchRow(CamelRow):
    file: str
    line: int
    column: int
    text: str
    context: MatchContext


class GrepResults(CamelReply):
    matches: list[MatchRow]
    pattern: str
    total_matches: int
    files_searched: int
    search_time: int
    searched: str
    message: str | None = None
    truncated: bool | None = None
    notice: str | None = None


@tool(
    family="context",
    title="Search what was learned",
    example={"query": "how does authentication work", "type": "all", "limit": 5},
    messages={("query", "string_too_short"): "Query must be at least 3 characters"},
)
def context_search(
    call: Call,
    query: Annotated[
        str,
        Field(description="Search query describing what to find.", min_length=3, max_length=500),
    ],
    type_: Annotated[
        Literal["all", "pattern", "rule", "decision", "issue"],
        Field(description="Filter by discovery type.", alias="type"),
    ] = "all",
    module: Annotated[
        str, Field(description="Filter by module name; empty: all.", max_length=LONGEST_NAME)
    ] = "",
    limit: Annotated[
        int, Field(description="Maximum number of results to return.", ge=1, le=20)
    ] = 5,
) -> ContextResults:
    """Search project context semantically. Returns relevant discoveries, patterns, rules, and past decisions.

    Discoveries come in with context_record. For exact text in files use grep_codebase, for
    documents documents_search.
    """  # noqa: E501 - the first line is what clients of the founding specification know
    from kb.ingest.discoveries import search_discoveries

    started = time.perf_counter()
    wanted = "" if type_ == "all" else type_
    found, lost = from_each(
        call.session,
        lambda file: search_discoveries(file.model, query, wanted, module.strip(), limit),
        unsaid=(NoEmbeddings,),
    )
    rows = sorted((row for _, own in found for row in own[0]), key=lambda row: -row["score"])
    fitted = call.fit([DiscoveryRow(**row) for row in rows[:limit]], "lower the limit.")
    return ContextResults(
        results=fitted.rows,
        query=query,
        total_found=sum(total for _, (_, total, _) in found),
        search_time=_milliseconds(started),
        truncated=fitted.truncated,
        notice=said(fitted.notice, *dict.fromkeys(notice for _, (_, _, notice) in found), lost),
    )


@tool(
    family="context",
    title="Record what was learned",
    example={"content": "We use JWT tokens in httpOnly cookies", "module": "auth"},
    read_only=False,
    idempotent=False,
)
def context_record(
    call: Call,
    content: Annotated[
        str,
        Field(
            description="One discovery in a sentence or two that stand by themselves.",
            min_length=10,
            max_length=1000,
        ),
    ],
    type_: Annotated[
        Literal["", "pattern", "rule", "decision", "issue"],
        Field(description="What it is; empty: told from its words.", alias="type"),
    ] = "",
    module: Annotated[
        str, Field(description="Module it is about; empty: the whole project.", max_length=100)
    ] = "",
    source: Annotated[
        str, Field(description="Where it comes from, such as a file's path.", max_length=500)
    ] = "",
) -> RecordResult:
    """Record something learned about the project, so that later sessions find it with context_search.

    Use it for patterns in use, rules to keep, decisions with their reasons, issues and their
    fixes. What is known already is merged, not stored twice.
    """  # noqa: E501
    from kb.ingest.discoveries import record_discovery

    session = call.session.log
    recorded = record_discovery(
        call.model, content, type_, module, source, session_id=session.current_id
    )
    session.note("discovery", "context_record", recorded.discovery_id)
    return RecordResult(
        id=recorded.discovery_id,
        type=recorded.type,
        module=recorded.module or None,
        status=recorded.status,
        notice=said(recorded.notice),
    )


@tool(
    family="context",
    title="Read a file of the project",
    example={"path": "README.md", "startLine": 1, "endLine": 10},
    idempotent=True,
)
def read_file(
    call: Call,
    path: Annotated[
        str,
        Field(
            description="File path relative to project root.", min_length=1, max_length=LONGEST_NAME
        ),
    ],
    include_deps: Annotated[
        bool, Field(description="Include level 1 dependencies (imports) with their content.")
    ] = False,
    max_depth: Annotated[
        int, Field(description="Dependency tree depth; 0: no dependencies.", ge=0, le=1)
    ] = 1,
    start_line: StartLine = 0,
    end_line: EndLine = 0,
    start_character: StartCharacter = 0,
) -> FileResult:
    """Read file content with optional dependency tree. Tracks access for context scoring.

    Secrets, `.git` and `node_modules` are not shown. To find something in files use
    grep_codebase first.
    """
    from kb.project.source_files import imports, module_of, role_of
    from kb.project.tree import DISK, read_text

    file = read_text(call.project, path)
    imported = []
    if include_deps and max_depth and file.origin == DISK:
        imported = [
            DependencyRow(path=one.path, type=one.type, level=one.level, content="")
            for one in imports(call.project.root, file.path)
        ]
    shown = _lines_of(file, start_line, end_line, start_character, call.reply_tokens)
    left = call.reply_tokens - estimate_tokens(shown.file.content)
    contents = _with_contents(call, imported, left)
    metadata = FileMetadata(
        module=module_of(file.path),
        role=role_of(file.path),
        last_modified=file.modified or None,
        origin=file.origin,
    )
    call.session.log.read(file.path, metadata.module, estimate_tokens(file.text))
    return FileResult(
        file=shown.file,
        dependencies=contents.rows,
        metadata=metadata,
        truncated=bool(shown.notice or contents.is_cut) or None,
        notice=said(shown.notice, contents.notice),
    )


@tool(
    family="context",
    title="Search the project's files",
    example={"pattern": "TODO|FIXME", "filePattern": "**/*.md", "limit": 5},
)
def grep_codebase(
    call: Call,
    pattern: Annotated[
        str, Field(description="Regex pattern to search for.", min_length=1, max_length=200)
    ],
    file_pattern: Annotated[
        str,
        Field(
            description='Glob pattern to filter files (e.g. "**/*.ts"); empty: all.',
            max_length=LONGEST_GLOB,
        ),
    ] = "",
    case_sensitive: Annotated[bool, Field(description="Case-sensitive search.")] = False,
    limit: Annotated[
        int, Field(description="Maximum number of matches to return.", ge=1, le=100)
    ] = 50,
) -> GrepResults:
    """Fast text search across codebase using regex. Good for exact matches and when semantic search unavailable.

    Regular expressions as ripgrep takes them: no look-around, no back-references. What ignore
    files hide is not searched. Read around a match with read_file.
    """  # noqa: E501 - the first line is what clients of the founding specification know
    from kb.project.tree import STORED, grep_project

    started = time.perf_counter()
    try:
        found, searched = grep_project(call.project, pattern, file_pattern, case_sensitive, limit)
    except UsageError as error:  # a glob that matches nothing
        raise UsageError(error.message, field="filePattern") from error
    rows = [
        MatchRow(
            file=match.file,
            line=match.line,
            column=match.column,
            text=match.text,
            context=MatchContext(before=match.before, after=match.after),
        )
        for match in found.matches
    ]
    fitted = call.fit(rows, "lower the limit, or narrow pattern or filePattern.")
    late = "The time was over before all was searched: narrow pattern or filePattern."
    stored = "The project's folder is not here: stored documents were searched."
    return GrepResults(
        matches=fitted.rows,
        pattern=pattern,
        total_matches=found.total_matches,
        files_searched=found.files_searched,
        search_time=_milliseconds(started),
        searched=searched,
        message=None if found.total_matches else f"No matches found for pattern '{pattern}'",
        truncated=bool(fitted.notice or found.truncated) or None,
        notice=said(
            fitted.notice, late if found.truncated else "", stored if searched == STORED else ""
        ),
    )


@dataclass(frozen=True, slots=True)
class _Shown:
    """The wanted lines of a file, and how to get the rest."""

    file: FileContent
    notice: str


@dataclass(frozen=True, slots=True)
class _Contents:
    """Dependencies with as much of their content as the reply has room for."""

    rows: list[DependencyRow]
    is_cut: bool
    notice: str


def _milliseconds(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)


def _lines_of(file: TextFile, start: int, end: int, skipped: int, tokens: int) -> _Shown:
    body = file.text.removesuffix("\n")
    total = body.count("\n") + 1 if file.text else 0
    first = first_line(start, end, total, "file")
    part = read_lines(body, first, end, tokens, skipped=skipped)
    whole = not (start or end or skipped or part.rest)
    content = FileContent(
        path=file.path,
        # Untouched to the last line end, so that it can be written back.
        content=file.text if whole else part.content,
        size=file.size,
        lines=total,
        language=file.language,
        start_line=None if whole else first,
        end_line=None if whole else min(part.end_line, max(total, first)),
    )
    return _Shown(content, f"The reply is full: go on with {part.rest}." if part.rest else "")


def _with_contents(call: Call, imported: list[DependencyRow], tokens: int) -> _Contents:
    from kb.project.tree import read_text

    rows, notices, shortened = [], [], 0
    for one in imported:
        try:
            text = read_text(call.project, one.path).text
        except KbError as error:  # too large, or gone by now
            rows.append(one)
            notices.append(f"{one.path}: {error.message}.")
            continue
        cost = estimate_tokens(text)
        is_cut = cost > tokens
        if is_cut:
            text = lines_within(text.split("\n"), tokens)[0] if tokens > 0 else ""
            shortened += 1
        rows.append(one.model_copy(update={"content": text, "truncated": is_cut or None}))
        tokens -= cost
    if shortened:
        notices.append(
            f"The reply is full: {shortened} dependencies are cut; read them one by one."
        )
    return _Contents(rows, shortened > 0, " ".join(notices))

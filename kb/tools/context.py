"""The context family: an assistant's working memory of a project, and its files."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from kb.errors import KbError, UsageError
from kb.library.reading import first_line, lines_within, read_lines
from kb.results.base import Listing, Result, Row, estimate_tokens
from kb.results.memory import Discovery, RecordedDiscovery
from kb.tools.call import Call, join
from kb.tools.parameters import (
    LONGEST_GLOB,
    LONGEST_NAME,
    EndLine,
    ReplyLength,
    StartCharacter,
    StartLine,
)
from kb.tools.registry import tool

USUAL_CONTEXT = 2  # lines
MAX_WITH_CONTEXT = 10  # matches

if TYPE_CHECKING:
    from kb.project.tree import Dependency, TextFile


class DiscoveryResults(Listing[Discovery]):
    results: list[Discovery]
    query: str
    total_found: int
    search_time: int
    truncated: bool | None = None
    notice: str | None = None


class FileContent(Result):
    path: str
    content: str
    size: int
    lines: int
    language: str
    start_line: int | None = None
    end_line: int | None = None


class DependencyRow(Result):
    path: str
    type: str
    level: int
    content: str
    truncated: bool | None = None


class FileMetadata(Result):
    module: str
    role: str
    last_modified: str | None = None
    origin: str


class FileResult(Result):
    file: FileContent
    dependencies: list[DependencyRow]
    metadata: FileMetadata
    truncated: bool | None = None
    notice: str | None = None


class MatchContext(Result, kw_only=False):
    before: list[str]
    after: list[str]


class MatchRow(Row):
    file: str
    line: int
    column: int
    text: str
    context: MatchContext


class GrepResults(Listing[MatchRow]):
    listed = "matches"

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
    title="Search what was learned",
    example={"query": "how does authentication work", "type": "all", "limit": 5},
    messages={("query", "string_too_short"): "Query must be at least 3 characters"},
)
def context_search(
    call: Call,
    query: Annotated[str, Field(description="What to find.", min_length=3, max_length=500)],
    type_: Annotated[
        Literal["all", "pattern", "rule", "decision", "issue"],
        Field(description="Kind of discovery.", alias="type"),
    ] = "all",
    module: Annotated[str, Field(description="Empty: all.", max_length=LONGEST_NAME)] = "",
    limit: Annotated[int, Field(description="Most discoveries.", ge=1, le=20)] = 5,
    max_characters: ReplyLength = 0,
) -> DiscoveryResults:
    """Search project context semantically. Returns relevant discoveries, patterns, rules, and past decisions.

    context_record puts them in. For exact text in files use grep_codebase.
    """  # noqa: E501 - the first line is what clients of the founding specification know
    started = time.perf_counter()
    only = "" if type_ == "all" else type_
    discoveries = call.base.recall(query, type=only, module=module.strip(), limit=limit)
    results = DiscoveryResults(
        results=discoveries.results,
        query=query,
        total_found=discoveries.total_found,
        search_time=_milliseconds(started),
        notice=discoveries.notice,
    )
    return call.pack(call.shorten(results, "lower the limit."), max_characters, "maxCharacters")


@tool(
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
            description="One discovery, in a sentence or two that stand by themselves.",
            min_length=10,
            max_length=1000,
        ),
    ],
    type_: Annotated[
        Literal["", "pattern", "rule", "decision", "issue"],
        Field(description="Empty: told from the words.", alias="type"),
    ] = "",
    module: Annotated[str, Field(description="Empty: the whole project.", max_length=100)] = "",
    source: Annotated[str, Field(description="Such as a file's path.", max_length=500)] = "",
    supersedes: Annotated[
        str, Field(description="Id of the discovery that this corrects.", max_length=100)
    ] = "",
) -> RecordedDiscovery:
    """Record something learned about the project, so that later sessions find it with context_search.

    For patterns, rules, decisions with their reasons, issues and their fixes. What is known is
    merged. `nearest` is what was known about it: record a correction again with `supersedes`.
    """  # noqa: E501
    log = call.session.log
    recorded = call.base.record(
        content,
        type=type_,
        module=module,
        source=source,
        supersedes=supersedes.strip(),
        session=log.current_id,
    )
    log.note("discovery", "context_record", recorded.id)
    return recorded


@tool(
    title="Read a file of the project",
    example={"path": "README.md", "startLine": 1, "endLine": 10},
    idempotent=True,
)
def read_file(
    call: Call,
    path: Annotated[
        str,
        Field(description="Relative to the project's root.", min_length=1, max_length=LONGEST_NAME),
    ],
    include_deps: Annotated[
        bool, Field(description="With imported files: what they say of the names used.")
    ] = False,
    max_depth: Annotated[int, Field(description="0: no dependencies.", ge=0, le=1)] = 1,
    start_line: StartLine = 0,
    end_line: EndLine = 0,
    start_character: StartCharacter = 0,
) -> FileResult:
    """Read file content with optional dependency tree. Tracks access for context scoring.

    Not secrets, `.git` or `node_modules`. Find text with grep_codebase first; read a dependency
    whole by its path.
    """
    from kb.project.tree import imports, module_of, names_in, read_text, role_of
    from kb.results.code import DISK

    file = read_text(call.base.project, path)
    has_dependencies = include_deps and max_depth and file.origin == DISK
    imported = imports(call.base.project.root, file.path) if has_dependencies else ()
    content, rest = _lines_of(file, start_line, end_line, start_character, call.reply_tokens)
    left = call.reply_tokens - estimate_tokens(content.content)
    names = names_in(content.content, file.text)
    dependencies, notices, is_cut = _dependencies(call, imported, names, left)
    module = module_of(file.path)
    call.session.log.read(file.path, module, estimate_tokens(file.text))
    return FileResult(
        file=content,
        dependencies=dependencies,
        metadata=FileMetadata(
            module=module,
            role=role_of(file.path),
            last_modified=file.modified or None,
            origin=file.origin,
        ),
        truncated=bool(rest) or is_cut or None,
        notice=join(file.notice, rest, *notices),
    )


@tool(
    title="Search the project's files",
    example={"pattern": "TODO|FIXME", "filePattern": "**/*.md", "limit": 5},
)
def grep_codebase(
    call: Call,
    pattern: Annotated[str, Field(description="Regular expression.", min_length=1, max_length=200)],
    file_pattern: Annotated[
        str, Field(description='Glob such as "**/*.ts"; empty: all.', max_length=LONGEST_GLOB)
    ] = "",
    case_sensitive: Annotated[bool, Field(description="Case matters.")] = False,
    limit: Annotated[int, Field(description="Most matches.", ge=1, le=100)] = 50,
    context_lines: Annotated[
        int,
        Field(description="Around each match; -1: 2, or 0 of more than 10 matches.", ge=-1, le=20),
    ] = -1,
) -> GrepResults:
    """Fast text search across codebase using regex. Good for exact matches and when semantic search unavailable.

    Regular expressions as ripgrep takes them: no look-around, no back-references. What ignore
    files hide is not searched.
    """  # noqa: E501 - the first line is what clients of the founding specification know
    started = time.perf_counter()
    try:
        hits = call.base.grep(
            pattern,
            glob=file_pattern,
            case_sensitive=case_sensitive,
            limit=limit,
            context_lines=USUAL_CONTEXT if context_lines < 0 else context_lines,
        )
    except UsageError as error:  # a glob that matches nothing
        raise UsageError(error.message, field="filePattern") from error
    has_context = context_lines >= 0 or len(hits.matches) <= MAX_WITH_CONTEXT
    rows = [
        MatchRow(
            file=match.file,
            line=match.line,
            column=match.column,
            text=match.text,
            context=MatchContext(*((match.before, match.after) if has_context else ([], []))),
        )
        for match in hits
    ]
    late = "The time was over before all was searched: narrow pattern or filePattern."
    results = GrepResults(
        matches=rows,
        pattern=pattern,
        total_matches=hits.total_matches,
        files_searched=hits.files_searched,
        search_time=_milliseconds(started),
        searched=hits.searched,
        message=None if hits.total_matches else f"No matches found for pattern '{pattern}'",
        truncated=hits.truncated,
        notice=join(late if hits.truncated else "", hits.notice or ""),
    )
    return call.shorten(results, "lower the limit, or narrow pattern or filePattern.")


def _milliseconds(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)


def _lines_of(
    file: TextFile, start: int, end: int, skipped: int, tokens: int
) -> tuple[FileContent, str]:
    """Some lines of a file, and how to get the rest."""
    body = file.text.removesuffix("\n")
    total = body.count("\n") + 1 if file.text else 0
    first = first_line(start, end, total, "file")
    part = read_lines(body, first, end, tokens, skipped=skipped)
    whole = not (start or end or skipped or part.rest)
    content = FileContent(
        path=file.path,
        # Unchanged to the last line end, so that it can be written back.
        content=file.text if whole else part.content,
        size=file.size,
        lines=total,
        language=file.language,
        start_line=None if whole else first,
        end_line=None if whole else min(part.end_line, max(total, first)),
    )
    return content, f"The reply is full: go on with {part.rest}." if part.rest else ""


def _dependencies(
    call: Call, imported: Iterable[Dependency], names: set[str], tokens: int
) -> tuple[list[DependencyRow], list[str], bool]:
    """Of each dependency the lines that define some names; notices; and whether any was cut."""
    from kb.project.tree import read_text, signatures

    rows: list[DependencyRow] = []
    notices: list[str] = []
    cut = 0
    for other in imported:
        text, whole, cost = "", "", 0
        try:
            whole = read_text(call.base.project, other.path).text
            text = signatures(other.path, whole, names)
            cost = estimate_tokens(text)
        except KbError as error:  # too large, or deleted since
            notices.append(f"{other.path}: {error.message}.")
        if cost > max(tokens, 0):
            text = lines_within(text.split("\n"), tokens)[0] if tokens > 0 else ""
            cut += 1
        tokens -= cost
        rows.append(
            DependencyRow(
                path=other.path,
                type=other.type,
                level=other.level,
                content=text,
                truncated=text != whole or None,
            )
        )
    if cut:
        notices.append(f"The reply is full: {cut} dependencies are cut; read them one by one.")
    return rows, notices, cut > 0

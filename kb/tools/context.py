"""The context family: an assistant's working memory of a project, and its files."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from pydantic import Field

from kb.errors import KbError
from kb.tools.call import Call
from kb.tools.context_results import ContextResults, FileResult, GrepResults, RecordResult
from kb.tools.parameters import EndLine, StartCharacter, StartLine
from kb.tools.reading import first_line, read_lines
from kb.tools.registry import tool
from kb.tools.replies import add_notice, cut, estimate_tokens, lines_within


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
    type: Annotated[  # noqa: A002 - the contract's name
        Literal["all", "pattern", "rule", "decision", "issue"],
        Field(description="Filter by discovery type."),
    ] = "all",
    module: Annotated[str, Field(description="Filter by module name; empty: all.")] = "",
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
    rows, total, notice = search_discoveries(
        call.model, query, "" if type == "all" else type, module.strip(), limit
    )
    kept = call.fit(rows)
    result: Any = {
        "results": kept,
        "query": query,
        "totalFound": total,
        "searchTime": round((time.perf_counter() - started) * 1000),
    }
    if len(kept) < len(rows):
        cut(result, "The reply is full: lower the limit.")
    add_notice(result, notice)
    return result  # type: ignore[no-any-return]


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
    type: Annotated[  # noqa: A002 - the contract's name
        Literal["", "pattern", "rule", "decision", "issue"],
        Field(description="What it is; empty: told from its words."),
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

    recorded = record_discovery(
        call.model, content, type, module, source, session_id=call.session.log.current_id
    )
    call.session.log.note("discovery", "context_record", recorded.discovery_id)
    result: Any = {"id": recorded.discovery_id, "type": recorded.type, "status": recorded.status}
    if recorded.module:
        result["module"] = recorded.module
    add_notice(result, recorded.notice)
    return result  # type: ignore[no-any-return]


@tool(
    family="context",
    title="Read a file of the project",
    example={"path": "README.md", "startLine": 1, "endLine": 10},
    idempotent=True,
)
def read_file(
    call: Call,
    path: Annotated[str, Field(description="File path relative to project root.", min_length=1)],
    includeDeps: Annotated[  # noqa: N803 - the contract's name
        bool, Field(description="Include level 1 dependencies (imports) with their content.")
    ] = False,
    maxDepth: Annotated[  # noqa: N803
        int, Field(description="Dependency tree depth; 0: no dependencies.", ge=0, le=1)
    ] = 1,
    startLine: StartLine = 0,  # noqa: N803
    endLine: EndLine = 0,  # noqa: N803
    startCharacter: StartCharacter = 0,  # noqa: N803
) -> FileResult:
    """Read file content with optional dependency tree. Tracks access for context scoring.

    Secrets, `.git` and `node_modules` are not shown. To find something in files use
    grep_codebase first.
    """
    from kb.project.source_files import imports, module_of, role_of
    from kb.project.tree import DISK, read_text

    file = read_text(call.project, path)
    dependencies: list[Any] = []
    if includeDeps and maxDepth and file.origin == DISK:
        dependencies = [
            {"path": one.path, "type": one.type, "level": one.level}
            for one in imports(call.project.root, file.path)
        ]
    shown, tokens_left, notice = _lines_of(call, file.text, startLine, endLine, startCharacter)
    result: Any = {
        "file": {
            "path": file.path,
            "content": shown.pop("content"),
            "size": file.size,
            "lines": shown.pop("lines"),
            "language": file.language,
            **shown,
        },
        "dependencies": dependencies,
        "metadata": {
            "module": module_of(file.path),
            "role": role_of(file.path),
            **({"lastModified": file.modified} if file.modified else {}),
            "origin": file.origin,
        },
    }
    if notice:
        cut(result, notice)
    _add_contents(call, result, tokens_left)
    call.session.log.read(file.path, result["metadata"]["module"], estimate_tokens(file.text))
    return result  # type: ignore[no-any-return]


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
    filePattern: Annotated[  # noqa: N803
        str, Field(description='Glob pattern to filter files (e.g. "**/*.ts"); empty: all.')
    ] = "",
    caseSensitive: Annotated[bool, Field(description="Case-sensitive search.")] = False,  # noqa: N803
    limit: Annotated[
        int, Field(description="Maximum number of matches to return.", ge=1, le=100)
    ] = 50,
) -> GrepResults:
    """Fast text search across codebase using regex. Good for exact matches and when semantic search unavailable.

    Regular expressions as ripgrep takes them: no look-around, no back-references. What ignore
    files hide is not searched. Read around a match with read_file.
    """  # noqa: E501 - the first line is what clients of the founding specification know
    from kb.project.tree import grep_project

    started = time.perf_counter()
    found, searched = grep_project(call.project, pattern, filePattern, caseSensitive, limit)
    rows = [
        {
            "file": match.file,
            "line": match.line,
            "column": match.column,
            "text": match.text,
            "context": {"before": match.before, "after": match.after},
        }
        for match in found.matches
    ]
    kept = call.fit(rows)
    result: Any = {
        "matches": kept,
        "pattern": pattern,
        "totalMatches": found.total_matches,
        "filesSearched": found.files_searched,
        "searchTime": round((time.perf_counter() - started) * 1000),
        "searched": searched,
    }
    if not found.total_matches:
        result["message"] = f"No matches found for pattern '{pattern}'"
    if len(kept) < len(rows):
        cut(result, "The reply is full: lower the limit, or narrow pattern or filePattern.")
    if found.truncated:
        cut(result, "The time was over before all was searched: narrow pattern or filePattern.")
    if searched == "stored":
        add_notice(result, "The project's folder is not here: stored documents were searched.")
    return result  # type: ignore[no-any-return]


def _lines_of(
    call: Call, text: str, start: int, end: int, skipped: int
) -> tuple[dict[str, Any], int, str]:
    """The wanted lines of a text with what to say of them, the tokens left, and a notice."""
    body = text.removesuffix("\n")
    total = body.count("\n") + 1 if text else 0
    first = first_line(start, end, total, "file")
    part = read_lines(body, first, end, call.reply_tokens, skipped=skipped)
    whole = not (start or end or skipped or part.rest)
    # Untouched to the last line end, so that it can be written back.
    shown: dict[str, Any] = {"content": text if whole else part.content, "lines": total}
    if not whole:
        shown |= {"startLine": first, "endLine": min(part.end_line, max(total, first))}
    left = call.reply_tokens - estimate_tokens(shown["content"])
    return shown, left, f"The reply is full: go on with {part.rest}." if part.rest else ""


def _add_contents(call: Call, result: Any, tokens: int) -> None:
    """Give the dependencies their content as long as the reply has room."""
    from kb.project.tree import read_text

    shortened = 0
    for dependency in result["dependencies"]:
        try:
            text = read_text(call.project, dependency["path"]).text
        except KbError as error:  # too large, or gone by now
            dependency["content"] = ""
            add_notice(result, f"{dependency['path']}: {error.message}.")
            continue
        cost = estimate_tokens(text)
        if cost > tokens:
            lines = text.split("\n")
            text = lines_within(lines, tokens)[0] if tokens > 0 else ""
            dependency["truncated"] = True
            shortened += 1
        dependency["content"] = text
        tokens -= cost
    if shortened:
        cut(result, f"The reply is full: {shortened} dependencies are cut; read them one by one.")

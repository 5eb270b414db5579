"""The rows of `kb search` in each of its formats."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kb.cli import render
from kb.text.controls import flat
from kb.text.counted import some_of
from kb.text.file_names import on_disk, storable

# Names an editor, or is an address with {path} and {line} in it.
EDITOR_VARIABLE = "KB_EDITOR"
NO_LINKS = "none"
_JETBRAINS = "://open?file={path}&line={line}"
EDITORS = {
    "file": "file://{path}",
    **{
        name: f"{name}://file{{path}}:{{line}}"
        for name in ("vscode", "vscode-insiders", "vscodium", "cursor", "windsurf", "zed")
    },
    **{name: f"{name}{_JETBRAINS}" for name in ("idea", "pycharm", "webstorm", "goland")},
    "sublime": "subl://open?url=file://{path}&line={line}",
    "textmate": "txmt://open?url=file://{path}&line={line}",
    "macvim": "mvim://open?url=file://{path}&line={line}",
    NO_LINKS: "",
}
ORIGINS = ("page", "slide", "sheet", "cell")  # of a converted file
FORMATS = ("table", "json", "csv", "tsv", "files", "md")
NOT_IN_JSON = ("file", "marks")  # of a row: for people
COLUMNS = (
    *("collection", "documentId", "startLine", "endLine", *ORIGINS),
    *("relevanceScore", "distance", "documentTitle", "sectionHeading", "content"),
)


def shows_distances(options: argparse.Namespace) -> bool:
    """Whether the output's format has the distance of each row."""
    return bool(options.json) or options.format in ("json", "csv", "tsv")


def show(candidates: Sequence[dict[str, Any]], notice: str, options: argparse.Namespace) -> int:
    """Print the results of a search, without rows below the least score; the exit code."""
    rows = [row for row in candidates if row["relevanceScore"] >= options.min_score]
    hidden = len(candidates) - len(rows)
    kind = "json" if options.json else options.format or "table"
    if kind == "json":
        listed = [{key: row[key] for key in row if key not in NOT_IN_JSON} for row in rows]
        for row in listed:
            if not row["changedSinceSync"]:
                del row["changedSinceSync"]
        result: dict[str, Any] = {"results": listed}
        if hidden:
            result["hidden"] = hidden
        render.print_json({**result, "notice": notice} if notice else result)
        return 0 if rows else 1
    if notice:
        render.say(notice)
    _print(rows, kind, options)
    if hidden:
        beginning = "" if rows else "nothing found; "
        least = f"{options.min_score:g}"
        render.say(f"{beginning}{hidden} more below {least} (--min-score 0 shows them)")
    elif not rows and kind == "table":
        render.say("nothing found")
    return 0 if rows else 1


def _print(rows: Sequence[dict[str, Any]], kind: str, options: argparse.Namespace) -> None:
    if kind in ("csv", "tsv"):
        render.separated(rows, COLUMNS, kind)
    elif kind == "files":
        for file in dict.fromkeys(map(shown_file, rows)):
            print(file)
    elif kind == "md":
        for row in rows:
            score = _score(row, " · ")
            print(f"## {_heading(row)}\n\n`{place_of(row)}`{score}\n\n{row['content']}\n")
    elif sys.stdout.isatty():
        _on_terminal(rows, options)
    else:
        _in_pipe(rows, options)


def _in_pipe(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    """Print the best first, each row with its place, so that `grep` and `cut` can work on it."""
    for row in rows:
        changed = "  (changed since sync)" if row["changedSinceSync"] else ""
        also = f"  (also in {flat(some_of(row['alsoIn'], 3))})" if row.get("alsoIn") else ""
        print(f"{place_of(row)}{_score(row, '  ')}  {_heading(row)}{changed}{also}")
        print(f"    {flat(row['snippet'])}")
        if options.explain:
            print(f"    {_explanation(row)}")


def _on_terminal(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    """Print rows under their documents, which come in the order of their best rows."""
    from kb.cli import terminal

    form, problem = editor_link()
    if problem:
        render.say(problem)
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(shown_file(row), []).append(row)
    for number, (file, group) in enumerate(groups.items()):
        if number:
            print()
        title = flat(group[0]["documentTitle"])
        terminal.search_group(file, title, _address(form, group[0], 1))
        for row in group:
            section = flat(row.get("sectionHeading", ""))
            terminal.search_row(
                row,
                lines_of(row),
                section if section != title else "",
                _address(form, row, row["startLine"]),
                _explanation(row) if options.explain else "",
            )


def _address(form: str, row: dict[str, Any], line: int) -> str:
    """Where a click on a row leads, or ""."""
    if not row["file"]:
        return ""
    # A converted file's lines are those of its text: they mean nothing to an editor.
    is_converted = any(kind in row for kind in ORIGINS)
    return address(form, Path(on_disk(row["file"])), 1 if is_converted else line)


def editor_link() -> tuple[str, str]:
    """The form of links' addresses, "" for none, and what is wrong with the setting."""
    choice = os.environ.get(EDITOR_VARIABLE, "")
    if "{path}" in choice and "://" in choice:
        return choice, ""
    if choice in EDITORS:
        return EDITORS[choice], ""
    problem = (
        f'{EDITOR_VARIABLE} is "{choice}": it names an editor ({", ".join(EDITORS)}) or an address '
        "with {path} and {line} in it"
    )
    return EDITORS["file"], problem if choice else ""


def address(form: str, file: Path, line: int) -> str:
    """A link to a line of a file, which a terminal opens on a click."""
    path = quote(os.fsencode(file.absolute().as_posix()), safe="/:")
    if not path.startswith("/"):
        path = f"/{path}"  # a drive's letter
    return form.replace("{path}", path).replace("{line}", str(line))


def place_of(row: dict[str, Any]) -> str:
    return f"{shown_file(row)}:{lines_of(row)}"


def shown_file(row: dict[str, Any]) -> str:
    """A hit's file relative to here if it is below; without a file collection/id."""
    file: str = row["file"]
    if not file:
        return f"{row['collection']}/{row['documentId']}"
    try:
        return storable(Path(on_disk(file)).relative_to(Path.cwd()))
    except ValueError:
        return file


def lines_of(row: dict[str, Any]) -> str:
    """A hit's lines, followed by the page or slide of a converted file."""
    lines = f"{row['startLine']}-{row['endLine']}"
    for kind in ORIGINS:
        if kind in row:
            last = row.get(f"end{kind.capitalize()}")
            return f"{lines} ({kind} {row[kind]}{f' to {last}' if last is not None else ''})"
    return lines


def _heading(row: dict[str, Any]) -> str:
    section = flat(row.get("sectionHeading", ""))
    title = flat(row["documentTitle"])
    return f"{title} > {section}" if section and section != title else title


def _score(row: dict[str, Any], before: str) -> str:
    return f"{before}{row['relevanceScore']:.2f}" if "relevanceScore" in row else ""


def _explanation(row: dict[str, Any]) -> str:
    distance = f", distance {row['distance']:.4f}" if "distance" in row else ""
    return (
        f"{row['why']} (keyword rank {row['keywordRank'] or '-'}, vector rank "
        f"{row['vectorRank'] or '-'}{distance})"
    )

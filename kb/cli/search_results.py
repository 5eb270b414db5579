"""The rows of `kb search` in each of its formats."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from kb.cli import hyperlinks, render
from kb.cli.places import IN_FILE, lines_of, location_of, place_of, shown_file
from kb.text.controls import flat

__all__ = ["show", "shows_distances"]

NOT_IN_JSON = ("file", "marks")  # of a row: for people
COLUMNS = (
    "collection",
    "documentId",
    "startLine",
    "endLine",
    "page",
    "slide",
    "sheet",
    "cell",
    "relevanceScore",
    "distance",
    "documentTitle",
    "sectionHeading",
    "content",
)


def shows_distances(options: argparse.Namespace) -> bool:
    """Whether the wanted format tells the distance of each row."""
    return bool(options.json) or options.format in ("json", "csv", "tsv")


def show(found: Sequence[dict[str, Any]], notice: str, options: argparse.Namespace) -> int:
    """Print the results of a search in the wanted format; the exit code.

    Args:
        found: rows as `kb.search.results` makes them; those below the least score stay hidden.
    """
    rows = [row for row in found if row["relevanceScore"] >= options.min_score]
    hidden = len(found) - len(rows)
    wanted = "json" if options.json else options.format or "table"
    if wanted == "json":
        result: dict[str, Any] = {"results": [_in_json(row) for row in rows]}
        if hidden:
            result["hidden"] = hidden
        render.print_json({**result, "notice": notice} if notice else result)
        return 0 if rows else 1
    if notice:
        render.say(notice)
    _print(rows, wanted, options)
    if hidden:
        beginning = "" if rows else "nothing found; "
        least = f"{options.min_score:g}"
        render.say(f"{beginning}{hidden} more below {least} (--min-score 0 shows them)")
    elif not rows and wanted == "table":
        render.say("nothing found")
    return 0 if rows else 1


def _print(rows: Sequence[dict[str, Any]], wanted: str, options: argparse.Namespace) -> None:
    if wanted in ("csv", "tsv"):
        render.separated(rows, COLUMNS, wanted)
    elif wanted == "files":
        for file in dict.fromkeys(map(shown_file, rows)):
            print(file)
    elif wanted == "md":
        for row in rows:
            score = _score(row, " · ")
            print(f"## {_heading(row)}\n\n`{place_of(row)}`{score}\n\n{row['content']}\n")
    elif sys.stdout.isatty():
        _on_terminal(rows, options)
    else:
        _in_pipe(rows, options)


def _in_json(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in row.items()
        if key not in NOT_IN_JSON and (key != "changedSinceSync" or value)
    }


def _in_pipe(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    """Best first, each row with its place, so that `grep` and `cut` can work on it."""
    for row in rows:
        changed = "  (changed since sync)" if row["changedSinceSync"] else ""
        print(f"{place_of(row)}{_score(row, '  ')}  {_heading(row)}{changed}")
        print(f"    {flat(row['snippet'])}")
        if options.explain:
            print(f"    {_explanation(row)}")


def _on_terminal(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    """Grouped under their documents, which come in the order of their best rows."""
    from kb.cli import terminal

    form, problem = hyperlinks.template()
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
    # Of a converted file the lines are those of its text: they mean nothing to an editor.
    is_converted = any(kind in row for kind in IN_FILE)
    location = location_of(row)
    return (
        "" if location is None else hyperlinks.address(form, location, 1 if is_converted else line)
    )


def _heading(row: dict[str, Any]) -> str:
    section = flat(row.get("sectionHeading", ""))
    title = flat(row["documentTitle"])
    return f"{title} > {section}" if section and section != title else title


def _score(row: dict[str, Any], before: str) -> str:
    return f"{before}{row['relevanceScore']:.2f}" if "relevanceScore" in row else ""


def _explanation(row: dict[str, Any]) -> str:
    distance = f"{row['distance']:.4f}" if "distance" in row else "unknown"
    return (
        f"{row['why']} (keyword rank {row['keywordRank'] or '-'}, vector rank "
        f"{row['vectorRank'] or '-'}, distance {distance})"
    )

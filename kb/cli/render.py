"""What people and pipes see: tables and colour on a terminal, plain text in a pipe, or JSON."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kb.cli.places import place
from kb.cli.streams import coloured
from kb.text.controls import escaped_in_json, visible
from kb.text.file_names import writable

if TYPE_CHECKING:
    from rich.text import Text

FORMATS = ("table", "json", "csv", "files", "md")
NOT_IN_JSON = ("place", "file", "marks")  # of a row of `kb search`: for people
CSV_COLUMNS = (
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


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(as_json(value, indent=2))


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON that stdout can hold: letters as they are where it takes all, else escaped.

    What could steer a terminal is escaped always.
    """
    takes_all = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    separators = None if indent else (",", ":")
    listed = json.dumps(
        writable(value), ensure_ascii=not takes_all, indent=indent, separators=separators
    )
    return escaped_in_json(listed)


def text(result: Any, plain: str, options: argparse.Namespace) -> None:
    """A result as text, or as JSON if asked for."""
    if options.json:
        print_json(result)
    elif plain:
        print(plain, end="" if plain.endswith("\n") else "\n")


def is_read_as_it_comes(options: argparse.Namespace) -> bool:
    """Whether a person reads the output, so that a better answer may follow a first one."""
    plain = not options.json and getattr(options, "format", None) in (None, "table")
    return plain and not options.quiet and sys.stdout.isatty()


def remark(sentence: str, options: argparse.Namespace) -> None:
    """A sentence beside the result, for people: on stderr."""
    if sentence and not options.json:
        print(f"kb: {sentence}", file=sys.stderr)


def labelled(label: str, style: str, sentence: str) -> None:
    """A line behind a short word, which has a colour on a terminal."""
    if not sys.stdout.isatty():
        print(f"{label:<7} {sentence}")
        return
    from rich.text import Text

    _console(highlight=False).print(Text.assemble((f"{label:<7}", style), " ", _flat(sentence)))


def table(
    result: Any, rows: Sequence[dict[str, Any]], columns: Sequence[str], options: argparse.Namespace
) -> None:
    """Rows as a table on a terminal, as tab-separated lines in a pipe."""
    if options.json:
        print_json(result)
        return
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(_flat(row.get(column, "")) for column in columns))
        return
    from rich.table import Table

    grid = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        numbers = all(isinstance(row.get(column), int | float) for row in rows)
        grid.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(_escaped(row.get(column, "")) for column in columns))
    _console().print(grid)


def search_results(
    rows: Sequence[dict[str, Any]], notice: str, options: argparse.Namespace
) -> None:
    """The results of a search in the wanted format."""
    for row in rows:
        row["place"] = place(row)
    wanted = "json" if options.json else options.format or "table"
    if notice and wanted != "json":
        print(f"kb: {notice}", file=sys.stderr)
    if wanted == "json":
        result: dict[str, Any] = {
            "results": [{k: v for k, v in row.items() if k not in NOT_IN_JSON} for row in rows]
        }
        print_json({**result, "notice": notice} if notice else result)
    elif wanted == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        writer.writerows([row.get(column, "") for column in CSV_COLUMNS] for row in rows)
    elif wanted == "files":
        for file in dict.fromkeys(row["place"].rsplit(":", 1)[0] for row in rows):
            print(file)
    elif wanted == "md":
        for row in rows:
            print(
                f"## {_heading(row)}\n\n`{row['place']}`{_score(row, ' · ')}\n\n{row['content']}\n"
            )
    else:
        _search_table(rows, options)


def _search_table(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    if not rows:
        print("nothing found", file=sys.stderr)
        return
    if not sys.stdout.isatty():
        for row in rows:
            print(f"{row['place']}{_score(row, '  ')}  {_heading(row)}")
            print(f"    {_flat(row['snippet'])}")
            if options.explain:
                print(f"    {_explanation(row)}")
        return
    from rich.text import Text

    console = _console(highlight=False)
    for row in rows:
        console.print(
            Text.assemble(
                (_flat(row["place"]), "cyan"), _score(row, "  "), "  ", (_heading(row), "bold")
            )
        )
        console.print(_with_marks(row["snippet"], row["marks"]))
        if options.explain:
            console.print(Text(f"    {_flat(_explanation(row))}", style="dim"))


def _heading(row: dict[str, Any]) -> str:
    section = _flat(row.get("sectionHeading", ""))
    title = _flat(row["documentTitle"])
    return f"{title} > {section}" if section and section != title else title


def _score(row: dict[str, Any], before: str) -> str:
    return f"{before}{row['relevanceScore']:.2f}" if "relevanceScore" in row else ""


def _with_marks(snippet: str, marks: Sequence[tuple[int, int]]) -> Text:
    """A snippet whose matched words stand out."""
    from rich.text import Text

    shown = Text("    ")
    done = 0
    for start, end in marks:
        shown.append(visible(snippet[done:start]))
        shown.append(visible(snippet[start:end]), style="bold yellow")
        done = end
    return shown.append(visible(snippet[done:]))


def _explanation(row: dict[str, Any]) -> str:
    distance = f"{row['distance']:.4f}" if "distance" in row else "unknown"
    return (
        f"{row['why']} (keyword rank {row['keywordRank'] or '-'}, vector rank "
        f"{row['vectorRank'] or '-'}, distance {distance})"
    )


def _flat(value: Any) -> str:
    """On one line, and with something to see in the place of what could steer a terminal."""
    return " ".join(visible(str(value)).split())


def _console(**options: Any) -> Any:
    """A `rich` console on stdout: everything it prints has gone through `_flat` or `visible`."""
    from rich.console import Console

    return Console(file=coloured(sys.stdout), **options)


def _escaped(value: Any) -> str:
    from rich.markup import escape

    return escape(_flat(value))


@contextlib.contextmanager
def progress(options: argparse.Namespace) -> Iterator[Callable[[str, int, int], None]]:
    """A progress callback: a bar with rate and time left on stderr when that is a terminal."""
    if options.quiet or not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:>10}"),
        BarColumn(),
        MofNCompleteColumn(),
        _rate_column(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=coloured(sys.stderr)), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield show


def _rate_column() -> Any:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Rate(ProgressColumn):
        """Items a second."""

        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:.1f}/s" if task.speed else "")

    return Rate()

"""What people and pipes see: tables and colour on a terminal, plain text in a pipe, or JSON.

The result of a command goes to stdout; anything else is a line on stderr that begins with `kb:`, or
a bar while something takes long. Rich is imported on a terminal only (`kb.cli.terminal`).
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kb.cli.streams import coloured
from kb.text.controls import escaped_in_json, flat
from kb.text.file_names import writable

ERROR, NOTICE = "bold red", "yellow"


def print_json(value: Any) -> None:
    print(as_json(value, indent=2))


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON, with letters escaped that stdout cannot hold or that could steer a terminal."""
    takes_all = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    separators = None if indent else (",", ":")
    listed = json.dumps(
        writable(value), ensure_ascii=not takes_all, indent=indent, separators=separators
    )
    return escaped_in_json(listed)


def text(
    result: Any,
    plain: str,
    options: argparse.Namespace,
    on_terminal: Callable[[], None] | None = None,
) -> None:
    """Print a result as text, or as JSON if asked for; on a terminal by `on_terminal`, if given."""
    if options.json:
        print_json(result)
    elif plain and on_terminal is not None and sys.stdout.isatty():
        on_terminal()
    elif plain:
        print(plain, end="" if plain.endswith("\n") else "\n")


def say(sentence: str, *, program: str = "kb", style: str = NOTICE) -> None:
    """Print a line on stderr, after the name of the program."""
    line = " ".join(sentence.splitlines())
    if sys.stderr.isatty():
        from kb.cli import terminal

        terminal.say(program, flat(line), style)
    else:
        print(f"{program}: {line}", file=sys.stderr)


def remark(sentence: str, options: argparse.Namespace) -> None:
    """Print a sentence beside the result for people; JSON contains it otherwise."""
    if sentence and not options.json:
        say(sentence)


def labelled(label: str, style: str, sentence: str) -> None:
    """Print a line after a short word, which is coloured on a terminal."""
    if sys.stdout.isatty():
        from kb.cli import terminal

        terminal.labelled(label, style, flat(sentence))
    else:
        print(f"{label:<7} {sentence}")


def table(
    result: Any, rows: Sequence[dict[str, Any]], columns: Sequence[str], options: argparse.Namespace
) -> None:
    """Print rows as a table on a terminal, as tab-separated lines in a pipe, or as asked for."""
    kind = "json" if options.json else getattr(options, "format", None) or "table"
    if kind == "json":
        print_json(result)
    elif rows and kind == "table" and sys.stdout.isatty():
        from kb.cli import terminal

        terminal.table([[flat(row.get(column, "")) for column in columns] for row in rows], columns)
    else:
        separated(rows, columns, kind)


def separated(rows: Sequence[dict[str, Any]], columns: Sequence[str], kind: str) -> None:
    """Print rows for other programs: under headers as CSV, or as TSV, without quotes, on one line
    each, and without headers as a table."""
    if kind == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([row.get(column, "") for column in columns] for row in rows)
        return
    if kind == "tsv":
        print("\t".join(columns))
    for row in rows:
        print("\t".join(flat(row.get(column, "")) for column in columns))


Show = Callable[[str, int, int], None]

NOTICE_SECONDS = 1.5  # before a command says that it takes longer


class Notice:
    """One line on stderr about a step that takes long: what is done, and how much longer."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._is_silent = options.quiet or options.json
        self._timer: threading.Timer | None = None
        self._stage = ""
        self._began = 0.0

    def begin(self, look: Callable[[], tuple[str, float]]) -> None:
        """Begin a step; `look` says what is done, and for how many seconds in all (0: unknown)."""
        self.end()
        self._look = look
        self._began = time.monotonic()
        if not self._is_silent:
            self._timer = threading.Timer(NOTICE_SECONDS, self._say)
            self._timer.daemon = True
            self._timer.start()

    def show(self, stage: str, done: int, total: int) -> None:
        """The progress of the step, as a callback of `progress`."""
        if stage != self._stage:
            self._stage = stage
            self.begin(lambda: (stage, 0.0))
        elapsed = time.monotonic() - self._began
        if done:
            seconds = elapsed / done * total
            self._look = lambda: (f"{stage}: {done:,} of {total:,}", seconds)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _say(self) -> None:
        doing, seconds = self._look()
        left = max(seconds - (time.monotonic() - self._began), 1)
        minutes = f"{left / 60:.0f} min" if left < 5400 else f"{left / 3600:.1f} h"
        more = f"about {f'{left:.0f} s' if left < 90 else minutes} more"
        say(f"{doing}, {more if seconds else 'which takes a while'}")


@contextlib.contextmanager
def progress(options: argparse.Namespace) -> Iterator[Show]:
    """A progress callback: a bar on stderr when that is a terminal, else one notice."""
    notice: Notice = options.notice
    if options.quiet or not sys.stderr.isatty():
        yield notice.show
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:.1f}/s" if task.speed else "")

    columns = (
        TextColumn("{task.description:>10}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=coloured(sys.stderr)), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            notice.end()
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield show

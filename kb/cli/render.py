"""What people and pipes see: tables and colour on a terminal, plain text in a pipe, or JSON.

The result of a command goes to stdout; anything else is a line on stderr that begins with `kb:`.
Rich is imported on a terminal only (`kb.cli.terminal`).
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

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


def is_read_as_it_comes(options: argparse.Namespace) -> bool:
    """Whether a person reads along, so that a better answer may follow a first one."""
    plain = not options.json and getattr(options, "format", None) in (None, "table")
    return plain and not options.quiet and sys.stdout.isatty()


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
    elif kind in ("csv", "tsv"):
        separated(rows, columns, kind)
    elif not sys.stdout.isatty():
        for row in rows:
            print("\t".join(flat(row.get(column, "")) for column in columns))
    elif rows:
        from kb.cli import terminal

        terminal.table([[flat(row.get(column, "")) for column in columns] for row in rows], columns)


def separated(rows: Sequence[dict[str, Any]], columns: Sequence[str], kind: str) -> None:
    """Print rows under their headers, for other programs; TSV, without quotes, on one line each."""
    if kind == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([row.get(column, "") for column in columns] for row in rows)
        return
    print("\t".join(columns))
    for row in rows:
        print("\t".join(flat(row.get(column, "")) for column in columns))

"""The table of commands, and the parser of each, whose options are declared beside its function.

Only the module of the command that is typed is imported; help and typos need none.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kb.cli.arguments import (
    QUERY_COMMANDS,
    Parser,
    WrongUse,
    command_index,
    positive,
    suggestion,
    unknown_argument,
    without_mark,
    words_first,
)
from kb.settings import PACKAGE, VERSION

# Paths are opened as given; every other argument is text that UTF-8 must be able to hold.
PATH_OPTIONS = frozenset(
    "access_log allow_docs db db_folder file folder judged root sources token_file".split()
)
ABOUT = "A project's knowledge in one SQLite file: add folders, search, serve."
EXAMPLE = 'kb search "how do I calibrate the wind vane?" --from docs'
# By the headings of the overview: NAME FUNCTION[, USE]: SUMMARY. The function is MODULE.NAME in
# `kb.cli`; NAME_options beside it declares its arguments. "creates": it creates a missing file;
# "no file": it opens none.
_TABLE = PACKAGE / "assets" / "commands.txt"


class Command(NamedTuple):
    """What is known of a command before its module is imported."""

    function: str
    use: str
    summary: str
    heading: str


def _commands() -> Iterator[tuple[str, Command]]:
    heading = ""
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        name, _, rest = line.removeprefix("  ").partition(" ")
        if line.startswith("  "):
            call, _, summary = rest.partition(": ")
            function, _, use = call.partition(", ")
            yield name, Command(function, use, summary, heading)
        else:
            heading = line


COMMANDS = dict(_commands())


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; raises WrongUse, or SystemExit once help or version are
    printed."""
    if arguments[:1] in ([], ["help"]):  # `kb`, `kb help`, `kb help search`
        arguments = [*arguments[1:2], "--help"]
    general = overview()
    index = command_index(general, arguments)
    if index == len(arguments):
        _, unknown = general.parse_known_args(arguments)
        if unknown:
            raise WrongUse(unknown_argument(general, unknown[0]), general.prog)
        raise WrongUse("name a command, such as `kb add FOLDER` or `kb search QUERY`", general.prog)
    name = arguments[index]
    if name not in COMMANDS:
        raise WrongUse(f'there is no command "{name}": {suggestion(name, COMMANDS)}', general.prog)
    parser = command_parser(name)
    rest = [*arguments[:index], *arguments[index + 1 :]]
    if name in (*QUERY_COMMANDS, "add"):
        rest = words_first(parser, rest)
    options, unknown = parser.parse_known_args(rest)
    if unknown:
        raise WrongUse(unknown_argument(parser, without_mark(unknown[0])), parser.prog)
    return options


def command_parser(name: str) -> Parser:
    command = COMMANDS[name]
    summary = command.summary
    parser = Parser(prog=f"kb {name}", description=f"{summary[0].upper()}{summary[1:]}.")
    parser.set_defaults(
        command=command.function,
        creates=command.use == "creates",
        needs_file=command.use != "no file",
    )
    module, function = command.function.split(".")
    getattr(importlib.import_module(f"kb.cli.{module}"), f"{function}_options")(parser)
    _add_common_options(parser)
    return parser


def overview() -> Parser:
    """The parser of what precedes a command; its help lists all commands."""
    parser = Parser(prog="kb", description=ABOUT, example=EXAMPLE)
    for name, command in COMMANDS.items():
        parser.commands.setdefault(command.heading, []).append((name, command.summary))
    _add_common_options(parser)
    return parser


def _add_common_options(parser: Parser) -> None:
    add = parser.add_argument_group("every command takes").add_argument
    add(
        *("--db",),
        metavar="PATH",
        action="append",
        help="the knowledge base file (default: KB_DB, else .kb/kb.db of the project); several, "
        "or those in a folder, are read as one; the first is written, of shards each",
    )
    add("--json", action="store_true", help="one JSON document on stdout")
    add("--quiet", action="store_true", help="no progress and no summary")
    levels = ("debug", "info", "warning", "error")
    add("--log-level", choices=levels, default="warning", help="how much to log on stderr")
    add(
        "--model",
        metavar="NAME",
        help="embedding model or URL#NAME (default: the file's, else one for the documents)",
    )
    add("--reranker", metavar="NAME", help="a fastembed cross-encoder or URL#NAME, for rerank")
    add("--threads", type=positive, default=1, metavar="N", help="threads of one model run")
    download = "let fastembed download the model named with --model"
    add("--download", action="store_true", help=download)
    add("--version", action="version", version=f"kb {VERSION}", help="print the version")
    add("-h", "--help", action="help", help="show this")

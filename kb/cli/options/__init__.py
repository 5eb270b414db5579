"""The parser of the command line: what every command takes, and a module a group of commands.

Nothing here imports what a command does: help and misspelt commands must not wait for it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import kb
from kb.cli import completion, datasette, doctor, install, replicate, serve, token
from kb.cli.arguments import Parser, Unasked, positive, typed_command
from kb.cli.options import browsing, care, collecting, context

__all__ = ["PATH_OPTIONS", "make_parser"]

# What is opened as it is; every other argument is text, which UTF-8 must be able to hold.
PATH_OPTIONS = frozenset(
    {
        *("access_log", "allow_docs", "db", "db_folder", "file", "folder", "judged", "root"),
        *("source", "token_file"),
    }
)
LOG_LEVELS = ("debug", "info", "warning", "error")
ABOUT = "A project's knowledge in one SQLite file: add folders, search, serve."


def make_parser(arguments: Sequence[str] = ()) -> Parser:
    """The parser with the options of the command that is typed, or of all where none is.

    It knows the other commands by their names and what they are for.
    """
    common = _common_options(argparse.SUPPRESS)
    parser = Parser(prog="kb", description=ABOUT, parents=[_common_options(None)], add_help=False)
    parser.example = 'kb search "how do I calibrate the wind vane?" --from docs'
    parser.set_defaults(creates=False, needs_file=True)
    typed = typed_command(parser, arguments)

    def parser_of_command(**more: Any) -> Parser:
        is_typed = more["prog"] == f"{parser.prog} {typed}"
        return Parser(**more) if is_typed or not typed else Unasked(**more)

    # The program is named, since argparse would format the whole usage to find it.
    commands: argparse._SubParsersAction[Parser] = parser.add_subparsers(  # type: ignore[call-overload]
        metavar="COMMAND", prog=parser.prog, parser_class=parser_of_command
    )

    def add(
        name: str, command: str, text: str, *, group: str, example: str, **defaults: Any
    ) -> Parser:
        sub: Parser = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            parents=[common],
            add_help=False,
        )
        sub.example = example
        parser.groups.setdefault(group, []).append(name)
        sub.set_defaults(command=command, **defaults)
        return sub

    browsing.add_options(add)
    collecting.add_options(add)
    context.add_options(add)
    serve.add_options(add)
    care.add_tool_options(add)
    token.add_options(add)
    install.add_options(add)
    care.add_options(add)
    care.add_parts_options(add)
    replicate.add_options(add)
    doctor.add_options(add)
    datasette.add_options(add)
    completion.add_options(add)
    return parser


def _common_options(default: Any) -> Parser:
    """The global options, accepted before and after the command."""

    def value(own: Any) -> Any:
        return own if default is None else default

    parser = Parser(add_help=False)
    options = parser.add_argument_group("every command takes")
    options.add_argument(
        "--db",
        metavar="PATH",
        action="append",
        default=default,
        help="the knowledge base file (default: KB_DB, else .kb/kb.db of the project); several "
        "are read as one, and the first is written",
    )
    options.add_argument(
        "--json", action="store_true", default=value(False), help="one JSON document on stdout"
    )
    options.add_argument(
        "--quiet", action="store_true", default=value(False), help="no progress and no summary"
    )
    options.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        default=value("warning"),
        help="how much to log on stderr",
    )
    options.add_argument(
        "--model",
        metavar="NAME",
        default=default,
        help="embedding model (default: the file's, else the one for the documents' language)",
    )
    options.add_argument(
        "--reranker", metavar="NAME", default=default, help="a fastembed cross-encoder for rerank"
    )
    options.add_argument(
        "--threads", type=positive, default=value(1), metavar="N", help="threads of one model run"
    )
    options.add_argument(
        "--download",
        action="store_true",
        default=value(False),
        help="let fastembed download the model named with --model",
    )
    options.add_argument(
        "--version", action="version", version=f"kb {kb.__version__}", help="print the version"
    )
    options.add_argument("-h", "--help", action="help", help="show this")
    return parser

"""`kb completion`, and what the shell asks for while one types.

argcomplete reads commands and options from the parser; here are the names that only the file
knows. Nothing may be printed or waited for: a missing, damaged or busy file completes to nothing.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kb.cli import render
from kb.cli.arguments import Parser

SHELLS = ("bash", "zsh", "fish")
PROGRAMS = ("kb", "kbfile")
MOST = 500  # names that a shell is given
NAMES_A_COLLECTION = ("sync", "remove", "move", "list")
Completer = Callable[..., list[str]]
_HOW = {
    "bash": 'eval "$(kb completion bash)"      # in ~/.bashrc',
    "zsh": 'eval "$(kb completion zsh)"       # in ~/.zshrc, behind compinit',
    # A file, since fish has completions for another program named kb, and reads them beside ours.
    "fish": "kb completion fish > ~/.config/fish/completions/kb.fish",
}


def completion_options(parser: Parser) -> None:
    parser.example = "kb completion bash"
    parser.argument("shell", "SHELL", ", ".join(SHELLS), choices=SHELLS)
    parser.epilog = "\n".join(("how:", *(f"  {how}" for how in _HOW.values())))


def completion(_: object, options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    text = shellcode(list(PROGRAMS), shell=options.shell)
    render.text({"shell": options.shell, "code": text}, text, options)
    return 0


def complete() -> None:
    import argcomplete

    from kb.cli.commands import COMMANDS, command_parser, overview

    parser = overview()
    commands = parser.add_subparsers()
    words = os.environ.get("COMP_LINE", "").split()
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.summary, description="")
        if name in words:  # the others' options are not asked for
            typed = commands.choices[name] = command_parser(name)
            for action in typed._actions:
                if action.dest == "db":  # it may be named before the command
                    action.default = argparse.SUPPRESS
                action.completer = _completer(name, action)  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options="long")


def _completer(command: str, action: argparse.Action) -> Completer | None:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    is_name = not action.option_strings and action.dest in ("name", "names")
    if action.dest == "collection" or metavar == "COLLECTION":
        return _collections
    if is_name and command in NAMES_A_COLLECTION:
        return _collections
    if metavar.startswith("DOC"):
        return _documents
    if is_name and command == "tool":
        return _tools
    return _clients if action.dest == "client" else None


def _collections(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    from kb.library.names import collection_names

    return collection_names(_file(parsed_args), prefix, MOST)


def _documents(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    collection = getattr(parsed_args, "collection", "")
    only = collection if isinstance(collection, str) else ""
    from kb.library.names import document_ids

    return document_ids(_file(parsed_args), prefix, only, MOST)


def _tools(prefix: str, **_: Any) -> list[str]:
    from kb.tools.registry import load_tools

    return [name for name in load_tools() if name.startswith(prefix)]


def _clients(prefix: str, **_: Any) -> list[str]:
    from kb.assistants.catalog import ASSISTANTS

    return [name for name in ASSISTANTS if name.startswith(prefix)]


def _file(options: argparse.Namespace) -> Path:
    from kb.settings import database_path

    return database_path(getattr(options, "db", None))

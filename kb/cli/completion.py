"""`kb completion`, and what the shell asks while one types.

argcomplete reads the commands and options from the parser itself; here are the names that only the
file knows. Nothing may be printed or waited for: a file that is missing, damaged or busy completes
to nothing.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kb.cli import render
from kb.cli.arguments import CARE
from kb.cli.install import CLIENT_NAMES

if TYPE_CHECKING:
    from kb.store.connection import Connection

SHELLS = ("bash", "zsh", "fish")
ASKED = "_ARGCOMPLETE"  # set by the shell's function
PROGRAMS = ("kb", "kbfile")
MOST = 500  # names that a shell is given
NAMES_A_COLLECTION = ("sync", "remove", "move", "list")
Completer = Callable[..., list[str]]
_HOW = {
    "bash": 'eval "$(kb completion bash)"      # in ~/.bashrc',
    "zsh": 'eval "$(kb completion zsh)"       # in ~/.zshrc, behind compinit',
    "fish": "kb completion fish | source      # in ~/.config/fish/config.fish",
}


def add_options(add: Callable[..., argparse.ArgumentParser]) -> None:
    """The command with its options."""
    sub = add(
        "completion",
        "completion.completion",
        "print what makes a shell complete commands, options, collections and documents",
        group=CARE,
        example="kb completion bash",
        needs_file=False,
    )
    sub.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    sub.epilog = "\n".join(("how:", *(f"  {how}" for how in _HOW.values())))


def completion(_: object, options: argparse.Namespace) -> int:
    """Print the shell's function."""
    from argcomplete.shell_integration import shellcode

    text = shellcode(list(PROGRAMS), shell=options.shell)
    render.text({"shell": options.shell, "code": text}, text, options)
    return 0


def is_asked() -> bool:
    """Whether it is the shell that starts this, to be told how a word may go on."""
    return ASKED in os.environ


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and leave."""
    import argcomplete

    _name_completers(parser)
    argcomplete.autocomplete(parser, always_complete_options="long")


def _name_completers(parser: argparse.ArgumentParser) -> None:
    """Tell each argument whose values are names where these come from."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                _name_completers(sub)
        elif (completer := _completer(parser.prog.split()[-1], action)) is not None:
            action.completer = completer  # type: ignore[attr-defined]


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
    from kb.store.collections import collection_names_from

    return _asked(parsed_args, lambda connection: collection_names_from(connection, prefix, MOST))


def _documents(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    collection = getattr(parsed_args, "collection", "")
    only = collection if isinstance(collection, str) else ""
    from kb.store.contents import document_paths_from

    return _asked(
        parsed_args, lambda connection: document_paths_from(connection, prefix, only, MOST)
    )


def _tools(prefix: str, **_: Any) -> list[str]:
    from kb.tools.registry import load_tools

    return [name for name in load_tools() if name.startswith(prefix)]


def _clients(prefix: str, **_: Any) -> list[str]:
    return [name for name in CLIENT_NAMES if name.startswith(prefix)]


def _asked(options: argparse.Namespace, ask: Callable[[Connection], list[str]]) -> list[str]:
    from kb.errors import KbError
    from kb.settings import database_path
    from kb.store.database import Database

    try:
        path = database_path(getattr(options, "db", None))
        with Database(path, create=False) as database, database.read() as connection:
            return ask(connection)
    except KbError:
        return []

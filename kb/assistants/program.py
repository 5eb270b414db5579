"""The command that starts this very program from anywhere, or kb on any machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAM_NAMES = ("kb", "kbfile")
DISTRIBUTION = "kbfile"
# Runners that keep a package, without installing it, where it may be gone tomorrow: then the runner
# is the command.
_RUNNERS = {
    ("uv", "archive-v0"): ("uvx", DISTRIBUTION),
    ("uv", "builds-v0"): ("uvx", DISTRIBUTION),
    ("pipx", ".cache"): ("pipx", "run", DISTRIBUTION),
}


def program(argument: str | None = None, executable: str | None = None) -> list[str]:
    """The absolute command, without arguments, of the program `argument` (by default sys.argv[0]).
    Links are not followed: `~/.local/bin/kb` stays right when an upgrade moves its target."""
    called = Path(argument if argument is not None else sys.argv[0])
    python = executable or sys.executable
    for (name, folder), (runner, *rest) in _RUNNERS.items():
        if {name, folder} <= set(Path(python).parts) and (path := shutil.which(runner)):
            return [os.path.abspath(path), *rest]
    if called.stem in PROGRAM_NAMES and called.suffix in ("", ".exe"):
        if called.is_file():
            return [os.path.abspath(called)]
        if path := shutil.which(called.name):
            return [os.path.abspath(path)]
    # -P: a folder named kb in the working folder is not this program.
    return [python, "-P", "-m", "kb"]


def shared_program(command: Sequence[str], executable: str | None = None) -> list[str]:
    """The command for a file that a project shares, without anything of this machine in it: the
    program's name if it is on the path, else uv, which fetches it. `command` is of `program`."""
    folders = {os.path.dirname(executable or sys.executable), os.path.dirname(command[0])}
    for name in PROGRAM_NAMES:
        path = shutil.which(name)
        if path and os.path.dirname(os.path.abspath(path)) in folders:
            return [name]
    return ["uvx", DISTRIBUTION]


def is_ours(command: Sequence[str]) -> bool:
    """Whether a command starts kb, this one or another installation."""
    names = [Path(part.replace("\\", "/")).name.removesuffix(".exe") for part in command]
    if "serve" not in names:
        return False
    return any(name in PROGRAM_NAMES for name in names[: names.index("serve")])

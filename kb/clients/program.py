"""The command that starts this very program from anywhere."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAM_NAMES = ("kb", "kbfile")
DISTRIBUTION = "kbfile"
# What runs a package without installing it keeps it where it may be gone tomorrow: there the
# runner is what can be started again.
_RUNNERS = {
    ("uv", "archive-v0"): ("uvx", DISTRIBUTION),
    ("uv", "builds-v0"): ("uvx", DISTRIBUTION),
    ("pipx", ".cache"): ("pipx", "run", DISTRIBUTION),
}


def program(argument: str | None = None, executable: str | None = None) -> list[str]:
    """The absolute command, without arguments of its own.

    Links are not followed: `~/.local/bin/kb` stays right when an upgrade moves what it points at.

    Args:
        argument: how the program was called (sys.argv[0]).
        executable: the interpreter (sys.executable).
    """
    called = Path(argument if argument is not None else sys.argv[0])
    python = executable or sys.executable
    for (name, folder), (runner, *rest) in _RUNNERS.items():
        if {name, folder} <= set(Path(python).parts) and (found := shutil.which(runner)):
            return [os.path.abspath(found), *rest]
    if called.stem in PROGRAM_NAMES and called.suffix in ("", ".exe"):
        if called.is_file():
            return [os.path.abspath(called)]
        if found := shutil.which(called.name):
            return [os.path.abspath(found)]
    # -P: a folder named kb in the working folder is not this program.
    return [python, "-P", "-m", "kb"]


def is_ours(command: Sequence[str]) -> bool:
    """Whether a command starts kb, this one or one that was installed elsewhere."""
    names = [Path(part.replace("\\", "/")).name.removesuffix(".exe") for part in command]
    if "serve" not in names:
        return False
    before = names[: names.index("serve")]
    return any(name in PROGRAM_NAMES for name in before)

"""Copies of a file kept elsewhere, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kb.errors import FileError, UsageError
from kb.store.replication import replicate as replication
from kb.store.replication.destination import parse_destination
from kb.store.replication.litestream import Restored, restore as restore_file
from kb.store.replication.state import State, replication_state

__all__ = ["replicate", "replication_state", "require_state", "restore", "stop"]

stop = replication.stop


def replicate(
    file: Path, address: str, tell: Callable[[str], None], *, goes_on: bool, once: bool
) -> None:
    """Copy a file to an address until a signal ends this process; raises as
    `kb.store.replication.replicate`."""
    replication.replicate(file, parse_destination(address), tell, goes_on=goes_on, once=once)


def restore(address: str, file: Path, at: str = "") -> Restored:
    """Write a file from its copy, by default the newest; raises as
    `kb.store.replication.litestream`."""
    return restore_file(parse_destination(address), file, at)


def require_state(file: Path) -> State:
    """How far the copy of a file is; raises FileError or UsageError if there is none."""
    if not file.exists():
        raise FileError(f"there is no knowledge base at {file}: make one with `kb add FOLDER`")
    if (state := replication_state(file)) is None:
        raise UsageError(f"{file} is not replicated: `kb replicate DESTINATION` begins it")
    return state

"""Copies of a file kept elsewhere, and the way back."""

from __future__ import annotations

from pathlib import Path

from kb.errors import FileError, UsageError
from kb.store.replication.litestream import restore
from kb.store.replication.replicate import State, replicate, replication_state, stop

__all__ = ["replicate", "replication_state", "require_state", "restore", "stop"]


def require_state(file: Path) -> State:
    """How far the copy of a file is; raises FileError or UsageError if there is none."""
    if not file.exists():
        raise FileError(f"there is no knowledge base at {file}: make one with `kb add FOLDER`")
    if (state := replication_state(file)) is None:
        raise UsageError(f"{file} is not replicated: `kb replicate DESTINATION` begins it")
    return state

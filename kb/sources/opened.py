"""A source while it is read: whatever it is, its files lie in a folder for that long."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Opened"]


@dataclass(frozen=True, slots=True)
class Opened:
    """Where a source's files are for now."""

    root: Path  # a folder, or the one file that the source is
    version: str | None = None  # what the source itself calls this edition: git's commit
    manifest: Path | None = None  # None: manifest.json of the root

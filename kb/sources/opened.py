"""A source while it is read: whatever it is, its files lie in folders for that long."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kb.sources.folder import SourceFile
from kb.sources.manifest import Manifest

__all__ = ["Opened"]


@dataclass(frozen=True, slots=True)
class Opened:
    """Where a source's files are for now, and what it says of itself."""

    root: Path  # a folder, or the one file that the source is
    manifest: Manifest = field(default_factory=Manifest)
    version: str | None = None  # what the source itself calls this edition: git's commit
    fetched: tuple[SourceFile, ...] = ()  # beside those below the root
    notices: tuple[str, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()  # paths that could not be had, and why

"""Where to open what was found, as it is seen from the folder that the command runs in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kb.text.file_names import on_disk, storable

__all__ = ["lines_of", "location_of", "place_of", "shown_file"]

IN_FILE = ("page", "slide", "sheet", "cell")


def place_of(row: dict[str, Any]) -> str:
    """A hit's file with its lines."""
    return f"{shown_file(row)}:{lines_of(row)}"


def shown_file(row: dict[str, Any]) -> str:
    """A hit's file seen from here when it is there, else collection/id."""
    file: str = row["file"]
    if not file:
        return f"{row['collection']}/{row['documentId']}"
    try:
        return storable(Path(on_disk(file)).relative_to(Path.cwd()))
    except ValueError:
        return file


def location_of(row: dict[str, Any]) -> Path | None:
    """Where a hit's file lies, if it is there."""
    return Path(on_disk(row["file"])) if row["file"] else None


def lines_of(row: dict[str, Any]) -> str:
    """A hit's lines, with the page or slide of a converted file behind them."""
    lines = f"{row['startLine']}-{row['endLine']}"
    for kind in IN_FILE:
        if kind in row:
            last = row.get(f"end{kind.capitalize()}")
            return f"{lines} ({kind} {row[kind]}{f' to {last}' if last is not None else ''})"
    return lines

"""Where to open what was found, as it is seen from the folder that the command runs in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kb.text.file_names import on_disk, storable


def place(row: dict[str, Any]) -> str:
    """A hit's file seen from here when it is there, else collection/id; with its lines."""
    lines = f":{row['startLine']}-{row['endLine']}{_in_file(row)}"
    if not row["file"]:
        return f"{row['collection']}/{row['documentId']}{lines}"
    try:
        return f"{storable(Path(on_disk(row['file'])).relative_to(Path.cwd()))}{lines}"
    except ValueError:
        return f"{row['file']}{lines}"


def _in_file(row: dict[str, Any]) -> str:
    """The page or slide of a converted file, behind the lines of its text."""
    for kind in ("page", "slide", "sheet", "cell"):
        if kind in row:
            last = row.get(f"end{kind.capitalize()}")
            return f" ({kind} {row[kind]}{f' to {last}' if last is not None else ''})"
    return ""

"""What the editors of both formats share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Malformed(Exception):
    """A file that cannot be edited, with the place; both numbers from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.column = column


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """Where a character stands, as an editor counts: both from 1."""
    before = text[:position].replace("\r\n", "\n").replace("\r", "\n")
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def look_up(values: Any, keys: Sequence[str]) -> Any:
    """What is under keys, None if nothing is."""
    for key in keys:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def says_the_same(
    read: Callable[[str], dict[str, Any]], before: str, after: str, keys: Sequence[str], value: Any
) -> bool:
    """Whether an edited text says what it said, but for `value` under `keys` (None: not there)."""
    expected = read(before)
    inner = expected
    for key in keys[:-1]:
        inner = inner.setdefault(key, {})
    if value is None:
        inner.pop(keys[-1], None)
    elif isinstance(value, Mapping) and isinstance(inner.get(keys[-1]), Mapping):
        inner[keys[-1]] |= value
    else:
        inner[keys[-1]] = value
    try:
        return _without_empty(read(after)) == _without_empty(expected)
    except Malformed:
        return False


def _without_empty(values: dict[str, Any]) -> dict[str, Any]:
    """Objects that hold nothing are the same as none."""
    kept = {k: _without_empty(v) if isinstance(v, dict) else v for k, v in values.items()}
    return {k: v for k, v in kept.items() if v != {}}

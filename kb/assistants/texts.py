"""What the editors of both formats share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Malformed(Exception):
    """A file that cannot be edited, and why, with the place; both numbers from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.column = column


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """The place of a character as editors count: both numbers from 1."""
    before = text[:position].replace("\r\n", "\n").replace("\r", "\n")
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def look_up(values: Any, keys: Sequence[str]) -> Any:
    """What is under keys, or None."""
    for key in keys:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def says_the_same(
    read: Callable[[str], dict[str, Any]],
    before: str,
    after: str,
    keys: Sequence[str],
    value: Any,
    *,
    is_step: bool = False,
) -> bool:
    """Whether an edited text means the same except for `value` under `keys` (None: nothing there);
    for a step of an edit it suffices that something else is there than before."""
    try:
        values, expected = read(after), read(before)
    except Malformed:
        return False
    present = look_up(values, keys)
    is_right = present != look_up(expected, keys) if is_step else present == value
    return is_right and _without(values, keys) == _without(expected, keys)


def _without(values: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """What is not under keys; empty objects count as absent."""
    kept = {}
    for key, inner in values.items():
        if keys and key == keys[0]:
            if len(keys) == 1:
                continue
            inner = _without(inner, keys[1:]) if isinstance(inner, dict) else inner
        elif isinstance(inner, dict):
            inner = _without(inner, ())
        if inner != {}:
            kept[key] = inner
    return kept

"""Patterns that are no more than the characters they are made of, looked up without ripgrep."""

from __future__ import annotations

import re

__all__ = ["first_lines", "is_literal"]

# What means something else to a regular expression, or cannot stand in a line.
_MEANS_MORE = re.compile(r"[\\.+*?()|\[\]{}^$\x00-\x1f\ud800-\udfff]")


def is_literal(pattern: str) -> bool:
    """Whether a pattern matches itself and nothing else."""
    return pattern != "" and _MEANS_MORE.search(pattern) is None


def first_lines(literal: bytes, text: bytes, limit: int) -> list[tuple[int, int]]:
    """The first lines that hold some bytes, from 1, and where these stand in the line, from 0."""
    found: list[tuple[int, int]] = []
    line, start = 1, 0  # of a line, and where it begins
    while len(found) < limit and (place := text.find(literal, start)) >= 0:
        line += text.count(b"\n", start, place)
        start = max(start, text.rfind(b"\n", start, place) + 1)
        found.append((line, place - start))
        if not (start := text.find(b"\n", place) + 1):
            break
        line += 1
    return found

"""JSON from outside: read within bounds, with messages that people understand.

Python's parser has a different and obscure error for text that is nested too deeply, for bytes that
are not UTF-8, and for numbers that are too long.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

DEEPEST = 100  # arrays and objects inside each other; our own files and schemas need five
MAX_DIGITS = 300  # digits; a float has at most 309
# Values and member names of a message: 64 MB of `[],` would take nine seconds and a gigabyte.
MAX_VALUES = 100_000
STEP = 1_000_000  # characters that are looked through at once: no other thread runs meanwhile
_NESTED = f"arrays and objects lie more than {DEEPEST} deep in each other"


class JsonError(ValueError):
    """What is wrong with a text, as a clause; `is_bound`: it is JSON, but too much."""

    def __init__(self, message: str, *, is_bound: bool = False) -> None:
        super().__init__(message)
        self.is_bound = is_bound


def parse_json(data: str | bytes, *, from_client: bool = False) -> Any:
    """The value of a text; bytes are UTF-8, or UTF-16 or -32 that show it.

    Args:
        from_client: a message, which has a bound of values and no NaN; in a file NaN is None.

    Raises JsonError if it is not JSON, or lies beyond a bound.
    """
    text = data if isinstance(data, str) else _decoded(data)
    if from_client and _has_more_values(text, MAX_VALUES):
        raise JsonError(f"it holds more than {MAX_VALUES:,} values", is_bound=True)
    constant = _refuse if from_client else _nothing
    try:
        value = json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=constant)
    except json.JSONDecodeError as error:
        # Newer parsers bear more levels, and say of what is not closed that it is no JSON.
        levels = [sum(text.count(sign, 0, error.pos) for sign in signs) for signs in ("[{", "]}")]
        if levels[0] - levels[1] > DEEPEST:
            raise JsonError(_NESTED, is_bound=True) from error
        raise JsonError(str(error)) from error
    except RecursionError as error:
        raise JsonError(_NESTED, is_bound=True) from error
    if _is_deep(value):
        raise JsonError(_NESTED, is_bound=True)
    return value


def _decoded(data: bytes) -> str:
    try:
        return data.decode(json.detect_encoding(data))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise JsonError(f"line {line} holds bytes that are not UTF-8") from error


def _has_more_values(text: str, most: int) -> bool:
    """Whether a text has more JSON values, without making any."""
    if len(text) < most:
        return False
    count = start = 0
    is_quoted = False
    while start < len(text) and count <= most:
        piece = text[start : start + STEP]
        # An escape stays whole. Only then do quotes remain that begin or end a text.
        if (len(piece) - len(piece.rstrip("\\"))) % 2:
            piece = text[start : start + STEP + 1]
        start += len(piece)
        first, *rest = piece.replace(r"\\", "").replace(r"\"", "").split('"', 2 * most)
        count += 0 if is_quoted else _separators(first)
        for part in rest:
            is_quoted = not is_quoted
            count += 1 if is_quoted else _separators(part)
    return count > most


def _separators(text: str) -> int:
    return sum(text.count(sign) for sign in ",[{")


def _is_deep(value: Any) -> bool:
    """Whether a value is too deep for code that walks through it."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            item
            for container in level
            if isinstance(container, dict | list)
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise JsonError(f"a number has {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise JsonError(f"the number {text[:30]} is too large")
    return number


def _nothing(_: str) -> None:
    """NaN and the infinities, which SQLite's JSON does not know."""


def _refuse(text: str) -> Any:
    raise JsonError(f"{text} is not a number in JSON")


# What is not closed extends to the end, and is not looked at again, so the time is linear.
_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*+"?|//[^\r\n]*+|/\*(?:.*?\*/|.*+)|\s++|[^"/\s,{}\[\]]++|.', re.DOTALL
)


def without_comments(text: str) -> str:
    """JSON as people write it, with spaces for comments and trailing commas, each character in its
    place."""
    parts: list[str] = []
    before, comma = "", None  # the last sign, and the index of a comma after a value
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign.startswith(("//", "/*")):
            sign = re.sub(r"[^\r\n]", " ", sign)
        parts.append(sign)
        if sign.isspace():
            continue
        if comma is not None and sign in "}]":
            parts[comma] = " "
        comma = len(parts) - 1 if sign == "," and before not in ("", ",", "{", "[") else None
        before = sign
    return "".join(parts)

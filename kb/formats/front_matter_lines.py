"""Front matter that is not valid YAML, entry by entry: a bad line costs one line at most.

`title: Rust: a tour`, `- @scope/pkg` or a stray `%` void a whole YAML document. Here each entry is
YAML by itself, and where that fails its value is its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

# Reads one entry's source as a mapping; None where it cannot.
ReadYaml = Callable[[str], dict[str, Any] | None]

MAXIMUM_KEY = 200  # characters
MAXIMUM_VALUE = 2_000  # characters of a value that is kept as it was written
MAXIMUM_DEPTH = 8  # mappings in mappings

_COLON = re.compile(r":(?=[ \t]|$)")
_NO_KEY = re.compile(r"[#\[\]{},|>?%\s]|-(?:\s|$)")
_CONTINUES = re.compile(r"\s|-(?:\s|$)|[\[\]{},\"']|$")
_BLOCK_SCALAR = re.compile(r"[|>][0-9+-]{0,2}")
_ITEM = re.compile(r"[ \t]*-(?:[ \t]+|$)")
# What stands between the commas of a list in brackets: quoted, or free of commas.
_FLOW_ITEM = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^,]*)\s*(?:,|$)""")


def read_lines(source: str, read_yaml: ReadYaml) -> tuple[dict[str, Any], list[int]]:
    """Return the values, and the lines (from 0) that gave none."""
    reader = _LineReader(read_yaml)
    return reader.mapping(list(enumerate(source.split("\n"))), 0), reader.left_out


class _LineReader:
    def __init__(self, read_yaml: ReadYaml) -> None:
        self._read_yaml = read_yaml
        self.left_out: list[int] = []

    def mapping(self, lines: Sequence[tuple[int, str]], depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for entry in _entries(lines):
            entry_values = self._read_yaml("\n".join(text for _, text in entry))
            if entry_values is None:
                entry_values = self._as_written(entry, depth)
            if entry_values is None:
                self.left_out += [number for number, _ in entry]
            else:
                values |= entry_values
        return values

    def _as_written(self, entry: Sequence[tuple[int, str]], depth: int) -> dict[str, Any] | None:
        parts = _key_and_value(entry[0][1])
        if parts is None:
            return None
        key, value = parts
        body = [(number, text) for number, text in entry[1:] if text.strip()]
        read: Any
        if value and not _BLOCK_SCALAR.fullmatch(value):
            read = _inline(" ".join([value, *(text.strip() for _, text in body)]))
        elif value or not body:
            read = "\n".join(text.strip() for _, text in body)
        elif _ITEM.match(body[0][1]):
            read = [self._item(text) for text in _items([text for _, text in body])]
        elif depth < MAXIMUM_DEPTH:
            read = self.mapping(_dedented(body), depth + 1)
        else:
            return None
        return {key: read} if _size(read) <= MAXIMUM_VALUE else None

    def _item(self, text: str) -> Any:
        # Under this key everything is text, `1.10` and `yes` too.
        value = self._read_yaml(f"title: {text}")
        return _unquoted(text) if value is None else value["title"]


def _entries(lines: Sequence[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    entry: list[tuple[int, str]] = []
    for number, text in lines:
        if not entry and (not text.strip() or text.startswith("#")):
            continue
        if entry and (text.startswith("#") or (_CONTINUES.match(text) and not _is_key(text))):
            entry.append((number, text))
            continue
        if entry:
            yield entry
        entry = [(number, text)]
    if entry:
        yield entry


def _is_key(line: str) -> bool:
    return not line[:1].isspace() and _key_and_value(line) is not None


def _key_and_value(line: str) -> tuple[str, str] | None:
    colon = _COLON.search(line)
    if colon is None or _NO_KEY.match(line) or colon.start() > MAXIMUM_KEY:
        return None
    key = _unquoted(line[: colon.start()].strip())
    if not key.isprintable():
        return None
    return (key, line[colon.end() :].strip()) if key else None


def _inline(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        items = [match[1].strip() for match in _FLOW_ITEM.finditer(text[1:-1])]
        return [_unquoted(item) for item in items if item]
    return _unquoted(text)


def _unquoted(text: str) -> str:
    quote = text[:1]
    if len(text) > 1 and quote in ("'", '"') and text.endswith(quote) and quote not in text[1:-1]:
        return text[1:-1]
    return text


def _items(texts: Sequence[str]) -> Iterator[str]:
    item: list[str] = []
    for text in texts:
        dash = _ITEM.match(text)
        if dash and item:
            yield " ".join(item)
            item = []
        item.append(text[dash.end() :].strip() if dash else text.strip())
    yield " ".join(item)


def _dedented(lines: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    spaced = [(number, text.expandtabs(2)) for number, text in lines]
    indent = min(len(text) - len(text.lstrip()) for _, text in spaced)
    return [(number, text[indent:]) for number, text in spaced]


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 0  # each of its values was measured by itself
    return len(value) if isinstance(value, str) else sum(len(str(item)) for item in value)

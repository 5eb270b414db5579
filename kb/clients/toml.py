"""Edit one table of a TOML file that people keep by hand; everything else stays byte for byte.

tomlkit, which is made for such edits, moves lines: a table that it puts after
`mcp_servers.other.command = "x"` swallows the dotted lines that follow. So the text is cut and
joined at places that the syntax tree gives, and `tomllib` says what it holds before and after.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from tree_sitter import Language, Node, Parser

from kb.clients.texts import Malformed, line_and_column, look_up, says_the_same

_PLACE = re.compile(r"\(at (?:line (\d+), column (\d+)|end of document)\)")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def read(text: str) -> dict[str, Any]:
    """The values of a file.

    Raises:
        Malformed: it is no TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        reason = _PLACE.sub("", str(error)).strip()
        if place is None or place[1] is None:
            raise Malformed(reason, *line_and_column(text, len(text))) from error
        raise Malformed(reason, int(place[1]), int(place[2])) from error
    except RecursionError as error:
        raise Malformed("it is nested too deeply", 1, 1) from error


def put(text: str, keys: Sequence[str], value: Any) -> str:
    """The text with `value` under `keys`; a table that is there is changed key by key.

    Raises:
        Malformed: the file is broken, or writes these keys in a way that is not edited here.
    """
    present = look_up(read(text), keys)
    if present == value:
        return text
    if not isinstance(value, Mapping):
        changed = _Document(text).with_value(keys, value)
    elif present is None:
        changed = _Document(text).with_table(keys, value)
    else:
        changed = text
        for name, inner in value.items():
            changed = put(changed, [*keys, name], inner)
    if not says_the_same(read, text, changed, keys, value):
        reason = f"[{_dotted(keys)}] cannot be written beside what is there"
        raise Malformed(reason, *_place_of(text, keys[0]))
    return changed


def remove(text: str, keys: Sequence[str]) -> str:
    """The text without what is under `keys`, if anything is.

    Raises:
        Malformed: as `put`.
    """
    if look_up(read(text), keys) is None:
        return text
    changed = _Document(text).without(keys)
    if not says_the_same(read, text, changed, keys, None):
        raise Malformed(f"[{_dotted(keys)}] cannot be cut out", *_place_of(text, keys[-1]))
    return changed


class _Document:
    """A text with its syntax tree. Places are bytes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._bytes = text.encode()
        self._root = _parser().parse(self._bytes).root_node
        self._line_end = "\r\n" if "\r\n" in text else "\n"

    def with_table(self, keys: Sequence[str], value: Mapping[str, Any]) -> str:
        """A new table at the end, where it cannot come between others and their lines."""
        lines = [
            f"[{_dotted(keys)}]",
            *(f"{_dotted([k])} = {_rendered(v)}" for k, v in value.items()),
        ]
        block = "".join(line + self._line_end for line in lines)
        text = self._text
        if text and not text.endswith("\n"):
            text += self._line_end
        return text + (self._line_end if text.strip() else "") + block

    def with_value(self, keys: Sequence[str], value: Any) -> str:
        """Another value for a key of a table that is there."""
        last = None
        for owner, pair, path in self._pairs():
            if path == list(keys):
                node = _value(pair)
                return self._spliced(node.start_byte, node.end_byte, _rendered(value))
            if owner.type == "table" and _header(owner) == list(keys[:-1]):
                last = pair
        line = f"{_dotted(keys[-1:])} = {_rendered(value)}"
        if last is not None:
            return self._spliced(last.end_byte, last.end_byte, self._line_end + line)
        for table in self._root.children:
            if table.type == "table" and _header(table) == list(keys[:-1]):
                end = next(child for child in table.children if child.type == "]").end_byte
                return self._spliced(end, end, self._line_end + line)
        name = _dotted(keys[:-1])
        raise Malformed(f"it does not write [{name}] as a table", *_place_of(self._text, keys[-2]))

    def without(self, keys: Sequence[str]) -> str:
        """The text without a table, its subtables, and its dotted or inline forms."""
        cuts: list[tuple[int, int]] = []
        for node in self._root.children:
            is_table = node.type in ("table", "table_array_element")
            if is_table and _header(node)[: len(keys)] == list(keys):
                cuts.append(self._with_blank_line_before(node.start_byte, _end(node)))
        for owner, pair, path in self._pairs():
            is_cut = any(start <= pair.start_byte < end for start, end in cuts)
            if path[: len(keys)] == list(keys) and not is_cut:
                if owner.type == "inline_table":
                    cuts.append(_with_comma(owner, pair))
                else:
                    cuts.append((pair.start_byte, pair.end_byte))
        text = self._bytes
        for start, end in sorted(cuts, reverse=True):
            is_line = text[:start].rpartition(b"\n")[2].strip() == b""
            rest = text[end:]
            if is_line and (line_end := re.match(rb"[ \t]*(\r?\n|$)", rest)):
                rest = rest[line_end.end() :]
            text = text[:start] + rest
        return text.decode()

    def _pairs(self) -> Iterator[tuple[Node, Node, list[str]]]:
        """Every `key = value` with what it stands in, and all its keys from the top."""
        for node in self._root.children:
            if node.type == "pair":
                yield from _nested_pairs(self._root, node, [])
            elif node.type == "table":
                for child in node.children:
                    if child.type == "pair":
                        yield from _nested_pairs(node, child, _header(node))

    def _with_blank_line_before(self, start: int, end: int) -> tuple[int, int]:
        blank = re.search(rb"(?:^|\n)(\r?\n)$", self._bytes[:start])
        return (start - len(blank[1]), end) if blank else (start, end)

    def _spliced(self, start: int, end: int, text: str) -> str:
        return (self._bytes[:start] + text.encode() + self._bytes[end:]).decode()


def _nested_pairs(
    owner: Node, pair: Node, before: list[str]
) -> Iterator[tuple[Node, Node, list[str]]]:
    path = before + _keys(pair.children[0])
    yield owner, pair, path
    value = _value(pair)
    if value.type == "inline_table":
        for child in value.children:
            if child.type == "pair":
                yield from _nested_pairs(value, child, path)


def _value(pair: Node) -> Node:
    """What stands behind the equals sign; a comment of the line belongs to the pair as well."""
    return pair.children[2]


def _with_comma(owner: Node, pair: Node) -> tuple[int, int]:
    """An inline table's pair together with the comma that goes with it."""
    children = owner.children
    at = children.index(pair)
    if children[at - 1].type == ",":
        return children[at - 1].start_byte, pair.end_byte
    if children[at + 1].type == ",":
        return pair.start_byte, children[at + 2].start_byte
    return pair.start_byte, pair.end_byte


def _header(table: Node) -> list[str]:
    return _keys(next(child for child in table.children if child.type.endswith("key")))


def _keys(node: Node) -> list[str]:
    """The parts of `a."b c".d`."""
    if node.type == "dotted_key":
        return [
            key for child in node.children if child.type.endswith("key") for key in _keys(child)
        ]
    text = (node.text or b"").decode()
    (key,) = tomllib.loads(f"{text} = 0")
    return [key]


def _end(table: Node) -> int:
    """Where the last line of a table ends: the comments behind it may belong to the next one."""
    return max(child.end_byte for child in table.children if child.type != "comment")


def _dotted(keys: Sequence[str]) -> str:
    return ".".join(key if _BARE_KEY.fullmatch(key) else json.dumps(key) for key in keys)


def _rendered(value: Any) -> str:
    """JSON's strings, numbers, booleans and flat lists are TOML's too."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _place_of(text: str, key: str) -> tuple[int, int]:
    return line_and_column(text, max(0, text.find(key)))


@cache
def _parser() -> Parser:
    import tree_sitter_toml

    return Parser(Language(tree_sitter_toml.language()))

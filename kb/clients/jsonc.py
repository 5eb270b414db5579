"""Edit one entry of a JSON file that people keep by hand; everything else stays byte for byte.

Comments and trailing commas are allowed, as the clients allow them. The text is read by the
JavaScript grammar, of which such files are a part, and checked by Python's own JSON parser with
the comments blanked out, which also says where a broken file is broken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from tree_sitter import Language, Node, Parser

from kb.clients.texts import Malformed, line_and_column, look_up, says_the_same

_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_DEFAULT_INDENT = "  "


def read(text: str) -> dict[str, Any]:
    """The values of a file; an empty one, or one of comments alone, holds nothing.

    Raises:
        Malformed: it is no JSON, or no object.
    """
    load = partial(json.loads, parse_constant=partial(_refuse, text))
    blanked = text
    try:
        try:
            values: Any = load(text)  # without comments, which of a large file takes seconds less
        except json.JSONDecodeError:
            blanked = _blanked(text)
            if not blanked.strip():
                return {}
            values = load(blanked)
    except json.JSONDecodeError as error:
        raise Malformed(error.msg, *line_and_column(text, error.pos)) from error
    except RecursionError as error:
        raise Malformed("it is nested too deeply", 1, 1) from error
    if not isinstance(values, dict):
        start = len(blanked) - len(blanked.lstrip())
        raise Malformed("it holds no object", *line_and_column(text, start))
    return values


def put(text: str, keys: Sequence[str], value: Any) -> str:
    """The text with `value` under `keys`; an object that is there is changed key by key.

    Raises:
        Malformed: the file is broken, or one of the keys holds no object.
    """
    present = look_up(read(text), keys)
    if present == value:
        return text
    if isinstance(value, Mapping) and isinstance(present, Mapping):
        for name, inner in value.items():
            text = put(text, [*keys, name], inner)
        return text
    changed = _Document(text).put(keys, value)
    if not says_the_same(read, text, changed, keys, value):
        raise Malformed(f'"{".".join(keys)}" cannot be written there', 1, 1)
    return changed


def remove(text: str, keys: Sequence[str]) -> str:
    """The text without what is under `keys`, if anything is.

    Raises:
        Malformed: the file is broken.
    """
    changed = text
    while look_up(read(changed), keys) is not None:
        changed = _Document(changed).without(keys)
    if not says_the_same(read, text, changed, keys, None):
        raise Malformed(f'"{".".join(keys)}" cannot be cut out', 1, 1)
    return changed


@dataclass(frozen=True, slots=True)
class _Member:
    """One key of an object, with its value."""

    pair: Node
    value: Node


class _Document:
    """A text with its syntax tree. Places are bytes; the tree begins one byte before the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._bytes = text.encode()
        tree = _parser().parse(b"(" + self._bytes + b"\n)")
        self.root = next((node for node in _walk(tree.root_node, 3) if node.type == "object"), None)
        self.line_end = "\r\n" if "\r\n" in text else "\n"
        indent = _INDENT.search(text)
        self._unit = indent[1] if indent else _DEFAULT_INDENT

    def put(self, keys: Sequence[str], value: Any) -> str:
        """The text with a value under keys that are there in part or not at all."""
        if self.root is None:
            end = "" if not self._text.strip() or self._text.endswith("\n") else self.line_end
            whole = self.rendered(_nested(keys, value), "")
            return f"{self._text}{end}{whole}{self.line_end}"
        node = self.root
        for number, key in enumerate(keys):
            found = self.member(node, key)
            if found is None:
                return self.with_member(node, key, _nested(keys[number + 1 :], value))
            if number == len(keys) - 1:
                return self.with_value(found.value, value)
            if found.value.type != "object":
                raise Malformed(f'"{key}" holds no object', *self.place(found.value))
            node = found.value
        return self._text

    def without(self, keys: Sequence[str]) -> str:
        """The text without what is under keys that are all there."""
        assert self.root is not None
        owner, member = self.root, self.member(self.root, keys[0])
        for key in keys[1:]:
            assert member is not None
            owner, member = member.value, self.member(member.value, key)
        assert member is not None
        return self.without_member(owner, member)

    def place(self, node: Node) -> tuple[int, int]:
        """Line and column of a node, both from 1."""
        before = self._bytes[: node.start_byte - 1].decode()
        return line_and_column(self._text, len(before))

    def member(self, node: Node, key: str) -> _Member | None:
        """The last member of that name, which is the one that parsers take."""
        found = None
        for pair in node.children:
            if pair.type == "pair":
                name, value = pair.child_by_field_name("key"), pair.child_by_field_name("value")
                assert name is not None
                assert value is not None
                if json.loads(name.text or b'""') == key:
                    found = _Member(pair, value)
        return found

    def rendered(self, value: Any, indent: str) -> str:
        """A value as this file would write it: a line a key, lists on one line."""
        if not isinstance(value, dict) or not value:
            return json.dumps(value, ensure_ascii=False)
        inner = indent + self._unit
        lines = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {self.rendered(one, inner)}"
            for key, one in value.items()
        ]
        return self.line_end.join(["{", f",{self.line_end}".join(lines), indent + "}"])

    def with_value(self, node: Node, value: Any) -> str:
        """Another value in the place of a node."""
        start, end = node.start_byte - 1, node.end_byte - 1
        return self._spliced((start, end, self.rendered(value, self._indent_of_line(start))))

    def with_member(self, node: Node, key: str, value: Any) -> str:
        """A new last member of an object: after its comments, before its closing brace."""
        start, closing = node.start_byte - 1, node.end_byte - 2
        inside = [child for child in node.children if child.type not in "{}"]
        pairs = [child for child in inside if child.type == "pair"]
        after = inside[inside.index(pairs[-1]) + 1 :] if pairs else []
        has_comma = any(child.type == "," for child in after)
        end = inside[-1].end_byte - 1 if inside else start + 1
        name = json.dumps(key, ensure_ascii=False)
        edits = []
        if pairs and not has_comma:
            edits.append((pairs[-1].end_byte - 1, pairs[-1].end_byte - 1, ","))
        if b"\n" in self._bytes[start:closing] or not (pairs or self._is_inside_a_line(node)):
            indent = self._indent_inside(node, pairs)
            text = f"{self.line_end}{indent}{name}: {self.rendered(value, indent)}"
            text += "," if has_comma else ""  # this file ends its lists with one
            if b"\n" not in self._bytes[end:closing]:
                text += self.line_end + self._indent_of_line(start)
        else:
            colon, comma = self._separators()
            text = json.dumps(value, ensure_ascii=False, separators=(comma, colon))
            text = f"{comma[1:] if pairs else ''}{name}{colon}{text}"
        return self._spliced(*edits, (end, end, text))

    def without_member(self, node: Node, member: _Member) -> str:
        """The text without a member, its comma, and the space before it."""
        children = list(node.children)
        index = next(i for i, child in enumerate(children) if child == member.pair)
        neighbours = [child for child in children if child.type != "comment"]
        at = neighbours.index(member.pair)
        comma_after = neighbours[at + 1] if neighbours[at + 1].type == "," else None
        comma_before = neighbours[at - 1] if neighbours[at - 1].type == "," else None
        start = children[index - 1].end_byte - 1
        end = (comma_after or member.pair).end_byte - 1
        edits = [(start, end, "")]
        if comma_after is None and comma_before is not None:
            edits.insert(0, (comma_before.start_byte - 1, comma_before.end_byte - 1, ""))
            if comma_before == children[index - 1]:
                edits = [(comma_before.start_byte - 1, end, "")]
        text = self._spliced(*edits)
        if len(neighbours) - (comma_after is not None) == 3 and len(children) == len(neighbours):
            opening = self._bytes[: node.start_byte].decode()
            rest = text[len(opening) :]
            return opening + rest[rest.index("}") :]
        return text

    def _spliced(self, *edits: tuple[int, int, str]) -> str:
        parts, position = [], 0
        for start, end, text in edits:
            parts += [self._bytes[position:start], text.encode()]
            position = end
        return b"".join([*parts, self._bytes[position:]]).decode()

    def _indent_of_line(self, position: int) -> str:
        line = self._bytes[self._bytes.rfind(b"\n", 0, position) + 1 : position].decode()
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _indent_inside(self, node: Node, pairs: Sequence[Node]) -> str:
        """What the lines of an object's members begin with."""
        for pair in pairs:
            start = pair.start_byte - 1
            line = self._bytes[self._bytes.rfind(b"\n", 0, start) + 1 : start].decode()
            if not line.strip():
                return line
        return self._indent_of_line(node.start_byte - 1) + self._unit

    def _is_inside_a_line(self, node: Node) -> bool:
        """Whether an object lies in others that are written on one line."""
        outer = node.parent
        while outer is not None and outer.type in ("pair", "object"):
            if outer.type == "object":
                return outer.start_point.row == outer.end_point.row
            outer = outer.parent
        return False

    def _separators(self) -> tuple[str, str]:
        """How this file, which has no lines, writes colons and commas."""
        spaced = b'": ' in self._bytes or b'"' not in self._bytes
        return (": ", ", ") if spaced else (":", ",")


def _refuse(text: str, name: str) -> None:
    """Python would read NaN and the infinities, which are no JSON."""
    raise Malformed(f"{name} is no value", *line_and_column(text, text.find(name)))


def _nested(keys: Sequence[str], value: Any) -> Any:
    for key in reversed(keys):
        value = {key: value}
    return value


@cache
def _parser() -> Parser:
    import tree_sitter_javascript

    return Parser(Language(tree_sitter_javascript.language()))


def _walk(node: Node, depth: int) -> Iterator[Node]:
    """A node and what is below it, outermost first."""
    yield node
    if depth:
        for child in node.children:
            yield from _walk(child, depth - 1)


def _leaves(node: Node) -> Iterator[Node]:
    """The tokens of a text in their order, also of one that is broken."""
    cursor = node.walk()
    while True:
        if cursor.goto_first_child():
            continue
        if cursor.node is not None:
            yield cursor.node
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return


def _blanked(text: str) -> str:
    """The text with spaces for comments and trailing commas, each character in its place."""
    data = text.encode()
    blanks: list[tuple[int, int]] = []
    before: Node | None = None
    comma: Node | None = None  # one that stands behind a value
    for token in _leaves(_parser().parse(b"(" + data + b"\n)").root_node):
        if token.type == "comment":
            blanks.append((token.start_byte - 1, min(token.end_byte - 1, len(data))))
            continue
        if comma is not None and token.type in ("}", "]"):
            blanks.append((comma.start_byte - 1, comma.end_byte - 1))
        is_behind_value = before is not None and before.type not in (",", "{", "[")
        comma = token if token.type == "," and is_behind_value else None
        before = token
    parts, position = [], 0
    for start, end in sorted(blanks):
        covered = data[start:end].decode()
        parts += [data[position:start].decode(), re.sub(r"[^\r\n]", " ", covered)]
        position = end
    return "".join([*parts, data[position:].decode()])

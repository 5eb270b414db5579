"""Source code: symbols are the outline, comments and documentation strings the text.

A symbol begins with the comment or decorators above it, so that a passage holds both. Tree-sitter
parses, in bounded time.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, pairwise
from posixpath import splitext

from tree_sitter import Language, Node, Parser, Tree

from kb.formats.outline import MAXIMUM_SOURCE, Block, Body, Heading, line_blocks, one_line, prose
from kb.text.assets import asset

__all__ = ["Node", "TooComplexError", "Tree", "deadline", "parse_source", "text", "walk"]

# A real file of 250 kB takes 0.07 s, a hostile one of 1 MB minutes. Steps, so load does not count.
_TIME_LIMIT = 1.0  # seconds

# tree-sitter-java ends the process in C at 200,000 brackets that nothing closes, not at 100,000.
_MOST_UNCLOSED = 50_000

# Where `<` may begin type arguments, the step after an error takes memory by the square of those
# left open, and cannot be given up: 3 GB for 40 kB of `a<` in Java, 0.2 at this limit. Of 5,604
# real files the fullest, of a MB, has 2,261.
_MOST_ANGLES = 3_000
_WITH_ANGLES = ("java", "typescript", "tsx")
_TYPE_ARGUMENTS = re.compile(rb"</?\w[\w\s.,?&\[\]@]*>")
_ANGLE = re.compile(rb"<(?![<=])")

_PIECE = 2048  # bytes handed to the parser at once; each look at a node's text copies as many


class TooComplexError(ValueError):
    """The source takes too long."""


def deadline() -> float:
    """The moment, in this thread's time, by which work that begins now must end."""
    return time.thread_time() + _TIME_LIMIT


def parse_source(language: str, source: bytes, until: float) -> Tree:
    """The tree of a UTF-8 source, by a grammar of `kb/assets/grammars.toml`.

    Raises TooComplexError if it takes too long, or never closes most of what it opens.
    """
    if sum(map(source.count, b"([{<")) - sum(map(source.count, b")]}>")) > _MOST_UNCLOSED:
        raise TooComplexError("Too complex to parse")
    if language in _WITH_ANGLES and source.count(b"<") > _MOST_ANGLES:
        rest = source
        for _ in range(3):  # from the innermost on
            rest = _TYPE_ARGUMENTS.sub(b" ", rest)
        if len(_ANGLE.findall(rest)) > _MOST_ANGLES:
            raise TooComplexError("Too complex to parse")
    # A parser of its own, since a server reads files in several threads.
    parser = Parser(_grammar(language))
    try:
        # Only a source that is asked for piece by piece can be given up.
        return parser.parse(
            lambda offset, _: source[offset : offset + _PIECE],
            progress_callback=lambda _offset, _failing: time.thread_time() > until,
        )
    except ValueError as error:
        raise TooComplexError("Too complex to parse") from error


def text(node: Node | None) -> str:
    """The source of a node; "" for none."""
    return "" if node is None or node.text is None else node.text.decode("utf-8", "replace")


def walk(tree: Tree, until: float) -> Iterator[Node]:
    """All nodes, parents first. Raises TooComplexError if that takes too long.

    A query of tree-sitter's own takes half the time on common files, but minutes on 200,000
    calls inside one another.
    """
    cursor = tree.walk()
    visited = 0
    while True:
        node = cursor.node
        if node is not None:
            yield node
        visited += 1
        if visited % 4096 == 0 and time.thread_time() > until:
            raise TooComplexError("Too complex to parse")
        if not cursor.goto_first_child():
            while not cursor.goto_next_sibling():
                if not cursor.goto_parent():
                    return


@cache
def _grammar(language: str) -> Language:
    # Loaded when a file in the language is first met: all grammars together take 15 MB.
    row = asset("grammars")[language]
    package = importlib.import_module(f"tree_sitter_{row.get('package', language)}")
    return Language(getattr(package, row.get("function", "language"))())


@lru_cache(200)
def grammar_of(suffix: str) -> tuple[str, frozenset[str]] | None:
    """The language of a suffix in lower case, and the types of its nodes that are symbols."""
    for language, row in asset("grammars").items():
        if suffix in row["suffixes"].split():
            return language, frozenset(row["symbols"].split())
    return None


MOST_LEVELS = 6
_FUNCTIONS = ("arrow_function", "function", "function_expression", "generator_function")
# Nodes between a symbol and the file that only wrap it: what stands above them belongs to it.
_WRAPPERS = frozenset(
    {
        *("decorated_definition", "export_statement", "lexical_declaration", "type_declaration"),
        *("variable_declaration", "template_declaration", "type_definition", "declaration"),
    }
)
_ABOVE = frozenset({"comment", "line_comment", "block_comment", "attribute_item", "decorator"})
_COMMENT_MARK = re.compile(
    r"^[ \t]*(?:///?!?|//+|#+!?|/\*+!?|\*+/?|--+|;+|\"{3}|'{3})[ \t]?|\*/[ \t]*$", re.M
)
_DOCUMENTATION = re.compile(r"\s*[rRuUbB]{0,2}(?:\"\"\"|''')")


def read(source: str, lines: Sequence[str], path: str) -> Body:
    """Symbols as headings from the second level on, since a source file's title is its name."""
    language, symbols = grammar_of(splitext(path)[1].lower()) or ("", frozenset())
    until = deadline()
    try:
        nodes = list(walk(parse_source(language, source.encode(), until), until))
        headings = _headings(nodes, symbols, until)
        comments = _comment_lines(nodes)
    except (TooComplexError, RecursionError):
        notice = "too complex to be parsed: it has no outline"
        return Body((), line_blocks(lines, kind_of=lambda _: "code"), "", {}, (notice,))
    blocks = line_blocks(lines, headings, lambda line: "paragraph" if line in comments else "code")
    return Body(headings, blocks, _summary(blocks, lines), {})


# Headings


def _headings(nodes: Sequence[Node], symbols: frozenset[str], until: float) -> list[Heading]:
    headings: list[Heading] = []
    siblings = Siblings()
    ends: list[int] = []  # of the symbols that the node lies in
    last_line = 0
    for node in nodes:
        name = name_of(node) if node.type in symbols else ""
        if not name:
            continue
        if time.thread_time() > until:
            raise TooComplexError("too many symbols")
        while ends and ends[-1] <= node.start_byte:
            ends.pop()
        depth = len(ends)
        ends.append(node.end_byte)
        start, line = first_line(node, siblings), node.start_point.row + 1
        end = max(line, (_named(node) or node).start_point.row + 1)
        if start <= last_line:  # shares its line with the one before
            start = last_line + 1
        if start > end:
            continue
        last_line = end
        headings.append(Heading(min(depth + 2, MOST_LEVELS), one_line(name), start, end))
    return headings


def name_of(node: Node) -> str:
    """A symbol's name; "" if it is none after all, such as `struct x *p`."""
    if node.type == "impl_item":
        trait, subject = (text(node.child_by_field_name(f)) for f in ("trait", "type"))
        return f"impl {trait} for {subject}" if trait else f"impl {subject}"
    if node.type == "variable_declarator":
        value = node.child_by_field_name("value")
        if value is None or value.type not in _FUNCTIONS:
            return ""
    if node.type.endswith("_specifier") and node.child_by_field_name("body") is None:
        return ""
    if node.type == "method_declaration" and (receiver := node.child_by_field_name("receiver")):
        kind = text(receiver).strip("()").split()[-1:]
        return f"{kind[0].lstrip('*')}.{text(node.child_by_field_name('name'))}" if kind else ""
    return text(_named(node))


def declared(node: Node | None) -> Node | None:
    """The name inside a declarator of C, such as `*f(int a)`."""
    while node is not None and (inner := node.child_by_field_name("declarator")) is not None:
        node = inner
    return node


def _named(node: Node) -> Node | None:
    return node.child_by_field_name("name") or declared(node.child_by_field_name("declarator"))


class Siblings:
    """What stands before a node; tree-sitter itself counts through all siblings for each one."""

    def __init__(self) -> None:
        self._previous: dict[int, dict[int, Node]] = {}  # by their parent: the one before each

    def before(self, node: Node) -> Iterator[Node]:
        """The siblings before a node, the nearest first."""
        parent = node.parent
        if parent is None:
            return
        if (previous := self._previous.get(parent.id)) is None:
            previous = {later.id: earlier for earlier, later in pairwise(parent.children)}
            self._previous[parent.id] = previous
        while (earlier := previous.get(node.id)) is not None:
            yield (node := earlier)


def first_line(node: Node, siblings: Siblings) -> int:
    """A symbol's first line, with the comment and decorators above it."""
    outer = node
    while outer.parent is not None and outer.parent.type in _WRAPPERS:
        outer = outer.parent
    row = outer.start_point.row
    for before, above in pairwise(chain(siblings.before(outer), (None,))):
        if before is None or before.type not in _ABOVE or before.end_point.row < row - 1:
            break
        if text(before).startswith("//!"):  # of Rust: about the module
            break
        # A comment behind other code belongs to that code; some end after their line.
        if (
            above is not None
            and above.end_point.row == before.start_point.row != 0
            and (above.type not in _ABOVE)
        ):
            break
        row = before.start_point.row
    return row + 1


# Blocks


def _comment_lines(nodes: Sequence[Node]) -> set[int]:
    lines: set[int] = set()
    for node in nodes:
        is_text = "comment" in node.type
        if not is_text and node.type == "expression_statement" and node.child_count == 1:
            is_text = bool(_DOCUMENTATION.match(text(node)[:8])) or (
                node.children[0].type == "string" and node.prev_named_sibling is None
            )
        if is_text:
            lines.update(range(node.start_point.row + 1, node.end_point.row + 2))
    return lines


def _summary(blocks: Sequence[Block], lines: Sequence[str]) -> str:
    """The first meaningful comment or documentation string before any code."""
    for block in blocks:
        if block.kind == "heading":
            return ""
        if block.kind == "paragraph":
            source = "\n".join(lines[block.start_line - 1 : block.end_line])[:MAXIMUM_SOURCE]
            text = prose(_COMMENT_MARK.sub("", source).strip("\"'"))
            if text and not re.match(r"(?i)copyright|spdx|licen[cs]e|-\*-|coding[:=]", text):
                return text
    return ""

"""Source code: symbols are the outline, comments and documentation strings the text.

The lines are those of the file. A symbol begins with the comment or decorators above it, so that
a passage holds what is said of a function together with the function.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import PurePosixPath

from kb.formats.outline import MAXIMUM_SOURCE, Block, Body, Heading, one_line, prose
from kb.formats.syntax_tree import Node, TooComplexError, deadline, parse_source, text, walk

__all__ = ["SOURCE_SUFFIXES", "read_source"]


@dataclass(frozen=True, slots=True)
class _Grammar:
    package: str
    function: str
    symbols: frozenset[str]  # types of the nodes that are symbols


_ECMA = frozenset(
    {
        *("function_declaration", "generator_function_declaration", "class_declaration"),
        *("method_definition", "interface_declaration", "type_alias_declaration"),
        *("enum_declaration", "abstract_class_declaration", "internal_module", "module"),
        "variable_declarator",  # where it holds a function
    }
)
_C = frozenset({"function_definition", "struct_specifier", "enum_specifier", "union_specifier"})
_CPP = _C | {"class_specifier", "namespace_definition"}
_GRAMMARS = {
    "c": _Grammar("tree_sitter_c", "language", _C),
    "cpp": _Grammar("tree_sitter_cpp", "language", _CPP),
    "go": _Grammar(
        "tree_sitter_go",
        "language",
        frozenset({"function_declaration", "method_declaration", "type_spec"}),
    ),
    "java": _Grammar(
        "tree_sitter_java",
        "language",
        frozenset(
            {
                *("class_declaration", "interface_declaration", "enum_declaration"),
                *("record_declaration", "method_declaration", "constructor_declaration"),
                "annotation_type_declaration",
            }
        ),
    ),
    "javascript": _Grammar("tree_sitter_javascript", "language", _ECMA),
    "python": _Grammar(
        "tree_sitter_python", "language", frozenset({"class_definition", "function_definition"})
    ),
    "ruby": _Grammar(
        "tree_sitter_ruby",
        "language",
        frozenset({"class", "module", "method", "singleton_method"}),
    ),
    "rust": _Grammar(
        "tree_sitter_rust",
        "language",
        frozenset(
            {
                *("function_item", "struct_item", "enum_item", "trait_item", "impl_item"),
                *("mod_item", "macro_definition", "union_item", "type_item"),
            }
        ),
    ),
    "tsx": _Grammar("tree_sitter_typescript", "language_tsx", _ECMA),
    "typescript": _Grammar("tree_sitter_typescript", "language_typescript", _ECMA),
}
_SUFFIXES = {
    "c": (".c", ".h"),
    "cpp": (".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"),
    "go": (".go",),
    "java": (".java",),
    "javascript": (".js", ".jsx", ".mjs", ".cjs"),
    "python": (".py", ".pyi"),
    "ruby": (".rb",),
    "rust": (".rs",),
    "tsx": (".tsx",),
    "typescript": (".ts", ".mts", ".cts"),
}
SOURCE_SUFFIXES = {
    suffix: language for language, suffixes in _SUFFIXES.items() for suffix in suffixes
}

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


def read_source(source: str, lines: Sequence[str], path: str) -> Body:
    """Symbols as headings below the file's name; what cannot be parsed has none.

    Symbols begin at the second level, since the title of a source file is its name.
    """
    grammar = _GRAMMARS[SOURCE_SUFFIXES[PurePosixPath(path).suffix.lower()]]
    until = deadline()
    try:
        tree = parse_source(grammar.package, grammar.function, source.encode(), until)
        nodes = list(walk(tree, until))
        headings = _headings(nodes, grammar, until)
        comments = _comment_lines(nodes)
    except (TooComplexError, RecursionError):
        notice = "too complex to be parsed: it has no outline"
        return Body((), list(_blocks(lines, (), set())), "", {}, (notice,))
    blocks = list(_blocks(lines, headings, comments))
    return Body(headings, blocks, _summary(blocks, lines), {})


# Headings


def _headings(nodes: Sequence[Node], grammar: _Grammar, until: float) -> list[Heading]:
    found: list[Heading] = []
    siblings = _Siblings()
    ends: list[int] = []  # of the symbols that the node lies in
    last_line = 0
    for node in nodes:
        name = _name(node) if node.type in grammar.symbols else ""
        if not name:
            continue
        if time.thread_time() > until:
            raise TooComplexError("too many symbols")
        while ends and ends[-1] <= node.start_byte:
            ends.pop()
        depth = len(ends)
        ends.append(node.end_byte)
        start, line = _first_line(node, siblings), node.start_point.row + 1
        end = max(line, _line_of_name(node))
        if start <= last_line:  # shares its line with the one before
            start = last_line + 1
        if start > end:
            continue
        last_line = end
        found.append(Heading(min(depth + 2, MOST_LEVELS), one_line(name), start, end))
    return found


def _name(node: Node) -> str:
    """What a symbol is called; "" for one that is none after all, such as `struct x *p`."""
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
    named = node.child_by_field_name("name")
    if named is None:
        named = _declared(node.child_by_field_name("declarator"))
    return text(named)


def _declared(node: Node | None) -> Node | None:
    """The name inside a declarator of C, such as `*f(int a)`."""
    while node is not None and (inner := node.child_by_field_name("declarator")) is not None:
        node = inner
    return node


def _line_of_name(node: Node) -> int:
    named = node.child_by_field_name("name") or _declared(node.child_by_field_name("declarator"))
    return named.start_point.row + 1 if named is not None else node.start_point.row + 1


class _Siblings:
    """What stands before a node; tree-sitter itself counts through all siblings for each one."""

    def __init__(self) -> None:
        self._known: dict[int, dict[int, Node]] = {}  # by their parent: the one before each

    def before(self, node: Node) -> Iterator[Node]:
        """The siblings before a node, the nearest first."""
        parent = node.parent
        if parent is None:
            return
        if (known := self._known.get(parent.id)) is None:
            known = {later.id: one for one, later in pairwise(parent.children)}
            self._known[parent.id] = known
        while (one := known.get(node.id)) is not None:
            yield (node := one)


def _first_line(node: Node, siblings: _Siblings) -> int:
    """The line in which a symbol begins, with the comment and the decorators above it."""
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
    """The lines that comments and documentation strings take."""
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


def _blocks(
    lines: Sequence[str], headings: Sequence[Heading], comments: set[int]
) -> Iterator[Block]:
    """Every line that is not blank, in runs: headings, text, code."""
    covered = 0
    for heading in headings:
        yield from _runs(lines, covered + 1, heading.start_line - 1, comments)
        yield Block(heading.start_line, heading.end_line, "heading")
        covered = heading.end_line
    yield from _runs(lines, covered + 1, len(lines), comments)


def _runs(lines: Sequence[str], first: int, last: int, comments: set[int]) -> Iterator[Block]:
    start = 0
    kind = ""
    for number in range(first, last + 2):
        is_blank = number > last or not lines[number - 1].strip()
        now = "" if is_blank else "paragraph" if number in comments else "code"
        if start and now != kind:
            yield Block(start, number - 1, kind)
            start = 0
        if now and not start:
            start, kind = number, now


def _summary(blocks: Sequence[Block], lines: Sequence[str]) -> str:
    """The first comment or documentation string that says something, before any code."""
    for block in blocks:
        if block.kind == "heading":
            return ""
        if block.kind == "paragraph":
            source = "\n".join(lines[block.start_line - 1 : block.end_line])[:MAXIMUM_SOURCE]
            found = prose(_COMMENT_MARK.sub("", source).strip("\"'"))
            if found and not re.match(r"(?i)copyright|spdx|licen[cs]e|-\*-|coding[:=]", found):
                return found
    return ""

"""What one source file shows of another: signatures and documentation of the names it uses."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import chain, groupby
from posixpath import splitext

from kb.formats.source_code import Siblings, declared, first_line, grammar_of, name_of
from kb.formats.syntax_tree import Node, TooComplexError, deadline, parse_source, text

SHORT_FILE = 400  # characters: cutting would save nothing
MAX_DATA_LINES = 12  # of a struct, an enumeration, a constant
MAX_DEPTH = 8  # of nodes that just wrap definitions
MAX_LINE = 300  # characters

_WORD = re.compile(r"[^\W\d]\w*")
_RENAMED = re.compile(r"(\w+)\s+as\s+(\w+)")
_CONSTRUCTORS = frozenset({"__init__", "constructor", "initialize", "new"})
# Bodies that are left out or searched; every other body is data, such as a struct's fields.
_CODE = frozenset({"block", "statement_block", "compound_statement", "constructor_body"})
_CONTAINERS = frozenset({"class_body", "declaration_list"})
_VALUES = frozenset(
    {
        *("assignment", "variable_declarator", "const_spec", "var_spec", "const_item"),
        *("static_item", "preproc_def", "preproc_function_def", "declaration", "type_definition"),
        *("function_signature", "field_declaration"),
    }
)


def names_in(shown: str, whole: str) -> set[str]:
    """The names that some lines of a file use, and the originals of those that it renames."""
    names = set(_WORD.findall(shown))
    return names | {name for name, alias in _RENAMED.findall(whole) if alias in names}


def signatures(path: str, source: str, names: set[str]) -> str:
    """The signatures of those names that a file defines, or the lines that re-export them. Of a
    class come its fields, its constructor and those methods that are named too. A short file
    comes whole; one without a grammar shows nothing."""
    grammar = grammar_of(splitext(path)[1].lower())
    if len(source) <= SHORT_FILE or grammar is None:
        return source if len(source) <= SHORT_FILE else ""
    language, symbols = grammar
    until = deadline()
    try:
        tree = parse_source(language, source.encode(), until)
        outline = _Outline(symbols, names, until)
        root = tree.root_node
        shown = set(chain(*outline.lines(root, 0))) or _handed_on(root, names, path)
    except (TooComplexError, RecursionError):
        return ""
    lines = source.split("\n")
    parts = [
        "\n".join(
            line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"
            for line in (lines[number - 1] for _, number in run)
        )
        for _, run in groupby(enumerate(sorted(shown)), lambda pair: pair[1] - pair[0])
    ]
    return "\n…\n".join(parts)


class _Outline:
    def __init__(self, symbols: frozenset[str], names: set[str], until: float) -> None:
        self._symbols = symbols
        self._names = names
        self._until = until
        self._siblings = Siblings()

    def lines(self, node: Node, depth: int) -> Iterator[range]:
        for child in node.named_children:
            if time.thread_time() > self._until:
                raise TooComplexError("too many definitions")
            if child.type == "impl_item":  # Rust: methods, if their type is named
                if self._names.intersection(_WORD.findall(name_of(child)[len("impl") :])):
                    yield from self.lines(child, depth + 1)
            elif (name := self._defined(child)) == "":
                if depth < MAX_DEPTH and child.type not in _CODE - {"block"}:
                    yield from self.lines(child, depth + 1)
            elif name in self._names or name in _CONSTRUCTORS or _is_default(child):
                yield from self._definition(child, depth)

    def _defined(self, node: Node) -> str:
        """The name that a node defines, or ""."""
        name = name_of(node) if node.type in self._symbols else ""
        if not name and node.type in _VALUES:
            fields = (node.child_by_field_name(field) for field in ("left", "name"))
            name = text(
                next(filter(None, fields), declared(node.child_by_field_name("declarator")))
            )
        return name.rpartition(".")[2]

    def _definition(self, node: Node, depth: int) -> Iterator[range]:
        start, end = first_line(node, self._siblings), node.end_point.row + 1
        value = node.child_by_field_name("value")
        body = (node if value is None else value).child_by_field_name("body")
        is_class = "class" in node.type or "module" in node.type
        if body is None or not (is_class or body.type in _CODE | _CONTAINERS | {"body_statement"}):
            yield range(start, min(end, node.start_point.row + MAX_DATA_LINES) + 1)
            return
        row = body.start_point.row
        begins_line = (
            row > node.start_point.row
            and body.prev_sibling is not None
            and body.prev_sibling.end_point.row < row
        )
        last = row if begins_line else row + 1
        first = body.named_children[:1]
        if first and first[0].type == "expression_statement" and text(first[0])[-1:] in "\"'":
            last = first[0].end_point.row + 1
        yield range(start, last + 1)
        if is_class or body.type in _CONTAINERS:
            fields = [
                child for child in body.named_children if child.type == "expression_statement"
            ]
            for field in fields[:MAX_DATA_LINES]:
                if ":" in text(field) or "=" in text(field):
                    yield range(field.start_point.row + 1, field.end_point.row + 2)
            yield from self.lines(body, depth + 1)


def _is_default(node: Node) -> bool:
    """Whether this is a JavaScript default export, which the importing file names as it likes."""
    parent = node.parent
    return parent is not None and any(child.type == "default" for child in parent.children)


def _handed_on(root: Node, names: set[str], path: str) -> set[int]:
    """The lines that re-export one of the names, or all, from where another file defines them."""
    lines: set[int] = set()
    for node in root.named_children:
        source = text(node)
        if node.type.startswith("import"):
            hands_on = path.endswith("__init__.py")
        elif node.type == "use_declaration":
            hands_on = source.startswith("pub")
        else:
            hands_on = node.type == "export_statement" and bool(node.child_by_field_name("source"))
        if hands_on and ("*" in source or names.intersection(_WORD.findall(source))):
            lines.update(range(node.start_point.row + 1, node.end_point.row + 2))
    return lines

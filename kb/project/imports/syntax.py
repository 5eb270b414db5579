"""What a source file imports, as it is written there, by tree-sitter.

A file with a mistake in a function's body still says what it imports. So a syntax error counts
only where it may hide an import: among the imports at the top of the file, or in a statement
that begins like one.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

from tree_sitter import Language, Node, Parser, Tree

__all__ = ["Grammar", "Import", "Node", "SyntaxProblem", "literal", "read_imports", "text"]

# A real file of 250 kB takes 0.07 s. One of 1 MB made to be hard, such as a million opening
# braces, would take minutes. Our own work is counted: a busy machine makes no file hard.
_TIME_LIMIT = 1.0  # seconds
_TOO_COMPLEX = "Too complex to parse"

_PIECE = 2048  # bytes handed to the parser at once; each look at a node's text copies as many


@dataclass(frozen=True, slots=True)
class Import:
    """One thing that a file imports, in the words of its language."""

    target: str  # "..package.module", "./module.js", "crate::a::b", "java.util.List", "x.h" ...
    names: tuple[str, ...] = ()  # what is taken from it (Python); the modules around it (Rust)
    kind: str = ""  # tells apart what a language writes in several ways; see its module


@dataclass(frozen=True, slots=True)
class Grammar:
    """How to find the imports of a language."""

    package: str  # where the grammar is ...
    function: str  # ... and the function there that returns it
    nodes: frozenset[str]  # the types of the nodes that may import
    read: Callable[[Node], Iterator[Import]]  # what such a node imports
    # Tokens that begin an import. With none, syntax errors never count.
    keywords: frozenset[str] = frozenset()


class SyntaxProblem(ValueError):
    """Why the imports of a file cannot be told."""


def read_imports(grammar: Grammar, source: bytes) -> list[Import]:
    """The imports of a UTF-8 source in order, those inside functions and conditions too.

    Raises:
        SyntaxProblem: a syntax error may hide imports, or the source is too complex.
    """
    deadline = time.thread_time() + _TIME_LIMIT
    try:
        tree = _parse(grammar, source, deadline)
        survey = _survey(tree, grammar, deadline)
        found: dict[int, list[Import]] = {}
        for node in survey.candidates:
            if time.thread_time() > deadline:
                raise SyntaxProblem(_TOO_COMPLEX)
            found[node.id] = list(grammar.read(node))
    except RecursionError as error:
        raise SyntaxProblem(_TOO_COMPLEX) from error
    importing = {identity for identity, imports in found.items() if imports}
    line = _line_of_problem(tree.root_node, survey, importing) if grammar.keywords else 0
    if line:
        raise SyntaxProblem(f"Syntax error at line {line}")
    return [item for imports in found.values() for item in imports]


def text(node: Node | None) -> str:
    """The source of a node; "" for none."""
    return "" if node is None or node.text is None else node.text.decode("utf-8", "replace")


def literal(node: Node | None) -> str:
    """The value of a plain string; "" for anything that is put together at run time."""
    if node is None or len(node.named_children) != 1:
        return ""
    part = node.named_children[0]
    return text(part) if part.type.endswith(("fragment", "content")) else ""


@cache
def _language(package: str, function: str) -> Language:
    # Loaded when a file in the language is first met: all grammars together take 15 MB.
    return Language(getattr(importlib.import_module(package), function)())


def _parse(grammar: Grammar, source: bytes, deadline: float) -> Tree:
    # A parser of its own, since a server reads files in several threads.
    parser = Parser(_language(grammar.package, grammar.function))
    try:
        # Only a source that is asked for piece by piece can be given up.
        return parser.parse(
            lambda offset, _: source[offset : offset + _PIECE],
            progress_callback=lambda _offset, _failing: time.thread_time() > deadline,
        )
    except ValueError as error:
        raise SyntaxProblem(_TOO_COMPLEX) from error


@dataclass(slots=True)
class _Survey:
    """What one walk through the tree found, in order."""

    candidates: list[Node] = field(default_factory=list)  # nodes of types that may import
    errors: list[Node] = field(default_factory=list)  # what the parser could make nothing of
    broken: list[Node] = field(default_factory=list)  # keywords of import statements with errors


def _survey(tree: Tree, grammar: Grammar, deadline: float) -> _Survey:
    survey = _Survey()
    has_errors = tree.root_node.has_error
    for node in _walk(tree, deadline):
        if node.type in grammar.nodes:
            survey.candidates.append(node)
        if has_errors:
            if node.is_error:
                survey.errors.append(node)
            elif node.type in grammar.keywords and node.parent is not None:
                statement = node.parent
                if statement.is_error or (statement.has_error and statement.type in grammar.nodes):
                    survey.broken.append(node)
    return survey


# Statements that may stand before and between the imports at the top of a file.
_BEFORE_IMPORTS = frozenset(
    {
        *("expression_statement", "future_import_statement", "hash_bang_line"),
        *("package_clause", "package_declaration", "attribute_item", "inner_attribute_item"),
        *(";", "\n"),
    }
)


def _line_of_problem(root: Node, survey: _Survey, importing: set[int]) -> int:
    """The line of the first error that may hide an import; 0 when none may."""
    if not root.has_error:
        return 0
    in_head: list[Node] = []
    errors = {node.id for node in survey.errors}
    waiting: list[Node] = []
    for node in root.children:
        if node.id in errors:
            waiting.append(node)
        elif node.id in importing:
            in_head += waiting  # errors before an import that is still at the top
            waiting = []
        elif not (node.is_extra or node.type in _BEFORE_IMPORTS):
            break
    return min((node.start_point.row + 1 for node in (*in_head, *survey.broken)), default=0)


def _walk(tree: Tree, deadline: float) -> Iterator[Node]:
    """All nodes, parents first.

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
        if visited % 4096 == 0 and time.thread_time() > deadline:
            raise SyntaxProblem(_TOO_COMPLEX)
        if cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return

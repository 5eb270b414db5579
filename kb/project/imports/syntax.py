"""What a source file imports, as written there, by tree-sitter.

A file with a mistake in a function's body still says what it imports. So a syntax error counts only
where it may hide an import: among the imports at the top of the file, or in a statement that begins
like one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kb.formats.syntax_tree import Node, TooComplexError, Tree, deadline, parse_source, text, walk

_TOO_COMPLEX = "Too complex to parse"


@dataclass(frozen=True, slots=True)
class Import:
    """One import of a file, in the words of its language."""

    target: str  # "..package.module", "./module.js", "crate::a::b", "java.util.List", "x.h" ...
    names: tuple[str, ...] = ()  # what is taken from it (Python); the modules around it (Rust)
    kind: str = ""  # distinguishes a language's ways of importing; see its module


@dataclass(frozen=True, slots=True)
class Grammar:
    """How to find the imports of a language."""

    nodes: frozenset[str]  # the types of the nodes that may import
    read: Callable[[Node], Iterator[Import]]  # what such a node imports
    # Tokens that may begin an import, by type. With none, syntax errors never count.
    keywords: frozenset[str] = frozenset()
    # Whether such a token begins an import that cannot be read; by default one in an error.
    is_broken: Callable[[Node], bool] | None = None
    # Whether any error at the top of the file counts.
    has_head: bool = True


class SyntaxProblem(ValueError):
    """Why the imports of a file are unknown."""


def read_imports(language: str, grammar: Grammar, source: bytes) -> list[Import]:
    """The imports of a UTF-8 source in order, those inside functions and conditions too. Raises
    SyntaxProblem if a syntax error may hide imports, or the source is too complex."""
    until = deadline()
    try:
        tree = parse_source(language, source, until)
        survey = _survey(tree, grammar, until)
        imports_by_node: dict[int, list[Import]] = {}
        for node in survey.candidates:
            if time.thread_time() > until:
                raise SyntaxProblem(_TOO_COMPLEX)
            imports_by_node[node.id] = list(grammar.read(node))
    except (RecursionError, TooComplexError) as error:
        raise SyntaxProblem(_TOO_COMPLEX) from error
    importing = {identity for identity, imports in imports_by_node.items() if imports}
    if not grammar.has_head:
        survey.errors.clear()
    line = _line_of_problem(tree.root_node, survey, importing) if grammar.keywords else 0
    if line:
        raise SyntaxProblem(f"Syntax error at line {line}")
    return [item for imports in imports_by_node.values() for item in imports]


def literal(node: Node | None) -> str:
    """The value of a plain string; "" for one that is composed at run time."""
    if node is None or len(node.named_children) != 1:
        return ""
    part = node.named_children[0]
    return text(part) if part.type.endswith(("fragment", "content")) else ""


@dataclass(slots=True)
class _Survey:
    candidates: list[Node] = field(default_factory=list)  # nodes of types that may import
    errors: list[Node] = field(default_factory=list)  # what the parser could not read
    broken: list[Node] = field(default_factory=list)  # keywords of import statements with errors


def _survey(tree: Tree, grammar: Grammar, until: float) -> _Survey:
    survey = _Survey()
    has_errors = tree.root_node.has_error
    for node in walk(tree, until):
        if node.type in grammar.nodes:
            survey.candidates.append(node)
        if has_errors:
            if node.is_error:
                survey.errors.append(node)
            elif node.type in grammar.keywords and node.parent is not None:
                statement = node.parent
                if grammar.is_broken is not None:
                    is_broken = grammar.is_broken(node)
                else:
                    is_broken = statement.is_error or (
                        statement.has_error and statement.type in grammar.nodes
                    )
                if is_broken:
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
    """The line of the first error that may hide an import, or 0."""
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

"""A source file as a tree, by tree-sitter, in bounded time."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from functools import cache

from tree_sitter import Language, Node, Parser, Tree

from kb.text.assets import asset

__all__ = ["Node", "TooComplexError", "Tree", "deadline", "parse_source", "text", "walk"]

# A real file of 250 kB takes 0.07 s, a hostile one of 1 MB minutes. Steps, so load does not count.
_TIME_LIMIT = 1.0  # seconds

# tree-sitter-java ends the process in C at 200,000 brackets that nothing closes, not at 100,000.
_MOST_UNCLOSED = 50_000

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

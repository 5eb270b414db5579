"""Names say what a thing is: words that fit everything stand for nothing (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "kb"
# In their place stand the field's nouns: match, passage, candidate, operand, definition ...
EMPTY_WORDS = {"found", "one", "wanted", "own", "said", "told", "known", "asked"}
FILES = sorted(PACKAGE.rglob("*.py"))


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The names that a module gives or uses, with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_no_name_is_an_empty_word(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert not [(name, line) for name, line in names(tree) if name.strip("_") in EMPTY_WORDS]

"""Imports of source files, resolved to files of the project: one module a language.

Each has a grammar, which finds what is imported, and a function that resolves it. Adding a
language is writing these two and a line in `_LANGUAGES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kb.project.imports import c, go, java, javascript, python, ruby, rust
from kb.project.imports.project import Project
from kb.project.imports.syntax import Grammar, Import, read_imports

__all__ = ["imported_files"]


@dataclass(frozen=True, slots=True)
class _Language:
    grammar: Grammar
    # The files of each import, in order; "" or nothing for what is not part of the project.
    resolve: Callable[[Project, str, Iterable[Import]], Iterator[str]]


_LANGUAGES = {
    "c": _Language(c.C_GRAMMAR, c.resolve),
    "cpp": _Language(c.CPP_GRAMMAR, c.resolve),
    "go": _Language(go.GRAMMAR, go.resolve),
    "java": _Language(java.GRAMMAR, java.resolve),
    "javascript": _Language(javascript.JAVASCRIPT_GRAMMAR, javascript.resolve),
    "python": _Language(python.GRAMMAR, python.resolve),
    "ruby": _Language(ruby.GRAMMAR, ruby.resolve),
    "rust": _Language(rust.GRAMMAR, rust.resolve),
    "tsx": _Language(javascript.TSX_GRAMMAR, javascript.resolve),
    "typescript": _Language(javascript.TYPESCRIPT_GRAMMAR, javascript.resolve),
}


def imported_files(project: Project, path: str, language: str, source: bytes) -> Iterator[str]:
    """The project's files that a source imports, in order of appearance, each once.

    Raises:
        SyntaxProblem: a syntax error may hide imports.
    """
    known = _LANGUAGES.get("tsx" if path.endswith(".tsx") else language)
    if known is None:
        return
    seen = {"", path}
    for found in known.resolve(project, path, read_imports(known.grammar, source)):
        if found not in seen:
            seen.add(found)
            yield found

"""What a source file is: its language, its imports, its module and its role in the project.

All but the imports depend on the path alone, by the tables of `kb/assets/source-files.toml`.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kb.disk.inside import read_inside
from kb.errors import ImportsFailed
from kb.project.imports import imported_files
from kb.project.imports.project import Project
from kb.project.imports.syntax import SyntaxProblem
from kb.text.assets import asset
from kb.text.decode import NoTextError, decode


class Tables(NamedTuple):
    """The contents of `kb/assets/source-files.toml`."""

    languages: dict[str, str]  # by ending
    roles: list[tuple[str, re.Pattern[str]]]
    containers: set[str]
    tests: set[str]


@dataclass(frozen=True, slots=True)
class Dependency:
    """A file of the project that another one imports."""

    path: str  # relative to the root
    type: str = "import"
    level: int = 1


def imports(root: Path, path: str) -> list[Dependency]:
    """The project's files that a file imports, in order of appearance.

    Leaves out what is not part of the project: the standard library, installed packages, names that
    lead nowhere. A file in a language without grammar imports nothing.

    Raises:
        ImportsFailed: the file is binary, or a syntax error may hide imports.
        PermissionDenied, FileNotFound, FileTooLarge: as `read_inside`.
    """
    file = read_inside(root, path)
    try:
        source = decode(file.data).text.encode()
        names = imported_files(Project(root), file.path, language_of(file.path), source)
        # An image or a font is imported too, but nobody can read it.
        return [Dependency(name) for name in names if language_of(name)]
    except (SyntaxProblem, NoTextError) as error:
        raise ImportsFailed("Failed to parse imports", path=path, details=str(error)) from error


def language_of(path: str) -> str:
    """The language of a file by its name, in lower case; "" if unknown."""
    name = posixpath.basename(path)
    if language := asset("source-files")["names"].get(name):
        return str(language)
    if name.startswith(("Dockerfile.", "Makefile.")):
        return name.split(".")[0].lower()
    _, dot, ending = name.rpartition(".")
    return _tables().languages.get(ending.lower(), "") if dot else ""


def module_of(path: str) -> str:
    """The part of the project that a file belongs to: its nearest folder with a telling name, or
    "root". Folders such as `src` or `lib` tell nothing, and test folders only if there is no
    other."""
    folders = [folder for folder in posixpath.dirname(path).split("/") if folder not in ("", ".")]
    telling = [folder for folder in folders if folder.lower() not in _tables().containers]
    subjects = [folder for folder in telling if folder.lower() not in _tables().tests]
    return next(reversed(subjects or telling or ["root"]))


def role_of(path: str) -> str:
    """What a file is for, by the first that fits of: test, config, documentation, types (only
    declarations), migration, style, data, entry (where a program or package starts), script; "core"
    for all other code."""
    path = posixpath.normpath(path)
    for role, rule in _tables().roles:
        if rule.search(path):
            return role
    return "core"


@cache
def _tables() -> Tables:
    stored = asset("source-files")
    languages = {e: name for name, endings in stored["endings"].items() for e in endings.split()}
    roles = [(role, re.compile(rule, re.VERBOSE)) for role, rule in stored["roles"].items()]
    return Tables(languages, roles, set(stored["containers"].split()), set(stored["tests"].split()))

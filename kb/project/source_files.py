"""What a source file is: its language, its imports, its module and its role in the project.

All but the imports are told from the path alone, by the tables and rules below.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

from kb.disk.inside import read_inside
from kb.errors import ImportsFailed
from kb.project.imports import imported_files
from kb.project.imports.project import Project
from kb.project.imports.syntax import SyntaxProblem
from kb.text.decode import NoTextError, decode

__all__ = ["Dependency", "imports", "language_of", "module_of", "role_of"]


@dataclass(frozen=True, slots=True)
class Dependency:
    """A file of the project that another one imports."""

    path: str  # relative to the root
    type: str = "import"
    level: int = 1


def imports(root: Path, path: str) -> list[Dependency]:
    """The project's files that a file imports, in order of appearance.

    What is not part of the project is left out: the standard library, installed packages, names
    that lead nowhere. A file in a language without grammar imports nothing.

    Raises:
        ImportsFailed: the file is binary, or a syntax error may hide imports.
        PermissionDenied, FileNotFound, FileTooLarge: as `read_inside`.
    """
    file = read_inside(root, path)
    try:
        source = decode(file.data).text.encode()
        found = imported_files(Project(root), file.path, language_of(file.path), source)
        # An image or a font is imported too, but nobody can read it.
        return [Dependency(name) for name in found if language_of(name)]
    except (SyntaxProblem, NoTextError) as error:
        raise ImportsFailed("Failed to parse imports", path=path, details=str(error)) from error


def language_of(path: str) -> str:
    """The language of a file by its name, in lower case; "" for one that we do not know."""
    name = posixpath.basename(path)
    if name in _LANGUAGE_BY_NAME:
        return _LANGUAGE_BY_NAME[name]
    if name.startswith(("Dockerfile.", "Makefile.")):
        return name.split(".")[0].lower()
    _, dot, ending = name.rpartition(".")
    return _LANGUAGE_BY_ENDING.get(ending.lower(), "") if dot else ""


def module_of(path: str) -> str:
    """The part of the project that a file belongs to: its nearest folder with a telling name.

    Folders such as `src` or `lib` tell nothing; one with tests does only when no other is
    there. A file in none has the module "root".
    """
    folders = [folder for folder in posixpath.dirname(path).split("/") if folder not in ("", ".")]
    telling = [folder for folder in folders if folder.lower() not in _CONTAINERS]
    subjects = [folder for folder in telling if folder.lower() not in _TEST_FOLDERS]
    return next(reversed(subjects or telling or ["root"]))


def role_of(path: str) -> str:
    """What a file is for, by the first of these that fits; "core" for all other code.

    test, config, documentation, types (only declarations), migration, style, data, entry (where
    a program or package starts), script.
    """
    path = posixpath.normpath(path)
    for role, rule in _ROLES:
        if rule.search(path):
            return role
    return "core"


_LANGUAGE_BY_ENDING = {
    ending: language
    for language, endings in {
        "python": "py pyi pyw",
        "typescript": "ts tsx mts cts",
        "javascript": "js jsx mjs cjs",
        "go": "go",
        "rust": "rs",
        "java": "java",
        "c": "c h",
        "cpp": "cc cpp cxx c++ hh hpp hxx h++ ipp inl",
        "ruby": "rb rake gemspec ru",
        "csharp": "cs csx",
        "fsharp": "fs fsx fsi",
        "kotlin": "kt kts",
        "swift": "swift",
        "scala": "scala sc",
        "groovy": "groovy gradle",
        "clojure": "clj cljs cljc edn",
        "php": "php",
        "perl": "pl pm",
        "lua": "lua",
        "r": "r",
        "julia": "jl",
        "dart": "dart",
        "elixir": "ex exs",
        "erlang": "erl hrl",
        "haskell": "hs",
        "ocaml": "ml mli",
        "zig": "zig",
        "nim": "nim",
        "objective-c": "m mm",
        "shell": "sh bash zsh fish ksh",
        "powershell": "ps1 psm1 psd1",
        "batch": "bat cmd",
        "sql": "sql",
        "html": "html htm xhtml",
        "css": "css",
        "scss": "scss",
        "sass": "sass",
        "less": "less",
        "vue": "vue",
        "svelte": "svelte",
        "astro": "astro",
        "graphql": "graphql gql",
        "protobuf": "proto",
        "terraform": "tf tfvars",
        "nix": "nix",
        "cmake": "cmake",
        "json": "json jsonc json5 webmanifest",
        "yaml": "yaml yml",
        "toml": "toml",
        "xml": "xml xsd xsl svg plist csproj props targets",
        "ini": "ini cfg conf properties editorconfig",
        "csv": "csv tsv",
        "markdown": "md markdown mdx",
        "restructuredtext": "rst",
        "text": "txt text log",
        "tex": "tex",
        "diff": "diff patch",
        "jupyter": "ipynb",
    }.items()
    for ending in endings.split()
}

_LANGUAGE_BY_NAME = {
    "Dockerfile": "dockerfile",
    "Containerfile": "dockerfile",
    "Makefile": "makefile",
    "GNUmakefile": "makefile",
    "CMakeLists.txt": "cmake",
    "Gemfile": "ruby",
    "Rakefile": "ruby",
    "Vagrantfile": "ruby",
    "Jenkinsfile": "groovy",
    "Cargo.lock": "toml",
    "poetry.lock": "toml",
    "uv.lock": "toml",
    "go.mod": "go.mod",
    "go.sum": "text",
    "LICENSE": "text",
    "NOTICE": "text",
    ".gitignore": "ignore",
    ".dockerignore": "ignore",
    ".prettierrc": "json",
    ".eslintrc": "json",
    ".babelrc": "json",
}

_CONTAINERS = frozenset(
    {
        *("src", "source", "sources", "lib", "libs", "include", "main", "cmd", "internal"),
        *("pkg", "package", "packages", "crates", "module", "modules", "apps"),
        *("java", "kotlin", "scala", "python", "public", "private"),
    }
)
_TEST_FOLDERS = frozenset(
    {
        *("test", "tests", "__tests__", "spec", "specs", "e2e", "testing"),
        *("mocks", "__mocks__", "fixtures", "testdata"),
    }
)

_ROLES = tuple(
    (role, re.compile(expression, re.VERBOSE))
    for role, expression in (
        (
            "test",
            r"""(?:^|/)(?:tests?|__tests__|specs?|e2e|__mocks__|fixtures|testdata)/
            |(?:^|/)(?:test_[^/]*|conftest)\.py$ | _test\.(?:py|go|rs|rb|cc|cpp|c|exs)$ | _spec\.rb$
            |[.-](?:test|spec|cy|e2e)\.[cm]?[jt]sx?$ | (?:Tests?|IT|Spec)\.(?:java|kt|cs|scala)$""",
        ),
        (
            "config",
            r"""(?:^|/)(?:pyproject\.toml|setup\.(?:py|cfg)|tox\.ini|Pipfile|requirements[^/]*\.txt
            |package(?:-lock)?\.json|pnpm-[^/]*\.yaml|yarn\.lock|[tj]sconfig[^/]*\.json
            |Cargo\.(?:toml|lock)|go\.(?:mod|sum|work)|pom\.xml|Gemfile(?:\.lock)?|Rakefile
            |[^/]*\.gradle(?:\.kts)?|CMakeLists\.txt|(?:GNU)?[Mm]akefile|(?:Docker|Container)file[^/]*
            |docker-compose[^/]*|[^/]*\.csproj|[^/]*\.gemspec|settings\.py|config\.[^/]+
            |\.[^/]*rc(?:\.[^/]+)?|\.(?:git|docker|npm|prettier|eslint)[^/]*|\.editorconfig)$
            |(?:^|/)(?:\.github|\.circleci|\.vscode|\.devcontainer)/
            |\.config\.[cm]?[jt]s$ | \.(?:toml|ini|cfg|conf|ya?ml|tf|tfvars|lock|properties)$""",
        ),
        (
            "documentation",
            r"""\.(?:md|mdx|markdown|rst|adoc|tex)$ | (?:^|/)docs?/[^/]*\.txt$
            |(?:^|/)(?:README|LICEN[CS]E|NOTICE|CHANGELOG|AUTHORS|CONTRIBUTING)(?:\.[^/]+)?$""",
        ),
        (
            "types",
            r"""\.d\.[cm]?ts$ | \.pyi$ | (?:^|/)(?:@types|types|typings|interfaces)/[^/]+\.[a-z]+$
            |(?:^|/)(?:_?types?|typings?|interfaces?)\.[a-z]+$ | [.-](?:types?|interface)\.[jt]sx?$
            |\.(?:proto|graphql|gql|xsd)$""",
        ),
        ("migration", r"(?:^|/)(?:migrations?|migrate|alembic)/"),
        ("style", r"\.(?:css|scss|sass|less)$"),
        ("data", r"\.(?:json|jsonc|json5|csv|tsv|xml|svg|ipynb|txt|log|sql|html?)$"),
        (
            "entry",
            r"""(?:^|/)(?:__main__\.py|__init__\.py|(?:mod|lib)\.rs|(?:Main|Application|Program)\.[a-z]+
            |(?:main|index|app|server|cli|manage|wsgi|asgi)\.[a-z]+)$ | (?:^|/)bin/""",
        ),
        ("script", r"(?:^|/)scripts?/ | \.(?:sh|bash|zsh|fish|ps1|bat|cmd)$"),
    )
)

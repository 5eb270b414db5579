"""The wheel: what is in it, what it says, and that it works where nothing else is installed."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, WINDROSE

from kb.models.embedder import PACKAGED_MODELS

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def run(*command: str | Path, cwd: Path) -> str:
    """Stdout of a command that has to succeed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT, cwd=folder)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `kb` of an environment that holds the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", wheel, cwd=folder)
    return folder / "venv" / "bin" / "kb"


def test_the_models_are_the_packages_that_are_installed() -> None:
    wanted = {requirement.split(" ;")[0] for requirement in PROJECT["project"]["dependencies"]}
    assert wanted >= set(PACKAGED_MODELS.values())


def test_wheel_holds_the_code_and_its_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "kb").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert package | {"kb/schema.sql"} <= names
    licences = {name.rsplit("/", 1)[-1] for name in names if "/licenses/" in name}
    assert licences == {"LICENSE", "NOTICE"}
    own = ("kb/", f"kbfile-{version()}.dist-info/")
    outside = {name for name in names if not name.startswith(own)}
    assert not outside


def version() -> str:
    return str(PROJECT["project"]["version"])


def test_the_package_has_a_name_of_its_own_and_its_command_two(wheel: Path) -> None:
    assert wheel.name.startswith("kbfile-")
    with zipfile.ZipFile(wheel) as archive:
        (entries,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        text = archive.read(entries).decode()
    assert text.split() == [
        "[console_scripts]",
        *"kb = kb.__main__:main kbfile = kb.__main__:main".split(),
    ]


def test_version_is_the_same_everywhere() -> None:
    import kb

    assert kb.__version__ == version()


# What mcp, pydantic and fastembed always bring, and a module that only type checkers read.
BROUGHT_BY_OTHERS = {"mcp-types", "pydantic-core", "loguru", "-typeshed"}


def test_every_import_is_a_declared_dependency() -> None:
    extras: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
    declared = {
        re.split(r"[<>=\[;]", line)[0].lower().replace("_", "-")
        for line in (
            *PROJECT["project"]["dependencies"],
            *(line for extra, lines in extras.items() if extra != "test" for line in lines),
        )
    }
    distributions = packages_distributions()
    for file in (ROOT / "kb").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"kb"}:
                found = distributions.get(name, [name])  # an extra need not be installed
                owners = {owner.lower().replace("_", "-") for owner in found}
                assert owners & (declared | BROUGHT_BY_OTHERS), (file, name)


def test_every_dependency_has_a_lower_bound() -> None:
    for line in PROJECT["project"]["dependencies"]:
        assert ">=" in line or "==" in line, line


def test_installed_package_works_from_another_folder(program: Path, tmp_path: Path) -> None:
    assert run(program, "--version", cwd=tmp_path) == f"kb {version()}\n"
    assert run(program.with_name("kbfile"), "--version", cwd=tmp_path) == f"kb {version()}\n"
    assert "35 documents" in run(program, "add", WINDROSE, "--no-embed", cwd=tmp_path)
    found = run(program, "search", "E417", "--format", "files", cwd=tmp_path)
    assert "calibrate the vane.md" in found
    assert "documents_search" in run(program, "tools", cwd=tmp_path)
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "a.md").write_text("# Kittens\n\nA young cat sleeps a lot.\n")
    environment = ["--db", tmp_path / "small.db"]
    assert "1 passage embedded" in run(program, *environment, "add", "small", cwd=tmp_path)
    answer = run(
        program, *environment, "tool", "documents_search", '{"query": "feline"}', cwd=tmp_path
    )
    (row,) = json.loads(answer)["results"]
    assert row["documentId"] == "a.md"
    assert sorted(os.listdir(tmp_path / ".kb")) == [".gitignore", "kb.db"]

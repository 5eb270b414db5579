"""What a command loads before it does anything, and that its shorter ways lead to the same.

Times cannot be tested; which modules are loaded can. docs/performance.md says what they take.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from platformdirs import user_cache_path, user_config_path
from server_process import HANGS, environment

from kb.cli.commands import COMMANDS, parse
from kb.settings import user_cache, user_configuration

# Each costs a search by words one to eight milliseconds of processor, or some tens.
HEAVY = {
    *(
        "concurrent.futures",
        "dataclasses",
        "html",
        "importlib.resources",
        "inspect",
        "platformdirs",
    ),
    *("regex", "shutil", "subprocess", "tempfile"),
    *("argcomplete", "mcp", "numpy", "onnxruntime", "pydantic", "rich", "tokenizers", "yaml"),
}
# What fills a file, or serves it.
FILLING = {
    *("fractions", "html", "http.client", "kb.formats.parse", "kb.formats.sites", "kb.ingest.sync"),
    *("kb.store.replication.replicate", "mcp", "numpy", "pydantic", "tree_sitter"),
}
READING = (
    "status",
    "copy b.db",
    "list",
    "get vane.md",
    "outline vane.md",
    "cite vane.md",
    "recent",
)
# A line, and the same with its common options behind the command.
COMMAND_LINES = (
    ("--db a.db search wind --db b.db", "search wind --db a.db --db b.db"),
    ("--quiet add docs --no-embed", "add docs --no-embed --quiet"),
    ("--threads 2 status", "status --threads 2"),
    ("--log error status", "status --log-level error"),
    ("--json list", "list --json"),
)


def loaded_by(*arguments: str, folder: Path, start: tuple[str, str] = ("-m", "kb")) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *start, *arguments],
        env=environment(),
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=HANGS,
        check=True,
    )
    return {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}


@pytest.mark.slow
def test_a_search_by_words_loads_no_heavy_module(tmp_path: Path) -> None:
    (tmp_path / "vane.md").write_text("# Vane\n\nCalibrate it before the first storm.\n")
    loaded_by("--db", "words.db", "add", "vane.md", "--no-embed", folder=tmp_path)
    loaded = loaded_by("--db", "words.db", "search", "calibrate storms", folder=tmp_path)
    assert {"kb.search.run", "apsw"} <= loaded
    assert not HEAVY & loaded


@pytest.mark.slow
def test_a_hybrid_search_loads_its_model_and_nothing_beside(tmp_path: Path) -> None:
    (tmp_path / "vane.md").write_text("# Vane\n\nCalibrate it before the first storm.\n")
    loaded_by("--db", "both.db", "add", "vane.md", folder=tmp_path)
    loaded = loaded_by("--db", "both.db", "search", "calibrate storms", folder=tmp_path)
    needed = ("numpy", "onnxruntime", "tokenizers")
    by_these = loaded_by(folder=tmp_path, start=("-c", f"import {', '.join(needed)}"))
    assert {*needed, "kb.models.english"} <= loaded
    assert not (HEAVY | {"kb.models.multilingual", "fastembed", "onnx"}) & loaded - by_these


@pytest.mark.slow
def test_the_version_loads_nothing_of_the_search(tmp_path: Path) -> None:
    loaded = loaded_by("--version", folder=tmp_path)
    assert not (HEAVY | {"apsw", "kb.cli.run", "kb.search"}) & loaded


@pytest.mark.slow
def test_what_reads_the_file_loads_nothing_that_fills_it(tmp_path: Path) -> None:
    (tmp_path / "vane.md").write_text("# Vane\n\nCalibrate it: [how](rain.md).\n")
    loaded_by("--db", "a.db", "add", "vane.md", "--no-embed", folder=tmp_path)
    for command in READING:
        loaded = loaded_by("--db", "a.db", *command.split(), folder=tmp_path)
        assert not FILLING & loaded, command


@pytest.mark.slow
def test_a_command_loads_the_options_of_no_other(tmp_path: Path) -> None:
    run = "from kb.cli.main import main\ntry: main()"
    tell = "finally: import sys; print(*sys.modules, sep='\\n', file=sys.stderr)"
    start = ("-c", f"{run}\n{tell}")
    modules = {f"kb.cli.{command.function.split('.')[0]}" for command in COMMANDS.values()}
    modules.remove("kb.cli.commands")  # the table itself
    assert not modules & loaded_by("--help", folder=tmp_path, start=start)
    loaded = modules & loaded_by("search", "--help", folder=tmp_path, start=start)
    assert loaded == {"kb.cli.browse"}


@pytest.mark.parametrize(("before", "behind"), COMMAND_LINES)
def test_common_options_count_before_the_command_and_behind_it(before: str, behind: str) -> None:
    assert vars(parse(shlex.split(before))) == vars(parse(shlex.split(behind)))


@pytest.mark.parametrize("home", ["/home/somebody", "relative", "", None])
@pytest.mark.parametrize("own", ["/elsewhere", "relative", "", None])
def test_the_user_s_folders_are_where_platformdirs_has_them(
    home: str | None, own: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in (("HOME", home), ("XDG_CACHE_HOME", own), ("XDG_CONFIG_HOME", own)):
        if value is None:
            monkeypatch.delenv(variable, raising=False)
        else:
            monkeypatch.setenv(variable, value)
    assert user_cache() == user_cache_path("kb", appauthor=False)
    assert user_configuration() == user_config_path("kb")

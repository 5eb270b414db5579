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

from kb.cli.arguments import Parser, WrongUse, parse
from kb.cli.options import make_parser
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
EVERYTHING = make_parser()
COMMAND_LINES = (
    *("search wind", "--db a.db search wind --db b.db", "search -n 3 --explain the vane"),
    *("search -- --db", "list --json", "--quiet add docs --no-embed", "sync docs", "help search"),
    *("status", "--threads 2 status", "--log error status", "completion bash", "serve --http"),
    *("search", "get", "serch", "list --nope", "--json", "help serch", "--", "- search", "-5 list"),
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
    assert {"kb.search.hybrid", "apsw"} <= loaded
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


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_the_parser_of_one_command_reads_a_line_as_that_of_all_does(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = shlex.split(line)

    def read(parser: Parser) -> object:
        try:
            return vars(parse(parser, arguments))
        except (WrongUse, SystemExit) as ended:
            return type(ended), str(ended), capsys.readouterr()

    assert read(make_parser(arguments)) == read(EVERYTHING)


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

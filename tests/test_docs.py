"""Every command of the documentation runs, and prints what the page shows."""

from __future__ import annotations

import importlib
import re
import shutil
from pathlib import Path

import pytest
from destinations import missing
from docs_console import fits, run, shown_in
from support import ROOT, WINDROSE

# The pages whose commands are asked of the handbook, added and embedded.
PAGES_ON_WINDROSE = ("docs/inspect.md",)


# Those that begin with nothing but the handbook's folder.
PAGES_FROM_THE_START = ("docs/tutorial.md", "docs/how-to.md", "docs/replication.md")


def check(page: str, project: Path, home: Path) -> None:
    """Run a page from its beginning to its end."""
    commands = list(shown_in(ROOT / page))
    assert commands
    for one in commands:
        done = run(one.command, project, home)
        assert done.returncode == one.code, (one.command, done.stdout)
        assert not one.output or fits(one.output, done.stdout), (one.command, done.stdout)


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="no sqlite3 shell on this machine")
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_ON_WINDROSE)
def test_commands_on_the_handbook_print_what_the_page_shows(
    page: str, windrose_file: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    (project / ".kb").mkdir(parents=True)
    shutil.copytree(WINDROSE, project / "docs")
    home = tmp_path / "home"
    assert run("kb add docs --no-embed --quiet", project, home).returncode == 0
    assert run("kb sync --quiet", project, home).returncode == 0
    check(page, project, home)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_FROM_THE_START)
def test_a_page_works_from_its_first_command_to_its_last(page: str, tmp_path: Path) -> None:
    if page == "docs/replication.md" and (reason := missing("folder")):
        pytest.skip(reason)
    project = tmp_path / "project"
    shutil.copytree(WINDROSE, project / "docs")
    check(page, project, tmp_path / "home")


@pytest.mark.parametrize("name", ["performance.md", "scale.md"])
def test_figures_on_a_page_are_those_of_the_record(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts" / "bench")
    page = importlib.import_module("report").page
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(name)


def test_pages_link_to_pages_that_are_there() -> None:
    for page in (*PAGES_ON_WINDROSE, *PAGES_FROM_THE_START, "docs/explanation.md", "docs/scale.md"):
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            assert (ROOT / page).parent.joinpath(target).exists(), (page, target)


@pytest.mark.parametrize(
    ("output", "printed", "is_right"),
    [
        (["a", "b"], "a\nb\n", True),
        (["a", "b"], "a\nb", True),
        (["a"], "a\nb\n", False),
        (["a", "..."], "a\nb\nc\n", True),
        (["...", "c"], "a\nb\nc\n", True),
        (["took ... s"], "took 0.3 s\n", True),
        (["took ... s"], "took 0.3 ms\n", False),
        (["(x)"], "x\n", False),
        (["a"], "kb: removing, about 1 s more\na\n", True),
        (["a"], "kb: reading: 1 of 2,000, which takes a while\na\n", True),
        (["a"], "kb: there is no a\na\n", False),
    ],
)
def test_what_is_shown_is_compared_line_by_line(
    output: list[str], printed: str, is_right: bool
) -> None:
    assert fits(output, printed) is is_right

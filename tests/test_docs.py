"""Every command of the documentation runs, and prints what the page shows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from docs_console import fits, run, shown_in
from support import ROOT, WINDROSE

# The pages whose commands are asked of the handbook, added and embedded.
PAGES_ON_WINDROSE = ("docs/inspect.md",)


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
    ],
)
def test_what_is_shown_is_compared_line_by_line(
    output: list[str], printed: str, is_right: bool
) -> None:
    assert fits(output, printed) is is_right

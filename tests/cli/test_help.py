"""The help of each command: what is its own first, and one example that works."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from support import Run

from kb.cli import commands
from kb.models.embedder import PACKAGED_MODELS

COMMANDS = {name: commands.command_parser(name) for name in commands.COMMANDS}


@pytest.mark.parametrize("command", COMMANDS)
def test_own_options_stand_before_the_example_and_the_common_ones_last(
    command: str, run: Run
) -> None:
    text = run(command, "--help").out
    example = text.index("\nexample:\n")
    common = text.index("\nevery command takes:\n")
    assert example < common
    own = [
        option
        for action in COMMANDS[command]._actions
        for option in action.option_strings
        if option.startswith("--")
    ]
    last = re.findall(r"(?<![\w-])--[a-z-]+", text[common:])
    assert {"--db", "--json", "--help"} <= set(last)
    for option in set(own) - set(last):
        assert text.index(option) < example, option
    assert text.startswith(f"usage: kb {command}")
    assert max(map(len, text.splitlines())) <= 100


def test_every_command_stands_in_the_overview_under_a_heading(run: Run) -> None:
    overview = run("--help").out.split("\nexample:\n")[0]
    headings = re.findall(r"^[a-z ]+:$", overview, re.MULTILINE)
    assert len(headings) >= 4
    listed = re.findall(r"^  ([a-z]+) ", overview, re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)


def test_help_is_a_command_too(run: Run) -> None:
    assert run("help") == run("--help")
    assert run("help", "search") == run("search", "--help")
    assert run("help", "serch").code == 2


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_works(
    command: str, run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "".join(f"Step {number}: install it and retry.\n\n" for number in range(20))
    guide = project / "docs" / "guide"
    (guide / "install.md").write_text(f"# Guide\n\n## Install\n\n### Linux\n\n{lines}")
    (guide / "retry.md").write_text("# Retries\n\nRetry with backoff, see [this](install.md).\n")
    (project / "src").mkdir()
    (project / "src" / "a.py").write_text("retry_count = 3\n")
    if command == "move":
        (project / "manual").symlink_to("docs")
    if command == "merge":
        run("--db", "team.db", "add", "docs")
    run("add", "docs", *(["--name", "handbook"] if command == "split" else []))
    run("record", "Decided to retry often, and to give up in the end")
    run("tool", "documents_list_collections")
    program, *words = shlex.split(COMMANDS[command].example)
    assert (program, words[0]) == ("kb", command)
    if command == "forget":
        words[1] = json.loads(run("--json", "recall").out)["discoveries"][0]["id"][:8]
    if command == "reembed":
        assert words.pop() in PACKAGED_MODELS  # the other one takes long to load
        assert words.pop() == "--model"
    if command in ("serve", "ui", "uninstall", "doctor"):
        pytest.skip("needs a client: see tests/server and tests/cli/test_install.py")
    if command in ("replicate", "restore"):
        pytest.skip("needs another place: see tests/store/test_replication.py")
    outcome = run(*words)
    assert outcome.code == 0, outcome
    assert outcome.out + outcome.errors

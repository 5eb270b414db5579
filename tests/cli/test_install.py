"""`kb install` and `kb uninstall`: what they do to files, what they say, how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Outcome, Run

from kb.assistants.catalog import ASSISTANTS
from kb.assistants.install import BEGIN


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without a knowledge base, as the working directory."""
    folder = tmp_path / "station"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def kb(run: Run) -> Run:
    """Run one command in this process."""
    return run


def in_json(outcome: Outcome) -> Any:
    return json.loads(outcome.out)


def test_a_client_gets_the_server_that_has_answered(project: Path, kb: Run) -> None:
    first = kb("install", "claude-code", "--json")
    assert first.code == 0, first.errors
    result = in_json(first)
    file = Path.home() / ".claude.json"
    assert result["file"] == str(file)
    assert result["status"] == "added"
    assert result["answer"]["name"] == "kb"
    entry = json.loads(file.read_text())["mcpServers"]["kb"]
    assert entry == {
        "type": "stdio",
        "command": sys.executable,
        "args": ["-P", "-m", "kb", "serve"],
    }
    before = file.read_bytes()
    again = kb("install", "claude-code", "--no-check")
    assert "was already in" in again.out
    assert file.read_bytes() == before
    assert os.listdir(project) == [".git"]  # no knowledge base was made by looking

    assert kb("uninstall", "claude-code").code == 0
    assert not file.exists()
    gone = kb("uninstall", "claude-code")
    assert (gone.code, "is not in" in gone.out) == (1, True)


def test_what_would_change_is_shown_and_nothing_is_written(project: Path, kb: Run) -> None:
    shown = kb("install", "codex", "--print")
    assert tomllib.loads(shown.out)["mcp_servers"]["kb"]["args"] == ["-P", "-m", "kb", "serve"]
    assert str(Path.home() / ".codex" / "config.toml") in shown.errors
    plan = kb("install", "codex", "--dry-run")
    assert "+[mcp_servers.kb]" in plan.out
    assert os.listdir(Path.home()) == []


@pytest.fixture
def uvx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path on which there is no kb, and an uvx that runs the one of the tests."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "uvx"
    script.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} -P -m kb "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), "/usr/bin", "/bin"]))
    return script


def test_what_a_project_shares_starts_on_other_machines(project: Path, kb: Run, uvx: Path) -> None:
    installed = kb("install", "claude-code", "--project", "--json")
    assert in_json(installed)["answer"]["name"] == "kb", installed.errors
    entry = json.loads((project / ".mcp.json").read_text())["mcpServers"]["kb"]
    assert (entry["command"], entry["args"]) == ("uvx", ["kbfile", "serve"])
    uvx.unlink()
    missing = kb("install", "cursor", "--project")
    assert (missing.code, "no program to start: uvx" in missing.errors) == (3, True)
    assert not (project / ".cursor").exists()


def test_a_project_has_its_own_file(project: Path, kb: Run, uvx: Path) -> None:
    for assistant, file in (("vscode", ".vscode/mcp.json"), ("opencode", "opencode.json")):
        outcome = kb("install", assistant, "--project", "--no-check")
        assert outcome.code == 0, outcome.errors
        assert "whoever shares the file needs uv" in outcome.out
        assert '"uvx"' in (project / file).read_text()
        assert str(project) not in (project / file).read_text()
    assert os.listdir(Path.home()) == []
    refused = kb("install", "claude-desktop", "--project")
    assert (refused.code, "no file of a project" in refused.errors) == (2, True)


def test_a_client_that_knows_no_projects_is_told_which_one_it_serves(
    project: Path, kb: Run
) -> None:
    outcome = kb("install", "claude-desktop", "--no-check")
    assert f"this one serves {project}" in outcome.out
    file = Path.home() / ".config" / "Claude" / "claude_desktop_config.json"
    assert json.loads(file.read_text())["mcpServers"]["kb"]["args"][-2:] == ["--root", str(project)]


def test_a_server_that_does_not_answer_is_not_installed(project: Path, kb: Run) -> None:
    damaged = project / "notes.db"
    damaged.write_bytes(b"this is no database, but some text that is long enough to be one")
    outcome = kb("--db", str(damaged), "install", "cursor")
    assert outcome.code == 3
    assert "did not answer" in outcome.errors
    assert "damaged" in outcome.errors
    assert os.listdir(Path.home()) == []


def test_a_broken_file_ends_with_its_place_and_stays(project: Path, kb: Run) -> None:
    file = Path.home() / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{\n  "mcpServers": {},,\n}\n')
    outcome = kb("install", "cursor")
    assert outcome.code == 3
    assert f"{file}, line 2, column 20: " in outcome.errors
    assert len(outcome.errors.splitlines()) == 1
    assert file.read_text() == '{\n  "mcpServers": {},,\n}\n'
    listed = kb("install")
    assert listed.code == 0
    assert "line 2, column 20" in listed.out


def test_a_misspelt_client_gets_the_nearest(project: Path, kb: Run) -> None:
    outcome = kb("install", "claude-dekstop")
    assert outcome.code == 2
    assert 'did you mean "claude-desktop"' in outcome.errors


def test_the_lines_for_assistants_are_offered_written_and_taken_back(
    project: Path, kb: Run
) -> None:
    (project / "CLAUDE.md").write_text("# Station\n")
    offered = kb("install", "claude-code", "--no-check")
    assert BEGIN in offered.out
    assert (project / "CLAUDE.md").read_text() == "# Station\n"
    kb("install", "claude-code", "--no-check", "--instructions")
    assert BEGIN in (project / "CLAUDE.md").read_text()
    assert BEGIN not in kb("install", "claude-code", "--no-check").out
    kb("uninstall", "claude-code", "--instructions")
    assert (project / "CLAUDE.md").read_text() == "# Station\n"


def test_where_kb_is_installed_is_listed(project: Path, kb: Run) -> None:
    kb("install", "gemini", "--project", "--no-check", "--name", "notes")
    rows = in_json(kb("install", "--json"))["clients"]
    assert {row["client"] for row in rows} == set(ASSISTANTS)
    found = {(row["client"], row["scope"]): row["installed as"] for row in rows}
    assert found["gemini", "project"] == "notes"
    assert found["gemini", "user"] == "-"


def test_a_server_works_in_the_folder_it_is_given(project: Path, kb: Run, tmp_path: Path) -> None:
    refused = kb("serve", "--root", str(tmp_path / "missing"))
    assert refused.code == 3
    assert "missing" in refused.errors
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kb", "serve", "--root", str(project)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input="",
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (project / ".kb" / "kb.db").exists()
    assert not (tmp_path / ".kb").exists()

"""What the README shows is what happens."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import subprocess
from pathlib import Path

import pytest
from http_process import HttpServer
from support import ROOT

from kb.cli.main import main

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
SERVING = ("serve", "ui")  # until they are ended; here on a free port
COMMANDS = [
    words
    for language, block in BLOCKS
    if language == "sh"
    for line in block.splitlines()
    if (words := shlex.split(line, comments=True))
]


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Stdout of a command of kb that has to succeed."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0, words
    return capsys.readouterr().out


def test_first_command_prints_what_is_shown(
    windrose_copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *words = COMMANDS[0]
    assert program == "scripts/kb"
    shown = next(block for language, block in BLOCKS if language == "text").splitlines()
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("KB_DB", str(windrose_copy))
    assert run(words, capsys).splitlines()[: len(shown)] == shown


def test_commands_for_own_documents_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guide = tmp_path / "docs" / "guide"
    guide.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    lines = "".join(f"Step {number} of the installation.\n\n" for number in range(30))
    (guide / "install.md").write_text(f"# Guide\n\n## Install\n\n### Linux\n\n{lines}")
    (guide / "retry.md").write_text(
        "# Retries\n\nEvery call does a retry with backoff.\n\nSee [the guide](install.md).\n"
    )
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "token.ts").write_text("const token = jwt.sign(payload, SECRET);\n")
    monkeypatch.chdir(tmp_path)
    run(["tool", "documents_list_collections"], capsys)  # a call for `kb status --calls` to show
    for program, *words in COMMANDS:
        if program == "kb":
            if words[0] == "forget":  # the id of the README is nobody's
                recorded = json.loads(run(["--json", "recall"], capsys))["discoveries"]
                words[1] = recorded[0]["id"][: len(words[1])]
            if words[0] in SERVING:
                quiet = ["--no-open"] if words[0] == "ui" else []
                file = tmp_path / ".kb" / "kb.db"
                with HttpServer(file, *quiet, command=words[0]) as server:
                    assert server.end()[0] == 0
                continue
            output = run(words, capsys)
            assert output or words[0] == "graph"
    assert (tmp_path / "home" / "handbook.db").exists()
    # The queries for a plain SQLite shell.
    file = sqlite3.connect(tmp_path / ".kb" / "kb.db")
    rows = file.execute("SELECT * FROM document_overview").fetchall()
    assert [row[1] for row in rows if row[0] == "docs"] == ["guide/install.md", "guide/retry.md"]
    found = "SELECT count(*) FROM keyword_index WHERE keyword_index MATCH 'backoff'"
    assert file.execute(found).fetchone() == (1,)
    file.close()


def test_scripts_that_are_named_are_there_and_sound() -> None:
    scripts = {words[0] for words in COMMANDS if words[0] != "kb" and "=" not in words[0]}
    assert scripts == {"scripts/kb", "scripts/test"}
    for script in scripts:
        subprocess.run(["sh", "-n", ROOT / script], check=True)


def test_client_configuration_starts_the_server() -> None:
    (block,) = [block for language, block in BLOCKS if language == "json" and "mcp" in block]
    assert json.loads(block)["mcpServers"]["kb"] == {"command": "kb", "args": ["serve"]}


def test_commands_and_options_that_are_named_exist(capsys: pytest.CaptureFixture[str]) -> None:
    overview = run(["--help"], capsys).split("\nexample:\n")[0]
    for command in set(re.findall(r"`kb ([a-z]+)", README)) | {
        words[1] for words in COMMANDS if words[0] == "kb"
    }:
        assert re.search(rf"^  {command}\b", overview, re.MULTILINE), command
    helps = "".join(
        run([command, "--help"], capsys)
        for command in re.findall(r"^  ([a-z]+)", overview, re.MULTILINE)
    )
    for option in re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", README):
        assert option in helps, option

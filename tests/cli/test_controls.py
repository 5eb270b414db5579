"""Nothing that a document, a path or an argument holds steers the terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

from kb.text.controls import escaped_in_json, visible

ATTACK = "\x1b]0;owned\x07\x1b[8m\x9b31m\u202egnp.exe\u2066\x7f\x0b\r"
STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
NAME = "walrus\x1b[31m\x9b\u202e.md"
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;[!-~]*\x1b\\")  # and links


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    docs = folder / "docs"
    docs.mkdir()
    (docs / NAME).write_text(
        f"# Walrus {ATTACK}\n\nA walrus {ATTACK} rests.\n\n## Part {ATTACK}\n\n"
        f"More of it, [a link {ATTACK}](https://example.org/{ATTACK}x), [gone](<no{ATTACK}.md>).\n"
        + "\nWords that make it a text and no binary file.\n"
        * 40
    )
    (docs / "other.md").write_text(f"# Other\n\nA walrus, [seen](<{NAME}>).\n")
    (folder / "code.py").write_text(f"# walrus {ATTACK}\n")
    added = kb(folder, "add", "docs", "--no-embed", "--json")
    assert json.loads(added.stdout)["collections"][0]["errors"] == []
    return folder


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder), "COLUMNS": "300"}


def kb(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "kb", "--db", "k.db", *arguments],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        timeout=60,
    )


COMMANDS = [
    ["search", f"walrus {ATTACK}"],
    ["search", "walrus", "--explain", "--format", "md"],
    ["search", "walrus", "--format", "csv"],
    ["search", "walrus", "--format", "files"],
    ["list"],
    ["list", "docs"],
    ["get", NAME],
    ["get", f"{NAME}:1-3"],
    ["get", f"nowhere{ATTACK}"],
    ["outline", NAME],
    ["section", NAME, "Walrus"],
    ["section", NAME, f"none{ATTACK}"],
    ["related", "other.md"],
    ["cite", "other.md"],
    ["graph", "--format", "dot"],
    ["graph", "--format", "graphml"],
    ["graph", "--format", "mermaid"],
    ["graph", "--broken"],
    ["grep", "walrus"],
    ["grep", f"none{ATTACK}"],
    ["record", f"We use walruses {ATTACK} for tests"],
    ["recall", "walrus"],
    ["recall"],
    ["status"],
    ["sync"],
    ["remove", f"none{ATTACK}"],
    ["doctor"],
    [f"none{ATTACK}"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: " ".join(words)[:25])
def test_no_command_prints_what_steers_a_terminal(project: Path, arguments: list[str]) -> None:
    arguments = [word.replace("\x00", "") for word in arguments]
    done = kb(project, *arguments)
    for stream in (done.stdout, done.stderr):
        assert not STEERING.findall(stream.decode("utf-8"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", "walrus", "--json"],
        ["get", NAME, "--json"],
        ["grep", "walrus", "--json"],
        ["graph", "--format", "json"],
        ["tool", "documents_get_document", json.dumps({"collection": "docs", "document": NAME})],
    ],
)
def test_json_keeps_the_values_and_escapes_them(project: Path, arguments: list[str]) -> None:
    printed = kb(project, *arguments).stdout.decode("utf-8")
    assert not STEERING.findall(printed)
    assert "\u202e" in json.dumps(json.loads(printed), ensure_ascii=False)


@pytest.mark.parametrize("arguments", [["search", "walrus"], ["list", "docs"], ["get", NAME]])
def test_on_a_terminal_there_are_only_our_own_colours(project: Path, arguments: list[str]) -> None:
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "kb", "--db", "k.db", *arguments]
    process = subprocess.Popen(
        command,
        cwd=project,
        env={**environment(project), "TERM": "xterm-256color"},
        stdout=child,
        stderr=child,
        stdin=subprocess.DEVNULL,
    )
    os.close(child)
    shown = bytearray()
    while True:
        try:
            shown += os.read(parent, 65536)
        except OSError:  # the other side is closed
            break
    os.close(parent)
    assert process.wait(60) == 0
    text = shown.decode("utf-8").replace("\r\n", "\n")
    assert "\u241b" in text  # the attack is there to be seen
    assert not STEERING.findall(COLOURS.sub("", text))
    assert "\x1b[8m" not in text
    assert "\x1b[31m" not in text


def test_line_ends_and_plain_text_stay() -> None:
    text = "a\tb\r\nc\nd é 漢 \u200f"
    assert visible(text) == text
    assert escaped_in_json(json.dumps(text, ensure_ascii=False)) == json.dumps(
        text, ensure_ascii=False
    )

"""The file in Datasette, by the metadata that `kb datasette` writes: search, labels, links."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import Run, git

# In another process: Datasette leaves threads and an event loop behind.
ASK = """
import asyncio, json, sys
from datasette.app import Datasette

async def ask():
    datasette = Datasette([sys.argv[1]], metadata=json.load(open(sys.argv[2])))
    for path in json.loads(sys.argv[3]):
        reply = await datasette.client.get(path)
        print(json.dumps([reply.status_code, reply.text]))

asyncio.run(ask())
"""


def ask(file: Path, *paths: str) -> list[str]:
    """What Datasette answers."""
    metadata = f"{file}.datasette.json"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ASK, str(file), metadata, json.dumps(paths)],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert [code for code, _ in replies] == [200] * len(paths), replies
    return [text for _, text in replies]


@pytest.fixture
def file(filled: Run, project: Path) -> Path:
    (project / "docs" / "wind.md").write_text("# Wind\n\nquartz, see [rain](guide/rain.md)\n")
    filled("sync", "--no-embed")
    assert filled("datasette", "--print").code == 0
    return project / ".kb" / "kb.db"


def test_the_command_that_is_printed_starts_datasette(filled: Run, project: Path) -> None:
    words = shlex.split(filled("datasette", "--print", "--port", "8123").out)
    file = project / ".kb" / "kb.db"
    assert words[1:3] == ["serve", str(file)]
    assert words[-2:] == ["--port", "8123"]
    # Datasette reads the whole command and answers once.
    done = subprocess.run(
        [*words, "--get", "/kb/documents.json?_shape=array"],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert len(json.loads(done.stdout)) == 4
    git(project, "init", "--quiet")
    git(project, "check-ignore", f"{file}.datasette.json")


def test_passages_are_searched(file: Path) -> None:
    passages, texts, page = ask(
        file,
        "/kb/chunks.json?_search=marble&_shape=array",
        "/kb/chunk_texts.json?_search=marble&_shape=array",
        "/kb/chunks",
    )
    assert len(json.loads(passages)) == 1
    assert [row["title"] for row in json.loads(texts)] == ["Rain"]
    assert 'name="_search"' in page


def test_rows_show_the_titles_of_what_they_refer_to_as_links(file: Path) -> None:
    citations, documents = ask(file, "/kb/citations", "/kb/documents")
    assert ">Wind</a>" in citations
    assert ">Rain</a>" in citations
    assert ">docs</a>" in documents


def test_what_only_programs_read_is_hidden(file: Path) -> None:
    (listed,) = ask(file, "/kb.json")
    tables = {row["name"]: row["hidden"] for row in json.loads(listed)["tables"]}
    assert not tables["documents"]
    assert all(tables[name] for name in ("vectors", "vector_slabs", "word_endings"))


def test_every_table_is_described_or_hidden(file: Path) -> None:
    told = json.loads(Path(f"{file}.datasette.json").read_text())["databases"]["kb"]["tables"]
    with contextlib.closing(sqlite3.connect(file)) as connection:
        rows = connection.execute(
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
            " AND name NOT LIKE 'sqlite%'"
        ).fetchall()
    assert {name for (name,) in rows} <= told.keys()


@pytest.mark.parametrize(("version", "is_asked"), [("0.65.5", False), ("1.0a41", True)])
def test_a_later_datasette_gets_the_questions_as_its_configuration(
    filled: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_asked: bool
) -> None:
    program = tmp_path / "bin" / "datasette"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho datasette, version {version}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    words = shlex.split(filled("datasette", "--print").out)
    assert words[0] == str(program)
    places = [words[at + 1] for at, word in enumerate(words) if word in ("--metadata", "--config")]
    assert len(places) == 1 + is_asked
    assert len(set(places)) == 1


def test_every_canned_question_answers(file: Path) -> None:
    (listed,) = ask(file, "/kb.json")
    queries: list[dict[str, Any]] = json.loads(listed)["queries"]
    assert len(queries) == 4
    names = [query["name"] for query in queries]
    replies = ask(file, *(f"/kb/{name}.json?words=quartz&_shape=array" for name in names))
    found = {name: json.loads(reply) for name, reply in zip(names, replies, strict=True)}
    assert {row["place"] for row in found["find_passages"]} == {
        "wind.md:1-3",
        "guide/sub dir.md:4-4",
    }
    assert found["most_cited"] == [{"path": "guide/rain.md", "links": 1, "documents": 1}]
    assert len(found["not_cited"]) == 3
    assert found["links_out"] == []


def test_without_datasette_it_says_how_to_get_it(
    filled: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    outcome = filled("datasette")
    assert outcome.code == 3
    assert "`pipx install datasette`" in outcome.errors
    assert shlex.split(filled("datasette", "--print").out)[:2] == ["uvx", "--from"]


def test_the_program_that_is_found_is_started_with_the_file_closed(
    filled: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    program = tmp_path / "bin" / "datasette"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/started\nls {project}/.kb\nexit 4\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", os.pathsep.join([str(program.parent), os.environ["PATH"]]))
    assert filled("datasette", "--open").code == 4
    assert (tmp_path / "started").read_text().split()[:2] == [
        "serve",
        str(project / ".kb" / "kb.db"),
    ]

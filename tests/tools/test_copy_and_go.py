"""A file answers alike wherever it lies, however it is named, without its documents beside it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from support import HashEmbedder, call, content_of

from kb.ingest.discoveries import record_discovery
from kb.ingest.embed import embed_pending
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.server.mcp import make_server
from kb.store.database import Database
from kb.tools.registry import load_tools
from kb.tools.session import Session, open_session

FILES = {
    "docs/guide.md": "# Guide\n\nquartz line\n\n## Gusts\n\nThe marble gauge blows.\n",
    "docs/deep/caf\u00e9.md": "# Caf\u00e9\n\nQuartz again, see [the guide](../guide.md).\n",
    "research/2025-05-20/wind.md": "# Research: wind\n\nDate: 2025-05-20\n\nGranite and quartz.\n",
    "notes.md": "# Notes\n\nbasalt\n",
}
PLACES = (".kb/kb.db", "kb.db", "data/kb.db")
GUIDE = {"collection": "docs", "document": "guide.md"}
CALLS: dict[str, dict[str, Any]] = {
    "documents_list_collections": {},
    "documents_list_documents": {"collection": "docs"},
    "documents_search": {"query": "quartz"},
    "documents_search_batch": {"queries": [{"query": "marble"}, {"query": "basalt"}]},
    "documents_get_document": GUIDE,
    "documents_get_outline": GUIDE,
    "documents_get_section": {**GUIDE, "section": "Gusts"},
    "documents_find_related": GUIDE,
    "documents_context": {"query": "quartz gauge"},
    "search_index": {"query": "wombat"},
    "searchLocalArchives": {"query": "granite", "includeCitations": True},
    "context_search": {"query": "quartz gauge"},
    "read_file": {"path": "docs/deep/caf\u00e9.md"},
    "grep_codebase": {"pattern": "quartz"},
}
READS = (
    ("read_file", {"path": "notes.md"}),
    ("grep_codebase", {"pattern": "quartz", "filePattern": "docs/**"}),
    ("grep_codebase", {"pattern": "quartz", "limit": 1}),
)
# What differs from call to call, and what tells where the text of a file was read: of what is
# stored, notes that are in no file are searched too.
VOLATILE = {"searchTime", "lastModified", "origin", "searched", "notice", "filesSearched"}

Open = Callable[..., Session]


def steady(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {key: steady(value) for key, value in answer.items() if key not in VOLATILE}
    return [steady(one) for one in answer] if isinstance(answer, list) else answer


def answers(kb: Session) -> list[Any]:
    return [steady(call(kb, name, **given)) for name, given in (*CALLS.items(), *READS)]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, embedder: HashEmbedder) -> Iterator[Open]:
    """Open a file from a folder, named absolutely or as it is seen from there, and no other."""
    sessions: list[Session] = []

    def close() -> None:
        while sessions:
            sessions.pop().close()

    def open_from(folder: Path, place: str, *, relative: bool) -> Session:
        close()
        monkeypatch.chdir(folder)
        path = Path(place) if relative else folder / place
        sessions.append(open_session(Database(path), make_embedder=lambda _: embedder))
        return sessions[-1]

    yield open_from
    close()


@pytest.fixture
def original(opened: Open, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, str]:
    """A project with its documents, and where its file lies in it."""
    root, place = tmp_path / "project", str(request.param)
    (root / ".git").mkdir(parents=True)
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    kb = opened(root, place, relative=False)
    for source, kind in (("docs", None), ("research", "archive"), ("notes.md", None)):
        sync_collection(kb.database, register(kb.database, str(root / source), kind=kind))
    call(kb, "search_add_document", doc_id="n", content="wombat note")
    embed_pending(kb.model)
    record_discovery(kb.model, "We use quartz for the gauge", "", "weather")
    kb.close()
    return root, place


@pytest.mark.parametrize("original", PLACES, indirect=True)
@pytest.mark.parametrize("is_gone", [False, True], ids=["beside", "alone"])
def test_every_reading_tool_answers_alike(
    original: tuple[Path, str], is_gone: bool, opened: Open, tmp_path: Path
) -> None:
    root, place = original
    expected = answers(opened(root, place, relative=False))
    assert [bool(answer) for answer in expected] == [True] * len(expected)
    assert expected[-1]["totalMatches"] == 3
    assert answers(opened(root, place, relative=True)) == expected
    kept = tmp_path / "kept.db"
    shutil.copy(root / place, kept)
    if is_gone:
        shutil.rmtree(root)
    for target in PLACES:
        empty = tmp_path / f"copy-{PLACES.index(target)}"
        (empty / target).parent.mkdir(parents=True)
        shutil.copy(kept, empty / target)
        for relative in (False, True):
            kb = opened(empty, target, relative=relative)
            assert answers(kb) == expected, (target, relative)
            for name in ("read_file", "grep_codebase"):
                assert "not here" in call(kb, name, **CALLS[name])["notice"]


def test_every_reading_tool_is_asked() -> None:
    reading = {name for name, tool in load_tools().items() if tool.read_only}
    reading.add("searchLocalArchives")  # it may sync its archives first
    assert {*CALLS, "search_external_docs"} == reading


@pytest.mark.parametrize("original", PLACES, indirect=True)
def test_external_docs_are_found_however_the_file_is_named(
    original: tuple[Path, str], opened: Open
) -> None:
    root, place = original
    (root / ".kb").mkdir(exist_ok=True)
    config = {"project_name": "weather", "external_docs": {"path": "docs"}}
    (root / ".kb" / "config.json").write_text(json.dumps(config))
    found = []
    for relative in (False, True):
        kb = opened(root, place, relative=relative)
        assert call(kb, "activate_project")["status"] == "activated"
        asked = {"query": "marble gauge", "min_relevance_score": 0}
        found.append(call(kb, "search_external_docs", **asked))
    assert found[0] == found[1]
    assert found[0]["results"][0]["path"] == "docs/guide.md"


@pytest.mark.parametrize("original", PLACES, indirect=True)
def test_a_client_is_told_where_a_copy_reads(
    original: tuple[Path, str], opened: Open, tmp_path: Path
) -> None:
    root, place = original
    (tmp_path / "empty").mkdir()
    shutil.copy(root / place, tmp_path / "empty" / "x.db")
    told = {}

    async def talk(kb: Session) -> None:
        async with Client(make_server(kb, load_tools())) as client:
            for name in ("read_file", "grep_codebase"):
                told[name] = content_of(await client.call_tool(name, CALLS[name]))

    anyio.run(talk, opened(tmp_path / "empty", "x.db", relative=True))
    assert told["read_file"]["metadata"]["origin"] == told["grep_codebase"]["searched"] == "stored"
    assert all("not here" in one["notice"] for one in told.values())


@pytest.mark.parametrize("original", PLACES, indirect=True)
def test_a_copy_among_other_files_answers_with_both(
    original: tuple[Path, str], opened: Open, tmp_path: Path
) -> None:
    root, place = original
    other = tmp_path / "other"
    (other / "src").mkdir(parents=True)
    (other / "src" / "main.py").write_text("# quartz\n")
    shutil.copy(root / place, other / "kb.db")
    shutil.rmtree(root)
    kb = opened(other, "kb.db", relative=True)
    found = call(kb, "grep_codebase", pattern="quartz")
    files = [
        "docs/deep/caf\u00e9.md",
        "docs/guide.md",
        "research/2025-05-20/wind.md",
        "src/main.py",
    ]
    assert [match["file"] for match in found["matches"]] == files
    assert (found["totalMatches"], found["searched"]) == (4, "stored")
    for path, origin in ((files[0], "stored"), (files[-1], "disk")):
        assert call(kb, "read_file", path=path)["metadata"]["origin"] == origin


@pytest.mark.parametrize("original", PLACES, indirect=True)
def test_files_of_a_project_are_searched_though_some_documents_are_gone(
    original: tuple[Path, str], opened: Open
) -> None:
    root, place = original
    shutil.rmtree(root / "docs")
    kb = opened(root, place, relative=True)
    found = call(kb, "grep_codebase", pattern="quartz|basalt")
    assert [match["file"] for match in found["matches"]] == [
        "notes.md",
        "research/2025-05-20/wind.md",
    ]
    assert found["searched"] == "disk"
    assert "notice" not in found

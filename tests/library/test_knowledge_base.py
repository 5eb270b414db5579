"""The library does what the tools and the command line do, with typed results."""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import json
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path

import pytest
from support import call

import kb
from kb import results
from kb.errors import CollectionNotFound, DocumentNotFound, FileError, UsageError
from kb.library.knowledge_base import TOPICS, KnowledgeBase
from kb.tools.session import Session

VANE = "how do I calibrate the wind vane?"


def test_the_package_exports_the_library_and_nothing_heavy() -> None:
    assert kb.KnowledgeBase is KnowledgeBase
    assert set(kb.__all__) == {"KnowledgeBase", "__version__", "open"}
    code = "import kb, sys; print(len([name for name in sys.modules if name.startswith('kb')]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 2  # the package itself, and its settings
    with pytest.raises(AttributeError, match="nothing"):
        _ = kb.nothing


@pytest.mark.parametrize("name", results.__all__)
def test_every_result_is_frozen_and_has_the_contracts_keys(name: str) -> None:
    made = getattr(results, name)
    if made in (results.Result, results.SnakeResult, results.Listing):
        return  # their bases
    if issubclass(made, tuple):
        return  # what every command looks at: a named tuple takes no time to make
    assert dataclasses.is_dataclass(made)
    assert made.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_a_search_gives_what_the_tool_gives(windrose: Session) -> None:
    found = windrose.base.search(VANE, limit=4)
    assert len(found) == 4
    assert [row.relevance_score for row in found] == sorted(
        (row.relevance_score for row in found), reverse=True
    )
    assert found.to_dict() == call(windrose, "documents_search", query=VANE, limit=4)


def test_reading_gives_what_the_tools_give(windrose: Session) -> None:
    page = {"collection": "windrose", "document": "guide/wind.md"}
    base = windrose.base
    assert base.get("guide/wind.md").to_dict() == call(windrose, "documents_get_document", **page)
    assert base.outline("wind.md", max_depth=3).to_dict() == call(
        windrose, "documents_get_outline", **page
    )
    assert base.section("windrose/guide/wind.md", "Gusts").to_dict() == call(
        windrose, "documents_get_section", **page, section="Gusts"
    )
    assert base.related("guide/wind.md").to_dict() == call(
        windrose, "documents_find_related", **page
    )
    assert (
        len(list(base.list_documents("windrose")))
        == base.list_collections().collections[0].document_count
    )


def test_a_budget_cuts_text_and_says_how_to_go_on(windrose: Session) -> None:
    part = windrose.base.get("guide/wind.md", max_tokens=40)
    assert part.truncated
    assert part.notice is not None
    assert "startLine" in part.notice
    assert part.end_line is not None
    rest = windrose.base.get("guide/wind.md", start_line=part.end_line + 1)
    whole = windrose.base.get("guide/wind.md")
    assert f"{part.content}\n{rest.content}" == whole.content


def test_what_is_not_there_is_an_error_with_near_names(windrose: Session) -> None:
    with pytest.raises(DocumentNotFound, match="not found") as missing:
        windrose.base.get("guide/wnd.md")
    assert "guide/wind.md" in missing.value.details["suggestions"]
    with pytest.raises(CollectionNotFound, match="windrose"):
        windrose.base.search("vane", collections=["windrosse"])
    with pytest.raises(UsageError, match="lies behind the end"):
        windrose.base.get("guide/wind.md", start_line=100_000)


def test_open_makes_a_file_and_a_read_only_one_is_never_written(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    with pytest.raises(FileError, match="there is no knowledge base"):
        kb.open(path, read_only=True)
    with kb.open(path) as base:
        assert not base.list_collections().collections
    with (
        kb.open(str(path), read_only=True) as base,
        pytest.raises(FileError, match="read only"),
        base.database.write(),
    ):
        pass
    assert sorted(tmp_path.glob("*.db*")) == [path]


def test_without_a_path_it_is_the_projects_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".kb").mkdir()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    with kb.open():
        assert (tmp_path / ".kb" / "kb.db").exists()


def test_several_threads_search_at_once(windrose: Session) -> None:
    expected = windrose.base.search(VANE)
    answers: list[results.SearchResults] = []
    threads = [
        threading.Thread(target=lambda: answers.append(windrose.base.search(VANE)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 4


@pytest.mark.slow
def test_the_examples_of_the_page_run(windrose_copy: Path, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    examples = [block.split("```")[0] for block in page.split("```python\n")[1:]]
    assert len(examples) >= 4
    windrose_copy.rename(tmp_path / "handbook.db")
    for example in examples:
        done = subprocess.run(
            [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout
        assert not done.stderr


def test_results_are_json(windrose: Session) -> None:
    sent = json.dumps(windrose.base.search("vane", limit=2).to_dict())
    assert '"documentId"' in sent
    assert "null" not in sent


def test_every_verb_is_documented_and_none_is_missing() -> None:
    for topic, names in TOPICS.items():
        module, name = topic.split(".")
        verbs = vars(getattr(import_module(f"kb.library.{module}"), name))
        assert set(names.split()) == {verb for verb in verbs if not verb.startswith("_")}
        for verb in names.split():
            assert inspect.getdoc(getattr(KnowledgeBase, verb))
            assert getattr(KnowledgeBase, verb).__name__ == verb


def test_one_text_alone_is_a_list_of_one(windrose: Session, tmp_path: Path) -> None:
    base = windrose.base
    assert base.search(VANE, collections="windrose", limit=3) == base.search(VANE, limit=3)
    assert base.search(VANE, paths="guide/**") == base.search(VANE, paths=["guide/**"])
    vane = "how-to/calibrate the vane.md"
    assert base.graph(vane) == base.graph([vane])
    folder = tmp_path / "notes"
    (folder / "drafts").mkdir(parents=True)
    for name in ("mast.md", "drafts/vane.md"):
        (folder / name).write_text("The mast is lowered in winter.\n")
    with kb.open(tmp_path / "file.db") as other:
        other.add(folder, exclude="drafts/**", embed=False)
        assert [row.id for row in other.list_documents("notes")] == ["mast.md"]
        assert other.sync("notes", embed=False).collections[0].unchanged == 1


def test_a_day_may_be_a_date_and_a_negative_limit_is_told(windrose: Session) -> None:
    base, day = windrose.base, datetime.date(2026, 1, 31)
    assert base.search(VANE, since=day) == base.search(VANE, since="2026-01-31")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="limit is a number of rows"):
        base.search(VANE, limit=-1)

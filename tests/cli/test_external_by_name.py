"""People list, search and read a project's external documentation by its name, inside of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support import Run


@pytest.fixture
def name(run: Run, project: Path) -> str:
    """The collection of a project whose file holds nothing else."""
    (project / "manual").mkdir()
    (project / "manual" / "pump.md").write_text("# Pump\n\nPrime the pump with feldspar.\n")
    (project / ".kb").mkdir()
    config = {"project_name": "weather", "external_docs": {"path": "./manual"}}
    (project / ".kb" / "config.json").write_text(json.dumps(config))
    assert run("tool", "activate_project", "{}").code == 0
    (row,) = run("status", "--json").json["collections"]
    return str(row["collection"])


def names(run: Run, *more: str) -> list[str]:
    return [line.split("\t")[0] for line in run("list", *more).lines]


@pytest.mark.parametrize("folder", [".", "docs/guide"])
def test_inside_the_project_it_is_listed_searched_and_read(
    folder: str, name: str, run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / folder)
    assert names(run) == [name]
    assert names(run, name) == ["pump.md"]
    (row,) = run("search", "+feldspar", "-c", name, "--json").json["results"]
    assert (row["collection"], row["documentId"]) == (name, "pump.md")
    files = run("search", "+feldspar", "-c", name, "--format", "files").out
    assert files.endswith("manual/pump.md\n")
    assert run("get", f"{name}/pump.md:1").out == "# Pump\n"
    assert run("outline", "pump.md", "-c", name).out == "     1  Pump\n"
    assert run("cite", f"{name}/pump.md").code == 1  # it cites nothing


def test_what_has_no_name_in_a_command_does_not_see_it(name: str, run: Run, project: Path) -> None:
    run("add", "docs", "--no-embed", "--quiet")
    assert run("search", "+feldspar").code == 1
    assert run("get", "pump.md").code == 1
    for arguments in ({"collections": [name]}, {}):
        found = run("tool", "documents_search", json.dumps({"query": "+feldspar", **arguments}))
        assert found.json.get("code") == ("COLLECTION_NOT_FOUND" if arguments else None)
        assert not found.json.get("results")
    listed = run("tool", "documents_list_collections").json["collections"]
    assert [row["collection"] for row in listed] == ["docs"]


def test_another_project_is_told_where_it_is_listed(
    name: str, run: Run, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "other")
    monkeypatch.setenv("KB_DB", str(project / ".kb" / "kb.db"))
    listed = run("list")
    assert (listed.code, listed.out) == (1, "")
    assert str(project) in listed.errors
    assert run("search", "+feldspar", "-c", name).code == 1
    assert run("list", name).code == 1


def test_a_copy_without_its_project_has_it_by_name(
    name: str, run: Run, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    shutil.copy(project / ".kb" / "kb.db", tmp_path / "empty" / "x.db")
    monkeypatch.chdir(tmp_path / "empty")
    shutil.rmtree(project)
    monkeypatch.setenv("KB_DB", "x.db")
    assert names(run) == [name]
    assert run("get", f"{name}/pump.md:1").out == "# Pump\n"


def test_a_sync_takes_it_by_name_and_leaves_other_branches_alone(
    name: str, run: Run, project: Path
) -> None:
    (project / "manual" / "valve.md").write_text("# Valve\n\nClose the valve of the pump.\n")
    assert run("sync", name, "--no-embed", "--json").json["collections"][0]["added"] == 1
    assert names(run, name) == ["pump.md", "valve.md"]
    (project / ".git").mkdir(exist_ok=True)
    (project / ".git" / "HEAD").write_text("ref: refs/heads/other\n")
    (project / "manual" / "valve.md").unlink()
    refused = run("sync", name)
    assert refused.code == 2
    assert "other is checked out" in refused.errors
    assert names(run, name) == ["pump.md", "valve.md"]

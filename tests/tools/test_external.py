"""Activation and search_external_docs: order of checks, thresholds, tenants, texts."""

import contextlib
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import support
from support import HashEmbedder, call, git

from kb.errors import EmbeddingError
from kb.store.collections import all_collections
from kb.store.contents import chunk_ids
from kb.store.database import Database
from kb.tools.registry import call_tool
from kb.tools.session import Session, open_session

CONFIG: dict[str, Any] = {
    "project_name": "test-project",
    "external_docs": {
        "path": "./docs",
        "include_patterns": ["**/*.md"],
        "exclude_patterns": ["**/node_modules/**"],
    },
}
DOCUMENTS = {
    "api-guide.md": "# API Guide\n\nHow to use our REST API.\n",
    "setup.md": "# Setup Guide\n\nHow to set up the project.\n",
    "node_modules/x/readme.md": "# REST API of a package\n",
    "notes.txt": "REST API",
}

Maker = Callable[..., Path]


def write(root: Path, documents: dict[str, str]) -> None:
    for path, text in documents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    """A project with a configuration and two documents that count."""

    def make_project(name: str = "project", **changes: Any) -> Path:
        root = tmp_path / name
        write(root / "docs", DOCUMENTS)
        write(root, {".kb/config.json": json.dumps({**CONFIG, **changes})})
        return root

    return make_project


def failure(kb: Session, name: str, **arguments: Any) -> dict[str, Any]:
    """An error in this family's shape."""
    content = support.failure(kb, name, **arguments)
    assert content["error"] is True
    assert set(content) == {"error", "code", "message", "details"}
    return content


def found(kb: Session, query: str, **arguments: Any) -> list[str]:
    arguments = {"min_relevance_score": 0, **arguments}
    return [
        row["path"] for row in call(kb, "search_external_docs", query=query, **arguments)["results"]
    ]


def test_activation_syncs_the_docs_and_says_what_it_did(kb: Session, make: Maker) -> None:
    result = call(kb, "activate_project", config_path=str(make()), branch_name="main")
    assert result.pop("path_hash") == kb.project.active.project.path_hash  # type: ignore[union-attr]
    docs = {"path": "./docs", "added": 2, "updated": 0, "deleted": 0, "unchanged": 0, "errors": []}
    assert result == {
        "status": "activated",
        "project_name": "test-project",
        "branch_name": "main",
        "doc_types": [{"name": "external", "doc_count": 2}],
        "total_docs": 2,
        "external_docs": docs,
    }


def test_search_returns_every_field(kb: Session, make: Maker) -> None:
    call(kb, "activate_project", config_path=str(make()))
    result = call(kb, "search_external_docs", query="how to use our REST API guide", limit=5)
    row = result["results"][0]
    assert row.pop("relevance_score") >= 0.7
    assert row == {
        "path": "./docs/api-guide.md",
        "title": "API Guide",
        "summary": "How to use our REST API.",
        "char_count": len(DOCUMENTS["api-guide.md"]),
        "start_line": 1,
        "end_line": DOCUMENTS["api-guide.md"].rstrip().count("\n") + 1,
    }
    assert result["total_matches"] == len(result["results"])
    assert result["external_docs_path"] == "./docs"


def test_a_search_keeps_the_length_that_is_asked_for(kb: Session, make: Maker) -> None:
    root = make()
    guides = {
        f"guide-{n}.md": f"# Guide {n}\n\n{'How to use our REST API. ' * 15}\n" for n in range(9)
    }
    write(root / "docs", guides)
    call(kb, "activate_project", config_path=str(root))
    request = {"query": "how to use our REST API", "min_relevance_score": 0}
    whole = call(kb, "search_external_docs", **request)
    part = call(kb, "search_external_docs", **request, max_characters=1500)
    assert len(json.dumps(part, ensure_ascii=False, separators=(",", ":"))) <= 1500
    assert 1 < len(part["results"]) < len(whole["results"])
    paths = [row["path"] for row in whole["results"]]
    assert [row["path"] for row in part["results"]] == paths[: len(part["results"])]
    assert part["total_matches"] == whole["total_matches"]
    assert part["truncated"] is True
    assert "raise max_characters" in part["notice"]


def test_without_a_project_the_search_asks_for_one(kb: Session) -> None:
    assert failure(kb, "search_external_docs", query="x") == {
        "error": True,
        "code": "PROJECT_NOT_ACTIVATED",
        "message": "No project is currently activated. Call activate_project first.",
        "details": {"requiredTool": "activate_project"},
    }


@pytest.mark.parametrize("name", [".kb/config.json", ".csharp-compounding-docs/config.json"])
def test_without_docs_the_search_says_how_to_configure_them(
    kb: Session, tmp_path: Path, name: str
) -> None:
    write(tmp_path, {name: '{"project_name": "a"}'})
    assert "external_docs" not in call(kb, "activate_project", config_path=str(tmp_path / name))
    assert failure(kb, "search_external_docs", query="x") == {
        "error": True,
        "code": "EXTERNAL_DOCS_NOT_CONFIGURED",
        "message": "external_docs is not configured in project config. "
        f"Add 'external_docs.path' to your {name} file.",
        "details": {
            "configFile": name,
            "exampleConfig": {"external_docs": CONFIG["external_docs"]},
        },
    }


def test_a_model_that_fails_is_named_with_what_to_do(
    kb: Session, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(kb, "activate_project", config_path=str(make()))

    def fail(self: HashEmbedder, texts: list[str]) -> None:
        raise EmbeddingError("it is broken")

    monkeypatch.setattr(HashEmbedder, "embed", fail)
    error = failure(kb, "search_external_docs", query="REST API")
    assert error["code"] == "EMBEDDING_SERVICE_ERROR"
    assert "the model hash-64: it is broken" in error["message"]
    assert "`kb reembed --model hash-64 --download`" in error["message"]
    assert error["details"] == {"innerMessage": "it is broken", "model": "hash-64"}


def test_docs_that_could_not_be_embedded_are_warned_of_and_embedded_later(
    kb: Session, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: HashEmbedder, texts: list[str]) -> None:
        raise EmbeddingError("it is broken")

    with monkeypatch.context() as patch:
        patch.setattr(HashEmbedder, "embed", fail)
        result = call(kb, "activate_project", config_path=str(make()))
        assert "it is broken" in result["warnings"][0]
        assert failure(kb, "search_external_docs", query="x")["code"] == "EMBEDDING_SERVICE_ERROR"
    call(kb, "activate_project", config_path=str(make()))
    assert found(kb, "REST API")


def test_all_wrong_arguments_are_told_in_the_family_shape(kb: Session) -> None:
    error = failure(kb, "search_external_docs", query="", limit=0, min_relevance_score=2, k=1)
    assert error["code"] == "VALIDATION_ERROR"
    fields = {"query", "limit", "min_relevance_score", "k"}
    assert set(error["details"]["fieldErrors"]) == fields
    error = failure(kb, "search_external_docs", query="x" * 10_001)
    assert set(error["details"]["fieldErrors"]) == {"query"}


def test_a_threshold_in_the_configuration_wins(kb: Session, make: Maker) -> None:
    semantic = {"min_relevance_score": 0.0, "default_limit": 1}
    call(kb, "activate_project", config_path=str(make(semantic_search=semantic)))
    result = call(kb, "search_external_docs", query="REST API", min_relevance_score=1)
    assert (len(result["results"]), result["total_matches"]) == (1, 2)
    result = call(kb, "search_external_docs", query="REST API", limit=10)
    assert len(result["results"]) == 2


def test_rows_below_the_threshold_are_left_out_of_the_count(kb: Session, make: Maker) -> None:
    call(kb, "activate_project", config_path=str(make()))
    found = call(kb, "search_external_docs", query="project API", min_relevance_score=0)
    best, other = (row["relevance_score"] for row in found["results"])
    assert best > other > 0
    for threshold, count in ((best, 1), (best + 0.001, 0), (1, 0), (other, 2), (0, 2)):
        result = call(
            kb, "search_external_docs", query="project API", min_relevance_score=threshold, limit=1
        )
        assert (result["total_matches"], len(result["results"])) == (count, min(count, 1))
        assert ("notice" in result) == (count == 0)
    assert (
        "No document reaches the relevance 1; the nearest, ./docs/"
        in (call(kb, "search_external_docs", query="project API", min_relevance_score=1)["notice"])
    )


def test_a_document_of_many_passages_is_one_row(kb: Session, make: Maker) -> None:
    root = make()
    sections = [f"## Part {number}\n\n{'REST API guide. ' * 80}" for number in range(6)]
    write(root / "docs", {"long.md": "# Long\n\n" + "\n\n".join(sections)})
    call(kb, "activate_project", config_path=str(root))
    paths = found(kb, "REST API guide")
    assert sorted(paths) == ["./docs/api-guide.md", "./docs/long.md", "./docs/setup.md"]


@pytest.mark.parametrize("query", ["", " ", "NEAR(", '"', "a AND", "\x00x", "*", "日本", "-API"])
def test_any_text_is_a_query(kb: Session, make: Maker, query: str) -> None:
    call(kb, "activate_project", config_path=str(make()))
    if query:
        call(kb, "search_external_docs", query=query)
    assert found(kb, "project -API") == ["./docs/setup.md"]


@pytest.mark.parametrize(
    ("path", "shown"),
    [("docs/", "docs/setup.md"), ("./docs", "./docs/setup.md"), (".", "./docs/setup.md")],
)
def test_paths_begin_as_configured(kb: Session, make: Maker, path: str, shown: str) -> None:
    root = make(external_docs={"path": path})
    call(kb, "activate_project", config_path=str(root))
    result = call(kb, "search_external_docs", query="set up", min_relevance_score=0)
    assert shown in [row["path"] for row in result["results"]]
    assert result["external_docs_path"] == path


def test_activating_again_brings_the_docs_in_line(kb: Session, make: Maker) -> None:
    root = make()
    call(kb, "activate_project", config_path=str(root))
    write(root / "docs", {"new.md": "# New\n", "setup.md": "# Setup Guide\n\nChanged.\n"})
    (root / "docs" / "api-guide.md").unlink()
    docs = call(kb, "activate_project", config_path=str(root))["external_docs"]
    assert (docs["added"], docs["updated"], docs["deleted"], docs["unchanged"]) == (1, 1, 1, 0)


def test_an_unchanged_project_waits_for_nobody_who_writes(kb: Session, make: Maker) -> None:
    root = make()
    for path in (root / "docs").rglob("*.md"):
        os.utime(path, (1_700_000_000, 1_700_000_000))  # old enough for its time to be trusted
    call(kb, "activate_project", config_path=str(root))
    with contextlib.closing(sqlite3.connect(kb.database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        docs = call(kb, "activate_project", config_path=str(root))["external_docs"]
    assert (docs["added"], docs["updated"], docs["deleted"], docs["unchanged"]) == (0, 0, 0, 2)


def test_other_globs_are_noted_though_no_document_changes(kb: Session, make: Maker) -> None:
    call(kb, "activate_project", config_path=str(make()))
    changed = {**CONFIG["external_docs"], "exclude_patterns": ["**/node_modules/**", "x/**"]}
    call(kb, "activate_project", config_path=str(make(external_docs=changed)))
    with kb.database.read() as connection:
        (row,) = connection.rows("collections")
    assert json.loads(row["exclude"]) == ["**/node_modules/**", "x/**"]


def test_a_project_that_is_activated_again_is_followed_on(kb: Session, make: Maker) -> None:
    def followers() -> set[threading.Thread]:
        return {one for one in threading.enumerate() if one.name == "kb-watch"} - others

    others: set[threading.Thread] = set()
    others = followers()
    root = make()
    kb.project.keep_fresh()
    call(kb, "activate_project", config_path=str(root))
    (follower,) = followers()
    call(kb, "activate_project", config_path=str(root))
    assert followers() == {follower}
    call(kb, "activate_project", config_path=str(make("other")))
    assert followers() - {follower}
    kb.project.stop()


def test_a_rename_embeds_nothing(kb: Session, make: Maker, embedder: HashEmbedder) -> None:
    root = make()
    call(kb, "activate_project", config_path=str(root))
    (root / "docs" / "setup.md").rename(root / "docs" / "start.md")
    embedder.texts.clear()
    call(kb, "activate_project", config_path=str(root))
    assert embedder.texts == []
    assert "./docs/start.md" in found(kb, "set up the project")


def test_docs_without_a_matching_file_are_warned_of(kb: Session, make: Maker) -> None:
    root = make()
    call(kb, "activate_project", config_path=str(root))
    write(
        root,
        {
            ".kb/config.json": json.dumps(
                {**CONFIG, "external_docs": {"path": "docs", "include_patterns": ["*.adoc"]}}
            )
        },
    )
    result = call(kb, "activate_project", config_path=str(root))
    assert "no file in docs matches *.adoc" in result["warnings"][0]
    assert found(kb, "REST API") == []


def test_docs_that_are_configured_no_more_leave_the_file(kb: Session, make: Maker) -> None:
    call(kb, "activate_project", config_path=str(make()))
    result = call(kb, "activate_project", config_path=str(make(external_docs=None)))
    assert result["total_docs"] == 0
    with kb.database.read() as connection:
        assert len(chunk_ids(connection)) == 0


def test_a_configuration_that_fails_leaves_the_project_active(kb: Session, make: Maker) -> None:
    root = make()
    call(kb, "activate_project", config_path=str(root))
    write(root, {".kb/config.json": '{"external_docs": {"path": ".."}}'})
    error = failure(kb, "activate_project", config_path=str(root))
    assert error["code"] == "CONFIG_ERROR"
    assert set(error["details"]["fieldErrors"]) == {"project_name", "external_docs.path"}
    assert found(kb, "REST API")


def commit_all(root: Path) -> None:
    git(root, "init", "-b", "trunk")
    git(root, "add", "-A", "-f")
    git(root, "commit", "-m", "first")


def test_worktrees_and_branches_never_mix(
    kb: Session, make: Maker, tmp_path: Path, embedder: HashEmbedder
) -> None:
    root, side = make(), tmp_path / "side"
    commit_all(root)
    git(root, "worktree", "add", "-b", "topic", str(side))
    write(side / "docs", {"topic.md": "# Topic\n\nOnly here.\n"})
    assert call(kb, "activate_project", config_path=str(root))["branch_name"] == "trunk"
    assert call(kb, "activate_project", config_path=str(side))["branch_name"] == "topic"
    assert found(kb, "topic only here")[0] == "./docs/topic.md"
    embedder.texts.clear()
    call(kb, "activate_project", config_path=str(root), branch_name="other")
    assert "./docs/topic.md" not in found(kb, "topic only here")
    assert embedder.texts == []  # equal documents share their vectors
    result = call(kb, "activate_project", config_path=str(root))
    assert result["total_docs"] == 2
    assert len(tenants(kb)) == 3
    # A copy of the file may lie where the folders are not: what they held stays.
    shutil.rmtree(side)
    call(kb, "activate_project", config_path=str(root))
    assert len(tenants(kb)) == 3


def tenants(kb: Session) -> list[dict[str, Any]]:
    with kb.database.read() as connection:
        rows = connection.rows("collections")
    return [row for row in rows if row["kind"] == "external"]


def test_a_branch_that_is_checked_out_later_gets_documents_of_its_own(
    kb: Session, make: Maker
) -> None:
    root = make()
    commit_all(root)
    call(kb, "activate_project", config_path=str(root))
    git(root, "checkout", "-b", "topic")
    write(root / "docs", {"topic.md": "# Topic\n\nOnly here.\n"})
    kb.project.refresh()  # as the watcher does
    assert kb.project.active is not None
    assert kb.project.active.project.branch == "topic"
    assert "./docs/topic.md" in found(kb, "topic only here")
    (root / "docs" / "topic.md").unlink()
    git(root, "checkout", "trunk")
    kb.project.refresh()
    assert "./docs/topic.md" not in found(kb, "topic only here")
    assert len(tenants(kb)) == 2


def test_a_link_put_in_place_of_the_docs_is_not_followed(
    kb: Session, make: Maker, tmp_path: Path
) -> None:
    root = make()
    call(kb, "activate_project", config_path=str(root))
    write(tmp_path / "secret", {"key.md": "# Key\n\nSecret words.\n"})
    (root / "docs").rename(root / "old")
    (root / "docs").symlink_to(tmp_path / "secret")
    kb.project.refresh()
    assert "./docs/key.md" not in found(kb, "secret words")
    assert failure(kb, "activate_project", config_path=str(root))["code"] == "CONFIG_ERROR"


def test_external_docs_are_not_seen_by_the_documents_tools(kb: Session, make: Maker) -> None:
    call(kb, "activate_project", config_path=str(make()))
    assert call(kb, "documents_search", query="REST API")["results"] == []


def test_embedding_that_takes_long_goes_on_in_slices(
    kb: Session, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make()
    write(root / "docs", {f"{n}.md": f"# Document {n}\n\nREST API {n}.\n" for n in range(40)})
    kb.project.keep_fresh()
    monkeypatch.setattr("kb.tools.external.EMBEDDING_SECONDS", 0)
    result = call(kb, "activate_project", config_path=str(root))
    assert "in the background" in result["notice"]
    found_now = call(kb, "search_external_docs", query="REST API", min_relevance_score=0)
    assert "not embedded yet" in found_now["notice"]
    assert kb.project.active is not None
    kb.project.stop()
    while kb.project.refresh():
        pass
    found_now = call(kb, "search_external_docs", query="REST API", min_relevance_score=0)
    assert (found_now["total_matches"], "notice" in found_now) == (42, False)


def test_progress_of_the_sync_is_reported(kb: Session, make: Maker) -> None:
    seen: list[tuple[str, int, int]] = []
    arguments = {"config_path": str(make())}
    call_tool(kb, "activate_project", arguments, progress=lambda *step: seen.append(step))
    assert ("documents", 2, 2) in seen
    assert ("embedding", 2, 2) in seen
    assert "progress" not in str(call_tool(kb, "activate_project", {"progress": 1}).content["code"])


def activated(root: Path, branch: str = "main", query: str = "REST API") -> dict[str, Any]:
    """What an activation says in a project that has its file inside, and what is found then."""
    file = root / ".kb" / "kb.db"
    embedder = HashEmbedder()
    with open_session(Database(file), project=root, make_embedder=lambda _: embedder) as kb:
        said = call(kb, "activate_project", config_path=str(root), branch_name=branch)
        with kb.database.read() as connection:
            rows = [row["name"] for row in all_collections(connection)]
        return {
            **said["external_docs"],
            "hash": said["path_hash"],
            "names": rows,
            "found": found(kb, query),
        }


def test_a_project_that_was_moved_with_its_file_goes_on_as_the_same_one(
    make: Maker, tmp_path: Path
) -> None:
    root = make()
    before = activated(root)
    activated(root, "other")
    root.rename(tmp_path / "moved")
    after = activated(tmp_path / "moved")
    assert (before["added"], after["added"], after["unchanged"]) == (2, 0, 2)
    assert after["found"] == before["found"]
    assert after["hash"] != before["hash"]
    assert [name.replace(before["hash"], after["hash"]) for name in before["names"]] == [
        name for name in after["names"] if "/other/" not in name
    ]
    assert activated(tmp_path / "moved", "other")["unchanged"] == 2


def test_a_copied_project_is_another_one(make: Maker, tmp_path: Path) -> None:
    root = make()
    activated(root)
    shutil.copytree(root, tmp_path / "copied")
    assert activated(tmp_path / "copied")["added"] == 2


def test_a_project_elsewhere_does_not_get_what_a_gone_one_of_its_name_had(
    kb: Session, make: Maker, tmp_path: Path
) -> None:
    root, other = make(), make("other")
    call(kb, "activate_project", config_path=str(root), branch_name="main")
    shutil.rmtree(root)  # the file lies in neither
    said = call(kb, "activate_project", config_path=str(other), branch_name="main")
    assert said["external_docs"]["added"] == 2

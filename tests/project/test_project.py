"""Finding a project, checking its configuration, telling its branches and folders apart."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from support import git

from kb.disk.git import git_branch
from kb.disk.globs import Globs, _expressions
from kb.errors import ConfigurationError
from kb.project.in_use import CONFIG_FILES, allowed_folders, find_config, load_project

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write_config(root: Path, content: Any, name: str = CONFIG_FILES[0]) -> Path:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def problems(root: Path, content: Any) -> dict[str, list[str]]:
    write_config(root, content)
    with pytest.raises(ConfigurationError) as caught:
        load_project(start=root)
    return caught.value.details["fieldErrors"]


@pytest.mark.parametrize("name", CONFIG_FILES)
def test_the_configuration_is_found_from_a_folder_inside_the_project(
    tmp_path: Path, name: str
) -> None:
    file = write_config(tmp_path, {"project_name": "a"}, name)
    inner = tmp_path / "src" / "deep"
    inner.mkdir(parents=True)
    assert find_config(inner) == file
    project = load_project(start=inner)
    assert (project.root, project.config_file) == (tmp_path.resolve(), name)


@pytest.mark.parametrize("given", ["", ".kb", ".kb/config.json"])
def test_a_path_may_name_the_file_or_a_folder(tmp_path: Path, given: str) -> None:
    write_config(tmp_path / "p", {"project_name": "a"})
    project = load_project(str(tmp_path / "p" / given), start=tmp_path)
    assert project.root == (tmp_path / "p").resolve()


def test_no_configuration_is_an_error_that_says_what_to_create(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no project configuration found .* create"):
        find_config(tmp_path)
    with pytest.raises(ConfigurationError, match="there is no configuration file"):
        load_project(str(tmp_path / "none"), start=tmp_path)
    (tmp_path / "config.json").write_text('{"project_name": "a"}')
    with pytest.raises(ConfigurationError, match="there is no configuration file"):
        load_project(str(tmp_path / "config.json"), start=tmp_path)
    with pytest.raises(ConfigurationError, match="configuration file"):
        load_project("a\0b", start=tmp_path)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file.md").touch()
    found = problems(
        tmp_path,
        {
            "project_name": "Test Project",
            "external_docs": {
                "path": "file.md",
                "include_patterns": ["a[", 3],
                "exclude_patterns": "*.md",
            },
            "semantic_search": {"min_relevance_score": 1.5, "default_limit": True},
        },
    )
    assert set(found) == {
        "project_name",
        "external_docs.path",
        "external_docs.include_patterns.0",
        "external_docs.include_patterns.1",
        "external_docs.exclude_patterns",
        "semantic_search.min_relevance_score",
        "semantic_search.default_limit",
    }
    assert found["external_docs.path"] == ["file.md is a file, not a folder"]


@pytest.mark.parametrize("content", ["", "{", "[]", "\xff", "null", "[" * 100_000])
def test_a_broken_file_is_a_clean_error(tmp_path: Path, content: str) -> None:
    file = write_config(tmp_path, {})
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"\.kb/config\.json"):
        load_project(start=tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    found = problems(tmp_path, {"project_name": "a", "external_docs": {"path": "./docs"}})
    assert found == {"external_docs.path": ["./docs does not exist"]}


@pytest.mark.parametrize("path", ["..", "../p_secret", "/etc", "docs/../..", "link", "..\\..", "~"])
def test_documents_outside_the_project_are_refused(tmp_path: Path, path: str) -> None:
    root = tmp_path / "p"
    (root / "docs").mkdir(parents=True)
    (tmp_path / "p_secret").mkdir()
    (root / "link").symlink_to(tmp_path / "p_secret")
    found = problems(root, {"project_name": "a", "external_docs": {"path": path}})
    assert "leads out of the project" in str(found) or "does not exist" in str(found)


def test_only_the_user_can_allow_a_folder_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, handbook = tmp_path / "p", tmp_path / "handbook"
    warnings: list[str] = []
    handbook.mkdir()
    write_config(root, {"project_name": "a", "external_docs": {"path": "../handbook"}})
    project = load_project(start=root, allowed=allowed_folders([str(handbook)], warnings.append))
    assert project.docs_folder == handbook.resolve()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    user_file = tmp_path / "xdg" / "kb" / "config.json"
    user_file.parent.mkdir(parents=True)
    user_file.write_text(json.dumps({"external_docs": {"allowed_paths": [str(handbook)]}}))
    allowed = allowed_folders([], warnings.append)
    assert load_project(start=root, allowed=allowed).docs_folder == handbook.resolve()
    assert warnings == []


@pytest.mark.parametrize(
    "content",
    [b'{"external_docs": {"allowed_paths": 1}}', b"[1,2]", b"", b"{oops", b"\xff", b"[" * 50_000],
)
def test_a_broken_file_of_the_user_allows_nothing_and_says_so(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    user_file = tmp_path / "xdg" / "kb" / "config.json"
    user_file.parent.mkdir(parents=True)
    user_file.write_bytes(content)
    warnings: list[str] = []
    assert allowed_folders([str(tmp_path), "a\0b"], warnings.append) == (tmp_path.resolve(),)
    assert len(warnings) == 2
    assert str(user_file) in warnings[0]


def test_ten_thousand_patterns_are_compiled_once(tmp_path: Path) -> None:
    patterns = [f"*{number}*a*b" for number in range(8_000)]
    docs = {"path": "docs", "include_patterns": patterns, "exclude_patterns": patterns[:100]}
    (tmp_path / "docs").mkdir()
    write_config(tmp_path, {"project_name": "a", "external_docs": docs})
    before = _expressions.cache_info().misses
    config = load_project(start=tmp_path).config
    assert config.external_docs is not None
    Globs(config.external_docs.include_patterns, descend=False)
    Globs(config.external_docs.exclude_patterns, descend=True)
    assert _expressions.cache_info().misses - before == 2


def test_a_pattern_that_stands_for_millions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    docs = {"path": "docs", "include_patterns": ["{a,b}" * 40]}
    found = problems(tmp_path, {"project_name": "a", "external_docs": docs})
    assert list(found) == ["external_docs.include_patterns.0"]


def test_patterns_that_together_stand_for_too_much_are_refused(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    docs = {"path": "docs", "exclude_patterns": ["{a,b}" * 8 + f"{n}" * 90 for n in range(1000)]}
    found = problems(tmp_path, {"project_name": "a", "external_docs": docs})
    assert list(found) == ["external_docs.exclude_patterns"]


def test_misspelt_keys_are_pointed_out_and_foreign_ones_passed_over(tmp_path: Path) -> None:
    write_config(tmp_path, {"project_name": "a", "external_doc": {}, "file_watcher": {}})
    assert load_project(start=tmp_path).warnings == (
        '.kb/config.json: the key "external_doc" is not used; did you mean "external_docs"?',
    )


def test_the_path_hash_is_that_of_the_root_with_slashes(tmp_path: Path) -> None:
    write_config(tmp_path, {"project_name": "a"})
    wanted = hashlib.sha256(str(tmp_path.resolve()).encode()).hexdigest()[:16]
    assert load_project(start=tmp_path).path_hash == wanted


@pytest.mark.parametrize(
    ("head", "branch"),
    [
        ("ref: refs/heads/main\n", "main"),
        ("ref: refs/heads/feature/x-1", "feature/x-1"),
        ("ref: refs/bisect/bad", "bisect/bad"),
        (COMMIT + "\n", "detached-01234567"),
        ("0" * 64, "detached-00000000"),
        ("rubbish", "default"),
    ],
)
def test_the_branch_is_read_from_head(tmp_path: Path, head: str, branch: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(head)
    (tmp_path / "sub").mkdir()
    assert git_branch(tmp_path / "sub") == branch


def test_without_git_and_with_a_broken_one_there_is_a_branch_still(tmp_path: Path) -> None:
    assert git_branch(tmp_path) == "default"
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    assert git_branch(tmp_path) == "default"


def test_a_given_branch_wins_and_reftable_asks_for_one(tmp_path: Path) -> None:
    write_config(tmp_path, {"project_name": "a"})
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")
    assert load_project(branch="mine", start=tmp_path).branch == "mine"
    with pytest.raises(ConfigurationError, match="give branch_name"):
        load_project(start=tmp_path)


def test_worktrees_have_branches_of_their_own(tmp_path: Path) -> None:
    main, side = tmp_path / "main", tmp_path / "side"
    main.mkdir()
    git(main, "init", "-b", "trunk")
    git(main, "commit", "--allow-empty", "-m", "first")
    git(main, "worktree", "add", "-b", "topic", str(side))
    assert (git_branch(main), git_branch(side)) == ("trunk", "topic")
    git(side, "checkout", "--detach")
    assert git_branch(side).startswith("detached-")

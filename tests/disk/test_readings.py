"""What is remembered of the files of a folder, and that a changed file is looked at again."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kb.disk import grep as module
from kb.disk.grep import grep
from kb.results.code import CodeMatches


@pytest.fixture(autouse=True)
def nothing_is_known() -> Iterator[None]:
    module._remembered.clear()
    yield
    module._remembered.clear()


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as written long ago, however new they are."""
    monkeypatch.setattr(module, "SETTLED_NS", -(10**18))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "plain.txt": b"token\n",
        "latin.txt": b"caf\xe9 token\n",
        "wide.txt": "token wide\n".encode("utf-16-le"),
        "picture.dat": b"\x00\x01token\n" + bytes(range(32)),
        "key.txt": b"-----BEGIN RSA PRIVATE KEY-----\ntoken\n",
        ".ENV": b"token\n",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def found(root: Path, pattern: str = "token") -> list[str]:
    return [match.file for match in grep(root, pattern, "", True, 100).matches]


def anew(root: Path, pattern: str, glob: str) -> CodeMatches:
    module._remembered.clear()
    return grep(root, pattern, glob, True, 100)


@pytest.mark.usefixtures("settled")
def test_the_files_of_a_known_folder_are_not_examined_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = grep(project, "token", "", True, 100)

    def refuse(*arguments: Any) -> None:
        raise AssertionError("examined again")

    monkeypatch.setattr(module, "find_odd", refuse)
    assert grep(project, "token", "", True, 100) == first
    assert first.files_searched == 4
    assert [match.file for match in first.matches] == ["latin.txt", "plain.txt", "wide.txt"]


@pytest.mark.usefixtures("settled")
def test_of_a_changed_folder_the_changed_files_alone_are_examined(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(project)
    examined = []
    find = module.find_odd

    def record(root: Path, files: Any, paths: list[str], *rest: Any) -> Any:
        examined.append(paths)
        return find(root, files, paths, *rest)

    monkeypatch.setattr(module, "find_odd", record)
    (project / "plain.txt").write_bytes("a token in UTF-16".encode("utf-16"))
    (project / "new.txt").write_bytes(b"token\rtoken\r")
    assert found(project) == ["latin.txt", "new.txt", "new.txt", "plain.txt", "wide.txt"]
    assert examined == [["new.txt", "plain.txt"]]


def test_a_file_that_was_just_written_is_not_remembered(project: Path) -> None:
    """It may change again within the same tick of the file system's clock."""
    place = project / "plain.txt"
    times = place.stat().st_atime_ns, place.stat().st_mtime_ns
    assert found(project) == ["latin.txt", "plain.txt", "wide.txt"]
    place.write_bytes(b"t\rken\n")
    os.utime(place, ns=times)
    assert found(project, "^ken") == ["plain.txt"]


@pytest.mark.usefixtures("settled")
def test_whether_a_match_lies_in_a_private_key_is_remembered_with_the_file(project: Path) -> None:
    assert "key.txt" not in found(project)
    (project / "key.txt").write_bytes(b"a token, no key\n")
    assert "key.txt" in found(project)
    (project / "plain.txt").write_bytes(b"-----BEGIN PRIVATE KEY-----\ntoken\n")
    assert "plain.txt" not in found(project)


@pytest.mark.usefixtures("settled")
def test_a_search_that_was_cut_off_does_not_tell_either_what_is_in_a_private_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key.txt").write_bytes(b"-----BEGIN RSA PRIVATE KEY-----\ntoken\n")
    count = module.count_in_folder

    def cut_off(*arguments: Any, **others: Any) -> tuple[dict[str, int], bool]:
        return count(*arguments, **others)[0], False

    for searched in (1, 0):  # what is known and does not match is not named by a search
        with monkeypatch.context() as patched:
            patched.setattr(module, "count_in_folder", cut_off)
            one = grep(tmp_path, "token", "", True, 100)
            other = grep(tmp_path, "no such text", "", True, 100)
        nothing = CodeMatches(
            matches=[],
            total_matches=0,
            files_searched=searched,
            searched="disk",
            truncated=True,
        )
        assert one == other == nothing
        grep(tmp_path, "token", "", True, 100)


@pytest.mark.usefixtures("settled")
def test_a_file_that_could_not_be_read_is_tried_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = ["latin.txt", "plain.txt", "wide.txt"]
    assert found(project) == everything

    def fail(*_: Any) -> bytes:
        raise OSError("the disk does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(module, "_decoded", fail)
        assert found(project) == ["latin.txt", "plain.txt"]  # the first as ripgrep sees it
    assert found(project) == everything


@pytest.mark.usefixtures("settled")
def test_a_glob_does_not_change_what_is_known_of_the_others(project: Path) -> None:
    for glob in ("*.md", "*.dat", "latin*", ""):
        known = grep(project, "token", glob, True, 100)
        before = dict(module._remembered)
        assert known == anew(project, "token", glob)
        module._remembered.update(before)


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("few", [0, 200])
def test_what_is_remembered_never_changes_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(module, "_FEW_FILES", few)
    rng = random.Random(few)
    names = ["a.txt", "b.md", "sub/c.txt", "sub/deep/d.txt", "sub/.env", "img/1.png", ".gitignore"]
    kinds = ("utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-16-le", "utf-16-be")
    for number in range(30):
        for index, name in enumerate(rng.sample(names, 2)):
            place = tmp_path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            text = f"caf\N{LATIN SMALL LETTER E WITH ACUTE} token {'x' * number}\n"
            data = text.encode(rng.choice(kinds)) + rng.choice([b"", b"", b"\0", b"token\r\r"])
            place.write_bytes(b"*.md\n#" + data if name == ".gitignore" else data)
            # Its own time for each: the clock may stand still in between.
            os.utime(place, ns=(0, 2 * number + index))
        pattern, glob = rng.choice(["token", "caf.", "^$", "x{3}"]), rng.choice(["", "*.txt"])
        known = grep(tmp_path, pattern, glob, True, 100)
        before = dict(module._remembered)
        assert known == anew(tmp_path, pattern, glob)
        module._remembered.clear()
        module._remembered.update(before)


@pytest.mark.usefixtures("settled")
def test_no_more_files_are_remembered_than_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FILES_REMEMBERED", 5)
    for folder, count in (("a", 3), ("b", 3), ("c", 2), ("d", 6)):
        root = tmp_path / folder
        root.mkdir()
        for number in range(count):
            (root / f"{number}.txt").write_text("token\n")
        assert len(found(root)) == count
        known = [Path(path).name for path in module._remembered]
        assert known == {"a": ["a"], "b": ["b"], "c": ["b", "c"], "d": []}[folder]

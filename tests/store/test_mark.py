"""What a user has said of a file is noted outside of it."""

import json
from pathlib import Path

import pytest

from kb.settings import user_state
from kb.store.mark import Mark


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "kb.db"
    file.write_bytes(b"a file")
    return file


def notes() -> list[Path]:
    return list((user_state() / "files").glob("*"))


def test_a_file_in_memory_is_its_makers_and_nothing_is_noted_of_it() -> None:
    mark = Mark(None)
    mark.confirm_file()
    mark.confirm_source("docs", is_private=True)
    assert mark.is_own
    assert mark.allows("anything", is_private=True)
    assert notes() == []


def test_a_file_is_ones_own_once_confirmed_and_until_another_takes_its_place(file: Path) -> None:
    assert not Mark(file).is_own
    mark = Mark(file)
    mark.confirm_file()
    assert (mark.is_own, Mark(file).is_own) == (True, True)
    other = file.with_name("other.db")
    other.write_bytes(b"another file")
    other.replace(file)
    assert (mark.is_own, Mark(file).is_own) == (True, False)  # that of the file which was there
    file.unlink()
    assert (Mark(file).is_own, Mark(other).is_own) == (False, False)


def test_a_file_that_is_not_there_is_nobodys(tmp_path: Path) -> None:
    mark = Mark(tmp_path / "nothing.db")
    assert not mark.is_own
    mark.confirm_file()
    assert not mark.is_own


def test_a_source_is_read_once_confirmed_and_private_addresses_apart(file: Path) -> None:
    mark = Mark(file)
    assert not mark.allows("https://x")
    another = Mark(file)
    another.confirm_source("https://x")
    assert mark.allows("https://x")
    assert not mark.allows("https://x", is_private=True)
    assert not mark.allows("https://y")
    another.confirm_source("https://x", is_private=True)
    assert mark.allows("https://x", is_private=True)
    assert not Mark(file.with_name("other.db")).allows("https://x")


def test_notes_name_the_file_and_are_for_their_user_alone(file: Path) -> None:
    for _ in range(2):
        mark = Mark(file)
        mark.confirm_file()
        mark.confirm_source("docs")
    (place,) = notes()
    lines = [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()]
    inode = str(file.stat().st_ino)
    assert lines == [["path", str(file.resolve())], ["inode", inode], ["source", "docs"]]
    assert place.stat().st_mode & 0o077 == 0

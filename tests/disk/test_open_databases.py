"""What this process has open as a database, nothing else in it opens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kb.disk import open_databases
from kb.disk.open_databases import Claim, OpenDatabaseError, opened
from kb.errors import FileError, ReplacedFileError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "kb.db"
    file.write_bytes(b"a database")
    return file


@pytest.fixture
def claim(file: Path) -> Iterator[Claim]:
    claim = Claim(file)
    yield claim
    claim.release()


def replace(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(b"another")
    other.replace(file)


def test_a_file_is_claimed_once_whatever_it_is_called(claim: Claim, tmp_path: Path) -> None:
    for name in ("link.db", "hard.db"):
        (os.symlink if name == "link.db" else os.link)(claim.path, tmp_path / name)
        with pytest.raises(FileError, match="is open in this process already"):
            Claim(tmp_path / name)


@pytest.mark.parametrize("suffix", open_databases.COMPANIONS)
def test_it_is_not_even_opened_to_be_refused(claim: Claim, suffix: str) -> None:
    path = claim.path.with_name(claim.path.name + suffix)
    path.touch()
    before = os.listdir("/proc/self/fd") if Path("/proc/self/fd").is_dir() else []
    with pytest.raises(OpenDatabaseError), opened(path):
        pass
    after = os.listdir("/proc/self/fd") if Path("/proc/self/fd").is_dir() else []
    assert len(after) == len(before)


def test_what_becomes_a_database_while_it_is_read_is_closed_after_the_database(
    file: Path,
) -> None:
    other = Claim(file.with_name("other.db"))
    with opened(file) as stream:
        claim = Claim(file)
        descriptor = stream.fileno()
    other.release()
    os.fstat(descriptor)  # still open: closing it would lose the locks
    claim.release()
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_a_file_that_was_replaced_or_removed_is_refused(claim: Claim, file: Path) -> None:
    claim.require_in_place()
    replace(file)
    with pytest.raises(ReplacedFileError, match="was replaced by another file"):
        claim.require_in_place()
    file.unlink()
    with pytest.raises(ReplacedFileError, match="was removed while it was open"):
        claim.require_in_place()


def test_another_file_at_the_path_is_taken_up_once(claim: Claim, file: Path) -> None:
    assert not claim.take_up()
    replace(file)
    assert claim.take_up()
    assert not claim.take_up()
    file.unlink()
    assert not claim.take_up()

"""What kb writes is whole or not there, and nobody may read it who could not read it before."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kb.disk.write import create_like, replace_file, replacing
from kb.store.database import Database
from kb.store.opening import make_file
from kb.store.schema import _back_up

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("before", [0o600, 0o640, 0o664, 0o444])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path, before: int) -> None:
    place = tmp_path / "real"
    place.write_text("old")
    place.chmod(before)
    (tmp_path / "link").symlink_to(place)
    replace_file(tmp_path / "link", "new")
    assert (place.read_text(), mode(place)) == ("new", before)
    assert sorted(one.name for one in tmp_path.iterdir() if one.name != "home") == ["link", "real"]


def test_a_new_file_is_as_the_user_has_new_files_or_private(tmp_path: Path) -> None:
    replace_file(tmp_path / "new", b"x")
    assert mode(tmp_path / "new") == 0o644
    replace_file(tmp_path / "new", b"x", is_private=True)
    assert mode(tmp_path / "new") == 0o600


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with contextlib.suppress(KeyboardInterrupt), replacing(tmp_path / "file") as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert (tmp_path / "file").read_text() == "old"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "home"]


def test_a_signal_between_two_steps_of_a_write_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def interrupted(source: str, target: Path) -> None:
        replace(source, target)
        raise SystemExit(143)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(SystemExit):
        replace_file(tmp_path / "state.json", "{}")


@pytest.mark.parametrize(
    ("model", "made"), [(0o600, 0o600), (0o640, 0o640), (0o666, 0o644), (0o400, 0o600)]
)
def test_a_copy_is_open_to_nobody_new(tmp_path: Path, model: int, made: int) -> None:
    (tmp_path / "model").write_text("x")
    (tmp_path / "model").chmod(model)
    create_like(tmp_path / "made", tmp_path / "model")
    assert mode(tmp_path / "made") == made
    make_file(tmp_path / "kb.db", tmp_path / "model")
    assert mode(tmp_path / "kb.db") == made


def test_a_private_file_has_private_logs_and_backups(tmp_path: Path) -> None:
    path = tmp_path / "kb.db"
    Database(path).close()
    path.chmod(0o600)
    with Database(path) as database, database.write():
        beside = sorted(one.name for one in tmp_path.glob("kb.db-*"))
        assert beside == ["kb.db-shm", "kb.db-wal"]
        assert {mode(tmp_path / name) for name in beside} == {0o600}
    _back_up(path, tmp_path / "kb.db.version-1")
    assert mode(tmp_path / "kb.db.version-1") == 0o600

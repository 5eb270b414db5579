"""What was fetched is kept for its owner, for a while, and where there is room for it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from sources.web_server import serving

from kb.sources.web import KEPT_SECONDS, Web, cache_folder


def test_what_was_not_used_for_long_is_deleted() -> None:
    folder = cache_folder("git")
    for name in ("old", "new"):
        (folder / name).mkdir()
        (folder / name / "pack").write_bytes(b"x")
        (folder / f"{name}.lock").touch()
    now = (folder / "new").stat().st_mtime
    for name in ("old", "old.lock"):
        os.utime(folder / name, (now - KEPT_SECONDS - 60, now - KEPT_SECONDS - 60))
    assert cache_folder("git") == folder
    assert sorted(path.name for path in folder.iterdir()) == ["new", "new.lock"]


@pytest.mark.skipif(os.name != "posix", reason="rights of files as POSIX has them")
def test_only_its_owner_reads_it() -> None:
    for kind in ("git", "web"):
        assert stat.S_IMODE(cache_folder(kind).stat().st_mode) == 0o700


def test_a_page_is_fetched_where_nothing_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with serving() as site, Web(allow_private=True) as web:
        site.put("/", "page")
        assert web.get(site.url, 1_000).data == b"page"

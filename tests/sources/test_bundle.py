"""Bundles: from packed to searched, changed and synced again; hostile ones change nothing."""

import io
import json
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import call

from kb.errors import SourceError
from kb.ingest import prepare
from kb.ingest.report import SyncReport
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.library.health import look_at
from kb.sources import bundle as bundle_module
from kb.sources.bundle import pack, unpacked
from kb.sources.folder import walk
from kb.tools.session import Session

PAGES = {"a.md": "# Alpha\n\nThe quartz crystal.\n", "sub/b.md": "# Beta\n\nThe felspar.\n"}


def files_of(root: Path, pages: dict[str, str]) -> Path:
    for path, text in pages.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def packed(tmp_path: Path, pages: dict[str, str], name: str = "docs.tar.gz") -> Path:
    folder = files_of(tmp_path / f"from-{name}-{len(pages)}", pages)
    files = list(walk(folder, report=lambda path, message: pytest.fail(path)))
    manifest = {"name": "x", "version": "1.2", "description": "Stones", "sources": {"glob": []}}
    pack(files, tmp_path / name, manifest)
    return tmp_path / name


def zipped(tmp_path: Path, pages: dict[str, str]) -> Path:
    with zipfile.ZipFile(tmp_path / "docs.zip", "w") as archive:
        for path, text in pages.items():
            archive.writestr(path, text)
    return tmp_path / "docs.zip"


def add(kb: Session, source: Path) -> SyncReport:
    return sync_collection(kb.database, register(kb.database, str(source), name="stones"))


@pytest.mark.parametrize("make", [packed, zipped])
def test_a_bundle_is_searched_changed_and_synced_again(
    kb: Session, tmp_path: Path, make: Callable[[Path, dict[str, str]], Path]
) -> None:
    source = make(tmp_path, PAGES)
    assert (add(kb, source).added, look(kb).is_fresh) == (2, True)
    (row, *_) = call(kb, "documents_search", query="quartz")["results"]
    assert (row["documentId"], row["startLine"]) == ("a.md", 1)
    # As long as before: only the bundle's own time tells that it is another edition.
    make(tmp_path, {**PAGES, "a.md": "# Alpha\n\nThe marble slabss.\n"})
    os.utime(source, ns=(10**18, 10**18))
    assert look(kb).changed == ["a.md"]
    report = add(kb, source)
    assert (report.updated, report.unchanged, report.removed) == (1, 1, 0)
    assert call(kb, "documents_search", query="marble")["results"][0]["documentId"] == "a.md"


def test_another_edition_of_equal_size_and_time_is_found(
    kb: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "TRUSTED_AGE_NS", 0)
    source = zipped(tmp_path, PAGES)
    os.utime(source, ns=(10**18, 10**18))
    add(kb, source)
    assert look(kb).is_fresh
    # Stored without compression, so that its size is the same too.
    zipped(tmp_path, {**PAGES, "a.md": "# Alpha\n\nThe quartz crystel.\n"})
    os.utime(source, ns=(10**18, 10**18))
    report = add(kb, source)
    assert (report.updated, report.unchanged) == (1, 1)


def look(kb: Session):  # type: ignore[no-untyped-def]
    with kb.database.read() as connection:
        row = kb.names.collection(connection, "stones")
    return look_at(kb.database, row)


def test_a_manifest_says_version_and_description(kb: Session, tmp_path: Path) -> None:
    add(kb, packed(tmp_path, PAGES))
    (row,) = call(kb, "documents_list_collections")["collections"]
    assert (row["version"], row["description"]) == ("1.2", "Stones")


def test_the_same_documents_give_the_same_bytes(tmp_path: Path) -> None:
    first = packed(tmp_path, PAGES, "one.tar.gz").read_bytes()
    assert packed(tmp_path, PAGES, "two.tgz").read_bytes() == first


def tar_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("name", ["../evil.md", "/evil.md", "a/../../evil.md", "C:\\\\evil.md"])
def test_a_member_that_leads_outside_refuses_the_bundle(
    kb: Session, tmp_path: Path, name: str
) -> None:
    good = (tarfile.TarInfo("good.md"), b"# Good")
    tar = tar_of(tmp_path / "x.tar.gz", good, (tarfile.TarInfo(name), b"# Evil"))
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo(name.replace("\\", "/")), "# Evil")
    for source in (tar, tmp_path / "x.zip"):
        with pytest.raises(SourceError, match="leads outside"):
            add(kb, source)
    assert not list(tmp_path.parent.glob("evil*"))
    assert call(kb, "documents_list_collections")["collections"] == []


def test_links_and_devices_are_left_out(kb: Session, tmp_path: Path) -> None:
    link, device = tarfile.TarInfo("link.md"), tarfile.TarInfo("device.md")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    device.type = tarfile.FIFOTYPE
    good = (tarfile.TarInfo("good.md"), b"# Good")
    assert add(kb, tar_of(tmp_path / "x.tar.gz", (link, b""), (device, b""), good)).added == 1


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_module, "RATIO_FROM", 1000)
    source = tar_of(tmp_path / "x.tar.gz", (tarfile.TarInfo("a.md"), b"0" * 10_000_000))
    with pytest.raises(SourceError, match="unpacks to more than"), unpacked(source):
        pass
    unknown = tarfile.TarInfo("a.md")
    unknown.type = b"Z"  # which nobody unpacks
    skipped = tar_of(tmp_path / "x.tar.gz", (unknown, b"0" * 10_000_000))
    with pytest.raises(SourceError, match="unpacks to more than"), unpacked(skipped):
        pass
    monkeypatch.setattr(bundle_module, "MOST_MEMBERS", 3)
    many = [(tarfile.TarInfo(f"{number}.md"), b"x") for number in range(5)]
    with (
        pytest.raises(SourceError, match="more than 3 members"),
        unpacked(tar_of(tmp_path / "y.tar.gz", *many)),
    ):
        pass


@pytest.mark.parametrize("name", ["x.tar.gz", "x.tgz", "x.zip"])
@pytest.mark.parametrize(
    "content", [b"", b"no archive", b"\x1f\x8b\x08\x00 cut off", b"PK\x03\x04"]
)
def test_a_damaged_bundle_is_an_error_and_keeps_what_is_stored(
    kb: Session, tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match="cannot be unpacked"):
        add(kb, tmp_path / name)


def documents(kb: Session) -> list[str]:
    listed = call(kb, "documents_list_documents", collection="stones")["documents"]
    return [row["id"] for row in listed]


def member(name: str, content: bytes = b"# Page") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), content


def hard_link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.LNKTYPE, target
    return info, b""


@pytest.mark.parametrize("before", ["", "./"])
def test_a_single_top_folder_is_the_top(kb: Session, tmp_path: Path, before: str) -> None:
    listed = {"version": "1.2", "sources": {"glob": ["docs/*.md"]}}
    top = f"{before}stones-1.2"
    source = tar_of(
        tmp_path / "stones-1.2.tar.gz",
        member(f"{top}/draft.md"),
        member(f"{top}/manifest.json", json.dumps(listed).encode()),
        member(f"{top}/docs/a.md"),
        member("__MACOSX/stones-1.2/._a.md", b"attributes"),
        member(".DS_Store", b"places of windows"),
    )
    report = add(kb, source)
    assert (documents(kb), report.errors) == (["docs/a.md"], [])
    (row,) = call(kb, "documents_list_collections")["collections"]
    assert row["version"] == "1.2"


def test_two_folders_keep_their_names(kb: Session, tmp_path: Path) -> None:
    add(kb, tar_of(tmp_path / "x.tar.gz", member("a/x.md"), member("b/x.md")))
    assert documents(kb) == ["a/x.md", "b/x.md"]


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *(("x.tar", "w"), ("x.tar.bz2", "w:bz2"), ("x.tbz2", "w:bz2"), ("x.tar.xz", "w:xz")),
        *(("x.TXZ", "w:xz"), ("x.tar.gz", "w"), ("x.zip", "w:gz")),
    ],
)
def test_a_bundle_is_what_its_bytes_say(kb: Session, tmp_path: Path, name: str, mode: Any) -> None:
    with tarfile.open(tmp_path / name, mode) as archive:
        info, content = member("a.md")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    assert add(kb, tmp_path / name).added == 1


def test_an_xz_stream_that_wants_much_memory_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 29}]
    (tmp_path / "x.tar.xz").write_bytes(lzma.compress(b"0" * 10_000, filters=filters))
    with pytest.raises(SourceError, match="Memory usage limit"), unpacked(tmp_path / "x.tar.xz"):
        pass


def test_a_hard_link_has_the_content_of_what_it_links_to(kb: Session, tmp_path: Path) -> None:
    source = tar_of(
        tmp_path / "x.tar.gz",
        member("docs/a.md", b"# Quartz"),
        hard_link("b.md", "./docs/a.md"),
        hard_link("c.md", "gone.md"),
    )
    report = add(kb, source)
    assert documents(kb) == ["b.md", "docs/a.md"]
    assert [error["path"] for error in report.errors] == ["c.md"]
    with pytest.raises(SourceError, match="leads outside"):
        add(kb, tar_of(tmp_path / "x.tar.gz", hard_link("d.md", "../../../etc/hostname")))


def test_names_that_the_disk_cannot_have_keep_nothing_else_out(kb: Session, tmp_path: Path) -> None:
    source = zipped(
        tmp_path, {"ü" * 200 + ".md": "# Long", "a": "", "a/b.md": "# B", "c.md": "# C"}
    )
    report = add(kb, source)
    assert documents(kb) == ["c.md"]
    assert [error["path"][-6:] for error in report.errors] == ["üüü...", "a/b.md"]


def test_a_colon_in_a_name_is_no_drive(kb: Session, tmp_path: Path) -> None:
    add(kb, zipped(tmp_path, {"Meeting: plan.md": "# Plan", "b.md": "# B"}))
    assert documents(kb) == ["Meeting: plan.md", "b.md"]


def named(source: Path, *names: bytes) -> Path:
    """A zip whose names are these bytes, without a word on their encoding."""
    with zipfile.ZipFile(source, "w") as archive:
        for number, name in enumerate(names):
            archive.writestr(f"{number}".ljust(len(name), "_"), f"# {number}")
    data = source.read_bytes()
    for number, name in enumerate(names):
        data = data.replace(f"{number}".ljust(len(name), "_").encode(), name)
    source.write_bytes(data)
    return source


def test_backslashes_of_windows_part_the_names(kb: Session, tmp_path: Path) -> None:
    add(kb, named(tmp_path / "x.zip", rb"docs\sub\page1.md", rb"other\page2.md"))
    assert documents(kb) == ["docs/sub/page1.md", "other/page2.md"]
    with pytest.raises(SourceError, match="leads outside"):
        add(kb, named(tmp_path / "x.zip", rb"docs\..\..\page.md"))


@pytest.mark.parametrize(
    ("encoding", "names"),
    [
        ("utf-8", ["Größe.md", "Übersicht.md"]),
        ("cp932", ["新しいフォルダ.md", "設定の方法について.md"]),
        ("gb18030", ["安装说明.md", "用户使用手册.md"]),
        ("cp866", ["Установка программы.md", "Шаблон заявки.md"]),
        ("cp437", ["Größe.md", "Übersicht.md"]),
    ],
)
def test_names_of_a_zip_are_read_as_they_were_written(
    kb: Session, tmp_path: Path, encoding: str, names: list[str]
) -> None:
    add(kb, named(tmp_path / "x.zip", *(name.encode(encoding) for name in names)))
    assert documents(kb) == sorted(names)


def test_the_parts_of_an_export_are_unpacked(kb: Session, tmp_path: Path) -> None:
    parts = {}
    for number, pages in enumerate(({"a.md": "# A"}, {"sub/b.md": "# B"})):
        parts[f"Export-Part-{number}.zip"] = zipped(tmp_path, pages).read_bytes()
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    add(kb, tmp_path / "export.zip")
    assert documents(kb) == ["a.md", "sub/b.md"]

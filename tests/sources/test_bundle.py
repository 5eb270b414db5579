"""Bundles: from packed to searched, changed and synced again; hostile ones change nothing."""

import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support import call

from kb.cli.collect import register
from kb.errors import SourceError
from kb.ingest.freshness import look_at
from kb.ingest.report import SyncReport
from kb.ingest.sync import sync_collection
from kb.sources import member
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
    monkeypatch.setattr(member, "RATIO_FROM", 1000)
    source = tar_of(tmp_path / "x.tar.gz", (tarfile.TarInfo("a.md"), b"0" * 10_000_000))
    with pytest.raises(SourceError, match="unpacks to more than"), unpacked(source):
        pass
    monkeypatch.setattr(member, "MOST_MEMBERS", 3)
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


def test_a_manifest_of_another_program_says_nothing(kb: Session, tmp_path: Path) -> None:
    extension = json.dumps({"name": "x", "version": "9", "description": "An extension"})
    folder = files_of(tmp_path / "folder", {**PAGES, "manifest.json": extension})
    add(kb, folder)
    (row,) = call(kb, "documents_list_collections")["collections"]
    assert "version" not in row

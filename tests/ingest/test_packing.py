"""What `kb pack` takes of a folder: its bundle gives the collection that the folder gives."""

import hashlib
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from support import call

from kb.errors import SourceError
from kb.ingest.packing import pack_folder
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.results.care import Packed
from kb.tools.session import Session

FACTS = {"name": "", "version": "", "description": ""}


def write(folder: Path, manifest: object = None, **pages: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text)
    if manifest is not None:
        (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def pack(folder: Path, **options: Any) -> tuple[Packed, dict[str, bytes]]:
    """What packing says, and what is in the bundle."""
    bundle = folder.parent / "bundle.tar.gz"
    packed = pack_folder(folder, bundle, **{"facts": FACTS, **options})
    with tarfile.open(bundle) as archive:
        members = {one.name: archive.extractfile(one) for one in archive}
        return packed, {name: file.read() for name, file in members.items() if file is not None}


def manifest_of(members: dict[str, bytes]) -> dict[str, Any]:
    return json.loads(members["manifest.json"])


def test_only_what_the_manifest_lists_is_packed(tmp_path: Path) -> None:
    manifest = {"sources": {"glob": ["guide*.md"], "files": ["a.md"]}}
    folder = write(tmp_path / "docs", manifest, a="# A", guide1="# G", draft="# Secret plans")
    packed, members = pack(folder)
    assert sorted(members) == ["a.md", "guide1.md", "manifest.json"]
    assert (packed.documents, packed.left_out) == (2, [])


def test_the_facts_of_the_manifest_go_along(tmp_path: Path) -> None:
    digest = f"sha256:{hashlib.sha256(b'# A').hexdigest()}"
    files = [{"path": "a.md", "hash": digest}, {"url": "https://example.com/far.md"}, "b.md"]
    manifest = {
        "name": "stones",
        "version": 1.2,
        "description": "About stones",
        "baseUrl": "https://example.com/stones/",
        "metadata": {"team": "docs"},
        "x-own": [1],
        "sources": {"files": files},
    }
    folder = write(tmp_path / "docs", manifest, a="# A", b="# B")
    _, members = pack(folder)
    listed = [
        {"path": "a.md", "hash": digest},
        "b.md",
        {"path": "example.com/far.md", "url": "https://example.com/far.md"},
    ]
    assert manifest_of(members) == {**manifest, "version": "1.2", "sources": {"files": listed}}
    _, members = pack(folder, facts={**FACTS, "version": "2"}, exclude=["b.md", "*far*"])
    assert manifest_of(members)["version"] == "2"
    assert manifest_of(members)["sources"] == {"files": listed[:1]}


def test_without_a_manifest_the_folder_gives_the_name(tmp_path: Path) -> None:
    _, members = pack(write(tmp_path / "docs", a="# A"), facts={**FACTS, "description": "Stones"})
    expected = {"name": "docs", "description": "Stones", "sources": {"files": ["a.md"]}}
    assert manifest_of(members) == expected


@pytest.mark.parametrize(
    "text", ['{"sources": {"glob": ["a.md"]},}', '{"name": "x", "sources": {"globs": ["a.md"]}}']
)
def test_a_manifest_that_cannot_be_used_refuses_the_bundle(tmp_path: Path, text: str) -> None:
    folder = write(tmp_path / "docs", a="# A", draft="# Secret plans")
    (folder / "manifest.json").write_text(text)
    with pytest.raises(SourceError, match="nothing was packed, for manifest"):
        pack(folder)
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == []


def test_what_is_left_out_is_told_and_neither_bundle_nor_manifest_is_a_document(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path / "docs", {"name": "x", "start_url": "/"}, a="# A")
    (folder / "key.txt").write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    (folder / "id_rsa").write_text("secret")
    bundle = folder / "old.tar.gz"
    for _ in range(2):
        packed = pack_folder(folder, bundle, include=["**/*"], facts=FACTS)
        assert packed.documents == 1
        told = " ".join(packed.left_out)
        for words in ("another program's", "key.txt: a private key", "id_rsa: secret by its name"):
            assert words in told


@pytest.mark.parametrize("manifest", [None, {"baseUrl": "https://example.com/", "version": "7"}])
def test_a_bundle_gives_the_collection_that_its_folder_gives(
    kb: Session, tmp_path: Path, manifest: Any
) -> None:
    folder = write(tmp_path / "docs", manifest, a="# A [b](sub/b.md)")
    write(folder / "sub", b="# B")
    odd = os.fsencode(folder) + b"/caf\xe9.md"
    Path(os.fsdecode(odd)).write_text("# Odd")
    pack(folder)
    seen = []
    for name, source in (("one", folder), ("two", tmp_path / "bundle.tar.gz")):
        report = sync_collection(kb.database, register(kb.database, str(source), name=name))
        assert (report.added, report.errors) == (3, [])
        listed = call(kb, "documents_list_documents", collection=name)["documents"]
        with kb.database.read() as connection:
            row = kb.names.collection(connection, name)
        seen.append((listed, row["version"], json.loads(row["options"])))
    assert seen[0] == seen[1]


def test_a_folder_without_documents_is_not_packed(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs")
    (folder / "program.bin").write_bytes(b"\0\1\2")
    with pytest.raises(SourceError, match="holds no document"):
        pack(folder)
    assert not (tmp_path / "bundle.tar.gz").exists()

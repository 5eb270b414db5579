"""Manifests in folders, bundles and repositories and at addresses."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sources.web_server import Site, serving
from support import call, git

from kb.errors import SourceError
from kb.ingest.report import SyncReport
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.library.health import look_at
from kb.sources.bundle import pack
from kb.sources.folder import walk
from kb.sources.manifest import parse_manifest
from kb.tools.session import Session

QUARTZ, FELSPAR = "# Quartz\n\nThe quartz crystal, see [b](b.md).\n", "# Felspar\n\nThe lath.\n"


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        yield site


def write(folder: Path, manifest: object, **pages: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text)
    if manifest is not None:
        (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def add(kb: Session, source: object, **options: Any) -> SyncReport:
    return sync_collection(kb.database, register(kb.database, str(source), **options))


def sync(kb: Session) -> SyncReport:
    with kb.database.read() as connection:
        (row,) = kb.names.collections(connection)
    return sync_collection(kb.database, row)


def collection(kb: Session) -> dict[str, Any]:
    (row,) = call(kb, "documents_list_collections")["collections"]
    return row


def paths(kb: Session) -> list[str]:
    name = collection(kb)["collection"]
    listed = call(kb, "documents_list_documents", collection=name)["documents"]
    return [row["id"] for row in listed]


def urls(kb: Session, query: str) -> list[str | None]:
    return [row.get("url") for row in call(kb, "documents_search", query=query)["results"]]


def test_globs_and_files_say_what_the_documents_are(kb: Session, tmp_path: Path) -> None:
    manifest = {
        "name": "stones",
        "version": "1.2",
        "description": "A handbook",
        "sources": {"glob": ["a*.md"], "files": ["b.md", {"path": "./gone.md"}]},
    }
    source = write(tmp_path / "docs", manifest, a1="# A", a2="# A", b="# B", c="# C")
    report = add(kb, source)
    assert [one["path"] for one in report.errors] == ["gone.md"]
    assert paths(kb) == ["a1.md", "a2.md", "b.md"]
    assert collection(kb) == {
        "collection": "stones",
        "documentCount": 3,
        "description": "A handbook",
        "version": "1.2",
    }
    write(source, {**manifest, "version": 2, "sources": [{"glob": "c.md"}]})
    report = sync(kb)
    assert (report.added, report.removed, collection(kb)["version"]) == (1, 3, "2")


@pytest.mark.parametrize("address", ["https://[::1/#a", "https://a]b/#c"])
def test_an_address_with_odd_brackets_is_told_and_not_used(address: str) -> None:
    content = {"baseUrl": address, "sources": {"glob": "*.md", "files": [{"url": address}]}}
    manifest = parse_manifest(json.dumps(content).encode())
    assert manifest is not None
    assert (manifest.base_url, manifest.entries, len(manifest.problems)) == (None, (), 2)


def test_globs_that_stand_for_too_much_are_told_and_not_used() -> None:
    globs = [f"{'{a,b}' * 8}{number}" for number in range(20_000)]
    manifest = parse_manifest(json.dumps({"sources": {"glob": globs}}).encode())
    assert manifest is not None
    assert manifest.globs == ()
    assert "its globs are not used" in manifest.problems[0][1]


def test_globs_of_the_user_win(kb: Session, tmp_path: Path) -> None:
    source = write(tmp_path / "docs", {"sources": {"glob": ["a.md"]}}, a="# A", b="# B", c="# C")
    add(kb, source, include=["*.md"], exclude=["c.md"])
    assert paths(kb) == ["a.md", "b.md"]


def test_a_wrong_hash_is_the_error_of_that_file(kb: Session, tmp_path: Path) -> None:
    def listed(text: str) -> list[dict[str, str]]:
        return [
            {"path": "a.md", "hash": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"},
            {"path": "b.md", "hash": hashlib.sha512(FELSPAR.encode()).hexdigest()},
        ]

    manifest = {"sources": {"files": listed(QUARTZ)}}
    source = write(tmp_path / "docs", manifest, a=QUARTZ, b=FELSPAR)
    assert add(kb, source).errors == []
    (source / "a.md").write_text("# Forged\n")
    report = sync(kb)
    assert [one["path"] for one in report.errors] == ["a.md"]
    assert "not the one that the manifest says" in report.errors[0]["message"]
    assert report.unchanged == 1
    assert call(kb, "documents_get_document", collection="docs", document="a.md")["title"] == (
        "Quartz"
    )
    write(source, {"sources": {"files": listed("# Forged\n")}})
    assert sync(kb).updated == 1


def test_a_base_url_is_in_rows_and_citations_and_resolves_links(
    kb: Session, tmp_path: Path
) -> None:
    manifest = {"baseUrl": "https://Example.com/stones", "sources": {"glob": ["**/*.md"]}}
    pages = {"a": QUARTZ, "b c": FELSPAR, "d": "# D\n\n[q](https://example.com/stones/a)\n"}
    source = write(tmp_path / "docs", manifest, **pages)
    add(kb, source)
    assert urls(kb, "quartz crystal")[0] == "https://example.com/stones/a.md"
    assert urls(kb, "felspar lath")[0] == "https://example.com/stones/b%20c.md"
    found = call(kb, "documents_get_section", collection="docs", document="a.md", section="Quartz")
    assert found["url"] == "https://example.com/stones/a.md"
    with kb.database.read() as connection:
        (target,) = connection.tuples(
            "documents_of_keys", keys=json.dumps(["url:example.com/stones/a"])
        )
    assert target[3] == "a.md"
    write(source, {**manifest, "baseUrl": "https://other.org/"})
    assert sync(kb).updated == 3
    assert urls(kb, "quartz crystal")[0] == "https://other.org/a.md"
    write(source, {"sources": manifest["sources"]})
    sync(kb)
    assert urls(kb, "quartz crystal")[0] is None


def test_what_a_manifest_says_wrongly_is_told_and_the_rest_is_used(
    kb: Session, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("# Outside\n")
    entries = ["../outside.md", str(outside), "a/../../outside.md", {"hash": "x"}, 7, "C:/x.md"]
    manifest = {
        "baseUrl": "javascript:alert(1)",
        "sources": {"glob": ["[", 3], "files": [*entries, "a.md", "link.md"]},
    }
    source = write(tmp_path / "docs", manifest, a="# A")
    (source / "link.md").symlink_to(outside)
    report = add(kb, source)
    assert paths(kb) == ["a.md"]
    assert len(report.errors) == 1 + 2 + len(entries) + 1
    assert "leads out of the collection" in report.errors[-1]["message"]


@pytest.mark.parametrize("content", ['{"sources": {"a": 1}}', '{"sources": []}', "[]", "{", "7"])
def test_at_an_address_only_what_lists_its_sources_is_a_manifest(content: str) -> None:
    assert parse_manifest(content.encode()) is None
    assert parse_manifest(b'{"name": "x", "version": "1"}') is None


def test_a_manifest_without_sources_says_name_and_version(kb: Session, tmp_path: Path) -> None:
    facts = {"name": "stones", "version": 3, "baseUrl": "https://example.com/stones"}
    report = add(kb, write(tmp_path / "docs", facts, a="# Quartz"))
    assert (report.errors, report.notices) == ([], [])
    assert (collection(kb)["collection"], collection(kb)["version"]) == ("stones", "3")
    assert urls(kb, "quartz") == ["https://example.com/stones/a.md"]


@pytest.mark.parametrize(
    ("content", "is_error", "words"),
    [
        ('{"name": "x", "version": "1", "manifest_version": 3}', False, "another program's"),
        ('{"icons": [], "sources": {"a": 1}}', False, "another program's"),
        ("[1]", False, "another program's"),
        ("{}", False, "another program's"),
        ('{"name": "x", "sources": {"globs": ["a.md"]}}', True, 'neither "glob" nor "files"'),
        ('{"name": "x", "sources": []}', True, 'neither "glob" nor "files"'),
        ('{"name": "x", "sources": {"glob": "a.md"},}', True, "it is not JSON"),
        ("[" * 100_000, True, "it is not JSON"),
    ],
)
def test_a_manifest_that_is_not_used_is_told(
    kb: Session, tmp_path: Path, content: str, is_error: bool, words: str
) -> None:
    source = write(tmp_path / "docs", None, a="# A", b="# B")
    (source / "manifest.json").write_text(content)
    report = add(kb, source)
    assert (paths(kb), collection(kb)["collection"]) == (["a.md", "b.md"], "docs")
    assert "version" not in collection(kb)
    (told,) = report.errors if is_error else report.notices
    assert words in told["message"]


def test_the_version_of_a_manifest_is_stored_though_no_document_changed(
    kb: Session, tmp_path: Path
) -> None:
    source = write(tmp_path / "docs", {"version": "1"}, a="# A")
    add(kb, source)
    write(source, {"version": "2"})
    sync(kb)
    assert collection(kb)["version"] == "2"


def test_a_large_manifest_is_asked_for_each_file_in_linear_time() -> None:
    files = [f"{number}.md" for number in range(30_000)]
    manifest = parse_manifest(json.dumps({"sources": {"files": files, "glob": ["*.txt"]}}).encode())
    assert manifest is not None
    is_named = manifest.is_named()
    assert all(map(is_named, [*files, "a.txt"]))
    assert not any(map(is_named, (f"{path}x" for path in files)))


def test_a_bundle_has_its_manifest(kb: Session, tmp_path: Path) -> None:
    folder = write(tmp_path / "from", None, a=QUARTZ, b=FELSPAR)
    manifest = {"name": "packed", "baseUrl": "https://example.com/", "sources": {"files": ["a.md"]}}
    pack(list(walk(folder, report=print)), tmp_path / "x.tar.gz", manifest)
    add(kb, tmp_path / "x.tar.gz")
    assert (paths(kb), collection(kb)["collection"]) == (["a.md"], "packed")
    assert urls(kb, "quartz")[0] == "https://example.com/a.md"


def test_a_repository_has_its_manifest_anywhere(kb: Session, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    write(folder, None, x="# X")
    inner = write(folder / "docs", None, a=QUARTZ, b=FELSPAR)
    (inner / "notes.text").write_text("Notes of marble\n")
    listed = {"name": "kept", "version": "7", "sources": {"files": ["a.md", "notes.text"]}}
    (inner / "own.json").write_text(json.dumps(listed))
    for command in (["init", "-q"], ["add", "--all"], ["commit", "-qm", "all"]):
        git(folder, *command)
    add(kb, f"git+file://{folder}?manifest=docs/own.json")
    assert paths(kb) == ["a.md", "notes.text"]
    assert (collection(kb)["collection"], collection(kb)["version"]) == ("kept", "7")


def test_a_manifest_at_an_address_is_synced_with_conditional_requests(
    kb: Session, site: Site
) -> None:
    manifest = {
        "name": "remote",
        "version": "1",
        "sources": {"files": ["a.md", {"path": "sub/b c.md"}, {"path": "gone.md"}]},
    }
    site.put("/docs/manifest.json", json.dumps(manifest), "application/json")
    site.put("/docs/a.md", QUARTZ, "text/markdown")
    site.put("/docs/sub/b%20c.md", FELSPAR, "text/markdown")
    report = add(kb, f"{site.url}/docs/manifest.json", settings={"allow_private": True})
    assert [one["path"] for one in report.errors] == ["gone.md"]
    assert (paths(kb), collection(kb)["version"]) == (["a.md", "sub/b c.md"], "1")
    assert urls(kb, "felspar")[0] == f"{site.url}/docs/sub/b%20c.md"
    site.asked.clear()
    site.put("/docs/a.md", "# Quartz\n\nThe marble.\n", "text/markdown")
    report = sync(kb)
    assert (report.updated, report.unchanged) == (1, 1)
    assert sorted(site.asked) == [
        ("/docs/a.md", 200),
        ("/docs/gone.md", 404),
        ("/docs/manifest.json", 304),
        ("/docs/sub/b%20c.md", 304),
    ]
    del site.pages["/docs/a.md"]
    report = sync(kb)
    assert (len(report.errors), report.removed) == (2, 0)
    site.put("/docs/manifest.json", json.dumps({**manifest, "sources": {"files": ["a.md"]}}))
    site.put("/docs/a.md", QUARTZ, "text/markdown")
    report = sync(kb)
    assert (report.updated, report.removed, paths(kb)) == (1, 1, ["a.md"])


def test_a_bundle_at_an_address_is_a_bundle(kb: Session, site: Site, tmp_path: Path) -> None:
    folder = write(tmp_path / "from", None, a=QUARTZ, b=FELSPAR)
    pack(list(walk(folder, report=print)), tmp_path / "x.tar.gz", {"sources": {"glob": []}})
    site.put("/latest", (tmp_path / "x.tar.gz").read_bytes(), "application/octet-stream")
    report = add(kb, f"{site.url}/latest", settings={"allow_private": True})
    assert (report.added, paths(kb)) == (2, ["a.md", "b.md"])
    assert sync(kb).unchanged == 2


def test_a_file_of_a_folder_may_lie_elsewhere(kb: Session, site: Site, tmp_path: Path) -> None:
    site.put("/far.md", FELSPAR, "text/markdown")
    digest = hashlib.sha256(FELSPAR.encode()).hexdigest()
    files = ["a.md", {"url": f"{site.url}/far.md", "hash": digest, "path": "far/b.md"}]
    source = write(tmp_path / "docs", {"sources": {"files": files}}, a=QUARTZ)
    report = add(kb, source)
    assert [one["path"] for one in report.errors] == ["far/b.md"]
    assert "private address" in report.errors[0]["message"]
    assert site.asked == []
    assert add(kb, source, settings={"allow_private": True}).added == 1
    assert urls(kb, "felspar")[0] == f"{site.url}/far.md"
    with kb.database.read() as connection:
        (row,) = kb.names.collections(connection)
    site.asked.clear()
    assert (look_at(kb.database, row).is_fresh, site.asked) == (True, [])
    site.put("/far.md", "# Forged\n", "text/markdown")
    report = sync(kb)
    assert (report.errors[0]["path"], report.unchanged, len(paths(kb))) == ("far/b.md", 1, 2)


def test_a_manifest_that_is_refused_changes_nothing(kb: Session, site: Site) -> None:
    site.put("/manifest.json", json.dumps({"sources": {"files": []}}), "application/json")
    site.put("/page", b"\x89PNG", "image/png")
    for path in ("/page", "/nothing"):
        with pytest.raises(SourceError):
            add(kb, site.url + path, settings={"allow_private": True})
    assert call(kb, "documents_list_collections")["collections"] == []

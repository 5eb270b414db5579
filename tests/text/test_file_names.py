r"""A name that is not UTF-8 is stored and shown with `\xe9` for such a byte, and found by that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from support import ROOT, HashEmbedder, call, failure

from kb.disk.git import git_branch
from kb.disk.watch import FolderWatcher
from kb.ingest.report import SyncReport
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.store.database import Database
from kb.text.file_names import ESCAPING, on_disk, printable, storable, writable
from kb.tools.session import open_session

HANGS = 60

# What a file system that takes any bytes gives Python as names.
names = (
    st.binary(max_size=20)
    | st.lists(st.sampled_from([b"\\", b"x", b"5c", b"e9", b"/", b"\xe9", b"\xc3\xa9"])).map(
        b"".join
    )
).map(os.fsdecode)


def test_what_is_read_is_not_escaped() -> None:
    assert "a\u6f22".encode("ascii", ESCAPING) == b"a\\u6f22"
    with pytest.raises(UnicodeDecodeError):
        b"a\xff".decode("utf-8", ESCAPING)


@given(names, names)
def test_each_name_is_one_text_that_utf_8_holds_and_back(name: str, other: str) -> None:
    text = storable(name)
    assert text.encode().decode() == text
    assert on_disk(text) == name
    assert (storable(other) == text) == (other == name)


@given(st.text())
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text
    assert writable({text: [text, 1, None]}) == {text: [text, 1, None]}


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A project whose folder and files have names that are no text."""
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/proj\xe9"))
    try:
        (root / ".kb").mkdir(parents=True)
    except OSError:
        pytest.skip("this file system takes no name that is not UTF-8")
    for name, text in {
        b"caf\xe9.md": "# Cafe\n\nA walrus drinks.\n",
        b"caf\\xe9.md": "# Letters\n\nA walrus spells.\n",
        b"d\xe9p/deep.md": "# Deep\n\nA walrus dives.\n",
        b"d\xe9p/main.py": "from . import other\n",
        b"d\xe9p/other.py": "walrus = 1\n",
        b"plain.md": "# Plain\n\nA walrus.\n",
    }.items():
        file = root / os.fsdecode(name)
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return root


IDS = [r"caf\x5cxe9.md", r"caf\xe9.md", r"d\xe9p/deep.md", "plain.md"]


def kb_command(cwd: Path, *arguments: str | bytes, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kb", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **more.pop("env", {})},
        capture_output=True,
        encoding="utf-8",
        timeout=HANGS,
        **more,
    )


def test_files_with_such_names_are_documents_that_the_next_sync_finds_again(
    odd: Path, tmp_path: Path
) -> None:
    database = Database(tmp_path / "kb.db")
    with open_session(database, project=odd, make_embedder=lambda _: HashEmbedder()) as kb:

        def sync() -> SyncReport:
            return sync_collection(kb.database, register(kb.database, str(odd)))

        report = sync()
        assert (report.added, report.errors) == (4, [])
        assert (sync().unchanged, sync().total) == (4, 4)
        listed = call(kb, "documents_list_documents", collection=r"proj\xe9")
        assert [one["id"] for one in listed["documents"]] == sorted(IDS)
        document = call(
            kb, "documents_get_document", collection=r"proj\xe9", document=r"caf\xe9.md"
        )
        assert document["content"].startswith("# Cafe")
        (odd / os.fsdecode(b"caf\xe9.md")).write_text("# Cafe\n\nA seal drinks.\n")
        assert (sync().updated, sync().unchanged) == (1, 4)
        (odd / os.fsdecode(b"caf\xe9.md")).rename(odd / os.fsdecode(b"caf\xe8.md"))
        assert (report := sync()).renamed == 1
        assert report.total == 4
        (odd / os.fsdecode(b"caf\xe8.md")).unlink()
        assert sync().removed == 1


def test_the_projects_files_are_read_and_searched_by_such_names(odd: Path, tmp_path: Path) -> None:
    with open_session(Database(tmp_path / "kb.db"), project=odd) as kb:
        near = failure(kb, "read_file", path="cafe.md")
        assert r"caf\xe9.md" in near["suggestions"]
        for path, title in ((IDS[0], "Letters"), (IDS[1], "Cafe"), (IDS[2], "Deep")):
            file = call(kb, "read_file", path=path)["file"]
            assert file["path"] == path
            assert file["content"].startswith(f"# {title}\n")
        read = call(kb, "read_file", path=r"d\xe9p/main.py", includeDeps=True)
        assert [one["path"] for one in read["dependencies"]] == [r"d\xe9p/other.py"]
        found = call(kb, "grep_codebase", pattern="walrus")["matches"]
        assert [one["file"] for one in found] == sorted([*IDS, r"d\xe9p/other.py"])
        # The letters of an escape stay what they are: a path with backslashes.
        for path in (r"..\xe9", r"none\xe9.md", r"d\xe9p\..\..\x", r"d\xe9p/../../caf\xe9.md"):
            assert failure(kb, "read_file", path=path)["code"] == "PERMISSION_DENIED"


def test_a_server_in_such_a_folder_answers_for_such_files(odd: Path) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read_file", {"path": "cafe.md"}),
        ("grep_codebase", {"pattern": "walrus"}),
        ("documents_search", {"query": "walrus"}),
        ("documents_list_documents", {"collection": "proj\\xe8"}),
        ("activate_project", {}),
        ("read_file", {"path": "caf\udce9.md"}),  # as a client in Python may write the name
    ]
    messages: list[dict[str, Any]] = [
        {"method": "tools/call", "params": {"name": name, "arguments": arguments}}
        for name, arguments in calls
    ]
    messages += [
        {"method": "resources/list"},
        {"method": "resources/read", "params": {"uri": "context://project/overview"}},
        {"method": "resources/read", "params": {"uri": "kb://proj%5Cxe9/caf%5Cxe9.md"}},
        {"method": "resources/read", "params": {"uri": "kb://proj%5Cxe9/cafe.md"}},
    ]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
    hello["clientInfo"] = {"name": "test", "version": "1"}
    messages = [{"method": "initialize", "params": hello}, *messages]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, **message}) + "\n"
        for number, message in enumerate(messages)
    ]
    assert kb_command(odd, "add", ".", "--no-embed").returncode == 0
    served = kb_command(odd, "serve", input="".join(lines))
    assert served.returncode == 0
    assert "Traceback" not in served.stderr, served.stderr
    answers = {one["id"]: one for one in map(json.loads, served.stdout.splitlines())}
    assert sorted(answers) == list(range(len(messages)))
    assert r"caf\xe9.md" in json.dumps(answers[1]).replace("\\\\\\\\", "\\")
    assert '"isError": true' not in json.dumps(answers[6])
    assert answers[9]["result"]["contents"][0]["text"].startswith("# Cafe")
    assert "error" in answers[10]


def test_commands_take_and_print_such_names(odd: Path) -> None:
    added = kb_command(odd.parent, "--db", odd / "k.db", "add", odd, "--no-embed")
    assert added.returncode == 0
    assert r"kb: proj\xe9: left out for their formats: 2 .py" in added.stderr
    assert added.stdout.startswith(r"proj\xe9: 4 added")
    for name in (IDS[1], odd / os.fsdecode(b"caf\xe9.md"), b"caf\xe9.md"):
        found = kb_command(odd, "--db", "k.db", "get", name)
        assert (found.returncode, found.stdout[:6]) == (0, "# Cafe")
    for arguments in (
        ("search", "walrus"),
        ("search", b"walrus \xe9"),
        ("search", "walrus", "--format", "csv"),
        ("list",),
        ("status",),
        ("grep", "walrus"),
        ("graph", "--broken"),
    ):
        for more in ((), ("--json",)):
            found = kb_command(odd, "--db", "k.db", *arguments, *more)
            assert found.returncode in (0, 1), found.stderr
            assert "internal error" not in found.stderr
    assert kb_command(odd, "--db", "k.db", "search", b"\xe9").returncode == 1
    missing = kb_command(odd, "--db", "k.db", "add", b"nowhere\xe9")
    assert missing.stderr.endswith("kb: there is no folder or file nowhere\\xe9\n")
    refused = kb_command(odd, "--db", "k.db", "--json", "get", b"nowhere\xe9")
    assert json.loads(refused.stdout)["error"].startswith(r'Document "nowhere\xe9" not found')


def test_the_file_itself_may_have_such_a_name(odd: Path) -> None:
    name = os.fsdecode(b"f\xe9.db")
    assert kb_command(odd, "--db", name, "add", ".", "--no-embed").returncode == 0
    copied = kb_command(odd, "--db", name, "copy", os.fsdecode(b"copy\xe9.db"))
    assert copied.returncode == 0, copied.stderr
    names = {entry for entry in os.listdir(odd) if entry.endswith((".db", "-wal", "-shm"))}
    assert names == {name, os.fsdecode(b"copy\xe9.db")}
    found = kb_command(odd, "search", "walrus", env={"KB_DB": os.fsdecode(b"copy\xe9.db")})
    assert found.returncode == 0, found.stderr


def test_a_branch_may_have_such_a_name(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_bytes(b"ref: refs/heads/caf\xe9\n")
    assert git_branch(tmp_path) == r"caf\xe9"


@pytest.mark.parametrize("where", ["root", "inside"])
def test_changes_are_seen_in_folders_and_files_with_such_names(where: str, odd: Path) -> None:
    folder = odd if where == "root" else odd.parent
    seen, wanted = threading.Event(), odd / os.fsdecode(b"n\xe9w.md")

    def look() -> bool:
        if wanted.exists():
            seen.set()
        return False

    watcher = FolderWatcher(folder, look)
    watcher.start()
    try:
        assert watcher.watching.wait(HANGS)
        wanted.write_text("# New\n")
        assert seen.wait(HANGS)
    finally:
        watcher.stop()

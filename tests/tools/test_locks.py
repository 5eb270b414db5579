"""No tool takes from its process the locks that it holds on its own file.

POSIX drops them when any descriptor of the file is closed; the kernel's list alone shows it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import HashEmbedder, failure

from kb.disk.open_databases import Claim, OpenDatabaseError, opened
from kb.disk.read import read_bytes
from kb.errors import FileError
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.store.database import Database
from kb.tools.registry import call_tool, load_tools
from kb.tools.session import Session, open_session

TOOLS = load_tools()
LOCKS = Path("/proc/locks")
PLACES = (".kb/kb.db", "kb.db", "data/kept/kb.db")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not LOCKS.exists(), reason="the kernel shows no list of locks here"),
]


def locks() -> list[str]:
    """What the kernel says this process holds: kind, file and range of each lock, once: the kernel
    shows a lock twice where other processes' locks come or go while the list is read."""
    lines = [line.split() for line in LOCKS.read_text().splitlines() if " POSIX " in line]
    return sorted({" ".join(line[1:]) for line in lines if line[4] == str(os.getpid())})


@pytest.fixture(params=PLACES)
def session(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    """A project whose file lies at one of several places, in use and with its log beside it."""
    for path, text in {
        "docs/api.md": "# API\n\nA request is authenticated by a signed token in its header.\n",
        "src/main.py": "import os\n",
        ".kb/config.json": json.dumps(
            {"project_name": "station", "external_docs": {"path": "./docs"}}
        ),
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    file = tmp_path / request.param
    file.parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path)
    with open_session(
        Database(file), project=tmp_path, make_embedder=lambda _: HashEmbedder()
    ) as opened_session:
        call_tool(opened_session, "activate_project", {})
        call_tool(opened_session, "search_add_document", {"doc_id": "one", "content": "A vane."})
        opened_session.flush()
        assert Path(f"{file}-wal").exists()
        yield opened_session


def names_of(session: Session, folder: Path) -> list[str]:
    """The file, its log and the log's index as a client may call them, links to them too."""
    file = session.database.path
    real = [Path(f"{file}{suffix}") for suffix in ("", "-wal", "-shm")]
    for number, path in enumerate(real):
        os.link(path, folder / f"hard-{number}.txt")
        (folder / f"soft-{number}.txt").symlink_to(path)
    links = [f"{kind}-{number}.txt" for kind in ("hard", "soft") for number in range(3)]
    return [*(path.relative_to(folder).as_posix() for path in real), *links]


def test_no_tool_changes_the_locks_that_its_process_holds(session: Session) -> None:
    before = locks()
    assert before
    for name, tool in TOOLS.items():
        if name == "activate_project":
            continue  # it starts to watch: once, in the fixture
        call_tool(session, name, tool.example)
        session.flush()
        assert locks() == before, name


def test_a_file_in_use_is_a_binary_that_no_client_can_have(
    session: Session, tmp_path: Path
) -> None:
    before = locks()
    for path in names_of(session, tmp_path):
        for arguments in ({"path": path}, {"path": path, "includeDeps": True}):
            told = failure(session, "read_file", **arguments)
            assert "binary file" in told["error"] or told["code"] == "PERMISSION_DENIED"
            assert locks() == before, path
    for pattern in ("SQLite format", ".", "vane"):
        found = call_tool(session, "grep_codebase", {"pattern": pattern})
        assert not [one for one in found.content["matches"] if "kb.db" in one["file"]]
        assert locks() == before, pattern


def test_a_sync_that_takes_in_everything_leaves_the_file_in_use_alone(
    session: Session, tmp_path: Path
) -> None:
    paths = names_of(session, tmp_path)
    before = locks()
    registration = register(session.database, str(tmp_path), include=["**/*"])
    report = sync_collection(session.database, registration)
    assert locks() == before
    stored = call_tool(session, "documents_list_documents", {"collection": tmp_path.name})
    listed = {one["id"] for one in stored.content["documents"]}
    assert "src/main.py" in listed
    assert not listed.intersection(paths)
    assert all("knowledge base in use" in str(error) for error in report.errors if "hard" in error)


def test_a_file_in_use_is_not_opened_by_any_name(session: Session, tmp_path: Path) -> None:
    before = locks()
    for name in names_of(session, tmp_path):
        with pytest.raises(OSError, match=r"knowledge base in use|symbolic link|symlink"):
            read_bytes(tmp_path / name, 1000)
        with pytest.raises(OpenDatabaseError), opened(tmp_path / name):
            pass
    assert locks() == before


def test_a_file_that_becomes_a_database_while_it_is_read_keeps_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "kb.db"
    Database(path).close()
    with opened(path) as stream:
        database = Database(path)
        with database.write() as connection:
            connection.apsw.execute("UPDATE documents SET title = title")
        before = locks()
        assert before
        assert stream.read(6) == b"SQLite"
    assert locks() == before
    descriptors = len(os.listdir("/proc/self/fd"))
    database.close()
    assert len(os.listdir("/proc/self/fd")) < descriptors  # what was kept open is closed too


def test_one_process_opens_a_file_once(tmp_path: Path) -> None:
    path = tmp_path / "kb.db"
    (tmp_path / "link.db").symlink_to(path)
    with Database(path):
        os.link(path, tmp_path / "hard.db")
        for other in (path, tmp_path / "link.db", tmp_path / "hard.db"):
            with pytest.raises(FileError, match="open in this process already"):
                Database(other)
    with Database(path), pytest.raises(FileError, match="open in this process already"):
        Claim(path)
    Database(path).close()


def test_a_database_that_cannot_be_opened_is_given_free(tmp_path: Path) -> None:
    path = tmp_path / "kb.db"
    path.write_bytes(b"no database")
    for _ in range(2):
        with pytest.raises(FileError, match="damaged or no SQLite file"):
            Database(path)
    shutil.copy(_whole(tmp_path), path)
    Database(path).close()


def _whole(folder: Path) -> Path:
    Database(folder / "whole.db").close()
    return folder / "whole.db"

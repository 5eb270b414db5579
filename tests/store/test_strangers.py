"""Files that a stranger made: each is read or refused at once, and nothing outside is touched."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from filelock import FileLock
from strangers import HOSTILE, Place, sound_project
from support import ROOT, HashEmbedder, call, shared_folder

from kb.cli.main import main as kb
from kb.errors import DamagedFileError, FileError
from kb.ingest.sync import sync_collection
from kb.store.collections import all_collections
from kb.store.connection import OWN, STRANGERS
from kb.store.database import Database
from kb.store.schema import FINGERPRINTS, SCHEMA_VERSION
from kb.tools.session import open_session

# Of processor, for one question: twice what a statement may take of the file, for a busy machine
# counts more; a file without a limit would take a minute.
MOST_SECONDS = 4.0
HANGS = 900


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What became of each file; one process tries them, each in a child of its own."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    made = shared_folder(tmp_path_factory) / "strangers.jsonl"
    with FileLock(made.with_suffix(".lock")):
        if not made.exists():
            folder = str(tmp_path_factory.mktemp("all"))
            done = subprocess.run(
                [sys.executable, str(ROOT / "tests" / "strangers.py"), folder],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                timeout=HANGS,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            made.write_text(done.stdout)
    return {found["name"]: found for found in map(json.loads, made.read_text().splitlines())}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_read_or_refused_at_once(
    name: str, outcomes: dict[str, dict[str, Any]]
) -> None:
    found = outcomes[name]
    wrong = [
        (what, seconds, said)
        for what, seconds, said in found["done"]
        if what in ("failed", "ended", "log")
        or seconds > MOST_SECONDS
        or "INTERNAL_ERROR" in said
        or "internal error" in said
    ]
    assert not wrong
    assert found["done"]
    assert found["touched"] == []
    assert found["kept"]


def test_there_are_thirty_of_them() -> None:
    assert len(HOSTILE) >= 30


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A sound file in a project, as another user finds it."""
    place = sound_project(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    monkeypatch.chdir(place.file.parent.parent)
    return place


def trust() -> None:
    with pytest.raises(SystemExit) as ended:
        kb(["trust", "--quiet"])
    assert ended.value.code == 0


def found(place: Place) -> list[str]:
    with open_session(
        Database(place.file, create=False),
        project=place.file.parent.parent,
        make_embedder=lambda _: HashEmbedder(),
    ) as session:
        rows = call(session, "documents_search", query="calibrate the vane")["results"]
    return [row["documentId"] for row in rows]


def test_a_sound_file_from_elsewhere_answers_and_takes_writes(place: Place) -> None:
    assert "vane.md" in found(place)
    with Database(place.file) as database:
        with database.read() as connection:
            rows = [row for row in all_collections(connection) if row["source"]]
        (place.file.parent.parent / "docs" / "new.md").write_text("# New\n")
        assert sync_collection(database, rows[0]).added == 1


def test_who_trusts_a_file_may_have_more_in_it(place: Place) -> None:
    place.run("CREATE VIEW mine AS SELECT path FROM documents", "CREATE TABLE more (x)")
    with pytest.raises(DamagedFileError, match=r'"mine" in it is not what kb makes.*`kb trust`'):
        found(place)
    trust()
    assert "vane.md" in found(place)


def test_what_other_programs_add_is_known(place: Place) -> None:
    place.run(
        "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)",
        "CREATE TABLE _litestream_lock (id INTEGER)",
    )
    with closing(sqlite3.connect(place.file)) as connection:
        connection.execute("ANALYZE")
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    if "sqlite_stat4" not in names:  # as Python's SQLite is built
        assert "vane.md" in found(place)


def test_triggers_do_not_run_in_a_trusted_file_either(place: Place) -> None:
    HOSTILE["triggers on documents"](place)
    trust()
    with Database(place.file) as database, database.write() as connection:
        connection.apsw.execute("UPDATE collections SET version = '2'")
        assert (
            connection.apsw.execute("SELECT count(*) FROM collections WHERE source = '/etc'").get
            == 0
        )


@pytest.mark.parametrize("version", FINGERPRINTS)
def test_the_tables_of_every_version_are_known(version: int, tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    if version == SCHEMA_VERSION:
        with Database(tmp_path / "own.db"):
            pass
        shutil.copy(tmp_path / "own.db", path)
    else:
        packed = ROOT / "fixtures" / f"version-{version}.db.gz"
        path.write_bytes(gzip.decompress(packed.read_bytes()))
    with Database(path) as database:
        assert not database.mark.is_own
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA user_version = 1; CREATE VIEW more AS SELECT 1")
    with pytest.raises(DamagedFileError, match="kb trust"):
        Database(path)


def test_a_new_version_has_its_fingerprint() -> None:
    assert list(FINGERPRINTS) == list(range(1, SCHEMA_VERSION + 1))


def test_an_own_file_has_all_the_time_it_needs(place: Place, tmp_path: Path) -> None:
    with Database(tmp_path / "own.db") as own, own.read() as connection:
        assert connection.deadline.seconds() > OWN[0]
    with Database(place.file) as database, database.read() as connection:
        assert STRANGERS[0] < connection.deadline.seconds() < STRANGERS[0] + 0.1
    trust()
    with Database(place.file) as database, database.read() as connection:
        assert connection.deadline.seconds() > OWN[0]


def test_a_statement_of_a_strangers_file_is_ended_and_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kb.store.connection.STRANGERS", (0.1, 0.0))
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"
    with (
        Database(place.file) as database,
        database.read() as connection,
        pytest.raises(FileError, match=r"a statement took more than 0\.1 s"),
        connection.deadline,
    ):
        connection.apsw.execute(endless).fetchall()


def test_the_log_of_another_file_is_not_applied(place: Place) -> None:
    HOSTILE["the log of another file"](place)
    with pytest.raises(FileError, match=r"kb\.db-wal is the log of another file"):
        Database(place.file)
    Path(f"{place.file}-wal").unlink()
    with Database(place.file) as database, database.read() as connection:
        assert str(place.outside) not in {row["source"] for row in all_collections(connection)}


def test_a_journal_that_names_another_file_is_not_rolled_back(place: Place) -> None:
    HOSTILE["a journal that names a file"](place)
    with pytest.raises(FileError, match=r"kb\.db-journal names another file"):
        Database(place.file)
    assert (place.outside / "diary.md").exists()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_out_of_the_project_is_the_users_to_make(
    place: Place, tmp_path: Path, is_there: bool
) -> None:
    elsewhere = tmp_path / "elsewhere" / "kb.db"
    elsewhere.parent.mkdir()
    if is_there:
        shutil.copy(place.file, elsewhere)
    place.file.unlink()
    place.file.symlink_to(elsewhere)
    with pytest.raises(FileError, match=r"is a link to .*elsewhere.*`kb trust`"):
        Database(place.file)
    assert elsewhere.exists() == is_there
    with pytest.raises(SystemExit):
        kb(["trust", "--quiet"])
    with Database(place.file):
        pass
    assert elsewhere.exists()


def test_a_folder_that_is_a_link_leads_out_as_well(place: Place, tmp_path: Path) -> None:
    shutil.move(place.file.parent, tmp_path / "of another project")
    place.file.parent.symlink_to(tmp_path / "of another project")
    with pytest.raises(FileError, match="is a link to"):
        Database(place.file)

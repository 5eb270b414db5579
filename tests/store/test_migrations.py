"""Files of older versions: they open, are brought up to date, and lose nothing.

fixtures/version-1.db.gz was made by the last commit of file version 1: two collections, an external
one, an index, a discovery, a session; every table has rows. A new version adds such a file, made
before its change of the schema; those of versions 2 to 6
are the first one, migrated, with what the version brought.
"""

import gzip
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest
from support import ROOT, call, ordinary_user

from kb.errors import FileError
from kb.models.english import EnglishEmbedder
from kb.results.findings import BROKEN
from kb.store.database import Database
from kb.store.health import thorough
from kb.store.schema import MIGRATIONS, SCHEMA_VERSION
from kb.tools.session import open_session

OLD_VERSIONS = range(1, SCHEMA_VERSION)
PARTS = ("config", "data", "docsize", "idx")  # of an index
FORGOTTEN = ("content_hash", "modified_ns")
# Derived tables that later versions have others for.
MADE_ANEW = {"word_deletions", *(f"document_index_{part}" for part in PARTS)}
NOT_KEPT = {
    "vocabulary": {"word_id"},  # numbers that say nothing
    # What version 6 says otherwise: see the test of what passages and links say.
    "chunks": {"heading_path", "section", "text_hash"},
    "vectors": {"text_hash"},
    "citations": {"start_character", "end_character"},
}


def old_file(version: int, folder: Path) -> Path:
    path = folder / "old.db"
    packed = ROOT / "fixtures" / f"version-{version}.db.gz"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def definitions(path: Path) -> dict[str, str]:
    """The schema as SQLite has it, without comments and the blanks that text is set with."""
    connection = apsw.Connection(str(path))
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql <> ''").fetchall()
    connection.close()
    return {
        name: "".join(re.sub(r"--.*", "", sql).split()).casefold()
        for name, sql in rows
        if not name.startswith("sqlite_stat")
    }


def columns(path: Path) -> dict[str, list[Any]]:
    """What SQLite makes of it: columns, references and indexes of every table."""
    connection = apsw.Connection(str(path))
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    ).fetchall()
    found = {
        name: [
            connection.execute(f"PRAGMA {pragma} ({name})").fetchall()
            for pragma in ("table_xinfo", "foreign_key_list", "index_list")
        ]
        for (name,) in names
    }
    connection.close()
    return found


def rows(path: Path) -> dict[str, list[Any]]:
    connection = apsw.Connection(str(path))
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    ).fetchall()
    # Version 4 forgets the hashes of files, so that the next sync cuts their passages anew.
    found = {
        name: [
            {
                key: value
                for key, value in zip(keys, row, strict=True)
                if key not in (*FORGOTTEN, *NOT_KEPT.get(name, ()))
            }
            for row in connection.execute(f"SELECT * FROM {name} ORDER BY {ORDER.get(name, 1)}")
        ]
        for (name,) in names
        if name not in MADE_ANEW
        if (keys := [column for _, column, *_ in connection.execute(f"PRAGMA table_info ({name})")])
    }
    connection.close()
    return found


ORDER = {"vocabulary": "word"}


def test_each_version_has_its_migration_and_a_file_to_try_it_with() -> None:
    scripts = sorted(entry.name for entry in MIGRATIONS.iterdir())
    assert scripts == [f"{version + 1:04}.sql" for version in OLD_VERSIONS]
    files = sorted(file.name for file in (ROOT / "fixtures").glob("version-*.db.gz"))
    assert files == sorted(f"version-{version}.db.gz" for version in OLD_VERSIONS)


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_an_old_file_gets_the_schema_of_a_new_one(version: int, tmp_path: Path) -> None:
    path = old_file(version, tmp_path)
    new = tmp_path / "new.db"
    Database(new).close()
    assert definitions(path) != definitions(new)
    Database(path).close()
    assert definitions(path) == definitions(new)
    assert columns(path) == columns(new)
    assert [file.name for file in tmp_path.glob("old.db*")] == ["old.db"]


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_an_old_file_keeps_what_it_holds(
    version: int, tmp_path: Path, model: EnglishEmbedder
) -> None:
    path = old_file(version, tmp_path)
    before = rows(path)
    assert all(before.values()), [name for name, held in before.items() if not held]
    Database(path).close()
    assert {name: held for name, held in rows(path).items() if name in before} == before
    with Database(path) as database:
        assert [one for one in thorough(database) if one.state == BROKEN] == []
    with open_session(Database(path), project=tmp_path, make_embedder=lambda _: model) as knowledge:
        with knowledge.database.read() as connection:
            assert connection.apsw.pragma("integrity_check") == "ok"
        found = call(knowledge, "documents_search", query="low battery")["results"][0]
        assert (found["collection"], found["documentId"]) == ("docs", "calibration.md")
        assert call(knowledge, "search_index", query="mast", index_name="notes")["total_matches"]
        recorded = call(knowledge, "context_record", content="We use UTC for all time stamps")
        assert recorded["status"] == "recorded"  # the old one is of a module


@pytest.mark.parametrize("version", range(1, 6))  # version 6 says them otherwise
def test_passages_and_links_say_what_they_said(version: int, tmp_path: Path) -> None:
    path = old_file(version, tmp_path)
    headings = "SELECT chunk_id, document_id, {} FROM {} ORDER BY 1"
    sentences = "SELECT citation_id, target_url, context FROM {} ORDER BY 1"
    hashes = "SELECT substr(text_hash, 1, 10) FROM {} ORDER BY 1"
    connection = apsw.Connection(str(path))
    before = [
        connection.execute(statement).fetchall()
        for statement in (
            headings.format("heading_path", "chunks"),
            sentences.format("citations"),
            hashes.format("chunks"),
            hashes.format("vectors"),
        )
    ]
    connection.close()
    Database(path).close()
    connection = apsw.Connection(str(path))
    after = [
        connection.execute(statement).fetchall()
        for statement in (
            headings.format("heading", "chunk_texts"),
            sentences.format("citation_texts"),
            hashes.format("chunks"),
            hashes.format("vectors"),
        )
    ]
    connection.close()
    assert after == before


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_deleting_still_deletes_what_hangs_on_it(version: int, tmp_path: Path) -> None:
    path = old_file(version, tmp_path)
    with Database(path) as database, database.write() as connection:
        connection.apsw.execute("DELETE FROM projects")
        connection.apsw.execute("DELETE FROM sessions")
        left = {
            name: connection.apsw.execute(f"SELECT count(*) FROM {name}").get
            for name in ("session_events", "collections")
        }
    assert left == {"session_events": 0, "collections": len(rows(path)["collections"])}
    assert "external" not in [row["kind"] for row in rows(path)["collections"]]
    connection = apsw.Connection(str(path))
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


def test_a_second_program_that_has_the_file_open_goes_on(tmp_path: Path) -> None:
    path = old_file(1, tmp_path)
    other = apsw.Connection(str(path))
    assert other.execute("SELECT count(*) FROM documents").get == 7
    Database(path).close()
    assert other.execute("SELECT count(*) FROM documents").get == 7
    assert (
        "(document_id)"
        in other.execute("SELECT sql FROM sqlite_schema WHERE name = 'sections'").get
    )
    other.close()


SHOW_EVERY_TABLE = """
import asyncio, json, sys
from datasette.app import Datasette

async def statuses():
    datasette = Datasette([sys.argv[1]])
    names = json.loads(sys.argv[2])
    return {name: (await datasette.client.get(f"/old/{name}")).status_code for name in names}

print(json.dumps(asyncio.run(statuses())))
"""


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_datasette_shows_every_table_and_view(version: int, tmp_path: Path) -> None:
    path = old_file(version, tmp_path)
    Database(path).close()
    connection = apsw.Connection(str(path))
    names = [
        name
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY name"
        )
    ]
    connection.close()
    command = [sys.executable, "-c", SHOW_EVERY_TABLE, str(path), json.dumps(names)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(names, 200)


KILLED_AFTER = """
import os, signal, sys
import apsw
from kb.store.database import Database

left = int(sys.argv[2])

def count(connection):
    def tick():
        global left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return False
    connection.set_progress_handler(tick, 200)

apsw.connection_hooks.append(count)
Database(sys.argv[1]).close()
print("done")
"""


def test_a_migration_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    path = old_file(5, tmp_path)
    before = rows(path)
    new = tmp_path / "new.db"
    Database(new).close()
    ticks, is_over = 1, False
    while not is_over:
        command = [sys.executable, "-c", KILLED_AFTER, str(path), str(ticks)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        is_over = "done" in done.stdout
        assert is_over or done.returncode == -signal.SIGKILL, done.stderr
        ticks = ticks * 3 // 2 + 1
        # What is left is read as another process would: with the journal, if there is one.
        with Database(path) as database, database.read() as connection:
            assert connection.apsw.pragma("integrity_check") == "ok"
        assert {name: held for name, held in rows(path).items() if name in before} == before
        if not is_over:
            for file in tmp_path.glob("old.db*"):
                file.unlink()
            old_file(5, tmp_path)
    assert ticks > 10
    assert definitions(path) == definitions(new)


def test_an_older_file_that_cannot_be_written_says_where_to_open_it(open_folder: Path) -> None:
    path = old_file(3, open_folder)
    path.chmod(0o444)
    open_folder.chmod(0o555)
    before = path.read_bytes()
    why = r"older version 3 and cannot be written: copy it to a writable folder"
    with ordinary_user(), pytest.raises(FileError, match=why):
        Database(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_after_a_migration_definitions_cannot_be_edited(version: int, tmp_path: Path) -> None:
    with Database(old_file(version, tmp_path)) as database, database.write() as connection:
        assert connection.apsw.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1)
        connection.apsw.pragma("writable_schema", True)
        with pytest.raises(apsw.SQLError, match="may not be modified"):
            connection.apsw.execute("UPDATE sqlite_schema SET sql = sql")

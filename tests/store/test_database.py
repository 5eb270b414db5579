"""The file: opening it, one writer and many readers, what a copy of it holds."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
from support import ROOT, Filler, another_process, git, ordinary_user

from kb.errors import BusyError, DamagedFileError, FileError, KbError, NewerFileError
from kb.store import opening, schema, write_ahead_log
from kb.store.connection import Connection
from kb.store.database import Database
from kb.store.opening import make_file
from kb.store.schema import APPLICATION_ID, SCHEMA_VERSION
from kb.store.vectors import rebuild_all_vectors
from kb.tools.session import Session


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a file may be made."""
    return tmp_path / "kb.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    with Database(path) as opened:
        yield opened


def add_collection(connection: Connection, name: str) -> None:
    connection.apsw.execute(
        "INSERT INTO collections (name, kind, created_at) VALUES (?, 'documents', '')", (name,)
    )


def names(connection: Connection | sqlite3.Connection) -> list[str]:
    raw = connection.apsw if isinstance(connection, Connection) else connection
    return [row[0] for row in raw.execute("SELECT name FROM collections ORDER BY name")]


def names_in_copy(path: Path) -> list[str]:
    """What a copy of the `.db` alone holds, read by another program."""
    copy = shutil.copy(path, path.with_name("copy.db"))
    with contextlib.closing(sqlite3.connect(copy)) as connection, connection:
        found = names(connection)
    connection.close()
    for suffix in ("", "-wal", "-shm"):
        Path(f"{copy}{suffix}").unlink(missing_ok=True)
    return found


def companions(path: Path) -> list[str]:
    """The files beside the `.db`: its log and the like."""
    return sorted(other.name for other in path.parent.glob(f"{path.name}?*"))


def script(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process that runs some code with `sys.argv[1:]` and answers on its stdout."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def finish(process: subprocess.Popen[str], text: str = "") -> str:
    out, err = process.communicate(text, timeout=60)
    assert process.returncode == 0, err
    return out


def expect_line(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout
    assert process.stdout.readline().strip() == line, process.communicate(timeout=60)[1]


# Opening


def test_a_missing_file_is_made_with_its_folder_and_our_numbers(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "kb.db"
    Database(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()
    assert companions(path) == []


def test_a_missing_file_is_an_error_that_says_how_to_make_one(path: Path) -> None:
    with pytest.raises(FileError, match=r"no knowledge base at .*kb add"):
        Database(path, create=False)
    assert not path.exists()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is a folder"):
        Database(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_refused_and_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(FileError, match="not a regular file"):
        Database(path)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot"):
        Database(tmp_path / "file" / "kb.db")


@pytest.mark.parametrize(
    "content",
    [b"abc", b"# A Markdown page\n", b"# A Markdown page\n" * 1000, os.urandom(1), b"\0" * 4096],
    ids=["three bytes", "a line", "a long text", "one byte", "zeros"],
)
def test_what_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(DamagedFileError):
        Database(path)
    assert path.read_bytes() == content
    assert companions(path) == []


@pytest.mark.parametrize("version", [0, 7])
def test_another_programs_database_is_refused_and_left_alone(path: Path, version: int) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE notes (text)")
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    content = path.read_bytes()
    with pytest.raises(DamagedFileError, match="name another file"):
        Database(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("version", [0, -5])
def test_a_version_that_no_kb_wrote_is_damage(path: Path, version: int) -> None:
    Database(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(DamagedFileError, match=f"its version is {version}"):
        Database(path)
    assert companions(path) == []


def test_a_file_that_was_cut_to_nothing_is_refused_and_stays(path: Path) -> None:
    path.touch()
    for create in (True, False):
        with pytest.raises(DamagedFileError, match=r"is empty.*restore a copy"):
            Database(path, create=create)
    assert path.stat().st_size == 0


@pytest.mark.parametrize("missing", [1, 100, 8192, 100_000])
def test_a_file_whose_end_was_cut_off_is_refused_at_once(path: Path, missing: int) -> None:
    Database(path).close()
    whole = path.read_bytes()
    path.write_bytes(whole[:-missing])
    with pytest.raises(DamagedFileError, match="damaged"):
        Database(path)
    path.write_bytes(whole)
    Database(path).close()


@pytest.mark.parametrize("has_links", [True, False])
def test_a_new_file_appears_whole_and_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def no_links(*_: object) -> None:
        raise OSError("no links on this file system")

    if not has_links:
        monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "new" / "kb.db"
    with Database(path) as database:
        assert os.listdir(path.parent) == ["kb.db"]
        with database.write() as connection:
            add_collection(connection, "one")
    assert names_in_copy(path) == ["one"]


def test_of_two_that_make_a_file_the_first_one_stays(path: Path) -> None:
    with Database(path) as first:
        with first.write() as connection:
            add_collection(connection, "one")
        make_file(path)  # as another process that had seen no file
        assert names_in_copy(path) == ["one"]


def test_damaged_pages_are_told_with_what_to_do(kb: Session, fill: Filler) -> None:
    fill({f"{i}.md": f"# Page {i}\n\n{'words of a page ' * 200}\n" for i in range(20)})
    kb.close()
    path = kb.database.path
    content = bytearray(path.read_bytes())
    content[8192:] = random.Random(1).randbytes(len(content) - 8192)
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match="restore a copy"):  # noqa: SIM117
        with Database(path) as database, database.read() as connection:
            connection.apsw.execute("SELECT sum(length(content)) FROM documents").fetchall()


def test_a_cut_off_file_is_told_as_damaged(kb: Session, fill: Filler) -> None:
    fill({f"{i}.md": f"# Page {i}\n\n{'words of a page ' * 200}\n" for i in range(20)})
    kb.close()
    path = kb.database.path
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(DamagedFileError):  # noqa: SIM117
        with Database(path) as database, database.read() as connection:
            connection.apsw.execute("SELECT sum(length(content)) FROM documents").fetchall()


def test_a_newer_file_is_refused_and_left_alone(path: Path) -> None:
    Database(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    content = path.read_bytes()
    with pytest.raises(NewerFileError, match="upgrade kb"):
        Database(path)
    assert path.read_bytes() == content


# Migrations


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kb that is one version ahead: the script of its migration, to be written by the test."""
    migrations = tmp_path / "migrations"
    migrations.mkdir()
    monkeypatch.setattr(schema, "MIGRATIONS", migrations)
    monkeypatch.setattr(schema, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    return migrations / f"{SCHEMA_VERSION + 1:04}.sql"


@pytest.fixture
def old_file(path: Path) -> Path:
    """A file of the present version; ask for it before `next_version`."""
    with Database(path) as database, database.write() as connection:
        add_collection(connection, "kept")
    return path


def test_an_older_file_is_migrated(old_file: Path, next_version: Path) -> None:
    next_version.write_text("ALTER TABLE collections ADD COLUMN colour TEXT;")
    with Database(old_file) as database, database.read() as connection:
        assert connection.apsw.execute("SELECT name, colour FROM collections").get == (
            "kept",
            None,
        )
        assert connection.apsw.pragma("user_version") == SCHEMA_VERSION + 1
        assert connection.apsw.pragma("foreign_keys") == 1
    assert companions(old_file) == []


def test_the_old_file_is_kept_until_the_migration_succeeds(
    old_file: Path, next_version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_version.write_text("ALTER TABLE collections ADD COLUMN colour TEXT; SELECT no_function();")
    before = old_file.read_bytes()
    with pytest.raises(
        FileError, match=rf"version {SCHEMA_VERSION} to .*no_function.*left as it is"
    ):
        Database(old_file)
    assert old_file.read_bytes() == before
    kept = old_file.with_name(f"kb.db.version-{SCHEMA_VERSION}")
    assert companions(old_file) == [kept.name]
    monkeypatch.undo()
    for file in (old_file, kept):
        with Database(file) as database, database.read() as connection:
            assert names(connection) == ["kept"]


def test_a_migration_that_is_missing_leaves_the_file_alone(
    old_file: Path, next_version: Path
) -> None:
    before = old_file.read_bytes()
    with pytest.raises(FileError, match="could not be brought"):
        Database(old_file)
    assert old_file.read_bytes() == before


def test_a_migration_that_breaks_a_reference_is_undone(old_file: Path, next_version: Path) -> None:
    next_version.write_text(
        "INSERT INTO sections VALUES (99, 0, 1, '', '', 1, 1, 1); SELECT 1 FROM collections;"
    )
    before = old_file.read_bytes()
    with pytest.raises(FileError, match="broken reference"):
        Database(old_file)
    assert old_file.read_bytes() == before


# Other processes


def test_many_processes_may_open_a_file_that_is_not_there_yet(path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from kb.store.database import Database
        print("ready", flush=True)
        sys.stdin.readline()
        with Database(Path(sys.argv[1])) as database, database.write() as connection:
            connection.apsw.execute("INSERT INTO collections (name, kind, created_at) "
                                    "VALUES (?, 'documents', '')", (sys.argv[2],))
    """
    processes = [script(code, path, number) for number in range(6)]
    for process in processes:
        expect_line(process, "ready")
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        finish(process)
    assert names_in_copy(path) == [str(number) for number in range(6)]
    assert companions(path) == []


HOLDS_FILE = """
    import sys
    from pathlib import Path
    from kb.store.database import Database
    with Database(Path(sys.argv[1])) as database:
        with database.write() as connection:
            connection.apsw.execute("INSERT INTO collections (name, kind, created_at) "
                                    "VALUES ('theirs', 'documents', '')")
        with database.read() as connection:
            connection.apsw.execute("SELECT * FROM collections").fetchall()
        print("open", flush=True)
        sys.stdin.readline()
"""


def test_a_copy_is_complete_after_each_write_while_another_process_has_the_file(
    path: Path,
) -> None:
    other = script(HOLDS_FILE, path)
    expect_line(other, "open")
    assert names_in_copy(path) == ["theirs"]
    with Database(path) as database:
        for number in range(3):
            with database.write() as connection:
                add_collection(connection, str(number))
            assert names_in_copy(path) == [*map(str, range(number + 1)), "theirs"]
    finish(other, "\n")
    assert companions(path) == []
    assert names_in_copy(path) == ["0", "1", "2", "theirs"]


def test_a_killed_writer_loses_nothing_that_was_stored(path: Path) -> None:
    other = script(HOLDS_FILE, path)
    expect_line(other, "open")
    with Database(path) as database, database.batch():
        with database.write() as connection:
            add_collection(connection, "in the log")
        other.kill()
        other.communicate(timeout=60)
        with database.read() as connection:
            assert names(connection) == ["in the log", "theirs"]
    assert companions(path) == []
    assert names_in_copy(path) == ["in the log", "theirs"]


def test_a_writer_killed_within_a_batch_leaves_whole_transactions(path: Path) -> None:
    code = """
        import os, signal, sys
        from pathlib import Path
        from kb.store.database import Database
        database = Database(Path(sys.argv[1]))
        insert = "INSERT INTO collections (name, kind, created_at) VALUES (?, 'documents', '')"
        with database.batch():
            with database.write() as connection:
                connection.apsw.execute(insert, ("whole",))
            with database.write() as connection:
                connection.apsw.execute(insert, ("half",))
                os.kill(os.getpid(), signal.SIGKILL)
    """
    process = script(code, path)
    process.communicate(timeout=60)
    assert process.returncode == -9
    with Database(path, create=False) as database, database.read() as connection:
        assert names(connection) == ["whole"]
    # A reader was the last to close: it merges what the killed writer left.
    assert companions(path) == []
    assert names_in_copy(path) == ["whole"]


def test_writers_wait_for_one_another(path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from kb.store.database import Database
        with Database(Path(sys.argv[1])) as database:
            for number in range(20):
                with database.write() as connection:
                    connection.apsw.execute(
                        "INSERT INTO collections (name, kind, created_at) "
                        "VALUES (?, 'documents', '')", (f"{sys.argv[2]} {number}",))
    """
    for process in [script(code, path, name) for name in "abcd"]:
        finish(process)
    assert len(names_in_copy(path)) == 80


def test_a_writer_that_waits_too_long_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "BUSY_MILLISECONDS", 10)
    with Database(path) as first, another_process(), Database(path) as second, first.write():
        with pytest.raises(BusyError, match="another process"), second.write():
            pass
        with second.read() as connection:
            assert names(connection) == []


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="no /proc here")
def test_a_writer_that_does_not_come_to_an_end_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Database(path).close()
    writer = script(
        """
        import sys
        import apsw
        connection = apsw.Connection(sys.argv[1])
        connection.execute("BEGIN IMMEDIATE")
        print("writing", flush=True)
        sys.stdin.read()
        """,
        path,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "writing\n"
    monkeypatch.setattr(opening, "BUSY_MILLISECONDS", 10)
    with (
        Database(path) as database,
        pytest.raises(BusyError, match=f"process {writer.pid}"),
        database.write(),
    ):
        pass
    finish(writer)


# Readers and writers


def write_one(database: Database, name: str) -> None:
    with database.write() as connection:
        add_collection(connection, name)


def in_another_thread(call: Callable[..., None], *arguments: object) -> None:
    thread = threading.Thread(target=call, args=arguments)
    thread.start()
    thread.join()


def test_a_reader_sees_one_state_while_others_write(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_ahead_log, "MERGE_MILLISECONDS", 0)
    write_one(database, "a")
    with database.read() as reader:
        assert names(reader) == ["a"]
        in_another_thread(write_one, database, "b")
        assert names(reader) == ["a"]
    with database.read() as reader:
        assert names(reader) == ["a", "b"]


def test_a_first_write_waits_for_readers_of_a_file_without_a_log(path: Path) -> None:
    Database(path).close()
    with Database(path) as database:
        with database.read() as reader:
            assert names(reader) == []
            thread = threading.Thread(target=write_one, args=(database, "new"))
            thread.start()
        thread.join()
        assert names_in_copy(path) == ["new"]


def test_the_log_is_merged_when_the_reader_who_held_it_ends(
    path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_ahead_log, "MERGE_MILLISECONDS", 0)
    write_one(database, "a")
    with database.read() as reader:
        names(reader)
        in_another_thread(write_one, database, "b")
        in_another_thread(write_one, database, "c")
        assert names_in_copy(path) != ["a", "b", "c"]
    assert names_in_copy(path) == ["a", "b", "c"]


def test_a_write_inside_a_read_of_the_same_thread_is_refused(database: Database) -> None:
    def nest() -> None:
        with database.read():
            write_one(database, "new")

    with pytest.raises(RuntimeError, match="end the read"):
        nest()
    write_one(database, "new")


def test_a_batch_merges_the_log_once_at_its_end(path: Path, database: Database) -> None:
    with database.batch():
        write_one(database, "one")
        with database.batch():
            write_one(database, "two")
        assert Path(f"{path}-wal").stat().st_size > 0
        assert names_in_copy(path) == []
    assert Path(f"{path}-wal").stat().st_size == 0
    assert names_in_copy(path) == ["one", "two"]


def write_then_fail(database: Database) -> None:
    with database.write() as connection:
        add_collection(connection, "outer")
        write_one(database, "inner")  # joins
        raise ZeroDivisionError


def test_a_failed_batch_merges_what_was_stored(path: Path, database: Database) -> None:
    def fail() -> None:
        with database.batch():
            write_one(database, "one")
            write_then_fail(database)

    with pytest.raises(ZeroDivisionError):
        fail()
    assert names_in_copy(path) == ["one"]


def test_an_exception_undoes_the_whole_transaction(database: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        write_then_fail(database)
    with database.read() as connection:
        assert names(connection) == []
    write_one(database, "later")
    with database.read() as connection:
        assert names(connection) == ["later"]


def test_a_reader_cannot_write(database: Database) -> None:
    with pytest.raises(FileError, match="cannot use"), database.read() as connection:
        add_collection(connection, "new")
    with database.read() as connection:
        assert names(connection) == []


def test_closing_interrupts_a_read_in_another_thread(path: Path) -> None:
    database = Database(path)
    started = threading.Event()
    outcome: list[BaseException] = []

    def read_for_ever() -> None:
        with database.read() as connection:
            endless = connection.apsw.execute(
                "WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n) "
                "SELECT i FROM n WHERE i = 10 OR i < 0"
            )
            next(endless)
            started.set()
            endless.fetchall()

    def read() -> None:
        try:
            read_for_ever()
        except KbError as error:
            outcome.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    started.wait()
    database.close()
    thread.join()
    assert [type(error) for error in outcome] == [FileError]
    assert "closed" in str(outcome[0])
    assert companions(path) == []


def test_a_closed_file_says_so(path: Path) -> None:
    database = Database(path)
    write_one(database, "one")
    database.close()
    database.close()
    with pytest.raises(FileError, match="is closed"):
        write_one(database, "two")
    with pytest.raises(FileError, match="is closed"), database.read():
        pass


def test_a_closed_memory_file_says_so() -> None:
    database = Database(":memory:")
    write_one(database, "one")
    database.close()
    with pytest.raises(FileError, match="is closed"), database.read():
        pass


# Files that cannot be written


@pytest.fixture
def shelf(open_folder: Path) -> Path:
    """A file that an ordinary user may read but not write, in such a folder."""
    path = open_folder / "kb.db"
    with Database(path) as database:
        write_one(database, "one")
    path.chmod(0o444)
    open_folder.chmod(0o555)
    return path


def check_read_only(path: Path) -> None:
    before = path.read_bytes()
    with ordinary_user():
        with Database(path, create=False) as database:
            assert database.read_only
            with database.read() as connection:
                assert names(connection) == ["one"]
            with pytest.raises(FileError, match="cannot be written: copy it"), database.write():
                pass
        assert companions(path) == []
    assert path.read_bytes() == before


def test_a_read_only_file_in_a_read_only_folder_is_read(shelf: Path) -> None:
    check_read_only(shelf)


def test_a_read_only_file_in_a_writable_folder_is_read(shelf: Path) -> None:
    shelf.parent.chmod(0o777)
    check_read_only(shelf)


def test_a_writable_file_in_a_read_only_folder_is_read(shelf: Path) -> None:
    shelf.chmod(0o666)
    check_read_only(shelf)


@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
def test_a_copy_taken_while_the_file_was_open_is_read(shelf: Path, folder_mode: int) -> None:
    original = shelf.parent.parent / f"{shelf.parent.name}-original.db"
    shutil.copy(shelf, original)
    original.chmod(0o644)
    with Database(original) as database:
        with database.write():
            pass
        shelf.unlink()
        shutil.copy(original, shelf)
    original.unlink()
    shelf.chmod(0o444)
    shelf.parent.chmod(folder_mode)
    assert shelf.read_bytes()[18:20] == b"\2\2"  # its header says WAL
    check_read_only(shelf)


def test_a_read_only_user_sees_what_another_user_writes(shelf: Path) -> None:
    with ordinary_user():
        reader = Database(shelf, create=False)
    with another_process(), Database(shelf) as writer:  # the superuser may
        if writer.read_only:
            pytest.skip("needs a user who may write what others may not")
        write_one(writer, "two")
    with reader.read() as connection:
        assert names(connection) == ["one", "two"]
    reader.close()


def test_a_log_that_cannot_be_merged_is_told(shelf: Path) -> None:
    Path(f"{shelf}-wal").write_bytes(b"x" * 100)
    content = bytearray(shelf.read_bytes())
    content[18:20] = b"\2\2"
    shelf.chmod(0o644)
    shelf.write_bytes(content)
    shelf.chmod(0o444)
    with ordinary_user(), pytest.raises(FileError, match="cannot use"):
        Database(shelf, create=False)


# Copies and other programs


def test_a_vacuum_copy_is_one_clean_file(path: Path, database: Database) -> None:
    write_one(database, "one")
    copy = path.with_name("clean.db")
    database.copy_to(copy)
    assert companions(copy) == []
    assert copy.read_bytes()[18:20] == b"\1\1"  # no WAL
    with Database(copy) as copied, copied.read() as connection:
        assert names(connection) == ["one"]


def test_a_copy_never_overwrites_and_leaves_nothing_half_done(
    path: Path, database: Database
) -> None:
    taken = path.with_name("taken.db")
    taken.write_text("mine")
    with pytest.raises(FileError, match="exists already"):
        database.copy_to(taken)
    assert taken.read_text() == "mine"
    with pytest.raises(FileError, match="does not exist"):
        database.copy_to(path.parent / "nowhere" / "kb.db")
    folder = path.with_name("kb.db.copy.unfinished")
    folder.mkdir()
    with pytest.raises(FileError, match=r"cannot write the copy .*kb\.db\.copy"):
        database.copy_to(path.with_name("kb.db.copy"))


def test_a_memory_file_can_be_copied(path: Path) -> None:
    with Database(":memory:") as database:
        write_one(database, "one")
        database.copy_to(path)
    assert names_in_copy(path) == ["one"]


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="no sqlite3 shell")
def test_the_sqlite3_shell_reads_every_table_and_searches(windrose_copy: Path) -> None:
    def shell(sql: str) -> list[str]:
        done = subprocess.run(
            ["sqlite3", str(windrose_copy), sql], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    readable = shell("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")
    assert {"documents", "vectors", "chunk_texts", "document_overview"} <= set(readable)
    for name in readable:
        assert shell(f"SELECT count(*) FROM {name}")
    assert shell(
        "SELECT path FROM keyword_index JOIN chunks ON chunk_id = keyword_index.rowid "
        "JOIN documents USING (document_id) WHERE keyword_index MATCH 'anemometer' LIMIT 1"
    )
    shell("INSERT INTO keyword_index (keyword_index) VALUES ('integrity-check')")
    assert shell("PRAGMA integrity_check") == ["ok"]


# Derived tables


def test_derived_tables_equal_a_rebuild_after_any_stores_and_deletes(
    kb: Session, fill: Filler, folder: Path
) -> None:
    dice = random.Random(11)
    vocabulary = [f"word{i}" for i in range(60)] + ["HTTPServer", "全文検索", "naïve", "C++"]
    for round_number in range(12):
        for _ in range(dice.randrange(1, 6)):
            file = folder / f"{dice.randrange(8)}.md"
            if dice.random() < 0.3:
                file.unlink(missing_ok=True)
                continue
            parts = [
                f"## {dice.choice(vocabulary)}\n\n{' '.join(dice.choices(vocabulary, k=40))}\n"
                for _ in range(dice.randrange(12))
            ]
            file.write_text("\n".join(parts))
        fill({"always.md": "# Always here\n"}, embed=dice.random() < 0.8)
        if round_number % 3 == 2:
            check_derived_tables(kb)


def check_derived_tables(kb: Session) -> None:
    derived = (
        "SELECT term, doc, cnt FROM keyword_terms ORDER BY term",
        "SELECT * FROM vector_slabs ORDER BY slab_id",
        "SELECT * FROM document_vectors ORDER BY document_id",
    )
    with kb.database.write() as connection:
        run = connection.apsw.execute
        assert run("PRAGMA integrity_check").get == "ok"
        assert run("PRAGMA foreign_key_check").fetchall() == []
        before = [run(sql).fetchall() for sql in derived]
        # rank 1 compares the index with the view that its text comes from.
        run("INSERT INTO keyword_index (keyword_index, rank) VALUES ('integrity-check', 1)")
        run("INSERT INTO keyword_index (keyword_index) VALUES ('rebuild')")
        rebuild_all_vectors(connection)
        assert before == [run(sql).fetchall() for sql in derived]
        unused = (
            "SELECT count(*) FROM vectors "
            "WHERE vector_id NOT IN (SELECT vector_id FROM chunks WHERE vector_id IS NOT NULL)"
        )
        assert run(unused).get == 0


def test_readers_cannot_be_given_a_statement_that_writes(database: Database) -> None:
    with pytest.raises(FileError), database.read() as connection:
        connection.apsw.execute("PRAGMA user_version = 5")
    with database.read() as connection:
        assert connection.apsw.pragma("user_version") == SCHEMA_VERSION


def test_git_leaves_the_file_out_and_keeps_the_configuration(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    with contextlib.closing(Database(tmp_path / ".kb" / "kb.db")):
        (tmp_path / ".kb" / "config.json").write_text("{}")
        (tmp_path / ".kb" / "kb.db-wal").touch()
        shown = git(tmp_path, "status", "--porcelain", "--untracked-files=all")
    assert shown.split() == ["??", ".kb/.gitignore", "??", ".kb/config.json"]


def test_a_gitignore_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / ".kb").mkdir()
    (tmp_path / ".kb" / ".gitignore").write_text("mine")
    with contextlib.closing(Database(tmp_path / ".kb" / "kb.db")):
        assert (tmp_path / ".kb" / ".gitignore").read_text() == "mine"
    with contextlib.closing(Database(tmp_path / "elsewhere" / "kb.db")):
        assert os.listdir(tmp_path / "elsewhere") != [".gitignore"]
        assert not (tmp_path / "elsewhere" / ".gitignore").exists()


def test_a_connection_that_found_damage_is_not_read_from_again(tmp_path: Path) -> None:
    """A good file that is copied over one that is open would stay damaged for who had read it."""
    with Database(tmp_path / "kb.db") as database:
        with database.read() as first:
            pass
        with database.read() as again:
            assert again is first
        with pytest.raises(DamagedFileError), database.read():
            raise apsw.CorruptError("database disk image is malformed")
        with database.read() as another:
            assert another is not first
            assert another.rows("collections") == []
        with database.write() as writer:
            pass
        with pytest.raises(DamagedFileError), database.write():
            raise apsw.CorruptError("database disk image is malformed")
        with database.write() as another:
            assert another is not writer
            assert another.rows("collections") == []

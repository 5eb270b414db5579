"""A folder and its collection: what changed is found, what is there is never lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Filler, HashEmbedder, another_process, ordinary_user

from kb.errors import CollectionNotFound, FileError, SourceError
from kb.ingest import prepare as prepare_module, sync as sync_module
from kb.ingest.embed import embed_pending
from kb.ingest.report import SyncReport
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.library.health import look_at
from kb.sources.folder import SourceFile, SourceText
from kb.store.collections import all_collections, store_collection, unstored_row
from kb.store.connection import Connection
from kb.store.database import Database
from kb.store.documents import delete_collection
from kb.tools.session import Session

OLD = 1_600_000_000  # a file time that may be trusted


def write(folder: Path, path: str, text: str | bytes, *, time: float = OLD) -> Path:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(file, (time, time))
    return file


def page(number: int, paragraphs: int = 1) -> str:
    """A page of its own words; each section is a chunk."""
    sections = [
        f"## Part {part}\n\nThis is part{part} of page{number} and says word{number}x{part}.\n"
        for part in range(paragraphs)
    ]
    return f"# Page {number}\n\n" + "\n".join(sections)


def sync(kb: Session, folder: Path, *, force: bool = False) -> SyncReport:
    report = sync_collection(kb.database, register(kb.database, str(folder)), force=force)
    embed_pending(kb.model)
    return report


def counts(report: SyncReport) -> dict[str, int]:
    """The counts that are not zero, without the total."""
    names = ("added", "updated", "removed", "unchanged", "renamed")
    return {name: getattr(report, name) for name in names if getattr(report, name)}


def query(kb: Session, sql: str) -> list[tuple[Any, ...]]:
    with kb.database.read() as connection:
        return list(connection.apsw.execute(sql))


def documents(kb: Session) -> dict[str, int]:
    """The path of each document with its id."""
    return dict(query(kb, "SELECT path, document_id FROM documents ORDER BY path"))


def found_by_keyword(kb: Session, word: str) -> list[str]:
    with kb.database.read() as connection:
        rows = connection.apsw.execute(
            "SELECT path FROM keyword_index JOIN chunks ON chunk_id = keyword_index.rowid "
            "JOIN documents USING (document_id) WHERE keyword_index MATCH ?",
            (f'"{word}"',),
        )
        return sorted({path for (path,) in rows})


def content(connection: Connection) -> dict[str, list[Any]]:
    """All that a file holds, without ids, which depend on the order of the work."""
    run = connection.apsw.execute
    return {
        "documents": run(
            "SELECT name, path, title, summary, metadata, content_hash, encoding, content "
            "FROM documents JOIN collections USING (collection_id) ORDER BY 1, 2"
        ).fetchall(),
        "sections": run(
            "SELECT path, position, level, heading, heading_path, start_line, end_line, "
            "body_end_line FROM sections JOIN documents USING (document_id) "
            "ORDER BY path, position"
        ).fetchall(),
        "chunks": run(
            "SELECT path, position, section, start_line, end_line, start_character, "
            "end_character, extra_terms, chunks.text_hash, vector "
            "FROM chunks JOIN documents USING (document_id) LEFT JOIN vectors USING (vector_id) "
            "ORDER BY path, position"
        ).fetchall(),
        "vectors": run("SELECT text_hash, vector FROM vectors ORDER BY 1").fetchall(),
        "models": run("SELECT name, width, sha256, is_current FROM models").fetchall(),
        "terms": run("SELECT term, doc, cnt FROM keyword_terms ORDER BY 1").fetchall(),
        "document vectors": run(
            "SELECT path, vector FROM document_vectors JOIN documents USING (document_id) "
            "ORDER BY 1"
        ).fetchall(),
        "slabs": run("SELECT slab_id, offsets FROM vector_slabs ORDER BY 1").fetchall(),
    }


# What changed


def test_added_changed_removed_and_unchanged_files_are_counted(kb: Session, folder: Path) -> None:
    for number in range(4):
        write(folder, f"{number}.md", page(number))
    assert counts(sync(kb, folder)) == {"added": 4}
    write(folder, "0.md", page(0) + "More.\n")
    write(folder, "new/5.md", page(5))
    (folder / "1.md").unlink()
    report = sync(kb, folder)
    assert counts(report) == {"added": 1, "updated": 1, "removed": 1, "unchanged": 2}
    assert report.total == 4
    assert (found_by_keyword(kb, "word1x0"), found_by_keyword(kb, "more")) == ([], ["0.md"])
    assert counts(sync(kb, folder)) == {"unchanged": 4}


def test_a_new_time_alone_is_no_change(kb: Session, folder: Path, embedder: HashEmbedder) -> None:
    file = write(folder, "a.md", page(1))
    sync(kb, folder)
    embedder.texts.clear()
    os.utime(file, (OLD + 9, OLD + 9))
    assert counts(sync(kb, folder)) == {"unchanged": 1}
    assert embedder.texts == []
    assert query(kb, "SELECT modified_ns FROM documents") == [((OLD + 9) * 10**9,)]


@pytest.fixture
def times_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The change time of a test's files is always young, and nobody can set it."""
    monkeypatch.setattr(prepare_module, "TRUSTED_AGE_NS", 0)


def test_an_edit_that_keeps_size_and_time_is_found(
    kb: Session, folder: Path, times_are_trusted: None
) -> None:
    for name in ("edited.md", "replaced.md", "same.md"):
        write(folder, name, "# Title\n\nabcd\n")
    sync(kb, folder)
    write(folder, "edited.md", "# Title\n\nwxyz\n")
    write(folder, "other.tmp", "# Title\n\nwxyz\n").replace(folder / "replaced.md")
    with kb.database.read() as connection:
        (row,) = all_collections(connection)
    assert look_at(kb.database, row).changed == ["edited.md", "replaced.md"]
    assert counts(sync(kb, folder)) == {"updated": 2, "unchanged": 1}
    assert found_by_keyword(kb, "wxyz") == ["edited.md", "replaced.md"]
    assert look_at(kb.database, row).is_fresh


def states(kb: Session) -> list[tuple[object, ...]]:
    return query(
        kb,
        "SELECT path, changed_ns, inode FROM documents LEFT JOIN file_states USING (document_id) "
        "ORDER BY path",
    )


def states_on_disk(folder: Path) -> list[tuple[object, ...]]:
    files = [(file.name, file.stat()) for file in sorted(folder.iterdir())]
    return [(name, status.st_ctime_ns, status.st_ino) for name, status in files]


def test_a_tree_that_was_copied_moved_or_given_other_rights_is_read_and_not_embedded(
    kb: Session, folder: Path, embedder: HashEmbedder, times_are_trusted: None
) -> None:
    for number in range(3):
        write(folder, f"{number}.md", page(number))
    sync(kb, folder)
    embedder.texts.clear()
    elsewhere = folder.with_name("elsewhere")

    def copy() -> None:
        folder.rename(elsewhere)
        shutil.copytree(elsewhere, folder)  # with its times

    def change_rights() -> None:
        for file in folder.iterdir():
            file.chmod(0o600)

    for change in (copy, change_rights, lambda: folder.rename(elsewhere).rename(folder)):
        shutil.rmtree(elsewhere, ignore_errors=True)
        before = documents(kb)
        change()
        assert counts(sync(kb, folder)) == {"unchanged": 3}
        assert (documents(kb), embedder.texts) == (before, [])
        # From now on they are unchanged without being read.
        assert states(kb) == states_on_disk(folder)


def test_a_file_of_an_earlier_version_is_read_once(
    kb: Session, folder: Path, times_are_trusted: None
) -> None:
    write(folder, "a.md", page(1))
    sync(kb, folder)
    with kb.database.write() as connection:
        connection.apsw.execute("DELETE FROM file_states")
    assert counts(sync(kb, folder)) == {"unchanged": 1}
    assert states(kb) == states_on_disk(folder)


def test_a_change_time_as_young_as_its_reading_is_not_kept(kb: Session, folder: Path) -> None:
    write(folder, "a.md", page(1))
    sync(kb, folder)
    assert states(kb) == [("a.md", None, None)]


@pytest.mark.parametrize("ahead", [0, 10**6])
def test_an_edit_within_the_steps_of_the_file_systems_clock_is_found(
    kb: Session, folder: Path, ahead: int
) -> None:
    now = write(folder, "a.md", "# Title\n\nabcd\n").stat().st_ctime + ahead
    write(folder, "a.md", "# Title\n\nabcd\n", time=now)
    sync(kb, folder)
    write(folder, "a.md", "# Title\n\nwxyz\n", time=now)
    assert counts(sync(kb, folder)) == {"updated": 1}


# Renames


def test_a_renamed_file_keeps_its_document_and_vectors(
    kb: Session, folder: Path, embedder: HashEmbedder
) -> None:
    write(folder, "a.md", page(1, 5))
    sync(kb, folder)
    before = documents(kb)["a.md"]
    embedder.texts.clear()
    (folder / "deep").mkdir()
    (folder / "a.md").rename(folder / "deep" / "b.md")
    report = sync(kb, folder)
    assert counts(report) == {"updated": 1, "renamed": 1}
    assert documents(kb) == {"deep/b.md": before}
    assert embedder.texts == []


def test_two_equal_files_that_move_stay_two(kb: Session, folder: Path) -> None:
    for name in "abc":
        write(folder, f"{name}.md", page(1))
    sync(kb, folder)
    before = documents(kb)
    for name in "ab":
        (folder / f"{name}.md").rename(folder / f"new-{name}.md")
    assert counts(sync(kb, folder)) == {"updated": 2, "renamed": 2, "unchanged": 1}
    assert sorted(documents(kb).values()) == sorted(before.values())
    assert list(documents(kb)) == ["c.md", "new-a.md", "new-b.md"]


def test_a_renamed_and_edited_file_embeds_only_what_was_edited(
    kb: Session, folder: Path, embedder: HashEmbedder
) -> None:
    write(folder, "a.md", page(1, 6))
    sync(kb, folder)
    embedder.texts.clear()
    (folder / "a.md").unlink()
    write(folder, "b.md", page(1, 6).replace("word1x3", "changed"))
    assert counts(sync(kb, folder)) == {"added": 1, "removed": 1}
    assert [text for text in embedder.texts if text != "width"] == [
        text for text in embedder.texts if "changed" in text
    ]
    assert list(documents(kb)) == ["b.md"]


def test_two_files_that_swap_names_swap_their_text(
    kb: Session, folder: Path, embedder: HashEmbedder
) -> None:
    one, two = write(folder, "1.md", page(1)), write(folder, "2.md", page(2))
    sync(kb, folder)
    embedder.texts.clear()
    one.rename(folder / "x")
    two.rename(one)
    (folder / "x").rename(two)
    sync(kb, folder, force=True)  # size and time may be equal
    assert (found_by_keyword(kb, "word1x0"), found_by_keyword(kb, "word2x0")) == (
        ["2.md"],
        ["1.md"],
    )
    assert embedder.texts in ([], ["width"])


def test_a_rename_of_case_alone_keeps_the_document(kb: Session, folder: Path) -> None:
    write(folder, "readme.md", page(1))
    sync(kb, folder)
    before = documents(kb)["readme.md"]
    (folder / "readme.md").rename(folder / "README.md")
    assert counts(sync(kb, folder)) == {"updated": 1, "renamed": 1}
    assert documents(kb) == {"README.md": before}


# What is embedded


@pytest.mark.slow
def test_one_line_of_a_long_document_embeds_two_chunks_at_most(
    kb: Session, folder: Path, embedder: HashEmbedder
) -> None:
    lines = [f"Sentence {n} of a long page tells of thing{n} and thing{n + 1}." for n in range(900)]
    write(folder, "long.md", "# Long\n\n" + "\n".join(lines))
    sync(kb, folder)
    for edited in (0, 450, 899):
        lines[edited] += " Now more is said here."
        write(folder, "long.md", "# Long\n\n" + "\n".join(lines))
        embedder.texts.clear()
        sync(kb, folder)
        assert 1 <= len([text for text in embedder.texts if text != "width"]) <= 2


def test_equal_texts_are_embedded_once_in_all_documents_and_collections(
    kb: Session, folder: Path, tmp_path: Path, embedder: HashEmbedder
) -> None:
    other = tmp_path / "other"
    for place in (folder / "a.md", folder / "b.md", other / "c.md"):
        write(place.parent, place.name, page(1, 3))
    sync(kb, folder)
    sync(kb, other)
    texts = [text for text in embedder.texts if text != "width"]
    assert len(texts) == len(set(texts)) == 3
    assert query(kb, "SELECT count(*), count(vector_id) FROM chunks") == [(9, 9)]
    assert query(kb, "SELECT count(*) FROM vectors") == [(3,)]
    (folder / "a.md").unlink()
    sync(kb, folder)
    assert query(kb, "SELECT count(*) FROM vectors") == [(3,)]


@pytest.mark.parametrize("text", ["", " \n\t\n", "---\ntags: [a]\n---\n", "\ufeff", "---\n---\n"])
def test_a_file_without_text_is_a_document_and_embeds_nothing(
    kb: Session, folder: Path, embedder: HashEmbedder, text: str
) -> None:
    write(folder, "empty.md", text)
    write(folder, "full.md", page(1))
    assert counts(sync(kb, folder)) == {"added": 2}
    assert counts(sync(kb, folder)) == {"unchanged": 2}
    assert all(embedder.texts)
    assert len(embedder.texts) == 2  # the full page, and a word to learn the width
    assert "empty.md" in documents(kb)


def test_vectors_that_nothing_uses_go_even_after_an_interruption(kb: Session, folder: Path) -> None:
    write(folder, "a.md", page(1))
    sync(kb, folder)
    with kb.database.write() as connection:
        connection.apsw.execute(
            "INSERT INTO vectors (model_id, text_hash, vector) "
            "SELECT model_id, x'00', zeroblob(64) FROM models"
        )
    sync(kb, folder)
    assert query(kb, "SELECT count(*) FROM vectors") == [(1,)]


# Nothing is lost


@pytest.mark.parametrize("root", ["empty", "missing", "only other files"])
def test_a_folder_without_documents_never_empties_its_collection(
    kb: Session, folder: Path, root: str
) -> None:
    write(folder, "a.md", page(1))
    collection = register(kb.database, str(folder))
    sync_collection(kb.database, collection)
    shutil.rmtree(folder)
    if root != "missing":
        folder.mkdir()
    if root == "only other files":
        (folder / "photo.png").write_bytes(b"x")
    with pytest.raises(SourceError):
        sync_collection(kb.database, collection)
    assert list(documents(kb)) == ["a.md"]
    if root == "missing":  # there is nothing that --force could read
        with pytest.raises(SourceError):
            sync_collection(kb.database, collection, force=True)
        assert list(documents(kb)) == ["a.md"]
    else:
        assert counts(sync_collection(kb.database, collection, force=True)) == {"removed": 1}


def test_an_unreadable_subfolder_or_file_keeps_its_documents(
    kb: Session, open_folder: Path
) -> None:
    write(open_folder, "sub/deep/a.md", page(1))
    write(open_folder, "sub2/b.md", page(2))
    file = write(open_folder, "c.md", page(3))
    sync(kb, open_folder)
    before = documents(kb)
    write(open_folder, "copy of a.md", page(1))  # not taken for the renamed original
    os.utime(file, (OLD + 1, OLD + 1))
    file.chmod(0)
    (open_folder / "sub").chmod(0)
    with kb.database.write():
        pass  # opened before the user changes
    with kb.database.read() as connection:
        row = kb.names.collection(connection, open_folder.name)
    with ordinary_user():
        fresh = look_at(kb.database, row)
        report = sync_collection(kb.database, register(kb.database, str(open_folder)), force=True)
    (open_folder / "sub").chmod(0o755)
    assert (fresh.new, fresh.gone) == (["copy of a.md"], [])
    assert counts(report) == {"added": 1, "unchanged": 1}
    assert {error["path"] for error in report.errors} == {"sub", "c.md"}
    assert before.items() <= documents(kb).items()


def test_a_root_that_fails_while_it_is_listed_keeps_everything(
    kb: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "a.md", page(1))
    collection = register(kb.database, str(folder))
    sync_collection(kb.database, collection)

    def failing_walk(*_: Any, report: Callable[[str, str], None], **__: Any) -> list[SourceFile]:
        report("", "folder not read: input/output error")
        return []

    monkeypatch.setattr(sync_module, "files_of", failing_walk)
    with pytest.raises(SourceError, match="nothing was added: folder not read: input/output error"):
        sync_collection(kb.database, collection, force=True)
    with kb.database.read() as connection:
        (row,) = connection.rows("collections")
    report = sync_collection(kb.database, row, force=True)
    assert (report.removed, report.total) == (0, 1)


def test_bad_files_are_reported_and_stop_nothing(kb: Session, folder: Path) -> None:
    write(folder, "binary.md", b"\x00\x01\x02" * 50)
    write(folder, "latin.md", "# Caf\xe9\n".encode("latin-1"))
    write(folder, "yaml.md", "---\na: [\n---\n# Text\n")
    write(folder, "deep.md", ">" * 5000 + " deep\n")
    (folder / "loop").symlink_to(folder)
    (folder / "out.md").symlink_to("/etc/hostname")
    write(folder, "zz.md", page(1))
    report = sync(kb, folder)
    assert "zz.md" in documents(kb)
    assert {"binary.md", "out.md"} <= {error["path"] for error in report.errors}
    assert {"latin.md", "yaml.md"} <= {notice["path"] for notice in report.notices}
    assert all(row["message"] for row in (*report.errors, *report.notices))
    assert report.total == len(documents(kb))


def test_an_unforeseen_failure_of_one_file_stops_nothing_and_keeps_its_document(
    kb: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "a.md", page(1))
    write(folder, "b.md", page(2))
    sync(kb, folder)
    write(folder, "a.md", "# New a\n")
    write(folder, "b.md", "# New b\n")
    prepare = prepare_module.prepare_document

    def failing(file: SourceFile, source: SourceText, options: Any) -> Any:
        if file.path == "a.md":
            raise ZeroDivisionError("in the parser")
        return prepare(file, source, options)

    monkeypatch.setattr(prepare_module, "prepare_document", failing)
    report = sync(kb, folder)
    assert counts(report) == {"updated": 1}
    assert report.errors == [
        {"path": "a.md", "message": "cannot be stored: ZeroDivisionError: in the parser"}
    ]
    assert found_by_keyword(kb, "word1x0") == ["a.md"]
    monkeypatch.undo()
    assert counts(sync(kb, folder)) == {"updated": 1, "unchanged": 1}


def test_what_a_failed_transaction_took_back_is_not_counted_and_what_is_gone_goes(
    kb: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "a.md", page(1))
    write(folder, "b.md", page(2))
    sync(kb, folder)
    (folder / "a.md").rename(folder / "new.md")

    def failing(connection: Connection, collection_id: int, new: Any, known: Any) -> None:
        raise ZeroDivisionError("while it is stored")

    monkeypatch.setattr(sync_module, "store_document", failing)
    report = sync(kb, folder)
    assert [error["path"] for error in report.errors] == ["new.md"]
    assert counts(report) == {"removed": 1, "unchanged": 1}
    assert list(documents(kb)) == ["b.md"]
    monkeypatch.undo()
    assert counts(sync(kb, folder)) == {"added": 1, "unchanged": 1}


def test_a_failure_of_the_file_itself_stops_the_sync(
    kb: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write(folder, f"{number}.md", page(number))

    def full(*_: Any) -> None:
        raise FileError("the disk is full")

    monkeypatch.setattr(sync_module, "store_document", full)
    with pytest.raises(FileError, match="disk is full"):
        sync(kb, folder)


# Interruptions and other processes

# A sync as another process does it, with a fast embedder. It says what it does: "text NAME" for
# a stored document and "embedded N"; after line `stop` it kills itself.
DRIVER = f"""
    import json, os, signal, sys
    from pathlib import Path
    sys.path.insert(0, {str(Path(__file__).parents[1])!r})
    from support import HashEmbedder
    from kb.library.collecting import register
    from kb.store.database import Database
    from kb.tools.session import Session, open_session
    from kb.ingest.embed import embed_pending
    from kb.ingest.sync import sync_collection

    path, folder, log, stop = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    events = 0

    def event(*_):
        global events
        events += 1
        if events == stop:
            os.kill(os.getpid(), signal.SIGKILL)

    class Recorder(HashEmbedder):
        def embed(self, texts):
            event()
            vectors = super().embed(texts)
            with log.open("a") as file:
                file.write("".join(json.dumps(text) + "\\n" for text in texts))
            return vectors

    embedder = Recorder()
    with open_session(Database(path), project=path.parent,
                       make_embedder=lambda _: embedder) as kb:
        sync_collection(kb.database, register(kb.database, folder), progress=event)
        embed_pending(kb.model, progress=event)
    print(events)
"""


def driver(path: Path, folder: Path, log: Path, stop: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DRIVER), path, folder, log, str(stop)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def finish(process: subprocess.Popen[str]) -> int:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return int(out)


def content_of(path: Path) -> dict[str, list[Any]]:
    with Database(path, create=False) as database, database.read() as connection:
        assert connection.apsw.execute("PRAGMA integrity_check").get == "ok"
        return content(connection)


@pytest.fixture
def long_folder(folder: Path) -> Path:
    """Twelve documents with six chunks each."""
    for number in range(12):
        write(folder, f"{number:02}.md", page(number, 6))
    return folder


@pytest.mark.slow
def test_a_sync_killed_again_and_again_ends_like_an_uninterrupted_one(
    long_folder: Path, tmp_path: Path
) -> None:
    path, log = tmp_path / "killed.db", tmp_path / "killed.log"
    # In the middle of the documents, at the end of them, and twice while they are embedded.
    for stop in (7, 15, 23, 21):
        killed = driver(path, long_folder, log, stop)
        killed.communicate(timeout=120)
        assert killed.returncode == -9
    left = finish(driver(path, long_folder, log))
    texts = [text for text in map(json.loads, log.read_text().splitlines()) if text != "width"]
    whole = finish(driver(tmp_path / "whole.db", long_folder, tmp_path / "log"))
    expected = content_of(tmp_path / "whole.db")
    assert content_of(path) == expected
    assert not list(tmp_path.glob("killed.db-*"))
    assert left < whole
    assert len(set(texts)) == len(expected["vectors"]) == 72
    # Each killed run lost at most what was under way: two batches a core.
    assert len(texts) - len(set(texts)) <= 3 * 2 * (os.cpu_count() or 1) * 8


@pytest.mark.slow
def test_two_syncs_of_one_folder_at_once_end_as_one(long_folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    finish(driver(tmp_path / "one.db", long_folder, log))
    both = [driver(tmp_path / "two.db", long_folder, log) for _ in range(2)]
    for process in both:
        finish(process)
    assert content_of(tmp_path / "two.db") == content_of(tmp_path / "one.db")


@pytest.mark.slow
def test_searches_go_on_while_another_process_syncs(
    kb: Session, long_folder: Path, tmp_path: Path
) -> None:
    write(long_folder, "first.md", page(99))
    sync(kb, long_folder)
    for number in range(12):
        write(long_folder, f"{number:02}.md", page(number + 100, 6))
    other = driver(kb.database.path, long_folder, tmp_path / "log")
    seen: set[int] = set()
    while other.poll() is None:
        assert found_by_keyword(kb, "word99x0") == ["first.md"]
        with kb.database.read() as connection:
            # Each document is whole, old or new.
            run = connection.apsw.execute
            chunks = run("SELECT count(*) FROM chunks").get
            assert (
                chunks
                == run("SELECT count(*) FROM keyword_index WHERE keyword_index MATCH 'page'").get
                == 73
            )
            seen.add(run("SELECT count(*) FROM documents WHERE content LIKE '%page10%'").get)
    finish(other)
    assert found_by_keyword(kb, "word101x5") == ["01.md"]
    assert seen


def test_a_document_added_by_another_process_after_the_walk_is_kept(
    kb: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "a.md", page(1))
    collection = register(kb.database, str(folder))
    sync_collection(kb.database, collection)
    walk = sync_module.files_of

    def overtaken(*arguments: Any, **options: Any) -> Any:
        found = list(walk(*arguments, **options))
        monkeypatch.undo()
        write(folder, "b.md", page(2))
        sync_collection(kb.database, collection)  # as another process would
        return found

    monkeypatch.setattr(sync_module, "files_of", overtaken)
    assert counts(sync_collection(kb.database, collection)) == {"unchanged": 1}
    assert list(documents(kb)) == ["a.md", "b.md"]


def test_a_collection_removed_meanwhile_is_not_filled_and_the_next_with_its_id_neither(
    kb: Session, folder: Path
) -> None:
    for number in range(4):
        write(folder, f"{number}.md", page(number))
    sync(kb, folder)
    with kb.database.read() as connection:
        (row,) = all_collections(connection)
    for number in range(4):
        write(folder, f"{number}.md", page(number + 10), time=OLD + 1)

    def replace_it(what: str, done: int, total: int) -> None:
        if (what, done) == ("documents", 2):
            with (
                another_process(),
                Database(kb.database.path) as other,
                other.write() as connection,
            ):
                delete_collection(connection, row["collection_id"])
                new = store_collection(connection, unstored_row("another"))
                assert new == row["collection_id"]

    with pytest.raises(CollectionNotFound, match="removed during its sync"):
        sync_collection(kb.database, row, progress=replace_it)
    assert documents(kb) == {}


def test_a_document_stored_by_another_process_first_is_not_stored_twice(
    kb: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "a.md", page(1))
    write(folder, "b.md", page(2))
    collection = register(kb.database, str(folder))
    sync_collection(kb.database, collection)
    (folder / "a.md").rename(folder / "c.md")
    write(folder, "b.md", page(3))
    write(folder, "d.md", page(4))
    walk = sync_module.files_of

    def overtaken(*arguments: Any, **options: Any) -> Any:
        found = list(walk(*arguments, **options))
        monkeypatch.undo()
        sync_collection(kb.database, collection)
        return found

    monkeypatch.setattr(sync_module, "files_of", overtaken)
    report = sync_collection(kb.database, collection)
    assert (counts(report), report.errors) == ({"unchanged": 3}, [])
    assert list(documents(kb)) == ["b.md", "c.md", "d.md"]


def test_a_vector_never_reaches_a_chunk_whose_text_changed_meanwhile(
    kb: Session, folder: Path, embedder: HashEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "a.md", page(1, 3))
    collection = register(kb.database, str(folder))
    sync_collection(kb.database, collection)
    embed = embedder.embed

    def edited_meanwhile(texts: list[str]) -> Any:
        if texts != ["width"]:
            monkeypatch.undo()
            write(folder, "a.md", page(2, 3), time=OLD + 1)
            writer = threading.Thread(target=sync_collection, args=(kb.database, collection))
            writer.start()
            writer.join()
        return embed(texts)

    monkeypatch.setattr(embedder, "embed", edited_meanwhile)
    report = embed_pending(kb.model)
    assert (report.embedded, report.waiting) == (6, 0)  # the new texts in the same run
    wrong = (
        "SELECT * FROM chunks JOIN vectors USING (vector_id) "
        "WHERE chunks.text_hash <> vectors.text_hash"
    )
    assert query(kb, wrong) == []


def test_filling_a_folder_twice_changes_nothing(fill: Filler, kb: Session) -> None:
    fill({"a.md": page(1, 3), "b.md": page(2)})
    with kb.database.read() as connection:
        before = content(connection)
    fill({"a.md": page(1, 3), "b.md": page(2)})
    with kb.database.read() as connection:
        assert content(connection) == before

"""What the health check finds, and that mending brings the file back to what it should be."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from support import Filler, HashEmbedder, another_process, call

from kb.disk import holders
from kb.errors import FileError
from kb.ingest.embed import embed_pending, reembed
from kb.model_in_use import ModelInUse
from kb.results.findings import BROKEN, HINT, SOUND, Finding
from kb.store import health
from kb.store.database import Database
from kb.store.health import REPAIRS, quick, repair, thorough
from kb.tools.registry import call_tool
from kb.tools.session import open_session

DOCUMENTS: dict[str, str | bytes] = {
    f"{name}.md": f"# {name}\n\nThe {name} turns.\n\n## More\n\n{name} and [wind](wind.md).\n" * 3
    for name in ("wind", "vane", "gauge", "mast")
}


@pytest.fixture
def path(fill: Filler) -> Path:
    """A sound file, closed."""
    with fill(DOCUMENTS) as knowledge:
        return Path(knowledge.database.path)


def run_sql(path: Path, *statements: str) -> None:
    """What somebody does with another program, which knows nothing of foreign keys."""
    with Database(path) as database, database.write() as connection:
        connection.apsw.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, False)
        connection.apsw.execute("COMMIT; PRAGMA foreign_keys = OFF; BEGIN")
        for statement in statements:
            connection.apsw.execute(statement).fetchall()


def look(path: Path) -> list[Finding]:
    with Database(path, create=False) as database:
        return list(thorough(database))


def broken(path: Path) -> dict[str, str]:
    """Check -> repair of what is broken."""
    return {finding.check: finding.repair for finding in look(path) if finding.state == BROKEN}


def contents(path: Path) -> list[object]:
    """What a search needs: passages, whether they have vectors, the index's answer."""
    with Database(path, create=False) as database, database.read() as connection:
        return [
            connection.apsw.execute(sql).fetchall()
            for sql in (
                "SELECT document_id, position, vector_id IS NOT NULL FROM chunks ORDER BY 1, 2",
                "SELECT rowid FROM keyword_index('turns') ORDER BY 1",
                "SELECT slab_id, offsets, signs FROM vector_slabs",
                "SELECT document_id, vector FROM document_vectors",
            )
        ]


def test_a_sound_file_is_sound(path: Path) -> None:
    findings = look(path)
    assert {finding.state for finding in findings} == {SOUND}
    assert {finding.check for finding in findings} >= {
        *("pages", "rows", "keyword index", "vectors", "log", "file")
    }


@pytest.mark.parametrize(
    ("damage", "check", "mends"),
    [
        ("INSERT INTO keyword_index (rowid, title) VALUES (1, 'ghost')", "keyword index", True),
        ("DELETE FROM keyword_index_data WHERE id > 10", "pages", False),
        ("DELETE FROM vector_slabs", "vectors", True),
        ("UPDATE vector_slabs SET signs = x'00'", "vectors", True),
        ("UPDATE document_vectors SET vector = x'00'", "vectors", True),
        ("INSERT INTO vector_slabs VALUES (77, x'0000', x'0000000000000000')", "vectors", True),
        ("INSERT INTO document_keys VALUES ('page:x', 99, 0)", "rows", True),
        ("INSERT INTO word_endings VALUES ('tsohg')", "rows", True),
        ("DELETE FROM word_endings WHERE ending LIKE 'e%'", "rows", True),
        ("UPDATE collections SET include = 'null'", "values", False),
        ("UPDATE collections SET exclude = '{'", "values", False),
        ("UPDATE documents SET metadata = '[]'", "values", False),
        ("INSERT INTO file_accesses VALUES ('a', '', 1, 1, 'soon', 0)", "values", False),
        ("INSERT INTO file_accesses VALUES ('a', '', 1, 0, '', 0)", "values", False),
    ],
)
def test_damage_is_found_and_what_is_derived_is_made_anew(
    path: Path, damage: str, check: str, mends: bool
) -> None:
    before = contents(path)
    run_sql(path, damage)
    found = broken(path)
    assert check in found
    with Database(path) as database:
        for what in dict.fromkeys(found.values()):
            if what:
                repair(database, what)
    if mends:
        assert broken(path) == {}
        assert contents(path) == before


def test_rows_of_a_deleted_document_go_with_it(path: Path) -> None:
    run_sql(path, "DELETE FROM documents WHERE path = 'vane.md'")
    assert broken(path)["rows"] == "orphans"
    with Database(path) as database:
        repair(database, "orphans")
        with database.read() as connection:
            left = connection.apsw.execute("SELECT DISTINCT document_id FROM chunks").fetchall()
    assert len(left) == len(DOCUMENTS) - 1
    assert broken(path) == {}


def test_a_vector_of_the_wrong_width_is_made_anew(path: Path, embedder: HashEmbedder) -> None:
    before = contents(path)
    run_sql(path, "UPDATE vectors SET vector = x'0102' WHERE vector_id % 2 = 0")
    assert broken(path) == {"vectors": "vectors"}
    with Database(path) as database:
        repair(database, "vectors")
        waiting = [finding for finding in thorough(database) if finding.repair == "embed"]
        assert [finding.state for finding in waiting] == [HINT]
        embed_pending(ModelInUse(database, make_embedder=lambda _: embedder))
    assert broken(path) == {}
    assert contents(path) == before


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE vectors SET vector = x'0102'",
        "UPDATE vectors SET vector = x'0102' WHERE vector_id = 1",
        "UPDATE vector_slabs SET signs = x'0102'",
        "UPDATE vector_slabs SET offsets = x'01'",
        "UPDATE document_vectors SET vector = x'00'",
        "DROP TABLE document_vectors",
        "DROP VIEW chunk_texts",
        "UPDATE documents SET content = CAST(x'ffde' || content AS TEXT)",
        "UPDATE collections SET options = '{oops'",
        "UPDATE collections SET options = '[]'",
        "UPDATE documents SET metadata = '{oops'",
    ],
)
def test_every_tool_says_that_vectors_or_tables_are_damaged(
    path: Path, embedder: HashEmbedder, damage: str
) -> None:
    note = {"doc_id": "note", "content": "A gauge."}
    with open_session(Database(path), make_embedder=lambda _: embedder) as kb:
        call(kb, "search_add_document", **note)
        call(kb, "context_record", content="We use a vane of brass")
    run_sql(path, damage)
    with open_session(Database(path), make_embedder=lambda _: embedder) as kb:
        where = {"collection": "docs", "document": "wind.md"}
        answers = [
            call_tool(kb, name, arguments)
            for name, arguments in (
                ("documents_search", {"query": "the wind turns"}),
                ("documents_search", {"query": "the wind turns", "hybridSearch": False}),
                ("documents_find_related", where),
                ("documents_find_related", {**where, "chunk": "the vane"}),
                ("search_add_document", {"doc_id": "a", "content": "wind [wind](wind.md)"}),
                ("search_index", {"query": "gauge"}),
                ("context_search", {"query": "a vane of brass"}),
            )
        ]
    failed = [answer for answer in answers if answer.is_error]
    assert failed
    for answer in failed:
        assert answer.content["code"] == "DATABASE_ERROR"
        assert "kb doctor" in answer.content["error"]


def test_an_index_of_a_table_is_made_anew(path: Path) -> None:
    run_sql(
        path,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = 'CREATE INDEX chunks_by_vector ON chunks (position)' "
        "WHERE name = 'chunks_by_vector'",
    )
    assert broken(path) == {"pages": "table indexes"}
    with Database(path) as database:
        repair(database, "table indexes")
    assert broken(path) == {}


def test_every_named_repair_is_there(path: Path) -> None:
    assert set(REPAIRS) == {
        *("table indexes", "keyword index", "orphans", "unused vectors", "vectors")
    }


def test_vectors_that_belong_to_no_passage_are_told_and_deleted(path: Path) -> None:
    before = vectors(path)
    run_sql(path, "INSERT INTO vectors SELECT 99, model_id, x'00', vector FROM vectors LIMIT 1")
    (hint,) = [finding for finding in look(path) if finding.repair == "unused vectors"]
    assert (hint.state, hint.message[:31]) == (HINT, "1 vector belongs to no passage:")
    with Database(path) as database:
        repair(database, hint.repair)
    assert {finding.state for finding in look(path)} == {SOUND}
    assert vectors(path) == before


def vectors(path: Path) -> set[bytes]:
    with Database(path, create=False) as database, database.read() as connection:
        found = connection.apsw.execute("SELECT vector FROM vectors").fetchall()
    return {vector for (vector,) in found if isinstance(vector, bytes)}


def problems(path: Path, builds: dict[str, list[str]] | None = None) -> list[Finding]:
    with (
        pytest.MonkeyPatch.context() as patch,
        Database(path, create=False) as database,
        database.read() as connection,
    ):
        patch.setattr(health, "BUILDS", builds or {})
        return quick(connection)


def test_a_deleted_model_row_is_seen_at_once(path: Path, embedder: HashEmbedder) -> None:
    assert problems(path) == []
    run_sql(path, "DELETE FROM models")
    (problem,) = problems(path)
    assert problem.state == BROKEN
    assert "kb reembed" in problem.remedy
    with Database(path) as database:
        model = ModelInUse(database, make_embedder=lambda _: embedder)
        vectors, notice = model.try_embed_queries(["wind"])
        assert (vectors, "row of the file's model is gone" in notice) == ([None], True)


def test_vectors_of_a_model_that_nobody_knows_are_not_taken_for_the_next_ones(
    path: Path,
) -> None:
    before = vectors(path)
    run_sql(path, "DELETE FROM models")
    other = HashEmbedder("another-model", 64)
    with Database(path) as database:
        reembed(ModelInUse(database, make_embedder=lambda _: other), other)
    assert len(vectors(path)) == len(before)
    assert not vectors(path) & before
    assert problems(path) == []
    assert broken(path) == {}


def test_another_build_of_a_known_model_is_seen_at_once(path: Path) -> None:
    with Database(path) as database, database.read() as connection:
        model = connection.row("current_model")
    assert model is not None
    assert problems(path, {model["name"]: ["newer", model["sha256"]]}) == []
    (problem,) = problems(path, {model["name"]: ["another"]})
    assert "another build" in problem.message


READER = """
import sys
import apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM documents").fetchall()
print("reading", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def reader(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process inside a read transaction."""
    with Database(path) as database, database.write():
        pass
    holder = Database(path)  # keeps the file in WAL mode
    with holder.write() as connection:
        connection.run(
            "finish_collection_sync",
            collection_id=1,
            synced_at="a",
            version=None,
            description=None,
            source="",
            shorter="",
        )
        other = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(READER), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert other.stdout is not None
        assert other.stdout.readline() == "reading\n"
    with other:  # closes its streams and waits for it
        yield other
    holder.close()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs Linux's /proc")
def test_a_log_that_cannot_be_merged_is_told_with_who_holds_it(
    path: Path, reader: subprocess.Popen[str]
) -> None:
    with another_process():
        found = [finding for finding in look(path) if finding.check == "log"]
    assert [finding.state for finding in found] == [HINT]
    assert f"process {reader.pid} " in found[0].message
    assert os.path.basename(sys.executable) in found[0].message
    assert {one.process for one in holders.holders(path)} == {reader.pid}
    assert reader.stdin is not None
    reader.stdin.close()
    reader.wait(30)
    with another_process():
        assert [finding.state for finding in look(path) if finding.check == "log"] == [SOUND]
    assert holders.readers_of_log(path) == []


def test_an_index_that_another_connection_has_merged_is_sound(fill: Filler) -> None:
    knowledge = fill({}, embed=False)
    for number in range(6):
        call_tool(
            knowledge, "search_add_document", {"doc_id": f"note-{number}", "content": "A vane."}
        )
        with knowledge.database.read() as connection:
            assert connection.integrity(1) == []
            assert connection.apsw.execute("SELECT count(*) FROM keyword_index('vane')").get


def test_a_file_that_is_only_read_is_not_mended(path: Path) -> None:
    with Database(path, create=False, refusal="it is only read") as database:
        for what in REPAIRS:
            with pytest.raises(FileError, match="copy it to a writable folder"):
                repair(database, what)

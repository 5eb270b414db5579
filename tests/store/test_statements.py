"""Every named statement, without running it."""

import ast
import re
from functools import cache
from pathlib import Path

import apsw
import apsw.ext
import pytest

from kb.search.keywords import bm25_of_weights
from kb.store.connection import _statements, statement
from kb.store.database import Database

QUERIES = Path(__file__).parents[2] / "kb" / "queries"
PACKAGE = QUERIES.parent
STATEMENTS = {
    name: statement(name)
    for file in sorted(QUERIES.glob("*.sql"))
    for name in re.findall(r"^-- name: (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
}
ROOMS_WITH_SQL = ("store", "search")
COLUMNS = {
    "candidates",
    "collection_id",
    "collections",
    "document",
    "document_id",
    "pages",
    "slabs",
}
# Statements that read a whole table because that is their purpose.
WHOLE_TABLE = {
    "all_document_ids",
    "document_sizes",
    "documents_by_hash",
    "chunk_sizes",
    "all_session_details",
    "all_slab_ids",
    "ordered_chunk_ids",
    "use_vectors_of_model",
    "collection_names_from",
    "collections",
    "count_all_chunks",
    "count_all_documents",
    "count_chunks_without_vector",
    "current_model",
    "documents_of_collections",
    "passages_of_collections",
    "projects",
    "sources_as_kept",
    "all_tokens",
    "unrevoked_tokens",
    "forget_tokens",
    "has_tokens",
    "delete_other_models",
    "delete_slabs",
    "delete_unused_vectors",
    "delete_vectors_without_model",
    "forget_vectors_without_model",
    "document_hashes",
    "document_paths_from",
    "drawn_citations",
    "end_idle_sessions",
    "file_accesses",
    "index_names",
    "keyword_segments",
    "links_of",
    "middle_of_longest_collection",
    "recent_sessions",
    "resource_documents",
    "status_counts",
    "tool_call_durations",
    "trim_sessions",
    "unresolved_keys",
    "unset_current_models",
    "visible_documents",
    "whole_citation_graph",
    "words_without_passages",
    "words_of_length",
    # What `kb doctor` looks through and mends.
    "all_endings",
    "all_words",
    "delete_orphans",
    "unreadable",
    "wrong_vectors",
    "count_orphan_signatures",
    "delete_misshapen_vectors",
    "forget_misshapen_vectors",
    "health_counts",
    "quick_counts",
}


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> apsw.Connection:
    path = tmp_path_factory.mktemp("statements") / "kb.db"
    Database(path).close()
    connection = apsw.Connection(str(path))
    connection.register_fts5_function("bm25_of_weights", bm25_of_weights)
    return connection


# Of a connection.
RUNNERS = {"rows", "row", "tuples", "column", "iterate", "value", "count", "run", "run_many"}


@cache
def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(text_of(file))


def module(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE).with_suffix("").parts)


@cache
def runs(file: Path) -> list[ast.Call]:
    """The calls in a module that hand a statement to SQLite."""
    calls = [node for node in ast.walk(tree(file)) if isinstance(node, ast.Call)]
    return [
        call
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in RUNNERS
        and ast.unparse(call.func.value).endswith(("connection", "apsw", "reader", "writer"))
    ]


@cache
def named(file: Path) -> set[str]:
    """The statements that a module names: in calls, and in tables that its calls look them up in.

    Some statements are called as columns are: those count in calls alone.
    """
    if module(file).split(".")[0] not in ROOMS_WITH_SQL:
        return set()
    arguments = {id(call.args[0]) for call in runs(file) if call.args}
    texts = [node for node in ast.walk(tree(file)) if isinstance(node, ast.Constant)]
    return {
        str(text.value)
        for text in texts
        if text.value in STATEMENTS and (id(text) in arguments or text.value not in COLUMNS)
    }


def defines(file: Path, name: str) -> bool:
    return bool(re.search(rf"^-- name: {name}\b", text_of(file), re.MULTILINE))


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=module)
def test_only_the_store_and_the_search_run_sql(file: Path) -> None:
    if module(file).split(".")[0] not in ROOMS_WITH_SQL:
        assert not [ast.unparse(call) for call in runs(file)]


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_prepares_and_has_a_comment(name: str, connection: apsw.Connection) -> None:
    sql = STATEMENTS[name]
    if "vec_" not in sql:  # the extension is not loaded here
        apsw.ext.query_info(connection, sql)
    text = "\n".join(text_of(file) for file in QUERIES.glob("*.sql"))
    assert re.search(rf"-- name: {name}[!$^#]?\n-- [A-Z].*(\n-- .*)*\.$", text, re.MULTILINE)


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_has_one_calling_module_whose_name_its_file_has(name: str) -> None:
    callers = [file.stem for file in FILES if name in named(file)]
    written = [file.stem for file in QUERIES.glob("*.sql") if defines(file, name)]
    assert callers == written
    assert len(callers) == 1


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_reads_no_table_from_end_to_end(name: str, connection: apsw.Connection) -> None:
    sql = STATEMENTS[name]
    if name in WHOLE_TABLE or "vec_" in sql:
        return
    bindings = dict.fromkeys(re.findall(r":(\w+)", sql))
    plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings).fetchall()
    scans = [step for *_, step in plan if step.startswith("SCAN")]
    # A table of the statement's own holds what it found so far.
    own = re.findall(r"^(\w+) \([\w, ]+\) AS (?:MATERIALIZED )?\(", sql, re.MULTILINE)
    harmless = (
        *("VIRTUAL TABLE", "CONSTANT ROW", "(subquery-"),
        *(f"SCAN {name}" for name in own),
    )
    assert not [scan for scan in scans if not any(word in scan for word in harmless)]


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    with Database(tmp_path / "kb.db") as database, database.read() as reader:
        for name, sql in STATEMENTS.items():
            if re.match(r"\s*(INSERT|UPDATE|DELETE)", sql):
                parameters = dict.fromkeys(re.findall(r":(\w+)", sql), 1)
                with pytest.raises(apsw.ReadOnlyError):
                    reader.apsw.execute(sql, parameters).fetchall()
                assert name


def test_a_name_stands_for_one_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queries").mkdir()
    for file in ("a.sql", "b.sql"):
        (tmp_path / "queries" / file).write_text("-- name: total\nSELECT 1;\n")
    monkeypatch.setattr("kb.store.connection.PACKAGE", tmp_path)
    with pytest.raises(ValueError, match=r"statement total is defined twice, again in [ab]\.sql"):
        _statements.__wrapped__()

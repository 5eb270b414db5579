"""A call takes few statements, whichever tool it is."""

from __future__ import annotations

from typing import Any

import pytest
from support import call

from kb.store.connection import Connection
from kb.tools.registry import load_tools
from kb.tools.session import Session

MOST = 19  # of a query with a phrase, a prefix and an exclusion; 12 of a question
MOST_OF_A_READ = 6
MOST_OF_A_WRITE = 60  # of a cold one, with the triggers of its tables
WITHIN = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA")

# The second query is another one than the first: what is known of its words is not known yet.
CALLS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("documents_search", "how is the rain gauge cleaned?", "how do I mount the wind vane?", {}),
    ("documents_search", "rain_total", "wind_speed_max", {}),
    ("documents_search", "the gage tipps", "callibrate the wnd vane", {}),
    ("documents_context", "how is the rain gauge cleaned?", "how do I mount the vane?", {}),
    ("documents_search", '"rain gauge" +clean* -gust', '"wind vane" +calib* -gusts', {}),
    ("documents_search", "station log", "northerly breezes", {"hybridSearch": False}),
    ("documents_search", "station log", "northerly breezes", {"collections": ["windrose"]}),
    ("search_external_docs", "token", "how are requests authenticated?", {}),
    ("context_search", "tokens", "which authentication is used?", {}),
    ("searchLocalArchives", "rain gauges", "wind vane calibration steps", {"fuzzy": True}),
    ("searchLocalArchives", "rain gauges", "wind vane calibration steps", {"fuzzy": False}),
    ("search_index", "rain gauge", "wind vane", {}),
]


PAGE = {"collection": "windrose", "document": "guide/wind.md"}
READS: dict[str, dict[str, Any]] = {
    "documents_list_collections": {},
    "documents_list_documents": {"collection": "windrose"},
    "documents_get_document": {**PAGE, "startLine": 2, "endLine": 9},
    "documents_get_outline": PAGE,
    "documents_get_section": {**PAGE, "section": "gusts"},
    "read_file": {"path": "README.md", "includeDeps": True},
    "grep_codebase": {"pattern": "wind"},
}
WRITES: dict[str, dict[str, Any]] = {
    "search_add_document": {"doc_id": "a", "content": "The vane is calibrated in spring."},
    "search_create_index": {"index_name": "notes"},
    "context_record": {"content": "We use UTC in every log of the station."},
    "activate_project": {},
}
OTHERS = {"documents_find_related", "documents_search_batch", "documents_context"}


def test_the_statements_of_every_tool_are_counted() -> None:
    assert {*READS, *WRITES, *OTHERS, *(name for name, *_ in CALLS)} == {*load_tools()}


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The SQL of every statement that any connection runs from here on."""
    asked: list[str] = []
    begin = Connection.begin

    def traced(connection: Connection, how: str = "BEGIN") -> None:
        def note(_: object, sql: str, bindings: object) -> bool:
            if not sql.lstrip().upper().startswith(WITHIN):
                asked.append(sql)
            return True

        connection.apsw.exec_trace = note
        begin(connection, how)

    monkeypatch.setattr(Connection, "begin", traced)
    return asked


@pytest.mark.parametrize(("tool", "first", "second", "arguments"), CALLS)
def test_a_warm_search_takes_few_statements(
    project_of_windrose: Session,
    statements: list[str],
    tool: str,
    first: str,
    second: str,
    arguments: dict[str, Any],
) -> None:
    kb = project_of_windrose
    call(kb, "search_add_document", doc_id="vane", content="The wind vane is calibrated.")
    if tool == "searchLocalArchives":
        with kb.database.write() as connection:
            connection.apsw.execute(
                "UPDATE collections SET kind = 'archive' WHERE name = 'windrose'"
            )
    call(kb, tool, query=first, **arguments)
    statements.clear()
    call(kb, tool, query=second, **arguments)
    assert 0 < len(statements) <= MOST, statements


@pytest.mark.parametrize("tool", READS)
def test_a_warm_read_takes_few_statements(
    project_of_windrose: Session, statements: list[str], tool: str
) -> None:
    for number in range(8):  # a collection more is not a statement more
        call(project_of_windrose, "search_create_index", index_name=f"index-{number}")
    call(project_of_windrose, tool, **READS[tool])
    statements.clear()
    call(project_of_windrose, tool, **READS[tool])
    assert len(statements) <= MOST_OF_A_READ, statements


@pytest.mark.parametrize("tool", WRITES)
def test_a_write_takes_a_bounded_number_of_statements(
    project_of_windrose: Session, statements: list[str], tool: str
) -> None:
    call(project_of_windrose, tool, **WRITES[tool])
    assert 0 < len(statements) <= MOST_OF_A_WRITE, statements


def test_evidence_is_packed_with_few_statements(
    project_of_windrose: Session, statements: list[str]
) -> None:
    call(project_of_windrose, "documents_context", query="how is the rain gauge cleaned?")
    statements.clear()
    call(project_of_windrose, "documents_context", query="how do I mount the wind vane?")
    assert 0 < len(statements) <= MOST, statements


def test_what_is_related_takes_few_statements(
    project_of_windrose: Session, statements: list[str]
) -> None:
    place = {"collection": "windrose", "document": "guide/wind.md"}
    call(project_of_windrose, "documents_find_related", **place)
    statements.clear()
    call(project_of_windrose, "documents_find_related", **place)
    assert 0 < len(statements) <= MOST, statements


def test_several_queries_take_as_many_statements_as_several_searches(
    project_of_windrose: Session, statements: list[str]
) -> None:
    kb = project_of_windrose
    call(kb, "documents_search", query="rain")
    statements.clear()
    queries = [
        {"query": "wind vane calibration"},
        {"query": "E417"},
        {"query": "battery in winter"},
    ]
    call(kb, "documents_search_batch", queries=queries)
    assert 0 < len(statements) <= MOST * len(queries), statements

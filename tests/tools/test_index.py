"""Named indexes: the worked examples and error cases of their specification, and what follows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings, strategies as st
from mcp import Client
from support import Filler, another_process, content_of

from kb.ingest.embed import embed_pending
from kb.server.background import embed_added
from kb.server.mcp import make_server
from kb.store.database import Database
from kb.tools.registry import call_tool, load_tools
from kb.tools.session import Session, open_session

Call = Callable[..., dict[str, Any]]


@pytest.fixture
def call(kb: Session) -> Call:
    """Call a tool through a client of a server in memory."""

    def through_client(name: str, **arguments: Any) -> dict[str, Any]:
        async def run() -> dict[str, Any]:
            async with Client(make_server(kb, load_tools())) as client:
                result = await client.call_tool(name, arguments)
                content: dict[str, Any] = content_of(result)
                assert result.is_error == ("error" in content)
                return content

        return anyio.run(run)

    return through_client


def add(kb: Session, doc_id: str, content: str, **arguments: Any) -> dict[str, Any]:
    result = call_tool(
        kb, "search_add_document", {"doc_id": doc_id, "content": content, **arguments}
    )
    assert not result.is_error, result.content
    return result.content


def search(kb: Session, query: str, **arguments: Any) -> dict[str, Any]:
    result = call_tool(kb, "search_index", {"query": query, **arguments})
    assert not result.is_error, result.content
    return result.content


def ids(kb: Session, query: str, **arguments: Any) -> list[str]:
    return [row["doc_id"] for row in search(kb, query, **arguments)["results"]]


def create(kb: Session, name: str, **arguments: Any) -> None:
    result = call_tool(kb, "search_create_index", {"index_name": name, **arguments})
    assert not result.is_error, result.content


# ------------------------------------------------------------------ the specification


def test_worked_examples_give_the_documented_results(call: Call) -> None:
    assert call(
        "search_create_index",
        index_name="codebase_search",
        tokenizer_config={"lowercase": True, "min_length": 3},
    ) == {"status": "created", "index_name": "codebase_search", "backend": "sqlite"}
    document = {
        "doc_id": "readme-rate-limiting",
        "content": "Rate limiting protects APIs from abuse by throttling request frequency.",
        "metadata": {"module": "rate_limiting", "type": "readme"},
    }
    assert call("search_add_document", **document) == {
        "status": "indexed",
        "doc_id": "readme-rate-limiting",
        "token_count": 10,
    }
    assert call("search_add_document", **document)["status"] == "re-indexed"
    call("search_create_index", index_name="documentation")
    call("search_add_document", **document, index_name="documentation")
    result = call("search_index", query="rate limiting API", k=3, index_name="documentation")
    assert result["total_matches"] == 1
    assert result["query_parsed"] == {
        "terms": ["rate", "limiting", "api"],
        "must": [],
        "must_not": [],
        "phrases": [],
    }
    row = result["results"][0]
    assert row["doc_id"] == "readme-rate-limiting"
    assert row["score"] > 0
    assert row["highlights"] == [document["content"]]
    assert row["metadata"] == document["metadata"]


def test_token_count_of_the_example(call: Call) -> None:
    content = "Python rate limiting with token buckets"
    assert call("search_add_document", doc_id="d", content=content)["token_count"] == 6


@pytest.mark.parametrize(
    ("tool", "arguments", "text", "code"),
    [
        (
            "search_index",
            {"query": "x", "index_name": "no"},
            "Index not found: no",
            "INDEX_NOT_FOUND",
        ),
        (
            "search_add_document",
            {"doc_id": "d", "content": "x", "index_name": "no"},
            "Index not found: no",
            "INDEX_NOT_FOUND",
        ),
        (
            "search_create_index",
            {"index_name": "default"},
            "Index already exists: default",
            "INDEX_EXISTS",
        ),
        (
            "search_create_index",
            {"index_name": "x", "backend": "redis"},
            "Unknown backend: redis",
            "UNKNOWN_BACKEND",
        ),
        *(
            (
                "search_add_document",
                {"doc_id": "d", **content},
                "Content must be a non-empty string",
                "VALIDATION_ERROR",
            )
            for content in (
                {"content": ""},
                {"content": " \n"},
                {},
                {"content": 5},
                {"content": None},
            )
        ),
    ],
)
def test_errors_have_the_documented_texts(
    call: Call, tool: str, arguments: dict[str, Any], text: str, code: str
) -> None:
    error = call(tool, **arguments)
    assert (error["error"], error["code"]) == (text, code)


@pytest.mark.parametrize("backend", ["sqlite", "memory"])
def test_a_name_is_taken_once(call: Call, backend: str) -> None:
    call("search_create_index", index_name="taken", backend=backend)
    for other in ("sqlite", "memory"):
        error = call("search_create_index", index_name="taken", backend=other)
        assert error == {"error": "Index already exists: taken", "code": "INDEX_EXISTS"}


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ü", "x" * 65])
def test_index_names_are_plain(call: Call, name: str) -> None:
    error = call("search_create_index", index_name=name)
    assert error["code"] == "VALIDATION_ERROR"
    assert "index_name" in error["details"]["fieldErrors"]


@pytest.mark.parametrize("query", ["", "  ", "+", '""', "-", "!?"])
def test_a_blank_query_finds_nothing(call: Call, query: str) -> None:
    call("search_add_document", doc_id="d", content="some text")
    assert call("search_index", query=query) == {
        "results": [],
        "total_matches": 0,
        "query_parsed": {"terms": [], "must": [], "must_not": [], "phrases": []},
    }


def test_the_default_index_is_there_before_anything_is_in_it(call: Call) -> None:
    result = call("search_index", query='+python "machine learning" -snake')
    assert result["total_matches"] == 0
    assert result["query_parsed"] == {
        "terms": [],
        "must": ["python"],
        "must_not": ["snake"],
        "phrases": ["machine learning"],
    }


# ------------------------------------------------------------------ what it finds

TEXTS = {
    "one": "Python for machine learning. Machine learning needs data.",
    "two": "A snake, the python, is no machine and is not learning.",
    "three": "Java for machine learning",
    "four": "# Rain gauges\n\nA relational rain gauge in C, not C++. Version 1.0.21.",
    "five": "日本語の全文検索テスト",
}


@pytest.fixture(params=["sqlite", "memory"])
def filled(kb: Session, request: pytest.FixtureRequest) -> Session:
    create(kb, "texts", backend=request.param)
    for doc_id, content in TEXTS.items():
        add(kb, doc_id, content, index_name="texts")
    return kb


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("python", {"one", "two"}),
        ('+python "machine learning"', {"one"}),
        ('"machine learning"', {"one", "three"}),
        ('"learning machine"', {"one"}),
        ("machine -snake", {"one", "three"}),
        ("+machine -learning", set()),
        ("-machine", set()),
        ("relatio*", {"four"}),
        ("+relatio* python", {"four"}),
        ('"1.0.21"', {"four"}),
        ('"in C not"', {"four"}),
        ("検索", {"five"}),
        ('"全文検索"', {"five"}),
        ("+gauge", {"four"}),
        ('"gauge"', {"four"}),
        ('"gauges in"', set()),
        ("one", set()),  # an id is not content
        ("content.md", set()),
    ],
)
def test_operators_hold_for_whole_documents(
    filled: Session, query: str, expected: set[str]
) -> None:
    result = search(filled, query, index_name="texts")
    assert {row["doc_id"] for row in result["results"]} == expected
    assert result["total_matches"] == len(expected)
    assert all(row["score"] > 0 for row in result["results"])


def test_words_may_lie_far_apart_in_a_document(kb: Session) -> None:
    add(kb, "long", "# Harbour\n\n" + "Nothing here. " * 1000 + "\n\n## End\n\nA crane.")
    assert ids(kb, "+harbour +crane") == ["long"]
    assert ids(kb, "+harbour -crane") == []
    assert len(search(kb, "harbour crane")["results"][0]["highlights"]) == 2


def test_total_matches_counts_all_and_k_limits_the_rows(kb: Session) -> None:
    for number in range(30):
        add(kb, f"d{number:02}", f"rain number {number}")
    result = search(kb, "rain", k=5)
    assert result["total_matches"] == 30
    assert len(result["results"]) == 5
    assert search(kb, "+rain -7", k=5)["total_matches"] == 30  # "7" is shorter than min_length
    assert search(kb, "+rain -17", k=5)["total_matches"] == 29


def test_rarer_words_and_more_of_them_score_higher(kb: Session) -> None:
    add(kb, "often", "gauge gauge gauge and other words here")
    add(kb, "once", "gauge and other words here to fill up")
    for number in range(5):
        add(kb, f"filler{number}", "other words here")
    assert ids(kb, "gauge")[:2] == ["often", "once"]
    assert ids(kb, "other gauge")[0] == "often"
    assert all(row["score"] > 0 for row in search(kb, "other")["results"])


def test_equal_scores_are_ordered_by_id_and_repeat(kb: Session) -> None:
    for doc_id in ("b", "a", "c"):
        add(kb, doc_id, "the same text")
    assert ids(kb, "same") == ["a", "b", "c"]
    assert search(kb, "same") == search(kb, "same")


def test_scores_do_not_depend_on_other_indexes(kb: Session) -> None:
    create(kb, "own")
    add(kb, "a", "rain gauge", index_name="own")
    add(kb, "b", "wind vane", index_name="own")
    before = search(kb, "rain", index_name="own")
    for number in range(10):
        add(kb, f"{number}", "rain in the default index")
    assert search(kb, "rain", index_name="own") == before


def test_case_counts_in_an_index_that_keeps_it(kb: Session) -> None:
    create(kb, "exact", tokenizer_config={"lowercase": False})
    add(kb, "upper", "Go is a language. RAIN", index_name="exact")
    add(kb, "lower", "they go on. rain", index_name="exact")
    assert ids(kb, "Go", index_name="exact") == ["upper"]
    assert ids(kb, "+go", index_name="exact") == ["lower"]
    assert ids(kb, "rain -RAIN", index_name="exact") == ["lower"]
    assert ids(kb, '"Go is"', index_name="exact") == ["upper"]
    assert ids(kb, '"go is"', index_name="exact") == []
    assert ids(kb, "RA*", index_name="exact") == ["upper"]
    assert search(kb, "Go", index_name="exact")["query_parsed"]["terms"] == ["Go"]


def test_short_words_are_neither_counted_nor_matched(kb: Session) -> None:
    create(kb, "long_words", tokenizer_config={"min_length": 4})
    added = add(kb, "d", "The rain fell on vitamin C for all", index_name="long_words")
    assert added["token_count"] == 3
    assert ids(kb, "the", index_name="long_words") == []
    assert ids(kb, "+the +rain", index_name="long_words") == []
    assert ids(kb, "rain -the", index_name="long_words") == ["d"]
    assert ids(kb, '"vitamin c"', index_name="long_words") == ["d"]
    assert ids(kb, '"vitamin d"', index_name="long_words") == []
    result = search(kb, "rain the", index_name="long_words")
    assert result["query_parsed"]["terms"] == ["rain"]
    assert '"the" matches nothing' in result["notice"]


def test_one_letter_words_are_found_where_they_are_kept(kb: Session) -> None:
    create(kb, "letters", tokenizer_config={"min_length": 1})
    add(kb, "c", "C or Go", index_name="letters")
    add(kb, "d", "cc and goes", index_name="letters")
    assert ids(kb, "C", index_name="letters") == ["c"]
    assert ids(kb, '"C or"', index_name="letters") == ["c"]


def test_highlights_lie_round_different_words(kb: Session) -> None:
    filler = " and nothing else" * 30
    add(kb, "d", f"the vane{filler} the gauge{filler} the mast{filler} the roof{filler} vane")
    highlights = search(kb, "vane gauge mast roof")["results"][0]["highlights"]
    assert len(highlights) == 3
    assert ["vane" in highlights[0], "gauge" in highlights[1], "mast" in highlights[2]] == [
        True
    ] * 3


# ------------------------------------------------------------------ adding


def test_adding_again_replaces_everything(kb: Session) -> None:
    add(kb, "d", "# Old\n\nold words", metadata={"a": 1})
    embed_pending(kb.model)
    assert add(kb, "d", "new words", metadata={"b": 2})["status"] == "re-indexed"
    assert ids(kb, "old") == []
    assert search(kb, "new")["results"][0]["metadata"] == {"b": 2}
    assert search(kb, "words")["total_matches"] == 1
    assert add(kb, "d", "new words")["status"] == "re-indexed"
    assert search(kb, "new")["results"][0]["metadata"] == {}


def test_front_matter_is_content_like_the_rest(kb: Session) -> None:
    add(kb, "d", "---\ntopic: harbour\n---\n# Title\n\ntext")
    assert ids(kb, "harbour") == ["d"]
    assert ids(kb, '"topic harbour title"') == ["d"]


def test_an_added_document_is_read_and_found_by_the_documents_tools(kb: Session) -> None:
    add(kb, "notes/rain", "# Rain\n\nThe gauge tips.")
    rows = call_tool(kb, "documents_search", {"query": "gauge"}).content["results"]
    assert [(row["collection"], row["documentId"]) for row in rows] == [("default", "notes/rain")]
    embed_pending(kb.model)
    rows = call_tool(kb, "documents_search", {"query": "gauge"}).content["results"]
    assert "distance" in rows[0]
    arguments = {"collection": "default", "document": "notes/rain"}
    content = call_tool(kb, "documents_get_document", arguments).content
    assert content["title"] == "Rain"


def test_an_index_in_memory_leaves_nothing_in_the_file(kb: Session, tmp_path: Path) -> None:
    create(kb, "passing", backend="memory")
    add(kb, "d", "some text", index_name="passing")
    assert ids(kb, "text", index_name="passing") == ["d"]
    with kb.database.read() as connection:
        assert connection.rows("collections") == []
    with another_process(), open_session(Database(tmp_path / "kb.db"), project=tmp_path) as other:
        result = call_tool(other, "search_index", {"query": "x", "index_name": "passing"})
        assert result.content["code"] == "INDEX_NOT_FOUND"


def test_a_folder_cannot_take_over_an_index(kb: Session, folder: Path) -> None:
    from kb.errors import UsageError
    from kb.ingest.sync import sync_collection
    from kb.library.collecting import register

    create(kb, "docs")
    with pytest.raises(UsageError, match="docs"):
        register(kb.database, str(folder), name="docs")
    (folder / "a.md").write_text("# A\n")
    assert sync_collection(kb.database, register(kb.database, str(folder))).collection == "docs-2"
    result = call_tool(kb, "search_create_index", {"index_name": "docs-2"})
    assert result.content["code"] == "INDEX_EXISTS"


@pytest.mark.parametrize("metadata", [{"x": float("nan")}, {"x": float("inf")}])
def test_metadata_that_is_no_json_is_refused(kb: Session, metadata: dict[str, Any]) -> None:
    arguments = {"doc_id": "d", "content": "x", "metadata": metadata}
    result = call_tool(kb, "search_add_document", arguments)
    assert result.content["code"] == "VALIDATION_ERROR"


def test_a_near_name_is_suggested(kb: Session) -> None:
    create(kb, "documentation")
    error = call_tool(kb, "search_index", {"query": "x", "index_name": "documentaton"}).content
    assert error["suggestions"] == ["documentation"]


PIECES = [
    *('"', "+", "-", "*", "rain", "NEAR(", "AND", "OR NOT", "col:x", "^", "{", "全文", "😀", "\0"),
    *("\ud800", "1.0.21", "C++", "a/b", "don't", "'", "(", ")", " ", "ﬁ", "é", "\u0301", "ｶﾞ"),
]
QUERY = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))


@pytest.fixture(scope="module")
def everything() -> Any:
    """A few documents in an index of each kind."""
    with open_session(Database(":memory:")) as kb:
        create(kb, "exact", tokenizer_config={"lowercase": False, "min_length": 1})
        for doc_id, content in TEXTS.items():
            add(kb, doc_id, content)
            add(kb, doc_id, content, index_name="exact")
        yield kb


@settings(max_examples=100, deadline=None)
@given(query=QUERY)
def test_any_text_is_a_query(everything: Session, query: str) -> None:
    for arguments in ({}, {"index_name": "exact"}):
        result = search(everything, query, **arguments)
        assert result["total_matches"] == len(result["results"])
    result = call_tool(everything, "documents_search", {"query": query})
    assert not result.is_error, result.content


@settings(max_examples=60, deadline=None)
@given(content=st.text(min_size=1, max_size=200), doc_id=st.text(min_size=1, max_size=20))
def test_any_text_is_a_document(everything: Session, content: str, doc_id: str) -> None:
    arguments = {"doc_id": doc_id, "content": content, "index_name": "exact"}
    result = call_tool(everything, "search_add_document", arguments)
    assert not result.is_error or result.content["code"] == "VALIDATION_ERROR", result.content


@pytest.mark.parametrize("backend", ["sqlite", "memory"])
def test_an_index_is_a_collection_from_its_creation_on(kb: Session, backend: str) -> None:
    create(kb, "notes", backend=backend)
    listed = call_tool(kb, "documents_list_collections", {}).content["collections"]
    assert listed == [{"collection": "notes", "documentCount": 0}]
    empty = call_tool(kb, "documents_list_documents", {"collection": "notes"}).content
    assert empty == {"collection": "notes", "documents": [], "total": 0, "hasMore": False}
    asked = {"query": "mast", "collections": ["notes"]}
    assert call_tool(kb, "documents_search", asked).content["results"] == []


@pytest.mark.parametrize("backend", ["sqlite", "memory"])
def test_documents_tools_read_an_index(kb: Session, backend: str) -> None:
    create(kb, "notes", backend=backend)
    add(kb, "other", "Nothing of that kind.", index_name="notes")
    add(kb, "mast", "# Mast\n\nThe mast sways.\n\n## Stays\n\nOf steel.", index_name="notes")

    def read(tool: str, **arguments: Any) -> dict[str, Any]:
        result = call_tool(kb, tool, {"collection": "notes", **arguments})
        assert not result.is_error, result.content
        return result.content

    assert read("documents_list_documents")["total"] == 2
    assert "sways" in read("documents_get_document", document="mast")["content"]
    assert read("documents_get_outline", document="mast")["outline"][1]["text"] == "Stays"
    section = read("documents_get_section", document="mast", section="Stays")
    assert section["content"].endswith("Of steel.")
    embed_added(kb)
    assert read("documents_find_related", document="mast")["related"][0]["document"] == "other"
    for collections in ([], ["notes"]):
        asked = {"query": "does the mast sway?", "collections": collections}
        rows = call_tool(kb, "documents_search", asked).content["results"]
        assert (rows[0]["collection"], rows[0]["documentId"]) == ("notes", "mast")
        assert "distance" in rows[0]
    missing = call_tool(kb, "documents_get_document", {"collection": "notse", "document": "mast"})
    assert missing.content["suggestions"] == ["notes"]


def test_a_search_of_everything_finds_what_lies_in_memory_and_in_the_file(kb: Session) -> None:
    for backend, words in (("sqlite", "blue"), ("memory", "green")):
        create(kb, backend, backend=backend)
        add(kb, "d", f"The mast is {words}.", index_name=backend)
    queries = [
        {"query": "mast"},
        {"query": "mast", "collections": ["memory"]},
        {"query": "mast", "collections": ["sqlite"]},
        {"query": "mast", "collections": ["sqlite", "memory"]},
    ]
    batch = call_tool(kb, "documents_search_batch", {"queries": queries}).content["results"]
    found = [{row["collection"] for row in one["results"]} for one in batch]
    assert found == [{"sqlite", "memory"}, {"memory"}, {"sqlite"}, {"sqlite", "memory"}]
    wrong = call_tool(kb, "documents_search", {"query": "mast", "collections": ["sqlte"]})
    assert wrong.content["code"] == "COLLECTION_NOT_FOUND"


def test_the_default_index_is_there_before_its_first_document(kb: Session) -> None:
    empty = call_tool(kb, "documents_list_documents", {"collection": "default"}).content
    assert (empty["documents"], empty["total"]) == ([], 0)
    near = call_tool(kb, "search_index", {"query": "x", "index_name": "defalt"}).content
    assert (near["error"], near["suggestions"]) == ("Index not found: defalt", ["default"])


def test_an_index_that_is_not_there_names_the_tool_that_makes_it(kb: Session) -> None:
    arguments = {"doc_id": "a", "content": "mast", "index_name": "notes"}
    assert "search_create_index" in call_tool(kb, "search_add_document", arguments).content["hint"]


def test_a_collection_of_a_folder_is_told_as_such(kb: Session, fill: Filler) -> None:
    fill({"wind.md": "# Wind\n"})
    for tool, arguments in (
        ("search_index", {"query": "wind"}),
        ("search_add_document", {"doc_id": "d", "content": "text"}),
        ("search_create_index", {}),
    ):
        content = call_tool(kb, tool, {"index_name": "docs", **arguments}).content
        state = "already exists" if "create" in tool else "not found"
        assert content["error"] == f"Index {state}: docs"
        assert "comes from" in content["hint"]
        assert "documents_search" in content["hint"]

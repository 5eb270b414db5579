"""What is said of arguments that a tool cannot take."""

from typing import Any

import pytest
from support import failure

from kb.tools.registry import call_tool, load_tools
from kb.tools.session import Session


def field_errors(kb: Session, tool: str, **arguments: Any) -> Any:
    error = failure(kb, tool, **arguments)
    assert error["code"] == "VALIDATION_ERROR"
    return error["details"]["fieldErrors"]


def test_an_unknown_argument_is_answered_where_it_stands(kb: Session) -> None:
    found = field_errors(
        kb, "search_create_index", index_name="i", tokenizer_config={"lower": True, "x": 1}
    )
    assert found == {
        "tokenizer_config.lower": ['unknown argument, did you mean "lowercase"?'],
        "tokenizer_config.x": ["unknown argument, there are lowercase, min_length"],
    }
    found = field_errors(kb, "documents_search_batch", queries=[{"query": "a", "colour": "b"}])
    (text,) = found["queries.0.colour"]
    assert text.startswith("unknown argument, there are paths, tags, metadata")


@pytest.mark.parametrize("dummy", [{"random_string": "x"}, {"": None}, {"dummy": {"a": [1]}}])
def test_a_tool_without_parameters_takes_any_argument(kb: Session, dummy: dict[str, Any]) -> None:
    tools = [tool for tool in load_tools().values() if not tool.input_schema["properties"]]
    assert "documents_list_collections" in {tool.name for tool in tools}
    for tool in tools:
        assert not call_tool(kb, tool.name, dummy).is_error


@pytest.mark.parametrize("value", [True, False])
def test_a_boolean_is_no_number(kb: Session, value: bool) -> None:
    assert field_errors(kb, "documents_search", query="a", limit=value) == {
        "limit": ["must be a whole number"]
    }
    assert field_errors(kb, "documents_search", query="a", maxDistance=value) == {
        "maxDistance": ["must be a number"]
    }
    tokenizer = {"min_length": value}
    found = field_errors(kb, "search_create_index", index_name="i", tokenizer_config=tokenizer)
    assert found == {"tokenizer_config.min_length": ["must be a whole number"]}


def test_a_wrong_kind_is_said_in_words(kb: Session) -> None:
    assert field_errors(
        kb, "documents_search", query=5, collections=7, limit="many", rerank="perhaps"
    ) == {
        "query": ["must be text"],
        "collections": ["must be a list"],
        "limit": ["must be a whole number"],
        "rerank": ["must be true or false"],
    }


def test_ranges_and_globs_that_make_no_sense_name_their_argument(
    project_of_windrose: Session,
) -> None:
    kb = project_of_windrose
    page = {"collection": "windrose", "document": "guide/wind.md"}
    assert set(field_errors(kb, "documents_get_document", **page, startLine=9, endLine=3)) == {
        "endLine"
    }
    assert set(field_errors(kb, "documents_get_document", **page, startLine=9999)) == {"startLine"}
    assert set(
        field_errors(kb, "documents_get_document", **page, startLine=1, startCharacter=9999)
    ) == {"startCharacter"}
    assert set(field_errors(kb, "read_file", path="README.md", startLine=9, endLine=3)) == {
        "endLine"
    }
    assert set(field_errors(kb, "grep_codebase", pattern="a", filePattern="[")) == {"filePattern"}


def test_every_refusal_of_arguments_names_fields(kb: Session) -> None:
    assert failure(kb, "documents_serach")["details"]["fieldErrors"]
    assert field_errors(kb, "search_add_document", doc_id="d", content=" ") == {
        "content": ["Content must be a non-empty string"]
    }


def test_an_error_is_bounded_whatever_the_arguments_are(kb: Session) -> None:
    kb.reply_tokens = 500
    huge = "x" * 1_000_000
    for name in load_tools():
        for arguments in (
            {f"{number}{huge[:1000]}": 1 for number in range(1000)},
            {huge: 1},
            {"collection": huge, "document": huge, "query": huge, "path": huge, "pattern": huge},
            {"index_name": huge, "doc_id": huge, "content": "text", "queries": huge},
        ):
            assert len(call_tool(kb, name, arguments).text) < 8000, name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"lowercase": tru}', "Expecting value: line 1 column 15"),
        ('{"a":' * 1000 + "1" + "}" * 1000, "more than 100 deep"),
        ('{"a": [' + "1," * 200_000 + "1]}", "more than 100,000 values"),
    ],
)
def test_an_object_as_text_that_cannot_be_read_is_told_why(
    text: str, told: str, kb: Session
) -> None:
    found = field_errors(kb, "search_create_index", index_name="i", tokenizer_config=text)
    assert [*found] == ["tokenizer_config"]
    assert told in found["tokenizer_config"][0]


def test_text_in_place_of_a_list_is_its_item_whatever_it_begins_with(kb: Session) -> None:
    for name in ("[draft]", '["draft', "{x"):
        error = failure(kb, "documents_search", query="a", collections=name)
        assert error["code"] == "COLLECTION_NOT_FOUND"
        assert name in error["error"]
    deep = field_errors(kb, "documents_search", query="a", collections="[" * 1000)
    assert "more than 100 deep" in deep["collections"][0]

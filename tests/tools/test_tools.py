"""What holds for every tool: its description, its schemas, its annotations, its errors."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from mcp import Client

from kb.errors import UsageError
from kb.models.english import EnglishEmbedder
from kb.server.mcp import make_server
from kb.store.database import Database
from kb.tools.registry import Tool, ToolResult, call_tool, load_tools
from kb.tools.session import Session, open_session

TOOLS = load_tools()
LONGEST_NAME = 64 - len("mcp__kb__")
# What some client rejects or reads wrongly in an input schema.
UNPORTABLE = {"anyOf", "oneOf", "allOf", "not", "$ref", "$defs", "definitions", "patternProperties"}

every_tool = pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object of a schema."""
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from nodes(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from nodes(value)


def parameters_of(tool: Tool, kind: str) -> list[str]:
    """The tool's parameters of one JSON type."""
    properties = tool.input_schema["properties"]
    return [name for name, schema in properties.items() if schema.get("type") == kind]


def strict(schema: Any) -> Any:
    """A schema of replies in which every key that it does not name is an error."""
    if not isinstance(schema, dict):
        return schema
    parts = {name: strict(part) for name, part in schema.items()}
    if "properties" in schema:
        parts["additionalProperties"] = False
    return parts


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def is_clean_error(tool: Tool, result: ToolResult) -> bool:
    """Whether an error has its family's shape, a code, and no sign of a crash."""
    content = json.loads(result.text)
    text = content["message"] if tool.family == "external" else content["error"]
    return result.is_error and bool(text) and content["code"] not in ("", "INTERNAL_ERROR")


@pytest.fixture(scope="module")
def project(windrose_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project for which every tool's example has an answer; its file lies in `.kb`."""
    root = tmp_path_factory.mktemp("project")
    for path, text in {
        "README.md": "# Station\n\nTODO: describe how requests are authenticated.\n" + "\n" * 9,
        "docs/api.md": "# API\n\nA request is authenticated by a signed token in its header.\n",
        ".kb/config.json": json.dumps(
            {"project_name": "station", "external_docs": {"path": "./docs"}}
        ),
    }.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
    shutil.copy(windrose_file, root / ".kb" / "kb.db")
    return root


@pytest.fixture
def ready(
    project: Path, tmp_path: Path, model: EnglishEmbedder, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    """An open copy of that project's file, activated and with a discovery."""
    monkeypatch.chdir(project)
    file = Path(shutil.copy(project / ".kb" / "kb.db", tmp_path / "ready.db"))
    with open_session(Database(file), project=project, make_embedder=lambda _: model) as knowledge:
        for name in ("activate_project", "context_record"):
            if name in TOOLS:
                prepared = call_tool(knowledge, name, TOOLS[name].example)
                assert not prepared.is_error, prepared.text
        knowledge.calls.flush()
        yield knowledge


@every_tool
def test_name_fits_with_every_prefix(tool: Tool) -> None:
    assert len(tool.name) <= LONGEST_NAME
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", tool.name)


@every_tool
def test_description_and_title_are_written_for_readers(tool: Tool) -> None:
    first = tool.description.split("\n")[0]
    assert 20 <= len(first) <= 120
    assert first.endswith(".")
    assert "Args:" not in tool.description
    assert "Returns:" not in tool.description
    assert 3 <= len(tool.title) <= 60


@every_tool
def test_input_schema_is_accepted_by_every_client(tool: Tool) -> None:
    schema = tool.input_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    for node in nodes(schema):
        assert not UNPORTABLE & node.keys()
        assert node.get("type") != "null"
        assert not isinstance(node.get("type"), list)


@every_tool
def test_every_parameter_says_what_it_is_and_what_it_takes(tool: Tool) -> None:
    required = tool.input_schema.get("required", [])
    for name, schema in tool.input_schema["properties"].items():
        assert schema["description"].endswith("."), name
        assert schema["type"] in {"string", "integer", "number", "boolean", "array", "object"}
        assert ("default" in schema) != (name in required), name
        if schema["type"] in ("integer", "number"):
            assert {"minimum", "maximum"} <= schema.keys(), f"{name} has no bounds"
        if schema["type"] == "array":
            assert schema["items"]["type"]
            assert "maxItems" in schema, f"{name} has no bounds"
        if schema["type"] == "string" and "enum" not in schema and "pattern" not in schema:
            # Of a question the beginning is taken.
            assert name == "query" or "maxLength" in schema, f"{name} has no bounds"


@every_tool
def test_an_error_does_not_repeat_a_long_argument(tool: Tool, kb: Session) -> None:
    for name in parameters_of(tool, "string"):
        arguments = {**tool.example, name: "walrus 漢 " * 400_000, "nonsense " * 1000: 1}
        result = call_tool(kb, tool.name, arguments)
        assert is_clean_error(tool, result)
        assert len(result.text) < 20_000


@every_tool
@pytest.mark.parametrize("name", ["output_schema", "reply_schema"])
def test_output_schema_describes_one_object_without_nulls(tool: Tool, name: str) -> None:
    schema = getattr(tool, name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    for node in nodes(schema):
        assert "$ref" not in node
        assert node.get("type") != "null"


@every_tool
def test_annotations_do_not_contradict_each_other(tool: Tool) -> None:
    assert not (tool.read_only and tool.destructive)
    assert tool.read_only <= tool.idempotent


@every_tool
def test_example_is_answered_as_its_schemas_say(tool: Tool, ready: Session) -> None:
    example = dict(tool.example)
    jsonschema.validate(example, tool.input_schema)

    async def ask() -> Any:
        async with Client(make_server(ready, TOOLS)) as client:
            return await client.call_tool(tool.name, example)

    answer = anyio.run(ask)
    assert not answer.is_error, answer.content[0].text
    jsonschema.validate(answer.structured_content, tool.output_schema)
    jsonschema.validate(answer.structured_content, strict(tool.reply_schema))
    assert json.loads(answer.content[0].text) == answer.structured_content
    assert "null" not in re.sub(r'"(?:[^"\\]|\\.)*"', "", answer.content[0].text)


@every_tool
def test_client_sees_the_tool_as_it_was_declared(tool: Tool, kb: Session) -> None:
    async def ask() -> Any:
        async with Client(make_server(kb, TOOLS)) as client:
            return (await client.list_tools()).tools

    (seen,) = [one for one in anyio.run(ask) if one.name == tool.name]
    assert (seen.title, seen.description) == (tool.title, tool.description)
    assert (seen.input_schema, seen.output_schema) == (tool.input_schema, tool.output_schema)
    assert seen.annotations.read_only_hint is tool.read_only
    assert seen.annotations.idempotent_hint is tool.idempotent
    assert seen.annotations.destructive_hint is tool.destructive
    assert seen.annotations.open_world_hint is False


@pytest.mark.parametrize(
    "tool",
    [tool for tool in TOOLS.values() if tool.read_only],
    ids=[tool.name for tool in TOOLS.values() if tool.read_only],
)
def test_read_only_tool_leaves_the_file_as_it_is(tool: Tool, ready: Session) -> None:
    before = digest(ready.database.path)
    call_tool(ready, tool.name, tool.example)
    call_tool(ready, tool.name, {})
    assert digest(ready.database.path) == before
    log = Path(f"{ready.database.path}-wal")
    assert not log.exists() or not log.stat().st_size


@pytest.mark.parametrize(
    "tool",
    [tool for tool in TOOLS.values() if tool.read_only],
    ids=[tool.name for tool in TOOLS.values() if tool.read_only],
)
def test_read_only_tool_answers_the_same_twice(tool: Tool, ready: Session) -> None:
    def steady(content: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in content.items() if key != "searchTime"}

    first = call_tool(ready, tool.name, tool.example)
    second = call_tool(ready, tool.name, tool.example)
    assert steady(first.content) == steady(second.content)


@every_tool
def test_unknown_argument_is_refused_with_the_nearest_name(tool: Tool, kb: Session) -> None:
    names = list(tool.input_schema["properties"])
    if not names:
        return  # see test_arguments.py
    misspelt = f"{names[0]}x"
    result = call_tool(kb, tool.name, {**tool.example, misspelt: "anything"})
    assert is_clean_error(tool, result)
    assert result.content["code"] == "VALIDATION_ERROR"
    (message,) = result.content["details"]["fieldErrors"][misspelt]
    assert "unknown argument" in message
    assert f'did you mean "{names[0]}"' in message


@every_tool
def test_null_stands_for_an_absent_argument(tool: Tool, ready: Session) -> None:
    required = tool.input_schema.get("required", [])
    nulls = {
        name: None
        for name in tool.input_schema["properties"]
        if name not in required and name not in tool.example
    }
    assert not call_tool(ready, tool.name, {**tool.example, **nulls}).is_error


@every_tool
def test_missing_arguments_are_all_named_at_once(tool: Tool, kb: Session) -> None:
    required = tool.input_schema.get("required", [])
    if not required:
        pytest.skip("takes no required argument")
    result = call_tool(kb, tool.name, {**dict.fromkeys(required), "colour": 1})
    assert is_clean_error(tool, result)
    errors = result.content["details"]["fieldErrors"]
    assert set(errors) == {*required, "colour"}


@every_tool
def test_value_of_a_wrong_kind_is_a_clean_error(tool: Tool, kb: Session) -> None:
    for name, schema in tool.input_schema["properties"].items():
        wrong = {"string": {"a": 1}, "array": 5, "object": 5}.get(schema["type"], "many")
        result = call_tool(kb, tool.name, {**tool.example, name: wrong})
        assert is_clean_error(tool, result), name
        assert name in " ".join(result.content["details"]["fieldErrors"])
        assert "instance of" not in result.text


@every_tool
def test_numbers_out_of_bounds_are_refused(tool: Tool, kb: Session) -> None:
    for name in (*parameters_of(tool, "integer"), *parameters_of(tool, "number")):
        schema = tool.input_schema["properties"][name]
        for wrong in (schema["minimum"] - 1, schema["maximum"] + 1, 10**30):
            result = call_tool(kb, tool.name, {**tool.example, name: wrong})
            assert is_clean_error(tool, result)
            assert result.content["code"] == "VALIDATION_ERROR"


@every_tool
def test_numbers_at_their_bounds_break_nothing(tool: Tool, ready: Session) -> None:
    for name in (*parameters_of(tool, "integer"), *parameters_of(tool, "number")):
        schema = tool.input_schema["properties"][name]
        for value in (schema["minimum"], schema["maximum"]):
            result = call_tool(ready, tool.name, {**tool.example, name: value})
            assert not result.is_error or is_clean_error(tool, result), result.text


@every_tool
def test_list_sent_as_json_text_is_accepted(tool: Tool, ready: Session) -> None:
    for kind in ("array", "object"):
        for name in parameters_of(tool, kind):
            default = tool.input_schema["properties"][name].get("default")
            value = tool.example.get(name, default)
            sent = {**tool.example, name: json.dumps(value)}
            assert not call_tool(ready, tool.name, sent).is_error


ODD_TEXTS = (
    "\ud800",
    "a\0b",
    "\udcff",
    "\ufeff",
    "\u202e",
    "'; DROP TABLE documents; --",
    "*",
    "%",
)


@every_tool
@pytest.mark.parametrize("text", ODD_TEXTS, ids=ascii)
def test_odd_text_in_any_argument_is_harmless(tool: Tool, text: str, ready: Session) -> None:
    for name in parameters_of(tool, "string"):
        result = call_tool(ready, tool.name, {**tool.example, name: text})
        assert not result.is_error or is_clean_error(tool, result), result.text
        result.text.encode()
    for name in parameters_of(tool, "array"):
        result = call_tool(ready, tool.name, {**tool.example, name: [text, {text: text}]})
        assert not result.is_error or is_clean_error(tool, result), result.text
        result.text.encode()
    result = call_tool(ready, tool.name, {text: text})
    assert result.is_error == bool(tool.input_schema["properties"])
    if result.is_error:
        assert is_clean_error(tool, result)


@every_tool
def test_file_without_documents_gives_a_clean_answer(tool: Tool, kb: Session) -> None:
    result = call_tool(kb, tool.name, tool.example)
    if result.is_error:
        assert is_clean_error(tool, result), result.text
    else:
        jsonschema.validate(result.content, tool.output_schema)
        jsonschema.validate(result.content, strict(tool.reply_schema))


@every_tool
def test_crash_is_a_result_too(
    tool: Tool, ready: Session, caplog: pytest.LogCaptureFixture
) -> None:
    @functools.wraps(tool.function)
    def crash(*_: Any, **__: Any) -> dict[str, Any]:
        raise ZeroDivisionError("on purpose")

    broken = Tool(crash, tool.title, tool.example, name=tool.name)
    result = call_tool(ready, tool.name, tool.example, {tool.name: broken})
    assert result.is_error
    assert result.content["code"] == "INTERNAL_ERROR"
    assert "Traceback" not in result.text
    assert "ZeroDivisionError" in caplog.text


@every_tool
def test_call_is_counted_with_its_outcome(tool: Tool, ready: Session) -> None:
    call_tool(ready, tool.name, tool.example)
    call_tool(ready, tool.name, {"colour": "red"})
    refused = "VALIDATION_ERROR" if tool.input_schema["properties"] else ""
    ready.calls.flush()
    with ready.database.read() as connection:
        rows = connection.apsw.execute(
            "SELECT tool, code, result_characters FROM tool_calls ORDER BY tool_call_id"
        ).fetchall()
    assert [(name, code) for name, code, _ in rows[-2:]] == [
        (tool.name, ""),
        (tool.name, refused),
    ]
    assert all(characters > 0 for *_, characters in rows)


def test_unknown_tool_is_an_error_with_near_names(kb: Session) -> None:
    result = call_tool(kb, "documents_serach", {})
    assert result.is_error
    assert result.content["code"] == "VALIDATION_ERROR"
    assert "documents_search" in result.content["suggestions"]
    assert "Unknown tool: documents_serach." in result.content["error"]
    assert "documents_search" in call_tool(kb, "zzz", {}).content["error"]


def test_only_the_wanted_families_are_served() -> None:
    assert {tool.family for tool in load_tools(("documents",)).values()} == {"documents"}
    with pytest.raises(UsageError, match='no tool family "document"'):
        load_tools(("document",))


def test_names_of_tools_that_clients_were_written_against_are_there() -> None:
    assert {name for name, tool in TOOLS.items() if tool.family == "documents"} == {
        "documents_context",
        "documents_list_collections",
        "documents_list_documents",
        "documents_search",
        "documents_search_batch",
        "documents_get_document",
        "documents_get_outline",
        "documents_get_section",
        "documents_find_related",
    }

"""What is wrong with a request is told in its answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from server_process import Process, assert_clean_end, error_in, serving

INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32600, -32601, -32602, -32603

Ask = Callable[[str, Any], dict[str, Any]]


@pytest.fixture
def process(windrose_copy: Path) -> Iterator[Process]:
    with serving(windrose_copy) as process:
        process.handshake()
        yield process


@pytest.fixture
def ask(process: Process) -> Ask:
    """Send a request; what comes back."""
    numbers = iter(range(1, 1000))

    def send(method: str, params: Any) -> dict[str, Any]:
        process.send(method, params, number := next(numbers))
        answer = process.reply()
        assert answer["id"] == number
        return answer

    return send


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (None, ["params: field required"]),
        ({"name": 5}, ["name: input should be a valid string"]),
        ({"name": "documents_search", "arguments": {}, "_meta": 5}, ["_meta: "]),
    ],
)
def test_parameters_of_a_wrong_type_are_named(params: Any, words: list[str], ask: Ask) -> None:
    error = ask("tools/call", params)["error"]
    assert error["code"] == INVALID_PARAMS
    for word in words:
        assert word in error["message"]


@pytest.mark.parametrize("arguments", [[], [1], "text", 5, True, "[", "[" * 1000])
def test_arguments_that_are_no_object_are_refused_by_the_tool(arguments: Any, ask: Ask) -> None:
    answer = ask("tools/call", {"name": "documents_search", "arguments": arguments})
    error = error_in(answer["result"])
    assert error["code"] == "VALIDATION_ERROR"
    assert set(error["details"]["fieldErrors"]) == {"arguments", "query"}
    (why,) = error["details"]["fieldErrors"]["arguments"]
    assert ("cannot be read as JSON" in why) == isinstance(arguments, str)
    assert ("100 deep" in why) == (arguments == "[" * 1000)


def test_arguments_may_come_as_json_text(ask: Ask) -> None:
    params = {"name": "documents_search", "arguments": '{"query": "calibrate the vane"}'}
    assert ask("tools/call", params)["result"]["structuredContent"]["results"]


@pytest.mark.parametrize("cursor", ["-1", "x", "1.5", str(2**64), "9" * 3000, "9" * 5000, "\ud800"])
def test_a_cursor_that_no_page_gave_is_refused(cursor: str, ask: Ask) -> None:
    error = ask("resources/list", {"cursor": cursor})["error"]
    assert error["code"] == INVALID_PARAMS
    assert "comes from no page" in error["message"]


def test_what_there_is_not_is_told_apart(ask: Ask) -> None:
    assert ask("nonsense", {})["error"]["code"] == METHOD_NOT_FOUND
    assert ask("roots/list", {})["error"]["code"] == METHOD_NOT_FOUND
    error = ask("resources/read", {"uri": "kb://windrose/none.md"})["error"]
    assert error["code"] == INVALID_PARAMS
    assert error["data"]["code"] == "DOCUMENT_NOT_FOUND"


def test_a_request_before_the_handshake_is_told_so(windrose_copy: Path) -> None:
    with serving(windrose_copy) as process:
        process.call("documents_search", {"query": "wind"}, 1)
        error = process.reply()["error"]
        assert error["code"] == INVALID_REQUEST
        assert error["message"] == 'Invalid request: send "initialize" before "tools/call"'
        process.handshake()
        process.call("documents_search", {"query": "wind"}, 2)
        assert process.reply()["result"]["structuredContent"]["results"]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_gone_is_a_database_error_with_the_way_out(
    replaced: bool, process: Process, ask: Ask, windrose_copy: Path
) -> None:
    search = {"name": "documents_search", "arguments": {"query": "wind"}}
    record = {"name": "context_record", "arguments": {"content": "Decided to keep all of it."}}
    assert not ask("tools/call", search)["result"]["isError"]
    moved = windrose_copy.rename(windrose_copy.with_name("moved.db"))
    before = moved.read_bytes()
    if replaced:
        shutil.copy(moved, windrose_copy)
    for params in (search, record):
        error = error_in(ask("tools/call", params)["result"])
        assert error["code"] == "DATABASE_ERROR"
        assert str(windrose_copy) in error["error"]
        assert "start the server again" in error["error"]
    failed = ask("resources/list", {})["error"]
    assert failed["code"] == INTERNAL_ERROR
    assert failed["data"]["code"] == "DATABASE_ERROR"
    assert moved.read_bytes() == before
    if replaced:
        windrose_copy.unlink()
    # Put back, it serves again.
    moved.rename(windrose_copy)
    assert not ask("tools/call", search)["result"]["isError"]
    assert_clean_end(windrose_copy, *process.end()[::2])


def test_a_server_whose_file_was_replaced_ends_without_touching_the_new_one(
    process: Process, ask: Ask, windrose_copy: Path
) -> None:
    record = {"name": "context_record", "arguments": {"content": "Decided to keep all of it."}}
    assert not ask("tools/call", record)["result"]["isError"]
    windrose_copy.rename(windrose_copy.with_name("moved.db"))
    log = windrose_copy.with_name(windrose_copy.name + "-wal")
    log.write_bytes(b"the log of another process")
    windrose_copy.write_bytes(b"another file")
    code, _, errors = process.end()
    assert code == 0
    assert "Traceback" not in errors
    assert windrose_copy.read_bytes() == b"another file"
    assert log.read_bytes() == b"the log of another process"

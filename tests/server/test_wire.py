"""A line of input becomes a message or an answer that says why not, whatever it holds."""

from __future__ import annotations

import io
import json
from typing import Any

import mcp_types as types
import pytest

from kb.server import wire
from kb.server.wire import Line, as_line, parse_line, read_line
from kb.text.json_text import DEEPEST

PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS = -32700, -32600, -32602
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def request(**changes: Any) -> bytes:
    """A request with some members changed, or left out where the change is `...`."""
    message = {name: value for name, value in {**PING, **changes}.items() if value is not ...}
    return json.dumps(message).encode()


def refused(line: bytes | Line) -> list[tuple[int, Any]]:
    """Code and id of each answer that a line gets at once."""
    found = line if isinstance(line, Line) else parse_line(line)
    assert not found.messages
    for refusal in found.refusals:
        assert json.loads(as_line(refusal)) == refusal
    return [(one["error"]["code"], one["id"]) for one in found.refusals]


@pytest.mark.parametrize(
    "line",
    [b"this is no JSON", b"{", b'{"a": 1', b"\x00", b"\xff\xfe", b"{}{}", b"'a'", b'{"a":\x00}'],
)
def test_a_line_that_is_no_json_is_a_parse_error(line: bytes) -> None:
    assert refused(line) == [(PARSE_ERROR, None)]


@pytest.mark.parametrize("line", [b"", b"\n", b" \t\r\n", b"\xef\xbb\xbf\n"])
def test_a_blank_line_is_passed_over(line: bytes) -> None:
    assert parse_line(line) == Line()


@pytest.mark.parametrize("line", [b"1", b'"text"', b"null", b"true", b"{}", b"[]", b"[1, {}]"])
def test_json_that_is_no_message_is_an_invalid_request(line: bytes) -> None:
    assert refused(line) == [(INVALID_REQUEST, None)]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"jsonrpc": "1.0"}, INVALID_REQUEST),
        ({"jsonrpc": 2.0}, INVALID_REQUEST),
        ({"jsonrpc": ...}, INVALID_REQUEST),
        ({"method": 5}, INVALID_REQUEST),
        ({"method": None}, INVALID_REQUEST),
        ({"method": ["ping"]}, INVALID_REQUEST),
        ({"method": ...}, INVALID_REQUEST),
        ({"params": "text"}, INVALID_PARAMS),
        ({"params": [1]}, INVALID_PARAMS),
        ({"params": False}, INVALID_PARAMS),
    ],
)
def test_a_member_of_another_type_is_refused_with_the_id(
    changes: dict[str, Any], code: int
) -> None:
    assert refused(request(**changes)) == [(code, 1)]


@pytest.mark.parametrize(
    ("given", "told"),
    [(1.5, 1.5), (1.0, 1.0), (True, True), (None, None), ([1], None), ({"a": 1}, None)],
)
def test_an_id_that_is_neither_text_nor_whole_number_is_refused(given: Any, told: Any) -> None:
    assert refused(request(id=given)) == [(INVALID_REQUEST, told)]


@pytest.mark.parametrize("given", [0, -1, 2**64, 10**200, "", "a", "7", "\ud800", "漢字\0"])
def test_any_text_and_any_whole_number_is_an_id(given: int | str) -> None:
    (message,) = parse_line(request(id=given)).messages
    assert isinstance(message, types.JSONRPCRequest)
    answer = types.JSONRPCError.model_construct(
        jsonrpc="2.0", id=message.id, error=types.ErrorData(code=1, message="x")
    )
    assert json.loads(as_line(answer))["id"] == given


def test_each_request_of_a_batch_is_told_that_batches_are_refused() -> None:
    batch = b"[" + b",".join([request(id=1), request(id=...), b"5", request(id="b")]) + b"]"
    assert refused(batch) == [(INVALID_REQUEST, 1), (INVALID_REQUEST, "b")]


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{,}}', PARSE_ERROR),
        (b'{"id":7,"method":"ping","params":{"id":8,"a":[1,{"id":9}]},"x":}', PARSE_ERROR),
        (b'{"id":7,"params":{"n":' + b"9" * 5000 + b"}}", PARSE_ERROR),
        (b'{"params":{"n":1e999},"id":7}', PARSE_ERROR),
        (b'{"params":{"n":NaN},"id":7}', PARSE_ERROR),
        (b'{"params":{"n":-Infinity},"id":7}', PARSE_ERROR),
        (b'{"params":' + b"[" * 500 + b"]" * 500 + b',"id":7}', INVALID_REQUEST),
        (b'{"params":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b',"id":7}', INVALID_REQUEST),
        (b'{"params":"\x01","id":7}', PARSE_ERROR),
    ],
)
def test_the_id_is_found_where_the_rest_cannot_be_used(broken: bytes, code: int) -> None:
    broken = broken.replace(b'"params":[', b'"jsonrpc":"2.0","method":"ping","params":[')
    assert refused(broken) == [(code, 7)]


def test_nesting_is_bounded() -> None:
    def nested(levels: int) -> Any:
        return {"a": nested(levels - 1)} if levels else 1

    assert parse_line(request(params=nested(DEEPEST))).messages
    assert refused(request(params=nested(DEEPEST + 1))) == [(INVALID_REQUEST, 1)]


def test_notifications_and_responses_get_no_answer_even_when_they_are_wrong() -> None:
    assert refused(request(id=..., params=[1])) == []
    assert refused(request(id=..., jsonrpc="1.0")) == []
    assert refused(b'{"jsonrpc":"2.0","id":5,"result":{}}') == []
    assert refused(b'{"jsonrpc":"2.0","id":null,"error":"what?"}') == []


def test_what_is_sloppy_but_clear_is_taken() -> None:
    line = b"\xef\xbb\xbf  " + request(id="a") + b" \r\n"
    assert [type(one) for one in parse_line(line).messages] == [types.JSONRPCRequest]
    (message,) = parse_line(request(params={"a": "\ud800 \0 caf\udce9"}) + b"\n").messages
    assert isinstance(message, types.JSONRPCRequest)
    assert message.params == {"a": "\ufffd   caf\\xe9"}
    (message,) = parse_line(b'{"jsonrpc":"2.0","id":1,"method":"\xff"}').messages
    assert isinstance(message, types.JSONRPCRequest)
    assert message.method == "\ufffd"


@pytest.mark.parametrize("id_comes_first", [True, False])
def test_a_line_that_is_too_long_costs_itself_alone(
    id_comes_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "LONGEST_MESSAGE", 10_000)
    filler = {"params": {"text": "x" * 3_000_000}}
    message = {**PING, **filler} if id_comes_first else {**filler, **PING}
    stream = io.BytesIO(json.dumps(message).encode() + b"\n" + request(id=2) + b"\n")
    assert refused(read_line(stream) or Line()) == [(INVALID_REQUEST, 1)]
    line = read_line(stream)
    assert line is not None
    assert [type(one) for one in line.messages] == [types.JSONRPCRequest]
    assert read_line(stream) is None


def test_the_last_line_needs_no_end() -> None:
    stream = io.BytesIO(request())
    line = read_line(stream)
    assert line is not None
    assert len(line.messages) == 1


def test_what_utf_8_cannot_hold_is_replaced_where_replies_are_written() -> None:
    result = {"name": "caf\udce9.md", "half": "\ud800", "list": [{"\udcff": 1}]}
    line = as_line(types.JSONRPCResponse.model_construct(jsonrpc="2.0", id=1, result=result))
    assert json.loads(line.decode())["result"] == {
        "name": "caf\\xe9.md",
        "half": "\ufffd",
        "list": [{"\\xff": 1}],
    }

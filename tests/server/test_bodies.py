"""Bodies of requests: one limit for all addresses, and words for what cannot be read."""

from __future__ import annotations

import gzip
import http.client
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_process import HEADERS, INITIALIZE, HttpServer
from server_process import HANGS

from kb.server.wire import LONGEST_MESSAGE

ADDRESSES = ["/mcp", "/api/search", "/forget"]
MEGABYTE = b"a" * 1_000_000
ASKED = {"query": "wind", "limit": 1}


@pytest.fixture(scope="module")
def server(windrose_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    file = Path(shutil.copy(windrose_file, tmp_path_factory.mktemp("bodies") / "kb.db"))
    with HttpServer(file) as process:
        yield process
        _, errors = process.end()
    assert errors == ""


def posted(
    server: HttpServer, path: str, data: bytes | Iterator[bytes], **headers: str
) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANGS)
    try:
        chunked = not isinstance(data, bytes)
        connection.request("POST", path, data, {**HEADERS, **headers}, encode_chunked=chunked)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("path", ADDRESSES)
@pytest.mark.parametrize("is_told", [True, False], ids=["its length told", "in chunks"])
def test_a_body_over_the_limit_is_refused_in_words(
    is_told: bool, path: str, server: HttpServer
) -> None:
    count = LONGEST_MESSAGE // len(MEGABYTE) + 1
    data = MEGABYTE * count if is_told else iter([MEGABYTE] * count)
    status, text = posted(server, path, data)
    assert (status, "the body has more than 64 MB" in text) == (413, True)


@pytest.mark.parametrize("path", ADDRESSES)
def test_a_body_that_never_ends_is_cut_off_and_takes_no_memory(
    path: str, server: HttpServer
) -> None:
    before = memory(server)
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        "Transfer-Encoding: chunked",
        *(f"{name}: {value}" for name, value in HEADERS.items()),
    ]
    with socket.create_connection(("127.0.0.1", server.port), HANGS) as client:
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        with pytest.raises(ConnectionError):
            send_for_ever(client)
    assert memory(server) < before + 2.5 * LONGEST_MESSAGE
    assert server.request("POST", "/api/search", ASKED)[0] == 200


def send_for_ever(client: socket.socket) -> None:
    while True:
        client.sendall(b"%x\r\n%b\r\n" % (len(MEGABYTE), MEGABYTE))


def memory(server: HttpServer) -> int:
    """The most bytes that a server has held."""
    status = Path(f"/proc/{server.popen.pid}/status")
    if not status.exists():
        pytest.skip("this system does not tell what a process has held")
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def test_a_length_that_nobody_would_read_is_refused_before_it_comes(server: HttpServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), HANGS) as client:
        lines = [
            "POST /mcp HTTP/1.1",
            f"Host: 127.0.0.1:{server.port}",
            "Content-Length: 99999999999",
        ]
        lines += [f"{name}: {value}" for name, value in HEADERS.items()]
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("path", ADDRESSES)
def test_a_packed_body_is_refused_for_being_packed(path: str, server: HttpServer) -> None:
    data = gzip.compress(json.dumps(INITIALIZE).encode())
    status, text = posted(server, path, data, **{"Content-Encoding": "gzip"})
    assert (status, "send it without Content-Encoding gzip" in text) == (415, True)
    encoding = {"Content-Encoding": "identity"}
    assert posted(server, "/mcp", json.dumps(INITIALIZE).encode(), **encoding)[0] == 200


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "Expecting value"),
        (b"\xff", "line 1 holds bytes that are not UTF-8"),
        (b'{"query": "wind"', "Expecting ',' delimiter"),
        (b'{"query": ' + b"[" * 5000 + b"]" * 5000 + b"}", "more than 100 deep"),
        (b'{"query": ' + b"[" * 300_000, "more than 100,000 values"),
        (b'{"query": [' + b"1," * 200_000 + b"1]}", "more than 100,000 values"),
        (b'{"query": "wind", "limit": 1e999}', "the number 1e999 is too large"),
        (b'{"query": "wind", "limit": NaN}', "NaN is not a number"),
        (b"[]", "the body must be an object"),
        (b"{}", "query: is required"),
        (b'{"query": {"a": 1}}', "query: must be text"),
        (b'{"query": null}', "query: is required"),
        (b'{"query": "wind", "limit": "many"}', "limit: must be a whole number"),
        (b'{"query": "wind", "limit": 0}', "limit: input should be greater"),
        (b'{"query": "wind", "limit": 1000000000000}', "limit: input should be less"),
        (b'{"query": "wind", "paths": {"a": 1}}', "paths: must be a list"),
        (b'{"query": "wind", "colections": []}', 'did you mean \\"collections\\"?'),
        (b'{"query": "wind", "collections": ["gone"]}', "gone"),
    ],
)
def test_a_search_that_cannot_be_made_says_why(body: bytes, told: str, server: HttpServer) -> None:
    status, text = posted(server, "/api/search", body)
    assert status == 400
    assert told in text
    assert json.loads(text)["code"] in ("VALIDATION_ERROR", "COLLECTION_NOT_FOUND")


@pytest.mark.parametrize(
    "asked",
    [{"limit": "2"}, {"collections": "windrose"}, {"paths": None}, {"query": "\ud800 wind"}],
)
def test_what_is_sloppy_but_clear_is_searched(asked: dict[str, Any], server: HttpServer) -> None:
    status, text = posted(server, "/api/search", json.dumps({**ASKED, **asked}).encode())
    assert (status, bool(json.loads(text)["rows"])) == (200, True)


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b" ", 400, "no body"),
        (b"[" + json.dumps(INITIALIZE).encode() + b"]", 400, "a batch is not a message"),
        (b'{"id":5,"params":{"a":[' + b"1," * 200_000 + b"1]}}", 400, "more than 100,000 values"),
        (b'{"id":5,"params":' + b"[" * 900 + b"]" * 900 + b"}", 400, "more than 100 deep"),
        (b'{"id":5,', 400, "not JSON"),
        (b'{"jsonrpc":"2.0","id":5,"result":{}}', 202, ""),
    ],
)
def test_a_message_over_http_is_refused_as_one_of_stdin(
    body: bytes, status: int, told: str, server: HttpServer
) -> None:
    got, text = posted(server, "/mcp", body)
    assert (got, told in text) == (status, True)
    if b'"id":5,' in body and status != 202:
        assert json.loads(text)["id"] == 5


def reply_to(server: HttpServer, method: str, params: Any) -> tuple[int, dict[str, Any]]:
    """What a message of a session comes to."""
    message = {"jsonrpc": "2.0", "id": 5, "method": method, "params": params}
    session = {**server.open_session(), "Accept": "application/json"}
    status, text = posted(server, "/mcp", json.dumps(message).encode(), **session)
    return status, json.loads(text)


@pytest.mark.parametrize("is_text", [False, True], ids=["an object", "as JSON text"])
@pytest.mark.parametrize("size", [10, 3_000_000])
def test_the_arguments_of_a_call_may_be_large(size: int, is_text: bool, server: HttpServer) -> None:
    content = "The vane is calibrated. " * (size // 24 + 1)
    values = {"doc_id": f"large-{size}-{is_text}", "content": content}
    arguments = json.dumps(values) if is_text else values
    call = {"name": "search_add_document", "arguments": arguments}
    status, answer = reply_to(server, "tools/call", call)
    assert (status, answer["id"]) == (200, 5)
    added = answer["result"]["structuredContent"]
    assert (added["status"], added["doc_id"]) == ("indexed", values["doc_id"])
    assert added["token_count"] == 4 * (size // 24 + 1)


@pytest.mark.parametrize("arguments", ["x" * 200_000, ["x"] * 20_000], ids=["text", "a list"])
def test_large_arguments_that_are_no_object_are_refused_as_small_ones(
    arguments: Any, server: HttpServer
) -> None:
    call = {"name": "documents_search", "arguments": arguments}
    _, answer = reply_to(server, "tools/call", call)
    assert answer["result"]["isError"]
    assert "query: is required" in answer["result"]["content"][0]["text"]


def test_what_calls_no_tool_may_have_a_megabyte(server: HttpServer) -> None:
    status, answer = reply_to(server, "resources/read", {"uri": "kb://docs/" + "a" * 2_000_000})
    assert (status, answer["id"]) == (400, 5)
    assert "only tools/call may have more than 1 MB" in answer["error"]["message"]
    _, answer = reply_to(server, "tools/call", {"name": "a" * 2_000_000, "arguments": {}})
    assert "Unknown tool: aaaa" in answer["result"]["content"][0]["text"]


def test_a_request_of_many_halves_of_surrogates_keeps_nobody_waiting(server: HttpServer) -> None:
    """That others are answered meanwhile, in how many seconds `scripts/stress/neighbours` says."""
    data = b'{"query":"wind","paths":["' + b"\\ud800" * 5_000_000 + b'"]}'
    answers: list[int] = []
    large = threading.Thread(target=lambda: answers.append(posted(server, "/api/search", data)[0]))
    large.start()
    meanwhile = 0
    while not answers:
        assert server.request("POST", "/mcp", INITIALIZE)[0] == 200
        meanwhile += not answers
    large.join()
    assert answers[0] in (200, 400)
    assert meanwhile >= 3

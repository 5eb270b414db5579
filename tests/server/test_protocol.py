"""Clients over HTTP that do what the protocol's library does not expect, as many of them do."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from http_process import HEADERS, INITIALIZE, HttpServer, Stream, of_later_protocol
from server_process import HANGS, assert_clean_end

from kb.store.database import Database

ENDS_SECONDS = 10.0
QUESTION = {"name": "documents_search", "arguments": {"query": "wind", "limit": 1}}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": QUESTION}


@pytest.fixture(scope="module")
def file(windrose_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copy(windrose_file, tmp_path_factory.mktemp("protocol") / "kb.db"))


@pytest.fixture(scope="module")
def server(file: Path) -> Iterator[HttpServer]:
    """One for all tests; that its log holds nothing, and that it ends in order, is seen last."""
    with HttpServer(file, "--rate-limit", "off") as process:
        yield process
        code, errors = process.end()
    assert errors == ""
    assert_clean_end(file, code, errors)


def message_in(text: str) -> Any:
    """The message of an answer, be it a stream or not."""
    lines = [line[len("data: ") :] for line in text.splitlines() if line.startswith("data: ")]
    return json.loads("".join(lines) or text)


def documents(server: HttpServer, session: dict[str, str]) -> list[str]:
    arguments = {"collection": "windrose", "limit": 20}
    call = {**CALL, "params": {"name": "documents_list_documents", "arguments": arguments}}
    answer = message_in(server.request("POST", "/mcp", call, session)[2])
    return [row["id"] for row in answer["result"]["structuredContent"]["documents"]]


def test_requests_of_one_id_that_are_under_way_at_once_get_each_its_own_answer(
    server: HttpServer,
) -> None:
    session = server.open_session()

    def read(document: str) -> Any:
        arguments = {"collection": "windrose", "document": document}
        call = {**CALL, "params": {"name": "documents_get_document", "arguments": arguments}}
        return message_in(server.request("POST", "/mcp", call, session)[2])

    names = documents(server, session) * 3
    with ThreadPoolExecutor(len(names)) as threads:
        answers = list(threads.map(read, names))
    assert [answer["id"] for answer in answers] == [1] * len(names)
    contents = [answer["result"]["structuredContent"] for answer in answers]
    assert [content["document"] for content in contents] == names


@pytest.mark.parametrize("given", [0, "7", "\ud800", 2**60, "漢字 \u2028"])
def test_an_answer_has_the_id_that_the_client_gave(given: Any, server: HttpServer) -> None:
    session = server.open_session()
    status, _, text = server.request("POST", "/mcp", {**CALL, "id": given}, session)
    assert (status, message_in(text)["id"]) == (200, given)


def test_a_request_is_cancelled_by_the_id_that_the_client_gave(
    server: HttpServer, file: Path
) -> None:
    session = server.open_session()
    added = {"doc_id": "n", "content": "the mast stands"}
    call = {**CALL, "params": {"name": "search_add_document", "arguments": added}}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    with Database(file) as database, database.write():  # it waits for its turn
        stream = Stream(server.port, session, call)
        assert server.request("POST", "/mcp", cancel, session)[0] == 202
    assert stream.ends_within(HANGS)
    answer = json.loads(stream.received.partition(b"data: ")[2].splitlines()[0])
    assert (answer["id"], answer["error"]["message"]) == (1, "Request cancelled")
    stream.close()


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/json", "application/json"),
        ("application/json; q=1", "application/json"),
        ("", "application/json"),
        ("text/event-stream", "text/event-stream"),
        ("*/*", "text/event-stream"),
        ("application/json, text/event-stream", "text/event-stream"),
    ],
)
def test_a_client_is_answered_in_the_form_that_it_takes(
    accept: str, kind: str, server: HttpServer
) -> None:
    def sent(message: Any, **headers: str) -> tuple[int, str, Any, str]:
        status, found, text = server.request("POST", "/mcp", message, {"Accept": accept, **headers})
        content_type = found["content-type"].partition(";")[0]
        return status, content_type, message_in(text), found.get("mcp-session-id", "")

    status, content_type, answer, session = sent(INITIALIZE)
    assert (status, content_type, answer["id"]) == (200, kind, 1)
    asked = {**CALL, "params": {**QUESTION, "_meta": {"progressToken": "p"}}}
    status, content_type, answer, _ = sent(asked, **{"Mcp-Session-Id": session})
    assert (status, content_type) == (200, kind)
    assert answer["result"]["structuredContent"]["results"]
    refused = {**CALL, "method": "no/such"}
    status, content_type, answer, _ = sent(refused, **{"Mcp-Session-Id": session})
    assert (status, content_type, answer["error"]["code"]) == (200, kind, -32601)
    headers, later = of_later_protocol("tools/call", "documents_search", **QUESTION)
    status, _, answer, _ = sent(later, **headers)
    assert (status, answer["id"]) == (200, 7)


def test_the_address_may_end_with_a_slash_and_leads_nowhere_else(server: HttpServer) -> None:
    assert server.request("POST", "/mcp/", INITIALIZE)[0] == 200
    for path in ("/mcp//", "/mcp/x"):
        assert server.request("POST", path, INITIALIZE)[0] in (307, 404)


def test_a_way_to_sign_in_is_not_found_rather_than_refused(windrose_copy: Path) -> None:
    """A client that is refused there gives up with a message about signing in."""
    with HttpServer(windrose_copy, KB_TOKEN="correct-horse-battery-staple") as server:
        assert server.request("POST", "/mcp", INITIALIZE)[0] == 401
        for name in ("oauth-protected-resource", "oauth-protected-resource/mcp", "openid"):
            assert server.request("GET", f"/.well-known/{name}")[0] == 404


def test_a_stream_that_is_opened_again_takes_the_place_of_the_former(server: HttpServer) -> None:
    session = server.open_session()
    streams = [Stream(server.port, session)]
    for _ in range(3):
        streams.append(Stream(server.port, session))
        assert [stream.status for stream in streams[-2:]] == [200, 200]
        assert streams[-2].ends_within(ENDS_SECONDS)
        assert not streams[-1].ends_within(0)
    for stream in streams:
        stream.close()


def test_a_session_that_is_ended_amid_its_calls_leaves_each_an_answer(
    server: HttpServer,
) -> None:
    session = server.open_session()
    names = documents(server, session)

    def related(number: int, accept: str) -> tuple[int, Any]:
        arguments = {"collection": "windrose", "document": names[number % len(names)]}
        params = {"name": "documents_find_related", "arguments": arguments}
        call = {**CALL, "id": number, "params": params}
        status, _, text = server.request("POST", "/mcp", call, {**session, "Accept": accept})
        return status, message_in(text)

    forms = ["application/json", "application/json, text/event-stream"] * 10
    with ThreadPoolExecutor(len(forms)) as threads:
        answers = threads.map(related, range(len(forms)), forms)
        assert server.request("DELETE", "/mcp", None, session)[0] == 200
        for number, (status, answer) in enumerate(answers):
            assert (status, answer["id"]) in ((200, number), (404, None))


@pytest.mark.parametrize("cuts", [False, True], ids=["closed", "cut off"])
def test_clients_that_go_amid_their_calls_are_no_fault_of_the_server(
    cuts: bool, server: HttpServer
) -> None:
    session = server.open_session()
    body = json.dumps(CALL).encode()
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in {**HEADERS, **session}.items()),
    ]
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port), HANGS) as client:
            client.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            if cuts:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert server.request("POST", "/mcp", CALL, session)[0] == 200


def test_a_stream_is_passed_on_at_once_by_what_stands_before_the_server(
    server: HttpServer,
) -> None:
    session = server.open_session()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANGS)
    connection.request("GET", "/mcp", None, {**HEADERS, **session})
    headers = dict(connection.getresponse().getheaders())
    assert headers["x-accel-buffering"] == "no"
    assert "no-cache" in headers["cache-control"]
    connection.close()

"""Tokens a person: who is let in, for what, how often, and that revoking ends it at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from http_process import INITIALIZE, HttpServer, Stream, eventually, of_later_protocol
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from server_process import HANGS, environment
from support import content_of

from kb.results.roles import Role
from kb.server.access import MOST_OPEN
from kb.server.clients import MOST_OF_TOKEN
from kb.server.running import ask, running_server
from kb.settings import find_project
from kb.store.access_tokens import add_token, forget_tokens, revoke_token
from kb.store.database import Database
from kb.tools.registry import load_tools

QUESTION = {"query": "wind", "limit": 1}
LISTEN = of_later_protocol("subscriptions/listen", notifications={"resourcesListChanged": True})
ENDS_SECONDS = 10.0  # a stream is looked at four times a second, and hears a ping after fifteen
LISTED = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


def made(file: Path, name: str, role: Role = "read", **more: Any) -> str:
    with Database(file) as database, database.write() as connection:
        return add_token(connection, name, role, **more)


def revoked(file: Path, name: str) -> None:
    with Database(file) as database, database.write() as connection:
        revoke_token(connection, name)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def with_client(url: str, token: str, use: Callable[[Client], Any], mode: Any = "legacy") -> None:
    async def run() -> None:
        async with (
            httpx2.AsyncClient(headers=bearer(token), timeout=HANGS) as web,
            Client(streamable_http_client(url, http_client=web), mode=mode) as client,
        ):
            await use(client)

    anyio.run(run)


def opened(server: HttpServer, token: str) -> dict[str, str]:
    """The headers of a session that is open."""
    return server.open_session(**bearer(token))


def test_a_file_without_tokens_is_open_on_this_machine_until_it_has_one(
    windrose_copy: Path,
) -> None:
    with HttpServer(windrose_copy) as server:
        assert server.request("POST", "/api/search", QUESTION)[0] == 200
        token = made(windrose_copy, "anna")
        status, headers, _ = server.request("POST", "/api/search", QUESTION)
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert server.request("POST", "/api/search", QUESTION, bearer(token))[0] == 200
        assert server.request("POST", "/api/search", QUESTION, bearer(token + "x"))[0] == 401
        revoked(windrose_copy, "anna")
        # Nobody gets in because the last one was sent away.
        for headers in ({}, bearer(token)):
            assert server.request("POST", "/api/search", QUESTION, headers)[0] == 401
        said = running_server(windrose_copy, find_project())
        assert said is not None
        assert ask(said, "/api/search", QUESTION) is not None  # whoever runs it goes on
        with Database(windrose_copy) as database, database.write() as connection:
            assert forget_tokens(connection) == 1
        assert server.request("POST", "/api/search", QUESTION)[0] == 200


def test_the_file_of_whoever_runs_the_server_lets_nobody_else_read_the_token(
    windrose_copy: Path,
) -> None:
    with HttpServer(windrose_copy):
        (place,) = (Path.home() / ".cache" / "kb" / "servers").iterdir()
        assert place.stat().st_mode & 0o077 == 0


def test_beyond_this_machine_tokens_of_the_file_are_enough(windrose_copy: Path) -> None:
    token = made(windrose_copy, "anna")
    with HttpServer(windrose_copy, "--http", "0.0.0.0:0") as server:
        assert server.request("POST", "/mcp", INITIALIZE)[0] == 401
        assert server.request("POST", "/mcp", INITIALIZE, bearer(token))[0] == 200


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_token_that_reads_reads_all_and_is_told_why_it_writes_nothing(
    mode: str, windrose_copy: Path
) -> None:
    token = made(windrose_copy, "anna")

    async def use(client: Client) -> None:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        known = load_tools()
        assert list(listed) == list(known)
        for name, tool in known.items():
            result = await client.call_tool(name, dict(tool.example))
            text = result.content[0].text
            refusal = "this token may only read" in text
            assert refusal == (not tool.serves_readers), (name, text)
            assert listed[name].description.startswith("Refused") == refusal
            assert listed[name].input_schema == tool.input_schema
            if refusal:
                assert result.is_error
                assert '"code":"PERMISSION_DENIED"' in text
        resources = await client.list_resources()
        for resource in resources.resources[:8]:
            assert (await client.read_resource(resource.uri)).contents

    with HttpServer(windrose_copy) as server:
        with_client(server.url, token, use, mode)
    refused = {name for name, tool in load_tools().items() if not tool.serves_readers}
    assert refused == {
        "search_add_document",
        "search_create_index",
        "context_record",
        "activate_project",
    }


def test_a_token_that_writes_writes_and_stays_in_the_project(
    windrose_copy: Path, tmp_path: Path
) -> None:
    token = made(windrose_copy, "bob", "write")
    other = tmp_path / "other" / ".kb"
    other.mkdir(parents=True)
    (other / "config.json").write_text('{"project_name": "other"}')

    async def use(client: Client) -> None:
        added = {"doc_id": "n", "content": "the mast stands"}
        result = await client.call_tool("search_add_document", added)
        assert content_of(result)["status"] == "indexed"
        left = await client.call_tool("activate_project", {"config_path": str(other.parent)})
        assert content_of(left)["code"] == "PERMISSION_DENIED"

    with HttpServer(windrose_copy) as server:
        with_client(server.url, token, use)


def test_a_session_is_of_use_to_its_own_token_alone(windrose_copy: Path) -> None:
    tokens = [made(windrose_copy, name, "write") for name in ("anna", "bob")]
    with HttpServer(windrose_copy) as server:
        session = opened(server, tokens[0])
        stolen = {**session, **bearer(tokens[1])}
        assert server.request("POST", "/mcp", LISTED, stolen)[0] == 404
        revoked(windrose_copy, "anna")
        again = {**session, **bearer(made(windrose_copy, "anna", "write"))}
        assert server.request("POST", "/mcp", LISTED, again)[0] == 404  # the next one of the name


@pytest.mark.parametrize("protocol", ["of the handshake", "without sessions"])
def test_a_revoked_token_is_refused_at_once_and_its_streams_end(
    protocol: str, windrose_copy: Path
) -> None:
    gone, stays = made(windrose_copy, "anna"), made(windrose_copy, "bob")
    with HttpServer(windrose_copy) as server:
        if protocol == "of the handshake":
            asked = [(opened(server, token), None) for token in (gone, stays)]
        else:
            headers, listen = LISTEN
            asked = [({**bearer(token), **headers}, listen) for token in (gone, stays)]
        streams = [Stream(server.port, *one) for one in asked]
        assert [stream.status for stream in streams] == [200, 200]
        assert [stream.ends_within(0) for stream in streams] == [False, False]
        revoked(windrose_copy, "anna")
        for token, status in ((gone, 401), (stays, 200)):
            assert server.request("POST", "/api/search", QUESTION, bearer(token))[0] == status
        assert streams[0].ends_within(ENDS_SECONDS)
        assert not streams[1].ends_within(0)
        for stream in streams:
            stream.close()
        _, errors = server.end()
    assert errors == ""


def test_a_token_has_a_number_of_sessions_and_of_streams(windrose_copy: Path) -> None:
    many, other = made(windrose_copy, "anna"), made(windrose_copy, "bob")
    with HttpServer(windrose_copy) as server:
        sessions = [opened(server, many) for _ in range(MOST_OF_TOKEN)]
        status, _, text = server.request("POST", "/mcp", INITIALIZE, bearer(many))
        assert (status, f"{MOST_OF_TOKEN} sessions" in text) == (429, True)
        assert server.request("DELETE", "/mcp", None, sessions.pop())[0] == 200
        assert eventually(
            lambda: server.request("POST", "/mcp", INITIALIZE, bearer(many))[0] == 200
        )
        opened(server, other)
        headers, listen = LISTEN
        headers = {**bearer(many), **headers}
        streams = [Stream(server.port, headers, listen) for _ in range(MOST_OPEN)]
        assert {stream.status for stream in streams} == {200}
        status, _, text = server.request("POST", "/mcp", LISTED, sessions[0])
        assert (status, f"{MOST_OPEN} requests and streams" in text) == (429, True)
        assert server.request("POST", "/mcp", LISTED, opened(server, other))[0] == 200
        streams.pop().close()
        assert eventually(lambda: server.request("POST", "/mcp", LISTED, sessions[0])[0] == 200)
        for stream in streams:
            stream.close()


def test_a_client_is_told_in_words_that_its_token_is_not_valid(windrose_copy: Path) -> None:
    made(windrose_copy, "anna", days=1)
    with HttpServer(windrose_copy) as server:
        status, headers, text = server.request("POST", "/mcp", INITIALIZE, bearer("kb_no"))
        assert (status, headers["content-type"]) == (401, "application/json")
        assert "valid token" in json.loads(text)["error"]["message"]


def test_each_token_has_its_own_number_of_requests_a_minute(windrose_copy: Path) -> None:
    few, many = (
        made(windrose_copy, "anna", requests_per_minute=2),
        made(windrose_copy, "bob"),
    )

    def asked(token: str) -> tuple[int, dict[str, str]]:
        return server.request("POST", "/api/search", QUESTION, bearer(token))[:2]

    with HttpServer(windrose_copy, "--token-limit", "3") as server:
        assert [asked(few)[0] for _ in range(3)] == [200, 200, 429]
        assert 1 <= int(asked(few)[1]["retry-after"]) <= 60
        assert [asked(many)[0] for _ in range(4)] == [200, 200, 200, 429]


def test_limits_of_a_tool_hold_for_a_token_however_many_sessions_it_opens(
    windrose_copy: Path,
) -> None:
    token = made(windrose_copy, "anna")
    call = {"name": "context_search", "arguments": {"query": "the mast"}}
    message = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call}
    with HttpServer(windrose_copy, "--rate-limit", "search=2") as server:
        texts = [
            server.request("POST", "/mcp", message, opened(server, token))[2] for _ in range(3)
        ]
    assert ["Rate limit exceeded" in text for text in texts] == [False, False, True]


def test_the_page_is_for_whoever_runs_the_server(windrose_copy: Path) -> None:
    guest = made(windrose_copy, "anna", "write")
    owner = "correct-horse-battery-staple"
    with HttpServer(windrose_copy, KB_TOKEN=owner) as server:
        for token, status in ((guest, 403), (owner, 200)):
            for path in ("/", "/activity", "/results?q=wind"):
                assert server.request("GET", path, None, bearer(token))[0] == status
        cookie = {"Cookie": f"kb_token={guest}"}
        assert server.request("GET", "/", None, cookie)[0] == 403
        assert server.request("GET", f"/?token={guest}")[0] == 401


def test_a_token_opens_nothing_in_another_file(windrose_copy: Path, tmp_path: Path) -> None:
    token = made(windrose_copy, "anna", "write")
    other = tmp_path / "other.db"
    made(other, "anna", "write")
    with HttpServer(other) as server:
        assert server.request("POST", "/api/search", QUESTION, bearer(token))[0] == 401


def test_a_server_beyond_this_machine_says_how_to_make_a_token(windrose_copy: Path) -> None:
    command = [sys.executable, "-m", "kb", "--db", str(windrose_copy), "serve", "--http"]
    refused = subprocess.run(
        [*command, "0.0.0.0:0"],
        env={**environment(), "KB_TOKEN": ""},
        capture_output=True,
        encoding="utf-8",
        timeout=HANGS,
    )
    assert refused.returncode == 2
    assert "kb token add NAME" in refused.stderr


def test_doctor_says_where_all_share_one_token(windrose_copy: Path) -> None:
    command = [sys.executable, "-m", "kb", "--db", str(windrose_copy), "doctor"]

    def doctor() -> str:
        return subprocess.run(command, env=environment(), capture_output=True, text=True).stdout

    shared = "correct-horse-battery-staple"
    with HttpServer(windrose_copy, "--http", "0.0.0.0:0", KB_TOKEN=shared):
        assert "all who use it share one token" in doctor()
        made(windrose_copy, "anna")
        assert "tokens: 1 valid" in doctor()

"""The access log: a line for each request, and never what it must not hold."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from http_process import INITIALIZE, HttpServer
from mcp import Client
from test_authentication import LISTED, bearer, made, opened, with_client


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def with_search(server: HttpServer, token: str) -> None:
    async def use(client: Client) -> None:
        await client.call_tool("documents_search", {"query": "heliotrope"})
        await client.call_tool("search_add_document", {"doc_id": "n", "content": "heliotrope"})
        await client.call_tool("grep_codebase", {"pattern": "heliotrope("})

    with_client(server.url, token, use)


@pytest.mark.parametrize("options", [(), ("--log-queries",)], ids=["plain", "with queries"])
def test_each_request_is_a_line_with_who_what_and_how_it_ended(
    options: tuple[str, ...], windrose_copy: Path, tmp_path: Path
) -> None:
    token, log = made(windrose_copy, "anna"), tmp_path / "access.log"
    with HttpServer(windrose_copy, "--access-log", str(log), *options) as server:
        with_search(server, token)
        # What could be a secret comes at places where nobody expects one.
        server.request("GET", f"/?token={token}", None, bearer(token))
        server.request("GET", f"/{token}", None, bearer(token))
        session = opened(server, token)
        for method, name in (("tools/call", token), (token, "x"), ("tools/call", "a\nb")):
            message = {**LISTED, "method": method, "params": {"name": name}}
            server.request("POST", "/mcp", message, session)
        server.request("POST", "/mcp", INITIALIZE, {"Host": "evil.example"})
        server.request("POST", "/mcp", INITIALIZE)
        server.request("POST", "/api/search", {"query": "heliotrope"}, bearer(token))
        server.end()
    text, found = log.read_text(), lines(log)
    assert token not in text
    assert ("heliotrope" in text) == bool(options)
    calls = [line for line in found if line["asked"] == "tools/call" and "tool" in line]
    assert [(line["tool"], line["status"], line.get("code", "")) for line in calls] == [
        ("documents_search", 200, ""),
        ("search_add_document", 200, "PERMISSION_DENIED"),
        ("grep_codebase", 200, "INVALID_PATTERN"),
    ]
    assert {line["token"] for line in calls} == {"anna"}
    assert all(line["ms"] > 0 and line["time"].endswith("Z") for line in found)
    asked = {line["asked"] for line in found}
    assert {"initialize", "/api/search", "notification", "unknown", "end of session"} <= asked
    refused = [(line["status"], "token" in line) for line in found if line["status"] in (401, 421)]
    assert refused == [(421, False), (401, False)]
    assert log.stat().st_mode & 0o077 == 0


def test_a_log_that_is_moved_away_goes_on_in_a_new_file(
    windrose_copy: Path, tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    with HttpServer(windrose_copy, "--access-log", str(log)) as server:
        server.request("POST", "/mcp", INITIALIZE)
        while not log.read_text():  # a line is written once the answer has gone out
            server.request("HEAD", "/")
        os.replace(log, tmp_path / "access.log.1")
        server.request("POST", "/mcp", INITIALIZE)
        server.end()
    first, second = lines(tmp_path / "access.log.1"), lines(log)
    assert first[0]["asked"] == "initialize"
    assert second[-1]["asked"] == "initialize"

"""Over HTTP: several clients at once, each its own session; who may come in; how it ends."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from http_process import HEADERS, INITIALIZE, HttpServer
from mcp import Client
from server_process import HANGS, assert_clean_end, environment
from support import ROOT, content_of

from kb.server.running import ask, running_server
from kb.settings import find_project

NODE = ROOT / "tests" / "clients" / "node"
TOKEN = "correct-horse-battery-staple"
ASKED = {"query": "how do I calibrate the wind vane?", "limit": 1}
NEW = (200, 202)


def typescript(version: str, url: str) -> list[dict[str, Any]]:
    """What a client made with the TypeScript SDK got for its question."""
    done = subprocess.run(
        [shutil.which("node") or "node", str(NODE / "client.mjs"), version, url],
        input=json.dumps([{"call": "documents_search", "arguments": ASKED}]),
        capture_output=True,
        encoding="utf-8",
        timeout=HANGS,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_eight_clients_of_three_sdks_are_served_at_once(windrose_copy: Path) -> None:
    if not (NODE / "node_modules").is_dir() or shutil.which("node") is None:
        pytest.skip("the clients are not installed: run scripts/foreign-clients")
    found: list[str] = []

    async def python(mode: Any, url: str) -> None:
        async with Client(url, mode=mode) as client:
            answer = await client.call_tool("documents_search", ASKED)
            found.append(content_of(answer)["results"][0]["documentId"])

    async def other(version: str, url: str) -> None:
        _, answer = await anyio.to_thread.run_sync(typescript, version, url)
        assert "result" in answer, answer
        rows = answer["result"]["structuredContent"]["results"]
        found.append(rows[0]["documentId"])

    async def all_at_once(url: str) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                for mode in ("auto", "legacy"):
                    tasks.start_soon(python, mode, url)
                for version in ("1", "2"):
                    tasks.start_soon(other, version, url)

    with HttpServer(windrose_copy) as server:
        anyio.run(all_at_once, server.url)
        assert found == ["how-to/calibrate the vane.md"] * 8
        code, errors = server.end()
    assert_clean_end(windrose_copy, code, errors)


def test_each_client_has_its_own_session_and_limits(windrose_copy: Path) -> None:
    async def use(url: str) -> None:
        async with Client(url, mode="legacy") as one, Client(url, mode="legacy") as other:
            for client in (one, other):
                for query in ("first question", "second question"):
                    answer = await client.call_tool("context_search", {"query": query})
                    assert "Rate limit" not in answer.content[0].text
            refused = await one.call_tool("context_search", {"query": "third question"})
            assert "Rate limit exceeded" in content_of(refused)["error"]
            await other.call_tool("documents_search", {"query": "only the other asks this"})
            sessions = [
                json.loads(
                    (await client.read_resource("context://session/current")).contents[0].text
                )
                for client in (one, other)
            ]
            assert sessions[0]["id"] != sessions[1]["id"]
            asked = [json.dumps(session["queries"]) for session in sessions]
            assert ["only the other" in text for text in asked] == [False, True]

    with HttpServer(windrose_copy, "--rate-limit", "search=2") as server:
        anyio.run(use, server.url)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:8642"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "192.168.0.1"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Host": "localhost"}, 200),
        ({"Host": "[::1]:99"}, 200),
        ({"Host": "kb.example"}, 200),
    ],
    ids=str,
)
def test_requests_under_a_foreign_name_or_from_a_foreign_page_are_refused(
    headers: dict[str, str], status: int, shared_server: HttpServer
) -> None:
    assert shared_server.request("POST", "/mcp", INITIALIZE, headers)[0] == status
    question = {"query": "wind"}
    assert shared_server.request("POST", "/api/search", question, headers)[0] == status


@pytest.fixture(scope="module")
def shared_server(windrose_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = Path(shutil.copy(windrose_file, tmp_path_factory.mktemp("http") / "kb.db"))
    with HttpServer(file, "--allow-host", "kb.example") as server:
        yield server


def test_a_page_of_the_same_origin_is_let_through(shared_server: HttpServer) -> None:
    here = f"127.0.0.1:{shared_server.port}"
    headers = {"Host": here, "Origin": f"http://{here}", "Sec-Fetch-Site": "same-origin"}
    assert shared_server.request("POST", "/mcp", INITIALIZE, headers)[0] == 200


PAGE = "http://localhost:6274"


def test_a_page_that_is_allowed_may_use_the_protocol_and_nothing_else(windrose_copy: Path) -> None:
    asked = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version",
    }
    foreign = {"Origin": PAGE, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    shown = {**foreign, "Authorization": f"Bearer {TOKEN}"}
    with HttpServer(windrose_copy, "--allow-origin", PAGE, KB_TOKEN=TOKEN) as server:
        # Before the request itself the browser asks whether it may be sent, without a token.
        status, headers, _ = server.request("OPTIONS", "/mcp", None, asked)
        assert (status, headers["access-control-allow-origin"]) == (200, PAGE)
        for name in ("authorization", "content-type", "mcp-protocol-version"):
            assert name in headers["access-control-allow-headers"].lower()
        status, headers, _ = server.request("POST", "/mcp", INITIALIZE, shown)
        assert (status, headers["access-control-allow-origin"]) == (200, PAGE)
        assert "Mcp-Session-Id" in headers["access-control-expose-headers"]
        status, headers, _ = server.request("POST", "/mcp", INITIALIZE, foreign)
        assert (status, headers["access-control-allow-origin"]) == (401, PAGE)
        for path in ("/", "/api/search", "/forget"):
            assert server.request("POST", path, ASKED, shown)[0] == 403
        for origin in ("http://localhost:6275", "null", "http://localhost:6274.evil.example"):
            status, headers, _ = server.request(
                "POST", "/mcp", INITIALIZE, {**shown, "Origin": origin}
            )
            assert status == 403
            assert "access-control-allow-origin" not in headers


def test_an_origin_that_no_browser_sends_is_refused_at_the_start(windrose_copy: Path) -> None:
    command = [sys.executable, "-m", "kb", "--db", str(windrose_copy), "serve", "--http"]
    for origin in ("*", "localhost:6274", "http://localhost:6274/", "file://"):
        refused = subprocess.run(
            [*command, "127.0.0.1:0", "--allow-origin", origin],
            env=environment(),
            capture_output=True,
            encoding="utf-8",
            timeout=HANGS,
        )
        assert (refused.returncode, "is not an origin" in refused.stderr) == (2, True)


@pytest.mark.parametrize("body", ['{"a": ' * 5000, "[]", "no JSON", '{"id": 1e999}', "\ud800", ""])
def test_what_is_no_message_is_refused_and_ends_nothing(
    body: str, shared_server: HttpServer
) -> None:
    for version in ("2025-06-18", "2026-07-28"):
        connection = http.client.HTTPConnection("127.0.0.1", shared_server.port, timeout=HANGS)
        headers = {**HEADERS, "MCP-Protocol-Version": version}
        connection.request("POST", "/mcp", body.encode("utf-8", "surrogatepass"), headers)
        assert connection.getresponse().status == 400
        connection.close()
    assert shared_server.request("POST", "/mcp", INITIALIZE)[0] == 200


def test_a_query_that_utf_8_cannot_hold_is_answered(shared_server: HttpServer) -> None:
    _, headers, _ = shared_server.request("POST", "/mcp", INITIALIZE)
    session = {"Mcp-Session-Id": headers["mcp-session-id"]}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert shared_server.request("POST", "/mcp", ready, session)[0] in NEW
    call = {"name": "documents_search", "arguments": {"query": "wind \ud800", "limit": 1}}
    message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    status, _, text = shared_server.request("POST", "/mcp", message, session)
    assert status == 200
    assert "documentId" in text


def test_beyond_this_machine_nothing_is_served_without_a_token(windrose_copy: Path) -> None:
    command = [sys.executable, "-m", "kb", "--db", str(windrose_copy), "serve", "--http"]
    for address, token in (("0.0.0.0:0", ""), ("0.0.0.0:0", "short"), ("[::]:0", "")):
        refused = subprocess.run(
            [*command, address],
            env={**environment(), "KB_TOKEN": token},
            capture_output=True,
            encoding="utf-8",
            timeout=HANGS,
        )
        assert refused.returncode == 2
        assert "token" in refused.stderr
        assert "16" in refused.stderr


def test_without_its_token_a_server_answers_nothing(windrose_copy: Path, tmp_path: Path) -> None:
    kept = tmp_path / "token"
    kept.write_text(f"{TOKEN}\n")
    options = ("--http", "0.0.0.0:0", "--token-file", str(kept))
    with HttpServer(windrose_copy, *options) as server:
        for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
            for method, path in (
                ("POST", "/mcp"),
                ("POST", "/api/search"),
                ("GET", "/"),
                ("GET", "/x"),
            ):
                status, headers, text = server.request(method, path, {"query": "wind"}, given)
                assert (status, headers["www-authenticate"]) == (401, "Bearer")
                assert "documentId" not in text
        right = {"Authorization": f"Bearer {TOKEN}"}
        for host, status in (("192.168.0.7", 200), ("localhost:1", 200), ("evil.example", 421)):
            headers = {"Host": host, **right}
            assert server.request("POST", "/mcp", INITIALIZE, headers)[0] == status
        status, headers, _ = server.request("GET", f"//evil.example/?a=1&token={TOKEN}")
        assert (status, headers["location"]) == (303, "/evil.example/?a=1")
        assert "HttpOnly" in headers["set-cookie"]
        assert "SameSite=strict" in headers["set-cookie"]


def test_a_token_that_clients_could_read_is_refused(windrose_copy: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "token.txt").write_text(f"{TOKEN}\n")
    command = [
        sys.executable,
        "-m",
        "kb",
        "--db",
        str(windrose_copy),
        "serve",
        "--http",
        "0.0.0.0:0",
    ]
    refused = subprocess.run(
        [*command, "--token-file", "token.txt"],
        cwd=project, capture_output=True, encoding="utf-8", timeout=HANGS, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert refused.returncode == 3
    assert "clients could read token.txt" in refused.stderr


def test_a_server_ends_in_order_though_a_client_listens(windrose_copy: Path) -> None:
    with HttpServer(windrose_copy) as server:
        _, headers, _ = server.request("POST", "/mcp", INITIALIZE)
        listening = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANGS)
        session = {"Mcp-Session-Id": headers["mcp-session-id"]}
        listening.request("GET", "/mcp", headers={**HEADERS, **session})
        stream = listening.getresponse()
        assert stream.status == 200
        code, errors = server.end()
        assert stream.read() == b""
        listening.close()
    assert errors == ""
    assert_clean_end(windrose_copy, code, errors)


def test_a_client_that_goes_in_the_middle_of_a_request_leaves_no_traceback(
    windrose_copy: Path,
) -> None:
    with HttpServer(windrose_copy) as server:
        lines = [
            "POST /mcp HTTP/1.1",
            f"Host: 127.0.0.1:{server.port}",
            "Content-Length: 5000",
            *(f"{name}: {value}" for name, value in HEADERS.items()),
        ]
        with socket.create_connection(("127.0.0.1", server.port), HANGS) as half:
            half.sendall("\r\n".join([*lines, "", '{"jsonrpc":']).encode())
        assert server.request("POST", "/mcp", INITIALIZE)[0] == 200
        code, errors = server.end()
    assert errors == ""
    assert_clean_end(windrose_copy, code, errors)


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        (["Content-Length: 5", "Transfer-Encoding: chunked"], "hello", 400),
        (["Transfer-Encoding: chunked"], "no chunk\r\n", 400),
        (["Transfer-Encoding: chunked", "Origin: http://a.example"], "no chunk\r\n", 400),
    ],
    ids=["of two lengths", "of no chunks", "of no chunks, from a foreign page"],
)
def test_a_body_whose_end_cannot_be_told_is_refused_at_once_and_leaves_no_traceback(
    headers: list[str], body: str, status: int, windrose_copy: Path
) -> None:
    with HttpServer(windrose_copy) as server:
        lines = ["POST /mcp HTTP/1.1", f"Host: 127.0.0.1:{server.port}", *headers]
        lines += [f"{name}: {value}" for name, value in HEADERS.items()]
        with socket.create_connection(("127.0.0.1", server.port), HANGS) as client:
            client.sendall("\r\n".join([*lines, "", body]).encode())
            answer = b""
            while part := client.recv(4096):  # the connection is closed, too
                answer += part
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert server.request("POST", "/mcp", INITIALIZE)[0] == 200
        code, errors = server.end()
    assert "Traceback" not in errors
    assert code == 0


def test_a_client_that_leaves_takes_its_session_along(windrose_copy: Path) -> None:
    with HttpServer(windrose_copy) as server:
        _, headers, _ = server.request("POST", "/mcp", INITIALIZE)
        session = {"Mcp-Session-Id": headers["mcp-session-id"]}
        assert server.request("DELETE", "/mcp", None, session)[0] == 200
        message = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert server.request("POST", "/mcp", message, session)[0] == 404


def test_an_address_in_use_is_refused_with_the_way_out(
    windrose_copy: Path, shared_server: HttpServer
) -> None:
    here = f"127.0.0.1:{shared_server.port}"
    refused = subprocess.run(
        [sys.executable, "-m", "kb", "--db", str(windrose_copy), "serve", "--http", here],
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=HANGS,
    )
    assert refused.returncode == 3
    assert f"cannot listen at {here}" in refused.stderr
    assert "--http 127.0.0.1:0" in refused.stderr


def searched(file: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "kb", "--db", str(file), "search", *more],
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=HANGS,
    )


def test_kb_search_asks_the_running_server_and_prints_the_same(windrose_copy: Path) -> None:
    asked = ("calibrate the vane", "--format", "json", "--explain")
    alone = searched(windrose_copy, *asked)
    with HttpServer(windrose_copy) as server:
        served = searched(windrose_copy, *asked)
        assert served.stdout == alone.stdout
        # It loads neither the model nor the file.
        assert ["apsw" in one.stderr for one in (alone, served)] == [True, False]
        unknown = searched(windrose_copy, "vane", "-c", "windros")
        assert unknown.returncode == 1
        assert "Did you mean" in unknown.stderr
        assert searched(windrose_copy, "-vane").returncode == 1
        server.popen.kill()
        server.popen.wait()
        assert searched(windrose_copy, *asked).stdout == alone.stdout


def test_only_the_server_of_this_very_file_is_asked(windrose_copy: Path, tmp_path: Path) -> None:
    with HttpServer(windrose_copy) as server:
        said = running_server(windrose_copy, find_project())
        assert said is not None
        assert said.port == server.port
        assert ask(said, "/api/search", {"query": "wind"}) is not None
        assert running_server(windrose_copy, tmp_path) is None  # another project's aliases
        if Path("/proc/self/stat").exists():
            os.kill(server.popen.pid, signal.SIGSTOP)
            os.waitpid(server.popen.pid, os.WUNTRACED)
            assert running_server(windrose_copy, find_project()) is None  # it would not answer
            os.kill(server.popen.pid, signal.SIGCONT)
        replaced = tmp_path / "other.db"
        shutil.copy(windrose_copy, replaced)
        os.replace(replaced, windrose_copy)
        assert running_server(windrose_copy, find_project()) is None
        server.end()
    assert not list((Path.home() / ".cache" / "kb" / "servers").iterdir())


def test_no_client_reads_the_token_of_who_runs_the_server(
    windrose_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the project is somebody's home, with the cache in it."""
    home = (
        windrose_copy.parent.parent if windrose_copy.parent.name == ".kb" else windrose_copy.parent
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    with HttpServer(windrose_copy, "--root", str(home)) as server:
        (place,) = (home / ".cache" / "kb" / "servers").glob("*.json")
        token = json.loads(place.read_text())["token"]
        session = {**server.open_session(), "Accept": "application/json"}
        for name, arguments in (
            ("read_file", {"path": place.relative_to(home).as_posix()}),
            ("grep_codebase", {"pattern": "is_reachable"}),
        ):
            call = {"name": name, "arguments": arguments}
            message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
            _, _, text = server.request("POST", "/mcp", message, session)
            assert token not in text
            assert "PERMISSION_DENIED" in text or "No matches" in text
        server.end()

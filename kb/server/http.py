"""Serve over Streamable HTTP at /mcp, to several clients at once."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from kb.errors import KbError, SourceError, UsageError
from kb.models.embedder import BUILDS
from kb.search.files import SearchedFile
from kb.search.results import search_for_people
from kb.server.access import Access, Guard, is_loopback
from kb.server.clients import IDLE_SECONDS, MOST_CLIENTS, SESSION_HEADER, Clients
from kb.server.page.views import page_routes
from kb.server.running import announce, identity, retract
from kb.server.wire import LONGEST_LINE
from kb.store.findings import quick
from kb.tools.arguments import clean_values
from kb.tools.session import Session

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "Binding", "bind", "parse_address", "run_over_http"]

log = logging.getLogger("kb.server")

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8642
BACKLOG = 128
_ESCAPED_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
# Clients give an idle connection up after some seconds. Where we are first, their next request
# fails on its way, and a busy client notices late.
KEEP_SECONDS = 120
LEAVE_SECONDS = 2  # that answers under way may take after the end was asked for


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a server listens, and whom it answers."""

    socket: socket.socket
    access: Access
    host: str
    port: int

    @property
    def address(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}"


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of "HOST:PORT", "[::1]:PORT", "HOST", ":PORT" or "PORT".

    Raises:
        UsageError: anything else.
    """
    host, _, port = text.rpartition(":") if ":" in text.rpartition("]")[2] else (text, "", "")
    if not port and host.isdecimal():
        host, port = "", host
    host = host.removeprefix("[").removesuffix("]") or DEFAULT_HOST
    if port and (not port.isdecimal() or not port.isascii() or int(port) > 65535):
        raise UsageError(f"{text!r} is no address: give HOST:PORT, such as 127.0.0.1:8642")
    return host, int(port) if port else DEFAULT_PORT


def bind(host: str, port: int, access: Access) -> Binding:
    """Listen at an address; the port 0 is any that is free.

    Raises:
        SourceError: the address cannot be had.
    """
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(place[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise SourceError(
            f"cannot listen at {host}:{port}: {error.strerror or error}: give another address, "
            f"such as --http {host}:0 for any free port"
        ) from error
    return Binding(listening, access, host, int(listening.getsockname()[1]))


async def run_over_http(
    server: Server[Any],
    clients: Clients,
    binding: Binding,
    stop: anyio.Event,
    ready: Callable[[str], object],
) -> None:
    """Serve until `stop` is set and what is under way is answered, or takes too long."""
    manager = StreamableHTTPSessionManager(
        server,
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        session_idle_timeout=IDLE_SECONDS,
        max_request_body_size=LONGEST_LINE,
        max_sessions=MOST_CLIENTS,
    )
    app = Guard(_app(manager, clients, with_page=is_loopback(binding.host)), binding.access)
    web = _Web(
        uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_keep_alive=KEEP_SECONDS,
            timeout_graceful_shutdown=LEAVE_SECONDS,
        )
    )
    database = clients.host.database.path
    said = announce(
        database,
        binding.host if binding.host not in ("0.0.0.0", "::") else DEFAULT_HOST,
        binding.port,
        binding.access.token,
        clients.host.knowledge.project,
    )
    try:
        async with anyio.create_task_group() as tasks:
            async with manager.run():
                tasks.start_soon(web.serve, [binding.socket])
                await web.has_started()
                ready(binding.address)
                await stop.wait()
                retract(said)
            # Only now that the clients' streams have ended, for which it would wait.
            web.should_exit = True
    finally:
        retract(said)


class _Web(uvicorn.Server):
    """The web server; signals are for those who run it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield

    async def has_started(self) -> None:
        while not self.started:
            await anyio.sleep(0.01)


def _app(manager: StreamableHTTPSessionManager, clients: Clients, *, with_page: bool) -> Starlette:
    # The page shows, and takes back, what was learned: that is for this machine.
    return Starlette(
        routes=[
            Route("/mcp", _Protocol(manager, clients)),
            Route("/api/search", _search(clients.host), methods=["POST"]),
            *(page_routes(clients) if with_page else ()),
        ]
    )


class _Protocol:
    """The protocol's endpoint; who leaves it takes the session along."""

    def __init__(self, manager: StreamableHTTPSessionManager, clients: Clients) -> None:
        self._manager = manager
        self._clients = clients

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session_id = Request(scope).headers.get(SESSION_HEADER, "")
        with self._clients.answering(session_id):
            await self._manager.handle_request(scope, _mending(receive), send)
        if scope["method"] == "DELETE":
            await anyio.to_thread.run_sync(self._clients.leave, session_id)


def _mending(receive: Receive) -> Receive:
    """Bodies whose text UTF-8 can hold: half of a surrogate pair would be refused as no JSON."""

    async def received() -> Message:
        message = await receive()
        if message["type"] != "http.request" or not message.get("body"):
            return message
        body = message["body"]
        while message.get("more_body") and len(body) <= LONGEST_LINE:
            message = await receive()
            body += message.get("body", b"")
        if _ESCAPED_HALF.search(body):
            with contextlib.suppress(ValueError, RecursionError):
                body = json.dumps(clean_values(json.loads(body))).encode()
        return {**message, "type": "http.request", "body": body}

    return received


def _search(session: Session) -> Callable[[Request], Any]:
    """The search of `kb search`, whose options it takes."""

    async def search(request: Request) -> JSONResponse:
        try:
            asked = await request.json()
            answer = await anyio.to_thread.run_sync(_found, session, asked)
        except KbError as error:
            return JSONResponse(error.as_result(), 400)
        except (ValueError, TypeError, KeyError) as error:
            return JSONResponse({"error": f"no search: {error}"}, 400)
        return JSONResponse(answer)

    return search


def _found(session: Session, asked: dict[str, Any]) -> dict[str, Any]:
    session.activity.note_call()
    rows, notice = search_for_people(
        [SearchedFile(session.model, session.names)],  # who asks names one file
        str(asked["query"]),
        [str(name) for name in asked.get("collections", [])],
        limit=int(asked.get("limit", 10)),
        rerank=bool(asked.get("rerank")),
        explain=bool(asked.get("explain")),
        distances=bool(asked.get("distances", True)),
        paths=[str(glob) for glob in asked.get("paths", [])],
    )
    with session.database.read() as connection:
        findings = quick(connection, BUILDS)
    return {
        "rows": rows,
        "notice": notice,
        "problems": [f"{finding.message}; {finding.remedy}" for finding in findings],
        "file": identity(session.database.path),
    }

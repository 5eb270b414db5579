"""One file over HTTP: the protocol at /mcp, the search of commands, the page for people."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.to_thread
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from kb.errors import KbError
from kb.models.embedder import BUILDS
from kb.search.files import SearchedFile
from kb.search.results import search_for_people
from kb.server.access import Access, refused
from kb.server.access_log import exchange_of
from kb.server.authentication import Authentication, principal_of
from kb.server.clients import (
    IDLE_SECONDS,
    MOST_CLIENTS,
    MOST_OF_TOKEN,
    SESSION_HEADER,
    Clients,
)
from kb.server.page.views import page_routes
from kb.server.running import identity
from kb.server.wire import LONGEST_LINE
from kb.store.findings import quick
from kb.tools.arguments import clean_values
from kb.tools.session import Session

__all__ = ["Endpoint"]

VERSION_HEADER = "mcp-protocol-version"
_ESCAPED_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether something failed here: a client that goes amid its request is no fault."""
    return not (record.exc_info and isinstance(record.exc_info[1], ClientDisconnect))


logging.getLogger("mcp.server.streamable_http").addFilter(_is_ours)


class Endpoint:
    """The application of one file; `running` has to be entered while it answers.

    Args:
        with_page: whether the page is served too, for whoever runs the server.
        requests_per_minute: of each token; None: as many as it likes.
    """

    def __init__(
        self,
        server: Server[Any],
        clients: Clients,
        access: Access,
        *,
        with_page: bool,
        requests_per_minute: int | None,
    ) -> None:
        self._manager = StreamableHTTPSessionManager(
            server,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            session_idle_timeout=IDLE_SECONDS,
            max_request_body_size=LONGEST_LINE,
            max_sessions=MOST_CLIENTS,
        )
        app = Starlette(
            routes=[
                Route("/mcp", _Protocol(self._manager, clients)),
                Route("/api/search", _search(clients.host), methods=["POST"]),
                *(page_routes(clients) if with_page else ()),
            ]
        )
        database = clients.host.database
        self._app = Authentication(app, database, access, requests_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What goes on beside the answers; its end ends open streams."""
        async with self._manager.run(), anyio.create_task_group() as beside:
            beside.start_soon(self._app.watch)
            yield
            beside.cancel_scope.cancel()


class _Protocol:
    """The protocol's endpoint; who leaves it takes the session along."""

    def __init__(self, manager: StreamableHTTPSessionManager, clients: Clients) -> None:
        self._manager = manager
        self._clients = clients

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session_id = Request(scope).headers.get(SESSION_HEADER, "")
        if _opens_session(scope):
            principal = principal_of(scope)
            if principal.is_guest and self._clients.count_of(principal) >= MOST_OF_TOKEN:
                why = f"this token has {MOST_OF_TOKEN} sessions open already: end some of them"
                await refused(scope, 429, why)(scope, receive, send)
                return
            send = self._noting_session(scope, send)
        with self._clients.answering(session_id):
            await self._manager.handle_request(scope, _mending(receive), send)
        if scope["method"] == "DELETE":
            await anyio.to_thread.run_sync(self._clients.leave, session_id)

    def _noting_session(self, scope: Scope, send: Send) -> Send:
        """Tells the clients of a session as soon as it is open, not at its first question."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                for name, value in message["headers"]:
                    if name.decode("latin-1").lower() == SESSION_HEADER:
                        self._clients.open(value.decode("latin-1"), principal_of(scope))
            await send(message)

        return sent


def _opens_session(scope: Scope) -> bool:
    """Whether a request can only be the first of a session: the later protocol has none."""
    headers = Request(scope).headers
    version = headers.get(VERSION_HEADER)
    is_old = version is None or version in HANDSHAKE_PROTOCOL_VERSIONS
    return scope["method"] == "POST" and SESSION_HEADER not in headers and is_old


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
        exchange = exchange_of(request.scope)
        exchange.asked = "/api/search"
        try:
            asked = await request.json()
            exchange.note_query(asked["query"])
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

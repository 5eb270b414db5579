"""The protocol's endpoint over HTTP, around the library's transport.

Input is checked as over stdio (`kb.server.wire`). Beyond that the library expects what not all
clients do. Some give every request the same id, or two at once: each gets its own here, since with
equal ids the library hands one request's answer to another. Some accept JSON alone, and get it.
Some reopen their stream before the server has noticed that the old one is dead: the new one
replaces it.
"""

from __future__ import annotations

import itertools
import json
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from kb.server.access import refused
from kb.server.authentication import principal_of
from kb.server.bodies import ARGUMENTS, SMALL, Desk, body_of, replayed
from kb.server.clients import MOST_OF_TOKEN, SESSION_HEADER, Clients
from kb.server.wire import CALL, Line, as_line, parse_line

VERSION_HEADER = "mcp-protocol-version"
STREAM, DATA = "text/event-stream", b"data: "
NO_BODY = {
    "jsonrpc": "2.0",
    "id": None,
    "error": {"code": types.PARSE_ERROR, "message": "Parse error: the request has no body"},
}


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether something failed here: a session that ends amid its requests is no failure."""
    error = record.exc_info[1] if record.exc_info else None
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return not isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError)


logging.getLogger("mcp.server.streamable_http").addFilter(_is_ours)


class Protocol:
    """The protocol's endpoint; a client that leaves it ends its session."""

    def __init__(self, manager: StreamableHTTPSessionManager, clients: Clients, desk: Desk) -> None:
        self._manager = manager
        self._clients = clients
        self._desk = desk
        self._streams: dict[str, _Stream] = {}  # by session
        self._ids = (f"{secrets.token_hex(8)}-{number}" for number in itertools.count())
        # By session and the client's id, our ids of the requests under way.
        self._under_way: dict[tuple[str, str], list[str]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Request(scope).headers
        session_id = headers.get(SESSION_HEADER, "")
        is_first = SESSION_HEADER not in headers and _has_sessions(headers)
        if scope["method"] == "POST" and is_first:
            principal = principal_of(scope)
            if principal.is_guest and self._clients.count_of(principal) >= MOST_OF_TOKEN:
                why = f"this token has {MOST_OF_TOKEN} sessions open already: end some of them"
                await refused(scope, 429, why)(scope, receive, send)
                return
            send = self._noting_session(scope, send)
        with self._clients.answering(session_id):
            if scope["method"] == "POST":
                await self._post(scope, receive, send, session_id)
            elif (
                scope["method"] == "GET"
                and (client := self._clients.find(session_id)) is not None
                and client.principal.key == principal_of(scope).key
            ):
                await self._listen(scope, receive, send, session_id)
            else:
                await self._manager.handle_request(scope, receive, send)
        if scope["method"] == "DELETE":
            await anyio.to_thread.run_sync(self._clients.leave, session_id)

    async def _post(self, scope: Scope, receive: Receive, send: Send, session_id: str) -> None:
        body = body_of(scope)
        line = await self._desk.run(parse_line, body, len(body))
        if not line.messages:
            await _not_taken(line, body)(scope, receive, send)
            return
        (message,) = line.messages
        headers = Headers(scope=scope)
        both = MutableHeaders(raw=list(scope["headers"]))
        both["accept"] = f"application/json, {STREAM}"  # the library insists on both
        scope = {**scope, "headers": both.raw}
        is_large = len(body) > SMALL
        if is_large and isinstance(message, types.JSONRPCRequest) and message.method == CALL:
            # Bypasses the library, which would parse and check them while all others wait.
            scope[ARGUMENTS] = (message.params or {}).pop("arguments", None)
        with self._named(session_id, message, _has_sessions(headers)) as ids:
            receive = replayed(await self._desk.run(as_line, message, len(body)), receive)
            if ids is None:
                await self._manager.handle_request(scope, receive, send)
                return
            kinds = {
                kind.partition(";")[0].strip() for kind in headers.get("accept", "").split(",")
            }
            reply = _Reply(send, *ids, as_json=kinds.isdisjoint((STREAM, "text/*", "*/*")))
            await self._manager.handle_request(scope, receive, reply.send)
            await reply.finish()

    @contextmanager
    def _named(
        self, session_id: str, message: Any, has_sessions: bool
    ) -> Iterator[tuple[str, str] | None]:
        """Yields a request's own id for a while, and the client's as JSON; a cancellation gets the
        same id. Yields None if the message keeps its id."""
        if not has_sessions or not isinstance(message, types.JSONRPCRequest):
            if has_sessions and message.method == "notifications/cancelled" and message.params:
                given = json.dumps(message.params.get("requestId"))
                if same := self._under_way.get((session_id, given)):
                    message.params["requestId"] = same[-1]
            yield None
            return
        given, message.id = json.dumps(message.id), next(self._ids)
        same = self._under_way.setdefault((session_id, given), [])
        same.append(message.id)
        try:
            yield message.id, given
        finally:
            same.remove(message.id)
            if not same:
                del self._under_way[session_id, given]

    async def _listen(self, scope: Scope, receive: Receive, send: Send, session_id: str) -> None:
        if (former := self._streams.get(session_id)) is not None:
            former.scope.cancel()
            await former.ended.wait()
        stream = self._streams[session_id] = _Stream()
        try:
            with stream.scope:
                await self._manager.handle_request(scope, receive, send)
        finally:
            stream.ended.set()
            if self._streams.get(session_id) is stream:
                del self._streams[session_id]
        if stream.scope.cancelled_caught:
            with suppress(RuntimeError):  # nothing of it was sent
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _noting_session(self, scope: Scope, send: Send) -> Send:
        """Notes a session as soon as it is open, not at its first request."""

        async def sent(message: Message) -> None:
            is_start = message["type"] == "http.response.start" and message["status"] < 400
            headers = Headers(raw=message["headers"] if is_start else [])
            if session_id := headers.get(SESSION_HEADER):
                self._clients.open(session_id, principal_of(scope))
            await send(message)

        return sent


class _Stream:
    """The stream of a session, for what the client did not ask for."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()


class _Reply:
    """Sends the answer to one request, always one, with the id that the client gave (as JSON) in
    place of ours, which nobody can guess; `as_json` without a stream."""

    def __init__(self, send: Send, request_id: str, given: str, *, as_json: bool) -> None:
        self._send = send
        self._our_id, self._client_id = json.dumps(request_id).encode(), given.encode()
        self._as_json = as_json
        self._start: Message | None = None  # of a stream that has no answer yet
        self._is_done = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if Headers(raw=message["headers"]).get("content-type") == STREAM:
                self._start = message
            else:
                self._as_json = False
            if not (self._start and self._as_json):
                await self._send(message)
            return
        body: bytes = message.get("body", b"")
        if self._our_id in body:
            await self._answer(body.replace(self._our_id, self._client_id, 1))
        elif self._start and not message.get("more_body"):
            await self.finish()
        elif not (self._as_json or self._is_done):
            await self._send(message)

    async def finish(self) -> None:
        """Answer if the session ended before the library did."""
        if self._start is not None:
            error = {"code": types.INTERNAL_ERROR, "message": "the session ended meanwhile"}
            refusal = {"jsonrpc": "2.0", "id": json.loads(self._client_id), "error": error}
            await self._answer(b"event: message\r\ndata: %b\r\n" % as_line(refusal))

    async def _answer(self, event: bytes) -> None:
        start, self._start, self._is_done = self._start, None, True
        if start is not None and self._as_json:
            lines = event.splitlines()
            event = b"".join(line[len(DATA) :] for line in lines if line.startswith(DATA))
            headers = MutableHeaders(raw=list(start["headers"]))
            headers["content-type"] = "application/json"
            headers["content-length"] = str(len(event))
            await self._send({**start, "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": event, "more_body": False})


def _has_sessions(headers: Headers) -> bool:
    """Whether a request is of a protocol that has sessions, which the later one lacks."""
    version = headers.get(VERSION_HEADER)
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS


def _not_taken(line: Line, body: bytes) -> Response:
    """The answer to a body without anything to do."""
    refusals = line.refusals if body.strip() else [NO_BODY]
    if not refusals:
        return Response(status_code=202)  # a message that needs no answer
    return JSONResponse(refusals[0] if len(refusals) == 1 else list(refusals), 400)

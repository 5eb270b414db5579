"""One file over HTTP: the protocol at /mcp, searches of the command line, the page for people; or a
folder of files, each at its own address: /NAME/mcp is NAME.db.

Around the library's transport input is checked as over stdio (`kb.server.wire`). Beyond that the
library expects what not all clients do. Some give every request the same id, or two at once: each
gets its own here, since with equal ids the library hands one request's answer to another. Some
accept JSON alone, and get it. Some reopen their stream before the server has noticed that the old
one is dead: the new one replaces it.

A file of a folder is opened at its first request, also one that came after the start. The name in
an address is only ever compared with the names in the folder: no path is made of it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import Field, ValidationError
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from kb.disk.read import reason
from kb.errors import FileError, KbError, SourceError, UsageError
from kb.server.access import (
    LOOK_THREADS,
    Access,
    Authentication,
    exchange_of,
    principal_of,
    refused,
    shown_tokens,
    unknown,
)
from kb.server.background import start_embedding
from kb.server.clients import IDLE_SECONDS, MOST_CLIENTS, MOST_OF_TOKEN, SESSION_HEADER, Clients
from kb.server.http import HttpSettings
from kb.server.mcp import make_server
from kb.server.page.views import ask_for_token, missing, page_routes
from kb.server.running import identity
from kb.server.wire import (
    ARGUMENTS,
    CALL,
    LONGEST_MESSAGE,
    SMALL,
    Bodies,
    Desk,
    as_line,
    body_of,
    parse_line,
    replayed,
)
from kb.text.json_text import JsonError, parse_json
from kb.tools.parameters import Filtered
from kb.tools.registry import clean_values, field_errors, load_tools, tolerant
from kb.tools.session import Session

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
        # By session the stream for what the client did not ask for, and its end.
        self._streams: dict[str, tuple[anyio.CancelScope, anyio.Event]] = {}
        self._ids = (f"{secrets.token_hex(8)}-{number}" for number in itertools.count())
        # By session and the client's id, our ids of the requests under way.
        self._under_way: dict[tuple[str, str], list[str]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Request(scope).headers
        session_id = headers.get(SESSION_HEADER, "")
        is_first = SESSION_HEADER not in headers and _has_sessions(headers)
        if scope["method"] == "POST" and is_first:
            principal = principal_of(scope)
            count = sum(it.principal.key == principal.key for it in self._clients.all())
            if principal.is_guest and count >= MOST_OF_TOKEN:
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
            refusals = line.refusals if body.strip() else [NO_BODY]
            shown = refusals[0] if len(refusals) == 1 else list(refusals)
            # A message that needs no answer gets none.
            answer = JSONResponse(shown, 400) if refusals else Response(status_code=202)
            await answer(scope, receive, send)
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
            cancelling, ended = former
            cancelling.cancel()
            await ended.wait()
        stream = cancelling, ended = anyio.CancelScope(), anyio.Event()
        self._streams[session_id] = stream
        try:
            with cancelling:
                await self._manager.handle_request(scope, receive, send)
        finally:
            ended.set()
            if self._streams.get(session_id) is stream:
                del self._streams[session_id]
        if cancelling.cancelled_caught:
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


log = logging.getLogger("kb.server")

MOST_ROWS = 1000  # of a search; for more the command searches itself


class Endpoint:
    """The application of one file; `running` must be entered while it answers.

    Args:
        with_page: whether to serve the page too, for the server's owner.
        is_hidden: whether nobody without a token may learn that the file exists.
    """

    def __init__(
        self,
        clients: Clients,
        access: Access,
        settings: HttpSettings,
        *,
        with_page: bool = False,
        is_hidden: bool = False,
    ) -> None:
        self._manager = StreamableHTTPSessionManager(
            make_server(clients.host, load_tools(settings.families), clients),
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            session_idle_timeout=IDLE_SECONDS,
            # The limit was applied before; the body is rewritten since: a byte may become three.
            max_request_body_size=4 * LONGEST_MESSAGE,
            max_sessions=MOST_CLIENTS,
        )
        desk = Desk()
        app = Starlette(
            routes=[
                Route("/mcp", Protocol(self._manager, clients, desk)),
                Route("/api/search", _search(clients.host, desk), methods=["POST"]),
                *(page_routes(clients) if with_page else ()),
            ],
            exception_handlers={404: missing} if with_page else None,
        )
        base = clients.host.base
        self._app = Authentication(
            *(Bodies(app), base, access, settings.requests_per_minute),
            is_hidden=is_hidden,
            refuse=ask_for_token if with_page else None,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What runs beside the answers; its end ends open streams."""
        async with self._manager.run(), anyio.create_task_group() as beside:
            beside.start_soon(self._app.watch)
            yield
            beside.cancel_scope.cancel()


class _SearchOptions(Filtered):
    """The options of `kb search`."""

    query: str
    collections: list[str] = []  # noqa: RUF012 - a model copies it
    limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 10
    rerank: bool = False
    explain: bool = False
    distances: bool = True


_SCHEMA = _SearchOptions.model_json_schema()


def _search(session: Session, desk: Desk) -> Callable[[Request], Any]:
    async def search(request: Request) -> Response:
        exchange = exchange_of(request.scope)
        exchange.request, body = "/api/search", body_of(request.scope)
        try:
            options = await desk.run(_parsed, body, len(body))
            exchange.note_query(options.query)
            answer, status = await anyio.to_thread.run_sync(_search_result, session, options), 200
        except KbError as error:
            answer, status = as_line(error.as_result()), 400
        except Exception as error:
            log.exception("a search failed")
            why = f"the search failed: {type(error).__name__}. The server's log has the details"
            answer, status = as_line({"error": why, "code": KbError.code}), 500
        return Response(answer, status, media_type="application/json")

    return search


def _parsed(body: bytes) -> _SearchOptions:
    try:
        value = parse_json(body, from_client=True)
        if not isinstance(value, dict):
            raise UsageError('the body must be an object, such as {"query": "wind"}')
        return _SearchOptions.model_validate(tolerant(clean_values(value), _SCHEMA))
    except JsonError as error:
        raise UsageError(f"the body is not JSON that can be read: {error}") from error
    except ValidationError as error:
        problem = field_errors(error, _SCHEMA, {})
        raise UsageError(problem["error"], details=problem["details"]) from error


def _search_result(session: Session, options: _SearchOptions) -> bytes:
    session.activity.note_call()
    # The caller names one file.
    rows, notice = session.base.search_for_people(**options.model_dump(), only_first=True)
    findings = session.base.problems()
    return as_line(
        {
            "rows": rows,
            "notice": notice,
            "problems": [f"{finding.message}; {finding.remedy}" for finding in findings],
            "file": identity(session.database.path),
        }
    )


SUFFIX = ".db"
LOOK_SECONDS = 5.0  # between checks whether open files are still there


def files_in(folder: Path) -> dict[str, Path]:
    """The files of a folder by the names in their addresses, without links, which may lead out.
    Raises SourceError if the folder cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return {
                entry.name.removesuffix(SUFFIX): Path(entry.path)
                for entry in sorted(entries, key=lambda entry: entry.name)
                if entry.name.endswith(SUFFIX)
                and not entry.name.startswith(".")
                and entry.is_file(follow_symlinks=False)
            }
    except OSError as error:
        raise SourceError(f"cannot read the folder {folder}: {reason(error)}") from error


@dataclass(eq=False)
class _Served:
    clients: Clients
    endpoint: Endpoint
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def is_in_place(self) -> bool:
        return self.clients.host.database.is_in_place()


class Folder:
    """The application of a folder; `running` must be entered while it answers.

    Args:
        session: on no file; those on the files share its settings.
        beside: what runs beside the answers of a file; cancelled at its end.
    """

    def __init__(
        self,
        folder: Path,
        session: Session,
        access: Access,
        settings: HttpSettings,
        beside: Callable[[Clients], Coroutine[Any, Any, None]],
    ) -> None:
        self._folder = folder
        self._session = session
        self._access = access
        self._settings = settings
        self._beside = beside
        self._served: dict[str, _Served] = {}
        self._problems: dict[str, str] = {}
        self._opening: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._tasks: Any = None
        # In threads of our own: requests for files that are not served take none from tool calls.
        limiter = anyio.CapacityLimiter(LOOK_THREADS)
        self._in_thread: Any = partial(anyio.to_thread.run_sync, limiter=limiter)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path"].split("/")[1]
        shown = shown_tokens(HTTPConnection(scope))
        is_owner = any(map(self._access.is_token, shown))
        served = self._served.get(name)
        try:
            if served is None or not served.is_in_place:
                if self._access.asks and not shown:
                    await unknown(scope)(scope, receive, send)
                    return
                files = await self._in_thread(files_in, self._folder)
                if name not in files:
                    await self._no_file(scope, files, is_owner)(scope, receive, send)
                    return
                exchange_of(scope).file = name
                served = await self._at(name, files[name])
        except KbError as error:
            if self._problems.get(name) != error.message:
                log.error("%s", error.message)
            self._problems[name] = error.message
            why = "this file cannot be opened now: the server's log says why; others are served"
            answer = refused(scope, 503, why) if is_owner else unknown(scope)
            await answer(scope, receive, send)
            return
        exchange_of(scope).file = name
        self._problems.pop(name, None)
        await served.endpoint({**scope, "root_path": f"/{name}"}, receive, send)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What runs beside the answers; its end closes the files."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._close_lost)
            yield
            for served in self._served.values():
                served.ended.set()
            tasks.cancel_scope.cancel()

    async def _at(self, name: str, path: Path) -> _Served:
        async with self._opening[name]:
            if (served := self._served.get(name)) is not None:
                if served.is_in_place:
                    return served
                served.ended.set()  # another file took its place
            session: Session = await self._in_thread(self._session.on_file, path)
            start_embedding(session)
            clients = Clients(session, several=True)
            endpoint = Endpoint(clients, self._access, self._settings, is_hidden=True)
            served = self._served[name] = _Served(clients, endpoint)
            await self._tasks.start(self._serve, served)
            return served

    async def _serve(self, served: _Served, *, task_status: Any) -> None:
        """Keep one file open until it is removed, or everything ends."""
        try:
            async with served.endpoint.running(), anyio.create_task_group() as beside:
                beside.start_soon(self._beside, served.clients)
                task_status.started()
                await served.ended.wait()
                beside.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_close, served.clients)

    async def _close_lost(self) -> None:
        while True:
            await anyio.sleep(LOOK_SECONDS)
            for name, served in list(self._served.items()):
                if not served.is_in_place:
                    self._served.pop(name)
                    served.ended.set()

    def _no_file(self, scope: Scope, files: dict[str, Path], is_owner: bool) -> Response:
        """The answer for a name that the folder lacks; only the owner gets a list."""
        if is_owner:
            exchange_of(scope).token = "owner"
            if scope["path"] == "/":
                listed = [{"name": name, "address": f"/{quote(name)}/mcp"} for name in files]
                for row in listed:
                    if problem := self._problems.get(row["name"]):
                        row["problem"] = problem
                return JSONResponse({"files": listed})
            return refused(scope, 404, "there is no such file: /NAME/mcp is the address of NAME.db")
        return unknown(scope)


def _close(clients: Clients) -> None:
    try:
        clients.end()
        clients.host.close()
    except FileError as error:  # it is gone, and what was noted of sessions with it
        log.info("%s", error.message)

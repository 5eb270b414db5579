"""Bodies of requests: read once, within one limit, and parsed where nobody has to wait.

The event loop answers everybody, so what takes longer than a moment runs in a thread. That helps
only where no step holds the interpreter: see `kb.text.json_text` and `kb.text.file_names`, which
bound theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kb.server.access import refused
from kb.server.wire import LONGEST_MESSAGE

T = TypeVar("T")

KEY = "kb.body"  # of the ASGI scope
ARGUMENTS = "kb.arguments"  # of the ASGI scope: a call's large arguments
SMALL = 50_000  # bytes that are parsed on the spot
LARGE_AT_ONCE = 4  # bodies: each may take a gigabyte while it is parsed


class _Refused(Exception):
    """A body that is not accepted: the status, and why."""


class Bodies:
    """Wraps the routes: handlers find the body of a request whole."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        try:
            body = await _read_whole(scope, receive)
        except ClientDisconnect:
            return
        except _Refused as error:
            answer = refused(scope, *error.args)
            answer.headers["Connection"] = "close"  # the rest of the body is not read
            await answer(scope, receive, send)
            return
        await self._app({**scope, KEY: body}, replayed(body, receive), send)


class Desk:
    """Where bodies are parsed: small ones at once, large ones a few at a time in threads."""

    def __init__(self) -> None:
        self._threads = anyio.CapacityLimiter(LARGE_AT_ONCE)

    async def run(self, function: Callable[[Any], T], value: Any, size: int) -> T:
        """The function's result for a value of so many bytes."""
        if size <= SMALL:
            return function(value)
        return await anyio.to_thread.run_sync(function, value, limiter=self._threads)


def body_of(scope: Scope) -> bytes:
    body: bytes = scope[KEY]
    return body


def replayed(body: bytes, receive: Receive) -> Receive:
    """Receives a body that was read before, and then what follows it."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return waiting.pop() if waiting else await receive()

    return received


async def _read_whole(scope: Scope, receive: Receive) -> bytes:
    headers = HTTPConnection(scope).headers
    encoding = headers.get("content-encoding", "").strip().casefold()
    if encoding not in ("", "identity"):
        raise _Refused(415, f"a body is read as it is: send it without Content-Encoding {encoding}")
    limit = f"the body has more than {LONGEST_MESSAGE // 1_000_000} MB"
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > 2 * LONGEST_MESSAGE:
        raise _Refused(413, limit)
    parts: list[bytes] = []
    size, is_whole = 0, False
    # A client that is still sending reads no refusal: as much again is read and thrown away.
    while not is_whole and size <= 2 * LONGEST_MESSAGE:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        part, is_whole = message.get("body", b""), not message.get("more_body", False)
        size += len(part)
        if size <= LONGEST_MESSAGE:
            parts.append(part)
        else:
            parts.clear()
    if size > LONGEST_MESSAGE:
        raise _Refused(413, limit)
    return b"".join(parts)

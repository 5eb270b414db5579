"""JSON-RPC messages and bodies of requests: checked before anything uses them, and answered.

The protocol's library drops what it cannot read, or calls it a parse error. Here every line of
stdin and every body over HTTP becomes a message or a refusal, which says what is wrong, with the
request's id wherever one can be made out: most clients ignore an answer without one.

The event loop answers everybody, so what takes longer than a moment runs in a thread. That helps
only where no step holds the interpreter: see `kb.text.json_text` and `kb.text.file_names`, which
bound theirs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message as HttpMessage, Receive, Scope, Send

from kb.errors import KbError, NotFoundError, UsageError
from kb.server.access import exchange_of, refused
from kb.text.file_names import writable
from kb.text.json_text import JsonError, parse_json
from kb.tools.call import echoed
from kb.tools.registry import LONGEST_NAME, clean_values

log = logging.getLogger("kb.server")

# Bytes. The largest document that a call may add takes 20 MB, and three times that if a client
# escapes its letters.
LONGEST_MESSAGE = 64_000_000
LONGEST_OTHER = 1_000_000  # bytes of a message that calls no tool
CALL = "tools/call"
_TAIL = 1000  # bytes at either end of an overlong line

Message = types.JSONRPCRequest | types.JSONRPCNotification | types.JSONRPCResponse

_ID = r'"id"\s*:\s*(-?\d{1,300}|"(?:[^"\\]|\\.){0,300}")\s*'
_OTHER = r'"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*'
_FIRST_ID = re.compile(rf"{{\s*(?:{_OTHER},\s*)*{_ID}")
_LAST_ID = re.compile(rf"{_ID}(?:,\s*{_OTHER})*}}\s*$")


@dataclass(frozen=True, slots=True)
class Line:
    """What one line of input contains."""

    messages: Sequence[Message] = ()
    refusals: Sequence[dict[str, Any]] = ()  # JSON-RPC error responses


def read_line(stream: BinaryIO) -> Line | None:
    """The next line of a client's input; None at its end."""
    if not (data := stream.readline(LONGEST_MESSAGE + 1)):
        return None
    if len(data) <= LONGEST_MESSAGE:
        return parse_line(data)
    length, tail = len(data), data[-_TAIL:]
    while not tail.endswith(b"\n") and (more := stream.readline(1 << 20)):
        length, tail = length + len(more), (tail + more)[-_TAIL:]
    ends = (data[:_TAIL] + tail).decode("utf-8", "replace")
    limit = LONGEST_MESSAGE // 1_000_000
    why = f"the line has {length / 1e6:.0f} MB, more than the limit of {limit} MB"
    return Line(refusals=[_refusal(types.INVALID_REQUEST, why, _id_somewhere(ends))])


def parse_line(data: bytes) -> Line:
    """The messages of a line, or why it has none; a blank one has neither."""
    if not (text := data.decode("utf-8", "replace").removeprefix("\ufeff").strip()):
        return Line()
    try:
        value = parse_json(text, from_client=True)
    except JsonError as error:
        code = types.INVALID_REQUEST if error.is_bound else types.PARSE_ERROR
        why = str(error) if error.is_bound else f"not JSON: {error}"
        return Line(refusals=[_refusal(code, why, _id_somewhere(text))])
    if isinstance(value, list):
        ids = [item.get("id") for item in value if isinstance(item, dict)]
        usable = list(filter(_is_id, ids)) or [None]
        why = "a batch is not a message: send one at a time"
        return Line(refusals=[_refusal(types.INVALID_REQUEST, why, given) for given in usable])
    if not isinstance(value, dict):
        return Line(refusals=[_refusal(types.INVALID_REQUEST, "a message is an object")])
    if len(data) > LONGEST_OTHER and value.get("method") != CALL:
        why = f"only {CALL} may have more than {LONGEST_OTHER // 1_000_000} MB"
        return Line(refusals=[_refusal(types.INVALID_REQUEST, why, value.get("id"))])
    return _checked(value)


def as_line(message: Any) -> bytes:
    """A reply, a notification or a refusal as a line to write; the only place that does this."""
    if isinstance(message, dict):
        return _dumped(message)
    try:
        text: str = message.model_dump_json(by_alias=True, exclude_unset=True)
        return text.encode() + b"\n"
    except ValueError:  # a lone surrogate: UTF-8 has none
        return _dumped(message.model_dump(by_alias=True, exclude_unset=True))


def _dumped(message: dict[str, Any]) -> bytes:
    # A client finds its request by the id, which is returned unchanged, whatever its letters.
    content = {name: part if name == "id" else writable(part) for name, part in message.items()}
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _checked(value: dict[str, Any]) -> Line:
    method, params, given = value.get("method"), value.get("params"), value.get("id")
    if "method" not in value and ("result" in value or "error" in value):
        return Line()  # we ask clients nothing, so this answers nothing
    code, why = types.INVALID_REQUEST, ""
    if "id" in value and not _is_id(given):
        why = "the id is neither a text nor a whole number"
    elif value.get("jsonrpc") != "2.0":
        why = 'jsonrpc is not "2.0"'
    elif not isinstance(method, str):
        why = "the method is not a text"
    elif params is not None and not isinstance(params, dict):
        code, why = types.INVALID_PARAMS, "params is not an object"
    if why:
        if "id" not in value and isinstance(method, str):
            log.info("a notification was passed over: %s", why)
            return Line()
        return Line(refusals=[_refusal(code, why, given)])
    fields = {"jsonrpc": "2.0", "method": clean_values(method)}
    if params is not None:
        if method == CALL:
            params = _with_object(params)
        fields["params"] = clean_values(params)
    if "id" not in value:
        return Line([types.JSONRPCNotification.model_construct(**fields)])
    return Line([types.JSONRPCRequest.model_construct(**fields, id=given)])


def _with_object(params: dict[str, Any]) -> dict[str, Any]:
    """A call with an object as its tool's arguments, and a plausible name. JSON text is parsed;
    anything else gets a name that the tool lacks, so that its own refusal says what it takes."""
    name, arguments = params.get("name"), params.get("arguments")
    if isinstance(name, str) and len(name) > LONGEST_NAME:
        params = {**params, "name": name[: LONGEST_NAME + 1]}
    if arguments is None or isinstance(arguments, dict):
        return params
    if isinstance(arguments, str):
        with contextlib.suppress(JsonError):
            arguments = parse_json(arguments, from_client=True)
    if not isinstance(arguments, dict):
        arguments = {"arguments": arguments}
    return {**params, "arguments": arguments}


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _refusal(code: int, why: str, request_id: Any = None) -> dict[str, Any]:
    sort = {types.PARSE_ERROR: "Parse error", types.INVALID_PARAMS: "Invalid params"}
    message = f"{sort.get(code, 'Invalid request')}: {why}"
    # An id of another kind is given back too, if it can be: its client may find it.
    scalar = isinstance(request_id, str | int | float)
    error = {"code": code, "message": message}
    return {"jsonrpc": "2.0", "id": request_id if scalar else None, "error": error}


def _id_somewhere(text: str) -> Any:
    """The id of a text that is not a message, where it stands near its start or at its end."""
    id_ = _FIRST_ID.match(text) or _LAST_ID.search(text, max(0, len(text) - _TAIL))
    try:
        return parse_json(id_[1]) if id_ else None
    except JsonError:
        return None


T = TypeVar("T")

BODY = "kb.body"  # of the ASGI scope
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
        await self._app({**scope, BODY: body}, replayed(body, receive), send)


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
    body: bytes = scope[BODY]
    return body


def replayed(body: bytes, receive: Receive) -> Receive:
    """Receives a body that was read before, and then what follows it."""
    waiting: list[HttpMessage] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> HttpMessage:
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


MOST_PROBLEMS = 5
# The library's message for a request before the handshake.
_TOO_EARLY = "Invalid request parameters"


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Run what waits for the disk; our errors become the protocol's."""
    try:
        return await anyio.to_thread.run_sync(function, *arguments)
    except KbError as error:
        is_request = isinstance(error, NotFoundError | UsageError)
        code = types.INVALID_PARAMS if is_request else types.INTERNAL_ERROR
        raise MCPError(code, echoed(error.message), echoed(error.as_result())) from error


async def explained(ctx: Any, call_next: Callable[[Any], Any]) -> Any:
    """Middleware of every request: notes its method for the access log, and explains the library's
    refusals."""
    if ctx.request is not None:
        exchange_of(ctx.request.scope).note_method(ctx.method)
        if (arguments := ctx.request.scope.get(ARGUMENTS)) is not None:
            # Large ones, which went past the library.
            ctx = dataclasses.replace(ctx, params={**ctx.params, "arguments": arguments})
    try:
        return await call_next(ctx)
    except ValidationError as error:
        raise MCPError(types.INVALID_PARAMS, f"Invalid params: {_problems(error)}") from error
    except MCPError as error:
        if error.error.message != _TOO_EARLY:
            raise
        why = f'send "initialize" before "{ctx.method}"'
        raise MCPError(types.INVALID_REQUEST, f"Invalid request: {why}") from error
    except Exception as error:
        log.exception("%s failed", ctx.method)
        why = f"{type(error).__name__}: {error}. The server's log has the details"
        raise MCPError(types.INTERNAL_ERROR, f"{ctx.method} failed: {why}") from error


def _problems(error: ValidationError) -> str:
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    texts = [
        f"{'.'.join(map(str, row['loc'])) or 'params'}: {row['msg'][:1].lower()}{row['msg'][1:]}"
        for row in errors[:MOST_PROBLEMS]
    ]
    return "; ".join(texts)

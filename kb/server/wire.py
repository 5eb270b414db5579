"""Lines of JSON-RPC: what a client sends, checked before anything uses it, and what it is answered.

The protocol's library drops a line that it cannot take, and the client waits for ever. Here every
line becomes a message or a refusal, which carries the request's id wherever one can be made out:
most clients take no notice of an answer without one.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import mcp_types as types

from kb.text.file_names import writable
from kb.tools.arguments import clean_values

__all__ = ["LONGEST_LINE", "Line", "as_line", "parse_line", "read_line"]

log = logging.getLogger("kb.server")

# Bytes. The largest document that a call may add takes 20 MB, and three times that when a client
# escapes its letters.
LONGEST_LINE = 64_000_000
DEEPEST = 100  # arrays and objects inside each other; our own schemas need four
LONGEST_NUMBER = 300  # digits; a float has at most 309
_SCANNED = 1_000_000  # characters that are looked through for the id of a broken line
_TAIL = 1000  # bytes at the end of a line that is too long

Message = types.JSONRPCRequest | types.JSONRPCNotification | types.JSONRPCResponse

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s"\[\]{}:,]+')
_LAST_ID = re.compile(
    r'"id"\s*:\s*(-?\d{1,300}|"(?:[^"\\]|\\.){0,300}")\s*'
    r'(?:,\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*)*}\s*$'
)


@dataclass(frozen=True, slots=True)
class Line:
    """What one line of input came to."""

    messages: Sequence[Message] = ()
    refusals: Sequence[dict[str, Any]] = ()  # JSON-RPC error responses


def read_line(stream: BinaryIO) -> Line | None:
    """The next line of a client's input; None at its end."""
    data = stream.readline(LONGEST_LINE + 1)
    if not data:
        return None
    if len(data) <= LONGEST_LINE:
        return parse_line(data)
    length, tail = len(data), data[-_TAIL:]
    while not tail.endswith(b"\n") and (more := stream.readline(1 << 20)):
        length, tail = length + len(more), (tail + more)[-_TAIL:]
    head = data[:_SCANNED].decode("utf-8", "replace")
    found = _id_in(head) or _id_at_end(tail.decode("utf-8", "replace"))
    limit = LONGEST_LINE // 1_000_000
    why = f"the line has {length / 1e6:.0f} MB, more than the limit of {limit} MB"
    return Line(refusals=[_refusal(types.INVALID_REQUEST, why, found)])


def parse_line(data: bytes) -> Line:
    """The messages of a line, or why it holds none; a blank one is passed over."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").strip()
    if not text:
        return Line()
    try:
        value = json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_no_number)
    except RecursionError:
        why = f"arrays and objects lie more than {DEEPEST} deep in each other"
        return Line(refusals=[_refusal(types.INVALID_REQUEST, why, _id_in(text))])
    except ValueError as error:
        return Line(refusals=[_refusal(types.PARSE_ERROR, f"no JSON: {error}", _id_in(text))])
    if isinstance(value, list):
        ids = [item.get("id") for item in value if isinstance(item, dict)]
        usable = [one for one in ids if _is_id(one)]
        why = "a batch is no message: send one message a line"
        return Line(
            refusals=[_refusal(types.INVALID_REQUEST, why, one) for one in usable or [None]]
        )
    if not isinstance(value, dict):
        return Line(refusals=[_refusal(types.INVALID_REQUEST, "a message is an object")])
    return _checked(value)


def as_line(message: Any) -> bytes:
    """A reply, a notification or a refusal as the line to be written: the one place for all."""
    if isinstance(message, dict):
        return _dumped(message)
    try:
        text: str = message.model_dump_json(by_alias=True, exclude_unset=True)
        return text.encode() + b"\n"
    except ValueError:  # a lone surrogate: UTF-8 has none
        return _dumped(message.model_dump(by_alias=True, exclude_unset=True))


def _dumped(message: dict[str, Any]) -> bytes:
    # A client finds its request by the id, so that is given back whatever letters it has.
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
        why = "the method is no text"
    elif params is not None and not isinstance(params, dict):
        code, why = types.INVALID_PARAMS, "params is no object"
    elif _is_deep(params):
        why = f"arrays and objects lie more than {DEEPEST} deep in each other"
    if why:
        if "id" not in value and isinstance(method, str):
            log.info("a notification was passed over: %s", why)
            return Line()
        return Line(refusals=[_refusal(code, why, given)])
    fields = {"jsonrpc": "2.0", "method": clean_values(method)}
    if params is not None:
        fields["params"] = clean_values(params)
    if "id" not in value:
        return Line([types.JSONRPCNotification.model_construct(**fields)])
    return Line([types.JSONRPCRequest.model_construct(**fields, id=given)])


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _refusal(code: int, why: str, request_id: Any = None) -> dict[str, Any]:
    sort = {types.PARSE_ERROR: "Parse error", types.INVALID_PARAMS: "Invalid params"}
    message = f"{sort.get(code, 'Invalid request')}: {why}"
    # An id of another kind is given back too, if it can be: its client may find it.
    scalar = isinstance(request_id, str | int | float)
    error = {"code": code, "message": message}
    return {"jsonrpc": "2.0", "id": request_id if scalar else None, "error": error}


def _is_deep(value: Any) -> bool:
    """Whether a value has more levels than anything that walks through it may count on."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            item
            for container in level
            if isinstance(container, dict | list)
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True


def _integer(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:30]} is too large")
    return number


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number in JSON")


def _id_in(text: str) -> Any:
    """The id of the outermost object in a text that is no JSON as a whole; None without one."""
    depth, key, expects_value = 0, "", False
    for found in _TOKEN.finditer(text, 0, _SCANNED):
        token = found[0]
        if token in "[{":
            depth, expects_value = depth + 1, False
        elif token in "]}":
            depth, expects_value = depth - 1, False
        elif depth == 1 and token == ":":
            expects_value = key == '"id"'
        elif expects_value:
            return _scalar(token)
        key = token if depth == 1 else ""
    return None


def _id_at_end(text: str) -> Any:
    """The same for the end of a text, where some clients write it."""
    found = _LAST_ID.search(text)
    return _scalar(found[1]) if found else None


def _scalar(token: str) -> Any:
    try:
        value = json.loads(token, parse_int=_integer)
    except ValueError:
        return None
    return value if _is_id(value) else None

"""One line per request over HTTP: when, whose token, what, the outcome, how long it took.

The line is JSON. It never contains a token, or an unknown name, which could be one; what was
searched for only if that is asked for.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kb.disk.read import reason
from kb.errors import SourceError

KEY = "kb.exchange"  # of the ASGI scope
LONGEST_QUERY = 1000
STDERR = "-"
UNKNOWN = "unknown"
_METHOD = re.compile(r"[a-z]{1,30}(?:/[a-zA-Z_]{1,30}){0,3}")
_OF_HTTP = {"GET": "stream", "DELETE": "end of session", "POST": "notification"}
_QUERIES = ("query", "queries", "pattern")  # arguments of tools that say what is searched for

Write = Callable[[str], None]


@dataclass(slots=True)
class Exchange:
    """What is known of a request; those who answer it fill it in."""

    token: str = ""  # its name
    file: str = ""  # of several
    request: str = ""  # a method of the protocol, or an address
    tool: str = ""
    code: str = ""  # of a tool's error
    query: str = ""

    def note_method(self, method: str) -> None:
        """Note a method as the client wrote it, which may be anything."""
        self.request = method if _METHOD.fullmatch(method) else UNKNOWN

    def note_call(self, tool: str, arguments: Any, code: str) -> None:
        """Note the call of a tool that exists."""
        self.tool, self.code = tool, code
        if isinstance(arguments, dict):
            queries = [arguments[name] for name in _QUERIES if name in arguments]
            self.note_query(queries[0] if queries else "")

    def note_query(self, query: Any) -> None:
        text = query if isinstance(query, str) else json.dumps(query, default=str)
        self.query = text[:LONGEST_QUERY]


def exchange_of(scope: Scope) -> Exchange:
    exchange: Exchange = scope.setdefault(KEY, Exchange())
    return exchange


def make_writer(place: str) -> Write:
    """Writes lines to a file, which may be moved away at any time, or to stderr for "-". Raises
    SourceError if the file cannot be written."""
    handler: logging.Handler
    if place == STDERR:
        handler = logging.StreamHandler(sys.stderr)
    else:
        path = Path(place).expanduser()
        try:
            path.touch(mode=0o600)  # it says who asked for what
            handler = WatchedFileHandler(path, encoding="utf-8")
        except OSError as error:
            raise SourceError(f"cannot write the access log {place}: {reason(error)}") from error
    logger = logging.Logger("kb.access")  # outside the tree: no other level or handler applies
    logger.addHandler(handler)
    return logger.info


class AccessLog:
    """Wraps everything, so that refused requests are logged too."""

    def __init__(self, app: ASGIApp, write: Write, *, with_queries: bool = False) -> None:
        self._app = app
        self._write = write
        self._with_queries = with_queries

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange_of(scope)  # made here: those who answer may get a copy of the scope
        status, began = 0, time.perf_counter()  # 0: the client left before an answer

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sent)
        finally:
            self._write(self._line(scope, status, time.perf_counter() - began))

    def _line(self, scope: Scope, status: int, seconds: float) -> str:
        exchange = exchange_of(scope)
        method = exchange.request
        if not method and scope["path"].endswith("/mcp") and status < 400:
            method = _OF_HTTP.get(scope["method"], "")
        shown = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "token": exchange.token,
            "file": exchange.file,
            "asked": method or UNKNOWN,
            "tool": exchange.tool,
            "status": status,
            "code": exchange.code,
            "ms": round(seconds * 1000, 1),
            "query": exchange.query if self._with_queries else "",
        }
        return json.dumps({key: value for key, value in shown.items() if value != ""})

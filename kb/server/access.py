"""Who may use a server over HTTP: where a request may come from, whose it is, and the log of both.

A page of another site must not reach a server on this machine through the user's browser, neither
by its own name that resolves here (the Host is checked) nor across sites (the Origin is). `Guard`
looks before anything else does.

Whose request it is tells the token that it shows, looked up in the file each time: a hash takes a
tenth of a millisecond, so nothing is cached between requests, and a token revoked by any process
opens nothing from then on. What it opened before and is still open (a stream of events) `watch`
ends.

The access log has a line of JSON for each request: when, whose token, what, the outcome, how long
it took. It never contains a token, or an unknown name, which could be one; what was searched for
only if that is asked for.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import json
import logging
import re
import secrets
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import anyio
import anyio.to_thread
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kb.disk.read import reason
from kb.errors import KbError, SourceError, UsageError
from kb.library.knowledge_base import KnowledgeBase
from kb.results.roles import WRITE
from kb.tools.session import ALL_RIGHTS, Rights, Window

EXCHANGE = "kb.exchange"  # of the ASGI scope
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
    exchange: Exchange = scope.setdefault(EXCHANGE, Exchange())
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


SHORTEST_TOKEN = 16
REFUSED = -32000  # JSON-RPC's first code for a server's own errors
_ORIGIN = re.compile(r"https?://(?:[\w.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Access:
    """What a request has to show."""

    names: frozenset[str]  # that the Host header may have, without port
    any_address: bool  # whether it may be any IP address: no site can make one its name
    token: str  # the server owner's, made for this process if none was given
    asks: bool  # whether a token is needed even for a file that has none
    # Of pages elsewhere that may use the protocol, such as "https://inspector.example".
    origins: frozenset[str] = frozenset()

    def may_be_called(self, host: str) -> bool:
        if host.startswith("["):
            host = host[1:].partition("]")[0]
        elif ":" in host:
            host = host.rpartition(":")[0]
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return host.casefold() in self.names
        return self.any_address or host.casefold() in self.names

    def is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.token.encode())


def make_access(
    host: str,
    token: str,
    names: Sequence[str] = (),
    *,
    has_tokens: bool = False,
    origins: Sequence[str] = (),
) -> Access:
    """What requests to a server at this address have to show.

    Args:
        token: that opens everything; "" for none.
        names: further names of the server, such as a reverse proxy's.
        has_tokens: whether what is served has its own tokens.
        origins: of pages elsewhere that may use the protocol.

    Raises:
        UsageError: no token, or a poor one, beyond this machine; a malformed origin.
    """
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise UsageError(
                f"{origin} is not an origin: give scheme, host and port as the browser sends them, "
                "such as https://tools.example or http://localhost:6274"
            )
    inside = is_loopback(host)
    if not inside and not token and not has_tokens:
        raise UsageError(
            f"{host} can be reached from other machines, so a token is needed: make one for each "
            "person with `kb token add NAME`, or put a secret of at least "
            f"{SHORTEST_TOKEN} characters into the environment variable KB_TOKEN, or into a file "
            "that --token-file names"
        )
    if token and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise UsageError(
            f"the token must have at least {SHORTEST_TOKEN} printable ASCII characters"
        )
    if " " in token:
        raise UsageError("the token must not contain blanks")
    allowed = {*LOOPBACK_NAMES, *(name.casefold() for name in names)}
    if not inside:
        allowed |= {host.casefold(), socket.gethostname().casefold(), socket.getfqdn().casefold()}
    return Access(
        frozenset(allowed),
        any_address=not inside,
        token=token or secrets.token_urlsafe(32),
        asks=bool(token) or not inside,
        origins=frozenset(origin.casefold() for origin in origins),
    )


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own, which no other can reach."""
    if host.casefold() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets requests through that come from where they may."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        # Answers browsers' preflight requests, which carry no token, and lets the page read.
        self._for_pages = CORSMiddleware(
            app,
            allow_origins=sorted(access.origins),
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),  # the protocol's contain names of parameters
            allow_private_network=True,
            expose_headers=("Mcp-Session-Id", "WWW-Authenticate", "Retry-After"),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (refusal := self._refusal(scope)) is not None:
            await refusal(scope, receive, send)
            return
        if scope["path"].endswith("/mcp/"):  # a redirect would lose the body or the token
            scope = {**scope, "path": scope["path"].removesuffix("/")}
        app = self._for_pages if self._is_from_page(scope) else self._app
        await app(scope, receive, send)

    def _is_from_page(self, scope: Scope) -> bool:
        """Whether a page elsewhere asks that may use the protocol, and nothing else."""
        origin = HTTPConnection(scope).headers.get("origin", "").casefold()
        return origin in self._access.origins and scope["path"].endswith("/mcp")

    def _refusal(self, scope: Scope) -> Response | None:
        headers = HTTPConnection(scope).headers
        if scope["path"].startswith("/.well-known/"):  # where clients look for a login
            return refused(scope, 404, "nothing is published here")
        if "content-length" in headers and "transfer-encoding" in headers:
            # Readers of the one and of the other see different requests (RFC 9112, 6.3), and
            # chunks may never end.
            refusal = refused(scope, 400, "give Content-Length or Transfer-Encoding, not both")
            refusal.headers["Connection"] = "close"
            return refusal
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._access.may_be_called(host):
            return refused(scope, 421, f"this server is not called {host!r}: see --allow-host")
        if self._is_from_page(scope):
            return None
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].casefold() != host.casefold():
            return refused(scope, 403, "requests from pages of other sites are refused")
        # A link may lead here, but a page elsewhere may not embed this one.
        if (
            headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
            and headers.get("sec-fetch-mode") != "navigate"
        ):
            return refused(scope, 403, "requests from pages of other sites are refused")
        return None


def refused(scope: Scope, status: int, why: str) -> Response:
    """A refusal in plain words, in the protocol's own form at its address."""
    if not scope["path"].endswith("/mcp"):
        return PlainTextResponse(f"{why}\n", status)
    error = {"code": REFUSED, "message": why}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status)


log = logging.getLogger("kb.server")

COOKIE = "kb_token"
PRINCIPAL = "kb.principal"  # of the ASGI scope
LOOK_SECONDS = 0.25  # between checks whether what is open may stay open
MOST_OPEN = 200  # requests and streams of a token at once: each session may ask and listen
_START = "http.response.start"
LOOK_THREADS = 4  # of our own, so that long calls delay nobody who may come in


@dataclass(frozen=True, slots=True)
class Principal:
    """Whose request it is."""

    name: str = ""  # as in the log; "" where no token is needed
    token_hash: bytes = b""  # of the token in the file; empty for the server's owner, and anybody
    rights: Rights = ALL_RIGHTS
    requests_per_minute: int | None = None

    @property
    def key(self) -> str:
        """Tells principals apart, also two tokens made one after the other for the same name."""
        return self.token_hash.hex() or self.name

    @property
    def is_guest(self) -> bool:
        """Whether the server's owner gave this principal a token."""
        return bool(self.token_hash)


ANYBODY = Principal()
OWNER = Principal("owner")


def principal_of(scope: Scope) -> Principal:
    principal: Principal = scope.get(PRINCIPAL, ANYBODY)
    return principal


def shown_tokens(connection: HTTPConnection) -> list[str]:
    """The tokens that a request shows: in the protocol's header, else in the page's cookie."""
    scheme, _, given = connection.headers.get("authorization", "").partition(" ")
    if given:
        return [given.strip()] if scheme.casefold() == "bearer" else []
    cookie = connection.cookies.get(COOKIE)
    return [cookie] if cookie else []


class Authentication:
    """Wraps one file's application: lets in those who show a valid token for the file.

    Args:
        requests_per_minute: of tokens without a number of their own; None: unlimited.
        is_hidden: whether nobody without a token may learn that the file exists.
        refuse: answers those who show no valid token; by default as to a program.
    """

    def __init__(
        self,
        app: ASGIApp,
        base: KnowledgeBase,
        access: Access,
        requests_per_minute: int | None = None,
        *,
        is_hidden: bool = False,
        refuse: Callable[[Scope], Response] | None = None,
    ) -> None:
        self._app = app
        self._is_hidden = is_hidden
        self._refuse = refuse or unknown
        self._base = base
        self._access = access
        self._requests_per_minute = requests_per_minute
        self._windows: dict[str, Window] = {}
        self._open: dict[anyio.CancelScope, bytes] = {}
        limiter = anyio.CapacityLimiter(LOOK_THREADS)
        self._look: Any = partial(anyio.to_thread.run_sync, limiter=limiter)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (login := self._login(scope)) is not None:
            await login(scope, receive, send)
            return
        try:
            principal = await self._principal(HTTPConnection(scope))
        except KbError as error:
            log.warning("nobody can be let in: %s", error.message)
            why = "the file cannot be read now: the server's log says why"
            answer = unknown(scope) if self._is_hidden else refused(scope, 503, why)
            await answer(scope, receive, send)
            return
        if principal is None:
            await self._refuse(scope)(scope, receive, send)
            return
        scope[PRINCIPAL] = principal
        exchange_of(scope).token = principal.name
        refusal = self._too_many(scope, principal)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if principal.key:
            # Nobody else can then use the protocol's sessions.
            token = AccessToken(token="", client_id=principal.key, scopes=[])
            scope["user"] = AuthenticatedUser(token)
        await self._answer(principal, scope, receive, send)

    async def watch(self) -> None:
        """End what invalid tokens still have open. Does not return."""
        while True:
            await anyio.sleep(LOOK_SECONDS)
            if not (hashes := set(self._open.values())):
                continue
            with contextlib.suppress(KbError):  # the next request reports it
                valid = await self._look(self._base.valid_hashes, hashes)
                for scope, token_hash in list(self._open.items()):
                    if token_hash in hashes - valid:
                        scope.cancel()

    async def _answer(
        self, principal: Principal, scope: Scope, receive: Receive, send: Send
    ) -> None:
        began = ended = False

        async def sent(message: Message) -> None:
            nonlocal began, ended
            began, ended = True, not message.get("more_body", message["type"] == _START)
            await send(message)

        with anyio.CancelScope() as cancelling:
            if principal.is_guest:
                self._open[cancelling] = principal.token_hash
            try:
                await self._app(scope, receive, sent)
            finally:
                self._open.pop(cancelling, None)
        if not cancelling.cancelled_caught or ended:
            return
        if not began:
            await unknown(scope)(scope, receive, send)
            return
        with contextlib.suppress(RuntimeError):  # its length was announced
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _principal(self, connection: HTTPConnection) -> Principal | None:
        shown = shown_tokens(connection)
        if any(map(self._access.is_token, shown)):
            return OWNER
        principal: Principal | None = await self._look(self._principal_of, shown)
        return principal

    def _principal_of(self, shown: list[str]) -> Principal | None:
        grant, asks = self._base.find_holder(shown)
        if grant is None:
            return None if self._access.asks or asks else ANYBODY
        holder, token_hash = grant
        rights = Rights(may_write=holder.role == WRITE, may_choose_project=False)
        return Principal(holder.name, token_hash, rights, holder.requests_per_minute)

    def _too_many(self, scope: Scope, principal: Principal) -> Response | None:
        limit = principal.requests_per_minute or self._requests_per_minute
        if limit is not None and principal.is_guest:
            window = self._windows.setdefault(principal.key, Window(limit))
            if wait := window.enter():
                why = f"more than {limit} requests in a minute: wait {wait} seconds"
                answer = refused(scope, 429, why)
                answer.headers["Retry-After"] = str(wait)
                return answer
        if list(self._open.values()).count(principal.token_hash) < MOST_OPEN:
            return None
        why = f"this token has {MOST_OPEN} requests and streams open already: end some of them"
        return refused(scope, 429, why)

    def _login(self, scope: Scope) -> Response | None:
        """Move the token of an address into a cookie, by a redirect."""
        fields = parse_qsl(scope.get("query_string", b"").decode("latin-1"))
        given = [value for name, value in fields if name == "token"]
        if scope["method"] != "GET" or not given or not self._access.is_token(given[0]):
            return None
        rest = urlencode([(name, value) for name, value in fields if name != "token"])
        path = "/" + quote(scope["path"]).lstrip("/")  # with two slashes it would be a host
        answer = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
        answer.set_cookie(COOKIE, given[0], httponly=True, samesite="strict", path="/")
        return answer


def unknown(scope: Scope) -> Response:
    """The refusal of whoever shows no valid token, whether the file exists or not."""
    answer = refused(
        scope,
        401,
        "a valid token for this address is needed, as `Authorization: Bearer TOKEN` (where a "
        "folder of files is served, the address is /NAME/mcp for NAME.db)",
    )
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer

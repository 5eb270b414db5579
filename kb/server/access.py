"""Where a request over HTTP may come from: checked once, before anything else sees it.

A page of another site must not reach a server on this machine through the user's browser, neither
by its own name that resolves here (the Host is checked) nor across sites (the Origin is). Whose
request it is, `kb.server.authentication` finds out.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kb.errors import UsageError

SHORTEST_TOKEN = 16
REFUSED = -32000  # JSON-RPC's first code for a server's own errors
_ORIGIN = re.compile(r"https?://(?:[\w.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Access:
    """What a request has to show.

    Args:
        names: that the Host header may have, without port.
        any_address: whether it may be any IP address: no site can make one its name.
        token: the server owner's, made for this process if none was given.
        asks: whether a token is needed even for a file that has none.
        origins: of pages elsewhere that may use the protocol, such as "https://inspector.example".
    """

    names: frozenset[str]
    any_address: bool
    token: str
    asks: bool
    origins: frozenset[str] = frozenset()

    def may_be_called(self, host: str) -> bool:
        name = _without_port(host).casefold()
        return name in self.names or (self.any_address and _is_address(name))

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


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

"""Who may talk to the server over HTTP: checked once, before anything else sees a request.

A page of another site must not reach a server on this machine through the user's browser, neither
by its own name that resolves here (the Host is checked) nor by a request across sites (the Origin
is). Beyond this machine a token is needed as well.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kb.errors import UsageError

__all__ = ["SHORTEST_TOKEN", "Access", "Guard", "is_loopback", "make_access"]

SHORTEST_TOKEN = 16
COOKIE = "kb_token"
OWNER = "owner"  # whom the one token belongs to
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Access:
    """What a request has to show.

    Args:
        names: that the Host header may have, without port.
        any_address: whether it may be any IP address: no site can make one its own name.
        token: "" asks for none.
    """

    names: frozenset[str]
    any_address: bool
    token: str

    def may_be_called(self, host: str) -> bool:
        """Whether a Host header names this server."""
        name = _without_port(host).casefold()
        return name in self.names or (self.any_address and _is_address(name))

    def who(self, headers: Headers, cookie: str) -> str | None:
        """Whose request this is, "" where nobody is asked; None: nobody who may come in."""
        if not self.token:
            return ""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        shown = [given.strip()] if scheme.casefold() == "bearer" else []
        for one in filter(None, [*shown, cookie]):
            if self.is_token(one):
                return OWNER
        return None

    def is_token(self, text: str) -> bool:
        return bool(self.token) and hmac.compare_digest(text.encode(), self.token.encode())


def make_access(host: str, token: str, names: Sequence[str] = ()) -> Access:
    """What requests to a server at this address have to show.

    Args:
        names: under which it is reached besides, such as a reverse proxy's.

    Raises:
        UsageError: beyond this machine without a token, or with a poor one.
    """
    inside = is_loopback(host)
    if not inside and not token:
        raise UsageError(
            f"{host} can be reached from other machines, so a token is needed: put a secret of at "
            f"least {SHORTEST_TOKEN} characters into the environment variable KB_TOKEN, or into a "
            "file that --token-file names"
        )
    if token and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise UsageError(
            f"the token must have at least {SHORTEST_TOKEN} printable ASCII characters"
        )
    if token.strip() != token or " " in token:
        raise UsageError("the token must not contain blanks")
    known = {*LOOPBACK_NAMES, *(name.casefold() for name in names)}
    if not inside:
        known |= {host.casefold(), socket.gethostname().casefold(), socket.getfqdn().casefold()}
    return Access(frozenset(known), any_address=not inside, token=token)


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own, which no other one can reach."""
    if host.casefold() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets through what comes from where it should, for whom it should."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the start and the end; there are no web sockets
            await self._app(scope, receive, send)
            return
        if (refusal := self._refusal(scope)) is not None:
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        connection = HTTPConnection(scope)
        headers = connection.headers
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._access.may_be_called(host):
            return _refused(421, f"this server is not called {host!r}: see --allow-host")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].casefold() != host.casefold():
            return _refused(403, "requests from pages of other sites are refused")
        # A link may lead here; a page elsewhere may not put this into itself.
        if (
            headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
            and headers.get("sec-fetch-mode") != "navigate"
        ):
            return _refused(403, "requests from pages of other sites are refused")
        if (login := self._login(scope)) is not None:
            return login
        who = self._access.who(headers, connection.cookies.get(COOKIE, ""))
        if who is None:
            refusal = _refused(401, "a token is needed, as `Authorization: Bearer TOKEN`")
            refusal.headers["WWW-Authenticate"] = "Bearer"
            return refusal
        if who:
            # The protocol's sessions are then of use to nobody else.
            scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=who, scopes=[]))
        return None

    def _login(self, scope: Scope) -> Response | None:
        """From an address with the token to the same one without, and a cookie instead."""
        fields = parse_qsl(scope.get("query_string", b"").decode("latin-1"))
        given = [value for name, value in fields if name == "token"]
        if scope["method"] != "GET" or not given or not self._access.is_token(given[0]):
            return None
        rest = urlencode([(name, value) for name, value in fields if name != "token"])
        path = "/" + quote(scope["path"]).lstrip("/")  # with two slashes it would be a host
        answer = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
        answer.set_cookie(COOKIE, given[0], httponly=True, samesite="strict", path="/")
        return answer


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status)


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

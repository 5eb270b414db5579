"""Whose request it is: the token that it shows, looked up in the file each time.

Looking up a hash takes a tenth of a millisecond, so nothing is cached between requests: a token
revoked by any process opens nothing from then on. What it opened before and is still open (a
stream of events) `watch` ends.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

import anyio
import anyio.to_thread
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kb.errors import KbError
from kb.library.knowledge_base import KnowledgeBase
from kb.results.roles import WRITE
from kb.server.access import Access, refused
from kb.server.access_log import exchange_of
from kb.tools.session import ALL_RIGHTS, Rights, Window

log = logging.getLogger("kb.server")

T = TypeVar("T")

COOKIE = "kb_token"
KEY = "kb.principal"  # of the ASGI scope
LOOK_SECONDS = 0.25  # between checks whether what is open may stay open
MOST_OPEN = 200  # requests and streams of a token at once: each session may ask and listen
_START = "http.response.start"
LOOK_THREADS = 4  # of our own, so that long calls delay nobody who may come in


@dataclass(frozen=True, slots=True)
class Principal:
    """Whose request it is.

    Attributes:
        name: as in the log; "" where no token is needed.
        token_hash: of the token in the file; empty for the server's owner, and for anybody.
    """

    name: str = ""
    token_hash: bytes = b""
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
    principal: Principal = scope.get(KEY, ANYBODY)
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
        self._threads = anyio.CapacityLimiter(LOOK_THREADS)

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
        scope[KEY] = principal
        exchange_of(scope).token = principal.name
        refusal = self._too_many(scope, principal) or self._too_many_open(scope, principal)
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
        return await self._look(self._principal_of, shown)

    def _principal_of(self, shown: list[str]) -> Principal | None:
        grant, asks = self._base.find_holder(shown)
        if grant is None:
            return None if self._access.asks or asks else ANYBODY
        holder, token_hash = grant
        rights = Rights(may_write=holder.role == WRITE, may_choose_project=False)
        return Principal(holder.name, token_hash, rights, holder.requests_per_minute)

    async def _look(self, function: Callable[..., T], *arguments: Any) -> T:
        return await anyio.to_thread.run_sync(function, *arguments, limiter=self._threads)

    def _too_many(self, scope: Scope, principal: Principal) -> Response | None:
        limit = principal.requests_per_minute or self._requests_per_minute
        if limit is None or not principal.is_guest:
            return None
        window = self._windows.setdefault(principal.key, Window(limit))
        if not (wait := window.enter()):
            return None
        answer = refused(scope, 429, f"more than {limit} requests in a minute: wait {wait} seconds")
        answer.headers["Retry-After"] = str(wait)
        return answer

    def _too_many_open(self, scope: Scope, principal: Principal) -> Response | None:
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

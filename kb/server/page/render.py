"""Templates and headers of the page. Documents are untrusted text: none of it becomes markup."""

from __future__ import annotations

import hashlib
import secrets
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import MutableHeaders
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kb.results.search import score_word
from kb.settings import PACKAGE
from kb.text.counted import counted

ASSETS = PACKAGE / "assets"
STATIC, VENDOR = ASSETS / "page" / "static", ASSETS / "vendor"
FORM_SECRET = secrets.token_urlsafe(24)  # of this process: forms on other pages lack it

_HEADERS = {
    # Scripts and styles are our own files; nothing is loaded from, or sent, elsewhere.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without a referrer, a form would send no origin
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Sealed:
    """Wraps the page's routes: sets headers that restrict what a browser does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                _seal(MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, send_sealed)


def sealed(response: Response) -> Response:
    """The same response with these headers."""
    _seal(response.headers)
    return response


def _seal(headers: MutableHeaders) -> None:
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)


def page(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """One page, or a piece of one; `query` and `here` are "" unless given."""
    given = {"status": status, "query": "", "here": "", **values}
    return HTMLResponse(_templates().get_template(template).render(given), status)


def token_page(path: str, fields: Sequence[tuple[str, str]], *, is_wrong: bool) -> Response:
    """The page that asks for a token to continue at an address; it contains its styles, since
    without a token nothing else is served."""
    style = _templates().get_template("static/colours.css").render()
    response = page("token.html", 401, path=path, fields=fields, is_wrong=is_wrong, style=style)
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = _HEADERS["Content-Security-Policy"].replace(
        "style-src 'self'", f"style-src 'sha256-{digest}'"
    )
    response.headers["Content-Security-Policy"] = policy
    return sealed(response)


def document_address(
    collection: str,
    document: str,
    first: int = 0,
    last: int = 0,
    *,
    section: str = "",
    view: str = "",
) -> str:
    """Where the page shows a document, with these lines or section marked."""
    fields: dict[str, Any] = {"collection": collection, "id": document}
    if first:
        fields |= {"from": first, "to": last or first}
    fields |= {name: value for name, value in (("section", section), ("view", view)) if value}
    return f"/doc?{urlencode(fields)}" + (f"#L{first}" if first else "")


@cache
def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(ASSETS / "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"document_address": document_address, "form_secret": FORM_SECRET}
    made.filters["counted"] = counted
    made.filters["score_word"] = score_word
    made.filters["day"] = lambda time: str(time or "").replace("T", " ").removesuffix("Z")
    return made

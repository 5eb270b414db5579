"""Templates and headers of the page. Documents are strangers' text: nothing of them is markup."""

from __future__ import annotations

import secrets
from functools import cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import MutableHeaders
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kb import PACKAGE
from kb.search.score_words import score_word
from kb.text.counted import counted

__all__ = ["FORM_SECRET", "STATIC", "VENDOR", "Sealed", "document_address", "page"]

ASSETS = PACKAGE / "assets"
STATIC, VENDOR = ASSETS / "page" / "static", ASSETS / "vendor"
FORM_SECRET = secrets.token_urlsafe(24)  # of this process: a form of another page has it not

_HEADERS = {
    # Scripts and styles are files of ours; nothing is loaded from elsewhere, or sent there.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without any, a form would have no origin to show
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Sealed:
    """Around the page's routes: the headers that keep a browser from doing more than it should."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, sealed)


def page(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """One page, or a piece of one."""
    return HTMLResponse(_templates().get_template(template).render(**values), status)


def document_address(collection: str, document: str, first: int = 0, last: int = 0) -> str:
    """Where the page shows a document; with lines, where they are marked."""
    fields: dict[str, Any] = {"collection": collection, "id": document}
    if first:
        fields |= {"from": first, "to": last or first}
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

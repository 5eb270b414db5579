"""Templates and headers of the page, and a document as it shows it: Markdown rendered, all else and
on demand as its lines.

Documents are untrusted text: none of it becomes markup. Lines are where citations say, in any
format, and no document can cost more than its length: what takes long to render is shown as lines
too.
"""

from __future__ import annotations

import contextlib
import hashlib
import posixpath
import re
import secrets
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import unescape
from typing import Any
from urllib.parse import unquote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import MutableHeaders
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kb.disk.inside import resolve_inside
from kb.errors import KbError
from kb.library.overview import DocumentView, view_document
from kb.results.search import score_word
from kb.server.page.markdown import TooComplexError, highlight, render_markdown
from kb.settings import PACKAGE
from kb.text.counted import counted
from kb.tools.session import Session

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


Row = dict[str, Any]

MOST_LINES = 3000  # of one page
MOST_CHARACTERS = 400_000
MOST_RENDERED = 100_000  # characters: of hostile HTML as many take the sanitiser .5 s
LONGEST_LINE = 20_000
MOST_LINKS, MOST_CITATIONS = 3000, 300  # in the text, and listed beside it
BEFORE = 200  # lines above a passage far down in a long document
PICTURES = {
    **{f".{name}": f"image/{name}" for name in ("png", "gif", "webp", "avif", "jpeg")},
    ".jpg": "image/jpeg",
    ".svg": "image/svg+xml",
}
_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})")
_WEB = ("http://", "https://")
TOO_COMPLEX = "This text takes too long to be rendered, so its lines are shown."


@dataclass(frozen=True, slots=True)
class Line:
    """A line in pieces: text, the address it links to or "", and its kind in code or ""."""

    number: int
    pieces: Sequence[tuple[str, str, str]]
    level: int  # of a heading; 0: none
    is_code: bool
    is_passage: bool


def shown_document(
    session: Session, collection: str, document: str, first: int, last: int, *, as_source: bool
) -> Row:
    """All that the document's page needs.

    Args:
        first, last: the lines to mark; 0: none.
        as_source: show lines even if the document can be rendered.
    """
    view = view_document(session.base, collection, document, MOST_LINKS)
    content, name = view.document, view.collection["collection"]
    lines = content["content"].split("\n")
    if lines and not lines[-1]:
        lines.pop()
    first = min(first, len(lines))
    passage = (first, max(last, first))
    is_rendered, starts = view.is_markdown and not as_source, list[int]()
    if is_rendered:
        starts = [section["start_line"] for section in view.sections]
    start, end = _window(lines, first, MOST_RENDERED if is_rendered else MOST_CHARACTERS, starts)
    rendered, notice = "", ""
    if is_rendered:
        try:
            rendered = _rendered(view, lines[start - 1 : end], start, passage)
        except TooComplexError:
            notice = TOO_COMPLEX
    title = content["title"] or content["path"]
    other = document_address(name, content["path"], *passage, view="" if as_source else "source")
    made, received = view.made[:MOST_CITATIONS], view.received[:MOST_CITATIONS]
    return {
        **view.collection,
        "id": content["path"],
        "title": title,
        "has_title": start == 1 and title in _text(rendered.partition("</h1>")[0]),
        "file": view.file,
        "rendered": rendered,
        "notice": notice,
        "is_source": as_source,
        "other_view": other if view.is_markdown else "",
        "lines": [] if rendered else _lines(view, lines, start, end, passage),
        "outline": [section for section in view.sections if section["heading"].strip()],
        "cites": [_cited(row, "target_document_id", view.ends) for row in made],
        "cited_by": [_cited(row, "source_document_id", view.ends) for row in received],
        "total": len(lines),
        "start": start,
        "end": end,
        "before": max(1, start - MOST_LINES) if start > 1 else 0,
        "after": end + 1 if end < len(lines) else 0,
        "first": first,
        "last": passage[1],
    }


def _window(lines: Sequence[str], first: int, room: int, starts: Sequence[int]) -> tuple[int, int]:
    """The first and the last line of one page: from the beginning, or from above `first`.

    `room` is in characters; pages begin and end at one of the lines `starts` where they can.
    """
    start, end = 1, _end(lines, 1, room, starts)
    if first > end:
        start, left = first, room // 4
        while start > 1 and first - start < BEFORE and left > 0:
            start -= 1
            left -= len(lines[start - 1])
        start = next((line for line in starts if start <= line <= first), start)
        end = _end(lines, start, room, starts)
    return start, end


def _end(lines: Sequence[str], start: int, room: int, starts: Sequence[int]) -> int:
    end = start - 1
    while end < len(lines) and end - start + 1 < MOST_LINES and room > 0:
        room -= min(len(lines[end]), LONGEST_LINE)
        end += 1
    if end < len(lines):
        return max((line - 1 for line in starts if start < line <= end), default=end)
    return end


def _rendered(
    view: DocumentView, lines: Sequence[str], start: int, passage: tuple[int, int]
) -> str:
    path, name = view.document["path"], view.collection["collection"]
    targets = {row["target_url"]: row["target_document_id"] for row in view.made}

    def link(url: str) -> str | None:
        target, fragment = view.ends.get(targets.get(url) or 0), url.partition("#")[2]
        if target is not None:
            return document_address(target["shown"], target["path"], section=fragment)
        if url.startswith("#"):
            return document_address(name, path, section=fragment)
        return url if url.casefold().startswith((*_WEB, "mailto:")) else None

    def picture(url: str) -> str | None:
        written = unquote(re.split("[?#]", url)[0])
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), written))
        for file in (beside.lstrip("/"), written.lstrip("/")):
            with contextlib.suppress(KbError):
                if picture_type(file) and view.folder is not None:
                    resolve_inside(view.folder, file)
                    return f"/picture?{urlencode({'collection': name, 'path': file})}"
        return None

    return render_markdown([line[:LONGEST_LINE] for line in lines], start, passage, link, picture)


def _text(markup: str) -> str:
    return unescape(re.sub("<[^>]*>", "", markup))


def picture_type(path: str) -> str:
    """The media type of a picture by its name; "" for any other file."""
    return PICTURES.get(posixpath.splitext(path)[1].lower(), "")


def _lines(
    view: DocumentView, lines: Sequence[str], start: int, end: int, passage: tuple[int, int]
) -> list[Line]:
    levels = {section["start_line"]: section["level"] for section in view.sections}
    links: dict[int, list[Row]] = {}
    for citation in view.made:
        links.setdefault(citation["line"], []).append(citation)
    suffix = posixpath.splitext(view.document["path"])[1].removeprefix(".")
    # Code in colours, or text with its links.
    coloured = [] if view.is_markdown else highlight("\n".join(lines[start - 1 : end]), suffix)
    is_program = any(kind for row in coloured for kind, _ in row)
    shown, code = [], ""
    for number in range(start, end + 1):
        text = lines[number - 1][:LONGEST_LINE]
        fence = _FENCE.match(text)
        is_code = bool(is_program or code or fence)
        if fence and fence[1].startswith(code):
            code = "" if code else fence[1]
        if is_program:
            pieces = [(piece, "", kind) for kind, piece in coloured[number - start]]
        else:
            pieces = _pieces(text, links.get(number, ()), view.ends)
        is_passage = passage[0] <= number <= passage[1]
        shown.append(Line(number, pieces, levels.get(number, 0), is_code, is_passage))
    return shown


def _pieces(
    text: str, links: Sequence[Row], addresses: Mapping[int, Row]
) -> list[tuple[str, str, str]]:
    """The text, cut where a link's address occurs in it."""
    places = []
    for link in links:
        where, url = text.find(link["target_url"]), link["target_url"]
        leads = _leads_to(link["target_document_id"], url, addresses)
        if where >= 0 and leads:
            places.append((where, where + len(url), leads))
    pieces, done = [], 0
    for first, last, leads in sorted(places):
        if first < done:
            continue
        pieces += [(text[done:first], "", ""), (text[first:last], leads, "")]
        done = last
    return [piece for piece in [*pieces, (text[done:], "", "")] if piece[0]]


def _leads_to(document_id: int | None, url: str, addresses: Mapping[int, Row]) -> str:
    if document_id is not None and document_id in addresses:
        row = addresses[document_id]
        return document_address(row["shown"], row["path"])
    return url if url.casefold().startswith(_WEB) else ""


def _cited(row: Row, end: str, addresses: Mapping[int, Row]) -> Row:
    """A citation with the other document's name and address."""
    other = addresses.get(row[end])
    line = row["line"] if end == "source_document_id" else 0
    return {
        "label": (other["title"] or other["path"]) if other else row["target_url"] or row["kind"],
        "place": f"{other['shown']}/{other['path']}" if other else "",
        "address": document_address(other["shown"], other["path"], line)
        if other
        else _leads_to(None, row["target_url"], addresses),
        "line": row["line"],
        "context": " ".join(row["context"].split()),
        "is_similar": row["confidence"] < 1,
        "is_web": row[end] is None,
    }

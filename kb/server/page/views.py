"""The pages: search, a document, the graph, collections, what assistants did, discoveries."""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode

import anyio.to_thread
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from kb.disk.inside import read_inside
from kb.errors import KbError, NotFoundError, SectionNotFound, UsageError
from kb.library import overview
from kb.library.resolve import read_page
from kb.results.filters import FilterOptions
from kb.results.search import score_word
from kb.server.access import exchange_of, principal_of, unknown
from kb.server.clients import Clients
from kb.server.page.render import (
    FORM_SECRET,
    STATIC,
    VENDOR,
    Sealed,
    document_address,
    page,
    picture_type,
    sealed,
    shown_document,
    token_page,
)
from kb.server.wire import body_of
from kb.tools.session import Session

log = logging.getLogger("kb.server")

RESULTS = 20
NEAREST = 3  # documents shown if none is likely
RECENT = 6
DOCUMENTS = 200  # of a collection on one page
SESSIONS, EVENTS = 30, 20
LONGEST_FORM = 10_000
LARGEST_PICTURE = 20_000_000  # bytes
PICTURE_POLICY = "default-src 'none'; sandbox"
_ID = re.compile(r"[\w-]{1,64}")

View = Callable[[Clients, Request], Response]


def page_routes(clients: Clients) -> list[Route | Mount]:
    shown: dict[str, View] = {
        "/": search,
        "/results": results,
        "/doc": document,
        "/picture": picture,
        "/graph": graph,
        "/collections": collections,
        "/collection": collection,
        "/activity": activity,
        "/discoveries": discoveries,
    }
    routes: list[Route | Mount] = [
        Route(path, Sealed(_answering(clients, view)), methods=["GET"])
        for path, view in shown.items()
    ]
    routes.append(Route("/forget", Sealed(_answering(clients, forget)), methods=["POST"]))
    routes += [
        Mount("/static", Sealed(StaticFiles(directory=STATIC))),
        Mount("/vendor", Sealed(StaticFiles(directory=VENDOR))),
    ]
    return routes


def _answering(clients: Clients, view: View) -> Any:
    """A view, run where it may wait for the disk; errors become pages too."""

    async def endpoint(request: Request) -> Response:
        exchange_of(request.scope).request = request.url.path  # one of ours
        if principal_of(request.scope).is_guest:
            return _error(403, "This page is for the one who runs the server: its token opens it.")
        try:
            return await anyio.to_thread.run_sync(view, clients, request)
        except KbError as error:
            return _error(404 if isinstance(error, NotFoundError) else 400, error.message)
        except Exception as error:
            log.exception("%s failed", request.url.path)
            return _error(500, f"{type(error).__name__}. The server's log has the details.")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        await (await endpoint(request))(scope, receive, send)

    return app


def _error(status: int, message: str) -> Response:
    return page("error.html", status, message=message)


def missing(request: Request, _: Exception) -> Response:
    """The answer for an address that leads nowhere."""
    if not _is_read_by_people(request) or principal_of(request.scope).is_guest:
        return PlainTextResponse("Not Found", 404)
    return sealed(_error(404, f"There is no page at {request.url.path}."))


def ask_for_token(scope: Scope) -> Response:
    """The answer to whoever shows no valid token: people are asked for one."""
    request = HTTPConnection(scope)
    answer = unknown(scope)
    if not _is_read_by_people(request):
        return answer
    fields = [field for field in request.query_params.multi_items() if field[0] != "token"]
    shown = token_page(request.url.path, fields, is_wrong="token" in request.query_params)
    shown.headers["WWW-Authenticate"] = answer.headers["WWW-Authenticate"]
    return shown


def _is_read_by_people(request: HTTPConnection) -> bool:
    """Whether a browser asks for a page to show."""
    is_read = request.scope["method"] == "GET" and not request.url.path.endswith("/mcp")
    return is_read and "text/html" in request.headers.get("accept", "")


def search(clients: Clients, request: Request) -> Response:
    """The search, with results if there is a query, else what there is."""
    return page("search.html", **_results(clients.host, request), here="search")


def results(clients: Clients, request: Request) -> Response:
    """The results alone, for a search while it is typed."""
    return page("results.html", **_results(clients.host, request))


def _results(session: Session, request: Request) -> dict[str, Any]:
    query = request.query_params.get("q", "").strip()
    collection = request.query_params.get("c", "")
    rows: list[dict[str, Any]] = []
    notice = ""
    if query:
        session.activity.note_call()
        try:
            rows, notice = session.base.search_for_people(
                query,
                collections=[collection] if collection else [],
                limit=RESULTS,
                **_filters(request),
            )
        except UsageError as error:  # such as an unfinished query
            notice = error.message
    documents: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        row.setdefault("sectionHeading", "")
        row["pieces"] = _pieces(row["snippet"], row["marks"])
        row["address"] = document_address(
            row["collection"], row["documentId"], row["startLine"], row["endLine"]
        )
        documents.setdefault((row["collection"], row["documentId"]), []).append(row)
    groups = [*documents.values()]
    is_likely = score_word(max((row["relevanceScore"] for row in rows), default=0)) != "unlikely"
    listed, counts = overview.list_everything(session.base)
    return {
        "query": query,
        "collection": collection,
        "documents": groups if is_likely else [group[:1] for group in groups[:NEAREST]],
        "is_likely": is_likely,
        "notice": notice or session.lost,
        "collections": [row["shown"] for row in listed],
        "counts": counts,
        "recent": None if query else session.base.recent(limit=RECENT),
    }


def _filters(request: Request) -> FilterOptions:
    """The filters in an address, such as `?q=wind&tag=boats&since=2026`."""
    fields = request.query_params
    return {
        "paths": fields.getlist("path"),
        "tags": fields.getlist("tag"),
        "metadata": fields.getlist("meta"),
        "since": fields.get("since", ""),
        "until": fields.get("until", ""),
        "sort": fields.get("sort", "score"),
    }


def _pieces(snippet: str, marks: Any) -> list[tuple[str, bool]]:
    pieces, done = [], 0
    for first, last in marks:
        pieces += [(snippet[done:first], False), (snippet[first:last], True)]
        done = last
    return [piece for piece in [*pieces, (snippet[done:], False)] if piece[0]]


def document(clients: Clients, request: Request) -> Response:
    """A document with its outline, its citations and a passage marked."""
    fields = request.query_params
    name, id_ = fields.get("collection", ""), fields.get("id", "")
    if section := fields.get("section"):  # looked up only if somebody follows such a link
        line = 0
        with contextlib.suppress(SectionNotFound):
            line = clients.host.base.section(id_, f"#{section}", collection=name).start_line
        return RedirectResponse(document_address(name, id_, line, line), 303)
    first, last = (_number(fields.get(end, "0")) for end in ("from", "to"))
    is_source = fields.get("view") == "source"
    shown = shown_document(clients.host, name, id_, first, last, as_source=is_source)
    return page("document.html", **shown)


def picture(clients: Clients, request: Request) -> Response:
    """A picture in a collection's source, and nothing else of it."""
    path = request.query_params.get("path", "")
    if not (kind := picture_type(path)):
        raise UsageError(f"{path} is not a picture")
    name = request.query_params.get("collection", "")
    data = read_inside(overview.source_folder(clients.host.base, name), path, LARGEST_PICTURE).data
    # Opened by itself, a drawing could hold scripts.
    return Response(data, media_type=kind, headers={"Content-Security-Policy": PICTURE_POLICY})


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else 0


def graph(clients: Clients, _: Request) -> Response:
    """The citation graph of all documents."""
    picture = clients.host.base.graph_picture(lambda name, path, _: document_address(name, path))
    # No text of a document may end the element that contains the data.
    data = json.dumps(picture, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return page("graph.html", data=data, here="graph")


def collections(clients: Clients, _: Request) -> Response:
    """What the files contain."""
    session = clients.host
    rows, counts = overview.list_everything(session.base)
    files = [str(path) for path in (session.database.path, *session.knowledge.beside.paths)]
    values: dict[str, Any] = {
        "rows": rows,
        "counts": counts,
        "files": files,
        "notice": session.lost,
    }
    return page("collections.html", **values, here="collections")


def collection(clients: Clients, request: Request) -> Response:
    """The documents of a collection."""
    session, name = clients.host, request.query_params.get("name", "")
    start = _number(request.query_params.get("start", "0"))
    _, row, rows, total = read_page(session.base, name, DOCUMENTS, start)
    values: dict[str, Any] = {"row": row, "rows": rows, "total": total, "start": start}
    return page("collection.html", name=name, **values, step=DOCUMENTS, here="collections")


def activity(clients: Clients, _: Request) -> Response:
    """What assistants asked, read and learned, and how their calls went."""
    for session in clients.sessions():
        session.flush()
    base = clients.host.base
    sessions = overview.recent_sessions(base, SESSIONS, EVENTS)
    calls = overview.statistics_of_calls(base)
    return page("activity.html", sessions=sessions, calls=calls, here="activity")


def discoveries(clients: Clients, request: Request) -> Response:
    """What was learned, each with a way to delete it."""
    id_ = request.query_params.get("forgotten", "")
    rows = overview.discoveries_of_files(clients.host.base)
    modules: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row.get("module", "")):
        modules.setdefault(row.get("module", ""), []).append(row)
    forgotten = id_ if _ID.fullmatch(id_) else ""
    return page("discoveries.html", modules=modules, forgotten=forgotten, here="discoveries")


def forget(clients: Clients, request: Request) -> Response:
    """Delete a discovery. The form must be one of this process."""
    fields = dict(parse_qsl(body_of(request.scope)[:LONGEST_FORM].decode("utf-8", "replace")))
    if not hmac.compare_digest(fields.get("secret", "").encode(), FORM_SECRET.encode()):
        return _error(403, "This form is an old one: load the page again and repeat what you did.")
    for session in clients.sessions():
        session.flush()
    gone = clients.host.base.forget(fields.get("id", ""))
    return RedirectResponse(f"/discoveries?{urlencode({'forgotten': gone.id})}", 303)

"""The pages: search, a document, the graph, collections, what assistants did, discoveries."""

from __future__ import annotations

import hmac
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from kb.errors import KbError, NotFoundError, UsageError
from kb.ingest.discoveries import all_discoveries
from kb.ingest.forget import forget_discovery
from kb.search.files import SearchedFile
from kb.search.results import search_for_people
from kb.server.access_log import exchange_of
from kb.server.authentication import principal_of
from kb.server.clients import Clients
from kb.server.page.document import shown_document
from kb.server.page.render import FORM_SECRET, STATIC, VENDOR, Sealed, document_address, page
from kb.store.call_statistics import call_statistics, logged_calls
from kb.store.connection import Connection
from kb.store.contents import count_documents, documents_page, sizes
from kb.store.graph_picture import drawn_citations, picture_of
from kb.store.session_history import details_of_session, files_of_session, newest_sessions
from kb.tools.session import Session

__all__ = ["page_routes"]

log = logging.getLogger("kb.server")

RESULTS = 20
DOCUMENTS = 200  # of a collection on one page
SESSIONS, EVENTS = 30, 20
LONGEST_FORM = 10_000
_ID = re.compile(r"[\w-]{1,64}")

View = Callable[[Clients, Request], Response]


def page_routes(clients: Clients) -> list[Route | Mount]:
    """The page's addresses."""
    shown: dict[str, View] = {
        "/": search,
        "/results": results,
        "/doc": document,
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
    """A view, run where it may wait for the disk; what goes wrong is a page too."""

    async def endpoint(request: Request) -> Response:
        exchange_of(request.scope).asked = request.url.path  # one of ours
        if principal_of(request.scope).is_guest:
            message = "This page is for the one who runs the server: its token opens it."
            return page("error.html", 403, message=message, query="", here="")
        if request.method == "POST":
            await request.body()  # kept by the request, for the view
        try:
            return await anyio.to_thread.run_sync(view, clients, request)
        except KbError as error:
            status = 404 if isinstance(error, NotFoundError) else 400
            return page("error.html", status, message=error.message, query="", here="")
        except Exception as error:
            log.exception("%s failed", request.url.path)
            message = f"{type(error).__name__}. The server's log has the details."
            return page("error.html", 500, message=message, query="", here="")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        await (await endpoint(request))(scope, receive, send)

    return app


def search(clients: Clients, request: Request) -> Response:
    """The search, with results where something is asked; else what there is."""
    return page("search.html", **_found(clients.host, request), here="search")


def results(clients: Clients, request: Request) -> Response:
    """The results alone, for a search while it is typed."""
    return page("results.html", **_found(clients.host, request))


def _found(session: Session, request: Request) -> dict[str, Any]:
    query = request.query_params.get("q", "").strip()
    wanted = request.query_params.get("c", "")
    rows: list[dict[str, Any]] = []
    notice = ""
    if query:
        session.activity.note_call()
        try:
            rows, notice = search_for_people(
                session.files,
                query,
                [wanted] if wanted else [],
                limit=RESULTS,
            )
        except UsageError as error:  # a query that is not complete yet, among others
            notice = error.message
    for row in rows:
        row.setdefault("sectionHeading", "")
        row["pieces"] = _pieces(row["snippet"], row["marks"])
        row["address"] = document_address(
            row["collection"], row["documentId"], row["startLine"], row["endLine"]
        )
    listed, counts = _listed(session)
    return {
        "query": query,
        "wanted": wanted,
        "rows": rows,
        "notice": notice or session.lost,
        "collections": [row["shown"] for row in listed],
        "counts": counts,
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
    shown = shown_document(
        clients.host,
        fields.get("collection", ""),
        fields.get("id", ""),
        _number(fields.get("from", "0")),
        _number(fields.get("to", "0")),
    )
    return page("document.html", **shown, query="", here="")


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else 0


def graph(clients: Clients, _: Request) -> Response:
    """The citation graph of all documents."""
    citations = [
        row
        for file, connection in _read_each(clients.host)
        for row in drawn_citations(connection, file.names.told_apart)
    ]
    picture = picture_of(citations, lambda name, path, _: document_address(name, path))
    # No text of a document may end the element that the data stands in.
    data = json.dumps(picture, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return page("graph.html", data=data, query="", here="graph")


def collections(clients: Clients, _: Request) -> Response:
    """What the files hold."""
    session = clients.host
    rows, counts = _listed(session)
    files = [session.database.path, *session.knowledge.beside.paths]
    return page(
        "collections.html",
        rows=rows,
        counts=counts,
        files=[str(path) for path in files],
        notice=session.lost,
        query="",
        here="collections",
    )


def _listed(session: Session) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The collections of all files, each with its file, and how much there is in all."""
    rows: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    for file, connection in _read_each(session):
        counts.update(sizes(connection))
        rows += [
            {
                **row,
                "shown": file.names.called(row).collection,
                "documents": count_documents(connection, row["collection_id"]),
                "file": file.database.path.name,
            }
            for row in file.names.collections(connection)
        ]
    return rows, counts


def _read_each(session: Session) -> Iterator[tuple[SearchedFile, Connection]]:
    """A read of each file that is on the disk, one after the other."""
    for file in session.files:
        if not file.database.in_memory:
            with file.database.read() as connection:
                yield file, connection


def collection(clients: Clients, request: Request) -> Response:
    """The documents of a collection."""
    session, name = clients.host, request.query_params.get("name", "")
    start = _number(request.query_params.get("start", "0"))
    with session.read_collection(name) as (connection, row, _):
        rows = documents_page(connection, row["collection_id"], DOCUMENTS, start)
        total = count_documents(connection, row["collection_id"])
    return page(
        "collection.html",
        name=name,
        row=row,
        rows=rows,
        total=total,
        start=start,
        step=DOCUMENTS,
        query="",
        here="collections",
    )


def activity(clients: Clients, _: Request) -> Response:
    """What assistants asked, read and learned, and how their calls went."""
    for session in clients.sessions():
        session.flush()
    sessions = [
        row for _, connection in _read_each(clients.host) for row in _newest_sessions(connection)
    ]
    sessions.sort(key=lambda row: str(row["startedAt"]), reverse=True)
    calls = call_statistics(logged_calls(connection) for _, connection in _read_each(clients.host))
    shown = sessions[:SESSIONS]
    return page("activity.html", sessions=shown, calls=calls, query="", here="activity")


def _newest_sessions(connection: Connection) -> list[dict[str, Any]]:
    known = {one["id"]: one for one in all_discoveries(connection)}
    return [
        {
            **row,
            "asked": details_of_session(connection, row["id"], "query", EVENTS),
            "read": files_of_session(connection, row["id"], EVENTS),
            "learned": [
                known[one["detail"]]
                for one in details_of_session(connection, row["id"], "discovery", EVENTS)
                if one["detail"] in known
            ],
        }
        for row in newest_sessions(connection, SESSIONS)
    ]


def discoveries(clients: Clients, request: Request) -> Response:
    """What was learned, each with the way to take it back."""
    forgotten = request.query_params.get("forgotten", "")
    session = clients.host
    rows = [
        # Only the first file is written.
        {**row, "elsewhere": "" if file.database is session.database else file.database.path.name}
        for file, connection in _read_each(session)
        for row in all_discoveries(connection)
    ]
    modules: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row.get("module", "")):
        modules.setdefault(row.get("module", ""), []).append(row)
    return page(
        "discoveries.html",
        modules=modules,
        forgotten=forgotten if _ID.fullmatch(forgotten) else "",
        query="",
        here="discoveries",
    )


def forget(clients: Clients, request: Request) -> Response:
    """Take a discovery back. The form has to be one of this process."""
    fields = dict(_form(request))
    if not hmac.compare_digest(fields.get("secret", "").encode(), FORM_SECRET.encode()):
        message = "This form is an old one: load the page again and repeat what you did."
        return page("error.html", 403, message=message, query="", here="")
    for session in clients.sessions():
        session.flush()
    gone = forget_discovery(clients.host.database, fields.get("id", ""))
    return RedirectResponse(f"/discoveries?{urlencode({'forgotten': gone.discovery_id})}", 303)


def _form(request: Request) -> list[tuple[str, str]]:
    body: bytes = getattr(request, "_body", b"")
    return parse_qsl(body[:LONGEST_FORM].decode("utf-8", "replace"))

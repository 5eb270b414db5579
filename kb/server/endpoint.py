"""One file over HTTP: the protocol at /mcp, searches of the command line, the page for people."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import anyio
import anyio.to_thread
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from kb.errors import KbError, UsageError
from kb.server.access import Access
from kb.server.access_log import exchange_of
from kb.server.authentication import Authentication
from kb.server.bodies import Bodies, Desk, body_of
from kb.server.clients import IDLE_SECONDS, MOST_CLIENTS, Clients
from kb.server.http import HttpSettings
from kb.server.mcp import make_server
from kb.server.page.views import ask_for_token, missing, page_routes
from kb.server.protocol import Protocol
from kb.server.running import identity
from kb.server.wire import LONGEST_MESSAGE, as_line
from kb.text.json_text import JsonError, parse_json
from kb.tools.parameters import Filtered
from kb.tools.registry import field_errors, load_tools, tolerant
from kb.tools.session import Session

log = logging.getLogger("kb.server")

MOST_ROWS = 1000  # of a search; for more the command searches itself


class Endpoint:
    """The application of one file; `running` must be entered while it answers.

    Args:
        with_page: whether to serve the page too, for the server's owner.
        is_hidden: whether nobody without a token may learn that the file exists.
    """

    def __init__(
        self,
        clients: Clients,
        access: Access,
        settings: HttpSettings,
        *,
        with_page: bool = False,
        is_hidden: bool = False,
    ) -> None:
        self._manager = StreamableHTTPSessionManager(
            make_server(clients.host, load_tools(settings.families), clients),
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            session_idle_timeout=IDLE_SECONDS,
            # The limit was applied before; the body is rewritten since: a byte may become three.
            max_request_body_size=4 * LONGEST_MESSAGE,
            max_sessions=MOST_CLIENTS,
        )
        desk = Desk()
        app = Starlette(
            routes=[
                Route("/mcp", Protocol(self._manager, clients, desk)),
                Route("/api/search", _search(clients.host, desk), methods=["POST"]),
                *(page_routes(clients) if with_page else ()),
            ],
            exception_handlers={404: missing} if with_page else None,
        )
        base = clients.host.base
        self._app = Authentication(
            *(Bodies(app), base, access, settings.requests_per_minute),
            is_hidden=is_hidden,
            refuse=ask_for_token if with_page else None,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What runs beside the answers; its end ends open streams."""
        async with self._manager.run(), anyio.create_task_group() as beside:
            beside.start_soon(self._app.watch)
            yield
            beside.cancel_scope.cancel()


class _SearchOptions(Filtered):
    """The options of `kb search`."""

    query: str
    collections: list[str] = []  # noqa: RUF012 - a model copies it
    limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 10
    rerank: bool = False
    explain: bool = False
    distances: bool = True


_SCHEMA = _SearchOptions.model_json_schema()


def _search(session: Session, desk: Desk) -> Callable[[Request], Any]:
    async def search(request: Request) -> Response:
        exchange = exchange_of(request.scope)
        exchange.request, body = "/api/search", body_of(request.scope)
        try:
            options = await desk.run(_parsed, body, len(body))
            exchange.note_query(options.query)
            answer, status = await anyio.to_thread.run_sync(_search_result, session, options), 200
        except KbError as error:
            answer, status = as_line(error.as_result()), 400
        except Exception as error:
            log.exception("a search failed")
            why = f"the search failed: {type(error).__name__}. The server's log has the details"
            answer, status = as_line({"error": why, "code": KbError.code}), 500
        return Response(answer, status, media_type="application/json")

    return search


def _parsed(body: bytes) -> _SearchOptions:
    try:
        value = parse_json(body, from_client=True)
        if not isinstance(value, dict):
            raise UsageError('the body must be an object, such as {"query": "wind"}')
        return _SearchOptions.model_validate(tolerant(value, _SCHEMA))
    except JsonError as error:
        raise UsageError(f"the body is not JSON that can be read: {error}") from error
    except ValidationError as error:
        problem = field_errors(error, _SCHEMA, {})
        raise UsageError(problem["error"], details=problem["details"]) from error


def _search_result(session: Session, options: _SearchOptions) -> bytes:
    session.activity.note_call()
    # The caller names one file.
    rows, notice = session.base.search_for_people(**options.model_dump(), only_first=True)
    findings = session.base.problems()
    return as_line(
        {
            "rows": rows,
            "notice": notice,
            "problems": [f"{finding.message}; {finding.remedy}" for finding in findings],
            "file": identity(session.database.path),
        }
    )

"""Binds the tools to MCP: what a client can ask, over any transport."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus

from kb.disk.stop import Stop, current_stop
from kb.errors import EmbeddingError, KbError
from kb.server.access import exchange_of
from kb.server.clients import Clients
from kb.server.features import (
    TEMPLATES,
    ClientLogs,
    add_features,
    list_resources,
    read_resource,
    tell_changes,
)
from kb.server.wire import explained, in_thread
from kb.settings import VERSION
from kb.text.assets import asset
from kb.text.counted import counted
from kb.tools.registry import Tool, call_tool
from kb.tools.session import Rights, Session

log = logging.getLogger("kb.server")

T = TypeVar("T")

# The model is loaded after the client's first answers, so that starting stays quick.
WARM_UP_SECONDS = 0.5
PROGRESS_SECONDS = 0.25
STOP_SECONDS = 0.01
WRITE_THREADS = 4


def make_server(
    session: Session, tools: Mapping[str, Tool], clients: Clients | None = None
) -> Server[Any]:
    """An MCP server over an open knowledge base; by default the session is the only client's."""
    clients = clients or Clients(session)
    logs = ClientLogs(clients)
    bus = InMemorySubscriptionBus()
    warming = threading.Event()
    # Writers take turns, and those who wait take no thread from readers.
    writing = anyio.CapacityLimiter(WRITE_THREADS)

    async def list_tools(context: Any, _: Any) -> types.ListToolsResult:
        if not warming.is_set():
            warming.set()
            warm_up_soon(session)
        rights = clients.at(context).session.rights
        is_old = context.protocol_version < TITLES_SINCE
        listed = [_describe(tool, rights, is_old) for tool in tools.values()]
        return types.ListToolsResult(tools=listed)

    async def run_tool(
        context: Any, parameters: types.CallToolRequestParams
    ) -> types.CallToolResult:
        progress = _Progress(context.session) if "progress_token" in (context.meta or {}) else None
        client = clients.at(context)
        tool = tools.get(parameters.name)
        with logs.during(client, context):
            arguments = client.session, parameters.name, parameters.arguments, tools, progress
            if tool is None or tool.read_only:
                result = await _read_in_thread(call_tool, *arguments)
            else:
                result = await anyio.to_thread.run_sync(call_tool, *arguments, limiter=writing)
        await logs.sent()
        if context.request is not None and parameters.name in tools:
            code = str(result.content.get("code", "")) if result.is_error else ""
            exchange = exchange_of(context.request.scope)
            exchange.note_call(parameters.name, parameters.arguments, code)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=result.text)],
            # Some clients check it against the output schema even if it is an error.
            structured_content=None if result.is_error else result.content,
            is_error=result.is_error,
        )

    async def resources(
        context: Any, parameters: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        cursor = parameters.cursor if parameters else None
        page, more = await in_thread(list_resources, clients.at(context).session, cursor or "")
        return types.ListResourcesResult(resources=page, next_cursor=more or None)

    async def templates(_: Any, __: Any) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=TEMPLATES)

    async def read(
        context: Any, parameters: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        mime_type, text = await in_thread(
            read_resource, clients.at(context).session, parameters.uri
        )
        content = types.TextResourceContents(uri=parameters.uri, mime_type=mime_type, text=text)
        return types.ReadResourceResult(contents=[content])

    @asynccontextmanager
    async def beside(_: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        """Tells clients of changes and of the log while anybody is served."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tell_changes, clients, bus)
            tasks.start_soon(logs.run)
            yield {}
            tasks.cancel_scope.cancel()

    server = _Server(
        "kb",
        version=VERSION,
        title="kb",
        instructions=instructions(session, {tool.family for tool in tools.values()}),
        lifespan=beside,
        on_list_tools=list_tools,
        on_call_tool=run_tool,
        on_list_resources=resources,
        on_list_resource_templates=templates,
        on_read_resource=read,
    )
    add_features(server, clients, bus, logs)
    server.middleware.insert(0, explained)
    return server


async def _read_in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Run what only reads; when the request is cancelled, its thread stops too."""
    stop = Stop()
    before = current_stop.set(stop)
    try:
        return await anyio.to_thread.run_sync(function, *arguments, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            while stop.end():
                await anyio.sleep(STOP_SECONDS)
        raise
    finally:
        current_stop.reset(before)


class _Server(Server[Any]):
    """Says in every handshake that the list of documents may change."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *more: Any, **named: Any
    ) -> InitializationOptions:
        options = notification_options or NotificationOptions(resources_changed=True)
        return super().create_initialization_options(options, *more, **named)


class _Progress:
    """Passes a tool's progress on to the client that asked for it, a few times a second.

    Called in the tool's thread. The protocol requires growing numbers, so stages are added up.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._stage, self._before, self._total, self._sent = "", 0, 0, 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage:
            self._before += self._total
            self._stage, self._sent = stage, 0.0
        self._total = total
        now = time.monotonic()
        if now - self._sent < PROGRESS_SECONDS and done < total:
            return
        self._sent = now
        anyio.from_thread.run(
            self._session.report_progress,
            float(self._before + done),
            float(self._before + total),
            f"{stage}: {done} of {total}",
        )


def instructions(session: Session, families: Collection[str]) -> str:
    """What an assistant should know before its first call, from the file's state."""
    table = asset("instructions")
    guidance = [text for family, text in table["families"].items() if family in families]
    return " ".join([table["opening"], describe(session), *guidance, table["quoted"]])


def warm_up_soon(session: Session) -> None:
    """Load the model after the first answers."""

    def warm_up() -> None:
        try:
            session.model.embed_queries(["warm up"])
        except EmbeddingError as error:
            log.warning("searches will use keywords alone: %s", error.message)
        except KbError as error:  # such as a closed file
            log.info("the model was not loaded in advance: %s", error.message)
        except Exception:
            log.exception("loading the model in advance failed")

    timer = threading.Timer(WARM_UP_SECONDS, warm_up)
    timer.daemon = True
    timer.start()


# From this version of the protocol tools have titles; before, their annotations had them.
TITLES_SINCE = "2025-06-18"

# Readers see all tools too, so that a program finds those that it was written for.
NOT_FOR_READERS = "Refused: the token in use may only read. "


def _describe(tool: Tool, rights: Rights, is_old: bool) -> types.Tool:
    is_refused = not (rights.may_write or tool.serves_readers)
    return types.Tool(
        name=tool.name,
        title=None if is_old else tool.title,
        description=(NOT_FOR_READERS if is_refused else "") + tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(
            title=tool.title if is_old else None,
            read_only_hint=tool.read_only,
            idempotent_hint=tool.idempotent,
            destructive_hint=tool.destructive,
            open_world_hint=False,
        ),
    )


MOST_DESCRIBED = 20  # collections named in the server's instructions


def describe(session: Session) -> str:
    """What the files contain, for the server's instructions."""
    listed = session.base.list_collections()
    waiting = session.base.count_waiting()
    notices = [*session.names.notices, listed.notice]
    wrong = "".join(f" Notice: {notice.rstrip('.')}." for notice in notices if notice)
    if not listed.collections:
        return (
            "The file holds no documents yet; `kb add FOLDER` on the command line adds some."
            f"{wrong}"
        )
    shown = [
        f"{row.collection} ({counted(row.document_count, 'document')}"
        + (f": {row.description}" if row.description else "")
        + ")"
        for row in listed.collections[:MOST_DESCRIBED]
    ]
    left = len(listed.collections) - len(shown)
    more = f" and {left} more" if left else ""
    are = counted(waiting, "passage is", "passages are")
    pending = f" {are} not embedded yet: found by keywords." if waiting else ""
    return f"Collections: {', '.join(shown)}{more}.{pending}{wrong}"

"""Bind the tools to MCP. The one module that knows the protocol's library."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

import kb
from kb.background import start_embedding
from kb.errors import EmbeddingError
from kb.knowledge_base import KnowledgeBase
from kb.registry import Tool, call_tool, load_tools

log = logging.getLogger("kb.server")

FLUSH_SECONDS = 5
# The model is loaded once the client has had its answers, so that starting stays quick.
WARM_UP_SECONDS = 0.5


def make_server(knowledge: KnowledgeBase, tools: Mapping[str, Tool]) -> Server[Any]:
    """An MCP server over an open knowledge base."""
    warming = threading.Event()

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        if not warming.is_set():
            warming.set()
            timer = threading.Timer(WARM_UP_SECONDS, _warm_up, [knowledge])
            timer.daemon = True
            timer.start()
        return types.ListToolsResult(tools=[_describe(tool) for tool in tools.values()])

    async def run_tool(_: Any, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        result = await anyio.to_thread.run_sync(
            call_tool, knowledge, parameters.name, parameters.arguments, tools
        )
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=result.text)],
            structured_content=result.content,
            is_error=result.is_error,
        )

    return Server(
        "kb",
        version=kb.__version__,
        title="kb",
        instructions=instructions(knowledge),
        on_list_tools=list_tools,
        on_call_tool=run_tool,
    )


def serve(knowledge: KnowledgeBase, families: tuple[str, ...] = ()) -> None:
    """Serve over stdin and stdout until the input ends or a signal comes. Does not return."""
    server = make_server(knowledge, load_tools(families))
    start_embedding(knowledge)
    anyio.run(_serve, server, knowledge)
    _end(knowledge)


def instructions(knowledge: KnowledgeBase) -> str:
    """What an assistant should know before its first call, from the file's state."""
    from kb.tools.documents import describe

    return (
        "kb holds this project's knowledge: documents that can be searched, browsed and cited. "
        f"{describe(knowledge)} "
        "Start with documents_search (documents_search_batch for several questions), then read "
        "around a hit with documents_get_section or documents_get_document. Cite results by "
        "documentId and lines."
    )


async def _serve(server: Server[Any], knowledge: KnowledgeBase) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_on_signal, knowledge)
        tasks.start_soon(_flush_calls, knowledge)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _end_on_signal(knowledge: KnowledgeBase) -> None:
    # The thread that waits for input cannot be cancelled, so the process is ended from here.
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            _end(knowledge)


async def _flush_calls(knowledge: KnowledgeBase) -> None:
    while True:
        await anyio.sleep(FLUSH_SECONDS)
        await anyio.to_thread.run_sync(knowledge.calls.flush)


def _end(knowledge: KnowledgeBase) -> None:
    """Close the file and leave at once, whatever other threads still do."""
    try:
        knowledge.close()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _warm_up(knowledge: KnowledgeBase) -> None:
    try:
        with knowledge.database.read() as connection:
            knowledge.embed_queries(connection, ["warm up"])
    except EmbeddingError as error:
        log.warning("searches will use keywords alone: %s", error.message)
    except Exception:
        log.exception("loading the model in advance failed")


def _describe(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            idempotent_hint=tool.idempotent,
            destructive_hint=tool.destructive,
            open_world_hint=False,
        ),
    )

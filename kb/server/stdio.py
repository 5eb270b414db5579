"""Serve over stdin and stdout, where the library alone would drop requests and replies."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from kb.tools.registry import clean_values

log = logging.getLogger("kb.server")

LAST_REPLY_SECONDS = 10  # how long calls under way may take after the input has ended


async def run_over_stdio(server: Server[Any], end: Callable[[], NoReturn]) -> None:
    """Serve until the input has ended and what was asked is answered.

    Args:
        end: leaves the process at once; called when calls take too long after the input has
            ended, and when nobody reads the replies any more.
    """
    unanswered = _Unanswered()
    to_server, requests = anyio.create_memory_object_stream[SessionMessage | Exception]()
    replies, from_server = anyio.create_memory_object_stream[SessionMessage]()

    async def pass_requests() -> None:
        async with to_server:
            async for message in incoming:
                if isinstance(message, ValidationError):
                    message = _repaired(message)
                unanswered.take_request(message)
                await to_server.send(message)
            # The library drops the calls under way as soon as its input ends; somebody who pipes
            # requests in wants their replies.
            with anyio.move_on_after(LAST_REPLY_SECONDS) as limit:
                await unanswered.all_answered()
            if limit.cancelled_caught:
                end()

    async def pass_replies() -> None:
        async with outgoing:
            async for message in from_server:
                await outgoing.send(message)
                unanswered.take_reply(message)

    async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as passing:
        passing.start_soon(pass_requests)
        passing.start_soon(pass_replies)
        try:
            await server.run(requests, replies, server.create_initialization_options())
        except anyio.get_cancelled_exc_class():
            # Nobody reads the replies any more; the thread that waits for input stays.
            log.info("the client closed its end")
            end()


def _repaired(error: ValidationError) -> SessionMessage | Exception:
    """The request in a line that the library refuses for one half of a surrogate pair in it.

    It would be dropped, and its client would wait for ever.
    """
    try:
        line = json.loads(error.errors()[0]["input"])
        message = types.jsonrpc_message_adapter.validate_python(clean_values(line), by_name=False)
    except (ValueError, TypeError, RecursionError):
        return error
    return SessionMessage(message)


class _Unanswered:
    """The requests that wait for their reply, however often a client gives one id away."""

    def __init__(self) -> None:
        self._ids: Counter[types.RequestId] = Counter()
        self._changed = anyio.Event()

    def take_request(self, item: SessionMessage | Exception) -> None:
        message = getattr(item, "message", None)
        if isinstance(message, types.JSONRPCRequest):
            # A subscription is open as long as its client.
            if not message.method.startswith("subscriptions/"):
                self._ids[coerce_request_id(message.id)] += 1
        elif (
            isinstance(message, types.JSONRPCNotification)
            and message.method == "notifications/cancelled"
        ):
            self._forget((message.params or {}).get("requestId"))

    def take_reply(self, item: SessionMessage) -> None:
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            self._forget(item.message.id)

    async def all_answered(self) -> None:
        while self._ids:
            await self._changed.wait()

    def _forget(self, value: object) -> None:
        # A notification may name anything as its request.
        if (request_id := as_request_id(value)) is None:
            return
        request_id = coerce_request_id(request_id)
        self._ids[request_id] -= 1
        if self._ids[request_id] <= 0:
            del self._ids[request_id]
        self._changed.set()
        self._changed = anyio.Event()

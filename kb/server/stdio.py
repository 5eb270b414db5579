"""Serves over stdin and stdout, where the library alone would drop requests and replies."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp.shared.message import SessionMessage

from kb.disk.system import make_blocking
from kb.server.wire import Line, Message, as_line, read_line

log = logging.getLogger("kb.server")

LAST_REPLY_SECONDS = 10  # for calls under way after the input has ended
# Requests without a reply, beyond which no more are read: replies to a client that reads none wait
# in memory (3,000 lists of tools: 400 MB).
MOST_UNANSWERED = 1000

End = Callable[[str], NoReturn]


async def run_over_stdio(server: Server[Any], end: End, heard: Callable[[], object]) -> None:
    """Serve until the input has ended and all requests are answered.

    Args:
        end: leaves the process at once, with what went wrong or ""; called when calls take too
            long after the input has ended, and when replies can no longer be written.
        heard: called whenever the client has sent a line.
    """
    source, out = _taken_streams()
    output = _Output(out, end)
    unanswered = _Unanswered()
    to_server, requests = anyio.create_memory_object_stream[SessionMessage | Exception]()
    replies, from_server = anyio.create_memory_object_stream[SessionMessage]()

    async def pass_requests() -> None:
        async with to_server:
            while (line := await anyio.to_thread.run_sync(_next_line, source)) is not None:
                heard()
                await unanswered.fall_below(MOST_UNANSWERED)
                for refusal in line.refusals:
                    log.info("refused: %s", refusal["error"]["message"])
                    await output.write(as_line(refusal))
                for message in line.messages:
                    unanswered.take_request(message)
                    await to_server.send(SessionMessage(message))
            # The library drops calls under way as soon as its input ends, but somebody who pipes
            # requests in wants their replies.
            with anyio.move_on_after(LAST_REPLY_SECONDS) as limit:
                await unanswered.fall_below(1)
            if limit.cancelled_caught:
                end("")

    async def pass_replies() -> None:
        async with from_server:
            async for item in from_server:
                await output.write(as_line(item.message))
                unanswered.take_reply(item)

    async with anyio.create_task_group() as passing:
        passing.start_soon(pass_requests)
        passing.start_soon(pass_replies)
        await server.run(requests, replies, server.create_initialization_options())


def _taken_streams() -> tuple[BinaryIO, BinaryIO]:
    """The client's streams, for us alone: from here on libraries and child processes read nothing
    from stdin, and print to stderr, since on stdout they would break a reply."""
    source, out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    make_blocking(out)
    # At the end a thread may still wait in the first one, so neither is closed.
    return os.fdopen(source, "rb", closefd=False), os.fdopen(out, "wb", closefd=False)


def _next_line(source: BinaryIO) -> Line | None:
    try:
        return read_line(source)
    except OSError as error:
        log.warning("the input ended: %s", error)
        return None


class _Output:
    """Writes replies and refusals, one line at a time."""

    def __init__(self, stream: BinaryIO, end: End) -> None:
        self._stream = stream
        self._end = end
        self._lock = anyio.Lock()

    async def write(self, line: bytes) -> None:
        async with self._lock:
            await anyio.to_thread.run_sync(self._write, line)

    def _write(self, line: bytes) -> None:
        try:
            self._stream.write(line)
            self._stream.flush()
        except BrokenPipeError:
            log.info("the client closed its end")
            self._end("")
        except OSError as error:
            self._end(f"replies cannot be written: {error.strerror}")


class _Unanswered:
    """The requests without a reply, however often a client reuses an id."""

    def __init__(self) -> None:
        self._ids: Counter[types.RequestId] = Counter()
        self._changed = anyio.Event()

    def take_request(self, message: Message) -> None:
        if isinstance(message, types.JSONRPCRequest):
            # A subscription stays open as long as its client.
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

    async def fall_below(self, number: int) -> None:
        """Wait until fewer than `number` requests wait for a reply."""
        while self._ids.total() >= number:
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

"""The log as clients see it: messages of their calls and of the work beside them.

A message logged during a client's call is for that client alone; messages of other work are for
all. A client of the handshake era sets its level with logging/setLevel, one of the later protocol
with each request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, get_args

import anyio
import mcp_types as types

from kb.server.clients import Client, Clients

Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

_NUMBERS: dict[Level, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO + 5,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL + 1,
    "emergency": logging.CRITICAL + 2,
}
_LEVELS: tuple[Level, ...] = get_args(Level)
MOST_WAITING = 1000
SEND_SECONDS = 1.0
OURS = "kb"


@dataclass(frozen=True, slots=True)
class _Call:
    """A request under way, which its log belongs to."""

    client: Client
    channel: Any
    request_id: types.RequestId | None
    level: int | None  # as the request asks


_call: ContextVar[_Call | None] = ContextVar("call", default=None)


class ClientLogs(logging.Handler):
    """Sends records to the clients that want them, while `run` is running."""

    def __init__(self, clients: Clients) -> None:
        super().__init__(logging.DEBUG)
        self._clients = clients
        self._records: asyncio.Queue[tuple[_Call | None, logging.LogRecord]] = asyncio.Queue(
            MOST_WAITING
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = 0  # records that are not sent yet

    async def run(self) -> None:
        """Pass records on until cancelled."""
        self._loop = asyncio.get_running_loop()
        logger = logging.getLogger(OURS)
        # Handlers to stderr keep their level; more is for the clients alone.
        for handler in logging.getLogger().handlers:
            handler.setLevel(max(handler.level, logging.getLogger().level))
        logger.addHandler(self)
        try:
            while True:
                call, record = await self._records.get()
                # A client that does not read must not delay others.
                with anyio.move_on_after(SEND_SECONDS):
                    await self._pass(call, record)
                self._waiting -= 1
        finally:
            logger.removeHandler(self)
            logger.setLevel(logging.NOTSET)

    @contextmanager
    def during(self, client: Client, context: Any) -> Iterator[None]:
        """Records logged within, in threads started there too, are for this client alone."""
        name = (context.meta or {}).get(types.LOG_LEVEL_META_KEY)
        level = _NUMBERS[name] if name in _LEVELS else None
        if level is not None:
            self._require(level)
        token = _call.set(_Call(client, context.session, context.request_id, level))
        try:
            yield
        finally:
            _call.reset(token)

    async def sent(self) -> None:
        """Wait until all records are sent: the reply ends the stream that they go to."""
        with anyio.move_on_after(SEND_SECONDS):
            while self._waiting:
                await anyio.sleep(0.001)

    def set_level(self, client: Client, level: Level) -> None:
        """Send a client records of this level and above from now on."""
        client.log_level = _NUMBERS[level]
        self._require(client.log_level)

    def emit(self, record: logging.LogRecord) -> None:
        if self._loop is None:
            return
        with contextlib.suppress(RuntimeError):  # after the loop's end
            self._loop.call_soon_threadsafe(self._put, _call.get(), record)

    def _require(self, level: int) -> None:
        """Make the loggers emit records of this level, which they skip by default."""
        logger = logging.getLogger(OURS)
        logger.setLevel(min(level, logger.getEffectiveLevel()))

    def _put(self, call: _Call | None, record: logging.LogRecord) -> None:
        try:
            self._records.put_nowait((call, record))
            self._waiting += 1
        except asyncio.QueueFull:
            return  # no client reads as fast as this

    async def _pass(self, call: _Call | None, record: logging.LogRecord) -> None:
        names = [name for name in _LEVELS if _NUMBERS[name] <= record.levelno]
        level_name: Level = names[-1] if names else "debug"
        message = types.LoggingMessageNotification(
            params=types.LoggingMessageNotificationParams(
                level=level_name, logger=record.name, data=record.getMessage()
            )
        )
        if call is not None:
            level = call.client.log_level if call.level is None else call.level
            if level is not None and record.levelno >= level:
                await call.channel.send_notification(message, call.request_id)
            return
        for client in self._clients.all():
            if client.log_level is not None and record.levelno >= client.log_level:
                await client.channel.send_notification(message)

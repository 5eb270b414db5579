"""Listens at an address and serves an application there until it is told to stop."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import anyio
import uvicorn
from starlette.types import ASGIApp

from kb.errors import SourceError, UsageError
from kb.server.access import Access, AccessLog, Guard, is_loopback

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8642
BACKLOG = 128
# Clients drop an idle connection after some seconds. If we do so first, their next request fails
# on its way, and a busy client notices late.
KEEP_SECONDS = 120
LEAVE_SECONDS = 2  # that answers under way may take after the stop


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether something failed here: a sender of a broken body is told so, which is no failure."""
    return not (record.exc_info and type(record.exc_info[1]).__module__.startswith("h11."))


logging.getLogger("uvicorn.error").addFilter(_is_ours)


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """How files are served."""

    families: tuple[str, ...] = ()  # of tools; none for all
    watch_folders: bool = False  # of all collections
    requests_per_minute: int | None = None  # of each token; None: unlimited
    write_access: Callable[[str], None] | None = None  # takes a line for each request, if set
    log_queries: bool = False  # whether such a line contains what was searched for


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a server listens, and whom it answers."""

    socket: socket.socket
    access: Access
    host: str
    port: int

    @property
    def address(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}"

    @property
    def is_reachable(self) -> bool:
        """Whether other machines can reach it."""
        return not is_loopback(self.host)

    @property
    def reached_at(self) -> str:
        """The host by which it is reached from this machine."""
        return DEFAULT_HOST if self.host in ("0.0.0.0", "::") else self.host


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of "HOST:PORT", "[::1]:PORT", "HOST", ":PORT" or "PORT", else UsageError."""
    host, _, port = text.rpartition(":") if ":" in text.rpartition("]")[2] else (text, "", "")
    if not port and host.isdecimal():
        host, port = "", host
    host = host.removeprefix("[").removesuffix("]") or DEFAULT_HOST
    if port and (not port.isdecimal() or not port.isascii() or int(port) > 65535):
        raise UsageError(f"{text!r} is not an address: give HOST:PORT, such as 127.0.0.1:8642")
    return host, int(port) if port else DEFAULT_PORT


def bind(host: str, port: int, access: Access) -> Binding:
    """Listen at an address (port 0: any that is free); raises SourceError if it is not
    available."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(place[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise SourceError(
            f"cannot listen at {host}:{port}: {error.strerror or error}: give another address, "
            f"such as --http {host}:0 for any free port"
        ) from error
    return Binding(listening, access, host, int(listening.getsockname()[1]))


async def run_over_http(
    app: ASGIApp,
    binding: Binding,
    settings: HttpSettings,
    stop: anyio.Event,
    beside: AbstractAsyncContextManager[None],
    ready: Callable[[], object],
) -> None:
    """Serve until `stop` is set and what is under way is answered, or takes too long. `beside` runs
    meanwhile, and its end ends open streams; `ready` is called once the server answers."""
    guarded: ASGIApp = Guard(app, binding.access)
    if settings.write_access is not None:
        guarded = AccessLog(guarded, settings.write_access, with_queries=settings.log_queries)
    web = _Web(
        uvicorn.Config(
            guarded,
            http="h11",  # the one that is tested, whatever else is installed
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_keep_alive=KEEP_SECONDS,
            timeout_graceful_shutdown=LEAVE_SECONDS,
        )
    )
    async with anyio.create_task_group() as tasks:
        async with beside:
            tasks.start_soon(web.serve, [binding.socket])
            while not web.started:
                await anyio.sleep(0.01)
            ready()
            await stop.wait()
        # Only now: it would wait for the clients' streams, which have ended.
        web.should_exit = True


class _Web(uvicorn.Server):
    """The web server; its caller handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield

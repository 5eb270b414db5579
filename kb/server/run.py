"""Runs a server until its client leaves or a signal comes, and what goes on beside the calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import anyio.to_thread

from kb.disk.system import ending_signals
from kb.server.background import start_embedding
from kb.server.clients import Clients
from kb.server.mcp import WARM_UP_SECONDS, make_server, warm_up_soon
from kb.server.stdio import run_over_stdio
from kb.tools.registry import load_tools
from kb.tools.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from kb.server.endpoint import Endpoint
    from kb.server.folder import Folder
    from kb.server.http import Binding, HttpSettings

log = logging.getLogger("kb.server")

FLUSH_SECONDS = 5
CLOSE_SECONDS = 10
# Without a request, after which a server whose parent has ended is taken to have no client. The
# parent may be just a wrapper of the client's, and a person may let an assistant rest.
ORPHAN_SECONDS = 1800


def serve(
    session: Session, families: tuple[str, ...] = (), *, watch_folders: bool = False
) -> NoReturn:
    """Serve over stdin and stdout until the input ends or a signal comes. Follows the active
    project's folder; with `watch_folders` those of all collections."""
    parent = os.getppid()
    session.project.keep_fresh()
    session.log.begin()
    clients = Clients(session)
    server = make_server(session, load_tools(families), clients)

    async def end_as_orphan() -> None:
        await orphaned(clients, parent)
        log.info("the process that started this server has ended, and nobody asks anything")
        _end(clients)

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_on_signal, partial(_end, clients))
            tasks.start_soon(end_as_orphan)
            tasks.start_soon(_run_beside, watch_folders, clients)
            await run_over_stdio(server, partial(_end, clients), clients.heard)
            tasks.cancel_scope.cancel()

    start_embedding(session)
    anyio.run(run)
    _end(clients)


def serve_over_http(
    session: Session,
    binding: Binding,
    settings: HttpSettings,
    ready: Callable[[str], object] = lambda _: None,
) -> NoReturn:
    """Serve several clients over HTTP until a signal comes; `ready` gets the server's address."""
    from kb.server.access import is_loopback
    from kb.server.endpoint import Endpoint

    clients = Clients(session, several=True)
    endpoint = Endpoint(clients, binding.access, settings, with_page=is_loopback(binding.host))
    announced = _announced(session, binding, endpoint)
    watch = partial(_run_beside, settings.watch_folders, clients)
    start_embedding(session)
    warm_up_soon(session)
    anyio.run(_answer_until_signal, endpoint, binding, settings, ready, announced, watch)
    _end(clients)


def serve_folder(
    folder: Path,
    session: Session,
    binding: Binding,
    settings: HttpSettings,
    ready: Callable[[str], object] = lambda _: None,
) -> NoReturn:
    """Serve each file of a folder at its own address until a signal comes; `session` is on no file,
    and those on the files share its settings."""
    from kb.server.endpoint import Endpoint
    from kb.server.folder import Folder

    def opened(path: Path) -> Session:
        file_session = session.on_file(path)
        start_embedding(file_session)
        return file_session

    application = Folder(
        folder,
        binding.access,
        opened,
        lambda clients: Endpoint(clients, binding.access, settings, is_hidden=True),
        partial(_run_beside, settings.watch_folders),
    )
    anyio.run(_answer_until_signal, application, binding, settings, ready, application.running())
    _end(Clients(session))


async def _answer_until_signal(
    application: Endpoint | Folder,
    binding: Binding,
    settings: HttpSettings,
    ready: Callable[[str], object],
    while_served: contextlib.AbstractAsyncContextManager[None],
    *beside: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Answer over HTTP, with work beside it, until a signal comes."""
    from kb.server.http import run_over_http  # here: stdio needs no web server

    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_on_signal, stop.set)
        for work in beside:
            tasks.start_soon(work)
        tell = partial(ready, binding.address)
        await run_over_http(application, binding, settings, stop, while_served, tell)
        tasks.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def _announced(session: Session, binding: Binding, endpoint: Endpoint) -> AsyncIterator[None]:
    """Let commands of this user find the server while the file is served."""
    from kb.server.access import is_loopback
    from kb.server.running import announce, retract

    notice = announce(
        session.database.path,
        binding.reached_at,
        binding.port,
        binding.access.token,
        session.knowledge.project,
        asks=binding.access.asks,
        is_reachable=not is_loopback(binding.host),
    )
    try:
        async with endpoint.running():
            yield
            retract(notice)
    finally:
        retract(notice)


async def _run_beside(watch_folders: bool, clients: Clients) -> None:
    """The work beside the calls of a file. Does not return."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_flush, clients)
        if watch_folders:
            tasks.start_soon(_watch_folders, clients.host)


async def _on_signal(action: Callable[[], object]) -> None:
    # A thread waiting for input cannot be cancelled, so over stdio `action` ends the process.
    # Not `anyio.open_signal_receiver`, which fails on Windows.
    loop = asyncio.get_running_loop()
    # An ignored signal stays ignored: under nohup a server outlives its terminal.
    numbers = [number for number in ending_signals() if signal.getsignal(number) != signal.SIG_IGN]
    before = {
        number: signal.signal(number, lambda *_: loop.call_soon_threadsafe(action))
        for number in (signal.SIGINT, *numbers)
    }
    try:
        await anyio.sleep_forever()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def orphaned(clients: Clients, parent: int) -> None:
    """Wait until this process's parent has ended, and the client has been silent for long: the
    input ends with the last process that holds its other end, which may be another child of the
    client."""
    while os.getppid() == parent or clients.silent_seconds < ORPHAN_SECONDS:
        await anyio.sleep(FLUSH_SECONDS)


async def _flush(clients: Clients) -> None:
    while True:
        await anyio.sleep(FLUSH_SECONDS)
        await anyio.to_thread.run_sync(_logged, clients.end_idle)
        for session in clients.sessions():
            await anyio.to_thread.run_sync(_logged, session.flush)


async def _watch_folders(session: Session) -> None:
    await anyio.sleep(2 * WARM_UP_SECONDS)
    await anyio.to_thread.run_sync(_logged, session.base.follow_folders)


def _logged(function: Callable[..., object], *arguments: Any) -> None:
    """Run work beside the calls, whose failure must not end the server."""
    try:
        function(*arguments)
    except Exception:
        log.exception("%s failed", function.__name__)


def _end(clients: Clients, failure: str = "") -> NoReturn:
    """Close the file and leave at once, whatever other threads are doing."""
    code = 3 if failure else 0
    if failure:
        log.error("%s", failure)
    # A thread inside a write may keep the file from closing; SQLite survives our leaving.
    last_resort = threading.Timer(CLOSE_SECONDS, os._exit, [code])
    last_resort.daemon = True
    last_resort.start()
    try:
        clients.end()
        clients.host.close()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)

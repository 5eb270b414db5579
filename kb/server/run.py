"""Runs a server until its client leaves or a signal comes, and what goes on beside the calls: over
HTTP, or over stdin and stdout, where the library alone would drop requests and replies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp.shared.message import SessionMessage

from kb.disk.system import ending_signals, make_blocking
from kb.server.background import start_embedding
from kb.server.clients import Clients
from kb.server.mcp import WARM_UP_SECONDS, make_server, warm_up_soon
from kb.server.wire import Line, Message, as_line, read_line
from kb.tools.registry import load_tools
from kb.tools.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from kb.server.endpoint import Endpoint, Folder
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
    session: Session, binding: Binding, settings: HttpSettings, ready: Callable[[str], object]
) -> NoReturn:
    """Serve several clients over HTTP until a signal comes; `ready` gets the server's address."""
    from kb.server.endpoint import Endpoint

    clients = Clients(session, several=True)
    endpoint = Endpoint(clients, binding.access, settings, with_page=not binding.is_reachable)
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
    ready: Callable[[str], object],
) -> NoReturn:
    """Serve each file of a folder at its own address until a signal comes; `session` is on no file,
    and those on the files share its settings."""
    from kb.server.endpoint import Folder

    beside = partial(_run_beside, settings.watch_folders)
    application = Folder(folder, session, binding.access, settings, beside)
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
    from kb.server.running import announce, retract

    notice = announce(session.database.path, session.knowledge.project, binding)
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
            await anyio.sleep(2 * WARM_UP_SECONDS)
            await anyio.to_thread.run_sync(_logged, clients.host.base.follow_folders)


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


LAST_REPLY_SECONDS = 10  # for calls under way after the input has ended
# Requests without a reply, beyond which no more are read: replies to a client that reads none wait
# in memory (3,000 lists of tools: 400 MB).
MOST_UNANSWERED = 1000

_EndWith = Callable[[str], NoReturn]


async def run_over_stdio(server: Server[Any], end: _EndWith, heard: Callable[[], object]) -> None:
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

    def __init__(self, stream: BinaryIO, end: _EndWith) -> None:
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

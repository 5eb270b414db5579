"""A folder of files over HTTP, each at its own address: /NAME/mcp is NAME.db.

A file is opened at its first request, also one that came after the start. The name in an address is
only ever compared with the names in the folder: no path is made of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import anyio
import anyio.to_thread
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from kb.disk.read import reason
from kb.errors import FileError, KbError, SourceError
from kb.server.access import Access, refused
from kb.server.access_log import exchange_of
from kb.server.authentication import LOOK_THREADS, shown_tokens, unknown
from kb.server.clients import Clients
from kb.server.endpoint import Endpoint
from kb.tools.session import Session

log = logging.getLogger("kb.server")

T = TypeVar("T")

SUFFIX = ".db"
LOOK_SECONDS = 5.0  # between checks whether open files are still there


def files_in(folder: Path) -> dict[str, Path]:
    """The files of a folder by the names in their addresses, without links, which may lead out.
    Raises SourceError if the folder cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return {
                entry.name.removesuffix(SUFFIX): Path(entry.path)
                for entry in sorted(entries, key=lambda entry: entry.name)
                if entry.name.endswith(SUFFIX)
                and not entry.name.startswith(".")
                and entry.is_file(follow_symlinks=False)
            }
    except OSError as error:
        raise SourceError(f"cannot read the folder {folder}: {reason(error)}") from error


@dataclass(eq=False)
class _Served:
    clients: Clients
    endpoint: Endpoint
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def is_in_place(self) -> bool:
        return self.clients.host.database.is_in_place()


class Folder:
    """The application of a folder; `running` must be entered while it answers.

    Args:
        open_file: opens a file of the folder; raises FileError if it is damaged.
        make_endpoint: makes the application of an open file.
        beside: what runs beside the answers of a file; cancelled at its end.
    """

    def __init__(
        self,
        folder: Path,
        access: Access,
        open_file: Callable[[Path], Session],
        make_endpoint: Callable[[Clients], Endpoint],
        beside: Callable[[Clients], Coroutine[Any, Any, None]],
    ) -> None:
        self._folder = folder
        self._access = access
        self._open_file = open_file
        self._make_endpoint = make_endpoint
        self._beside = beside
        self._served: dict[str, _Served] = {}
        self._problems: dict[str, str] = {}
        self._opening: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._tasks: Any = None
        # Of our own: requests for files that are not served take no thread from tool calls.
        self._threads = anyio.CapacityLimiter(LOOK_THREADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path"].split("/")[1]
        shown = shown_tokens(HTTPConnection(scope))
        is_owner = any(map(self._access.is_token, shown))
        served = self._served.get(name)
        try:
            if served is None or not served.is_in_place:
                if self._access.asks and not shown:
                    await unknown(scope)(scope, receive, send)
                    return
                files = await self._in_thread(files_in, self._folder)
                if name not in files:
                    await self._no_file(scope, files, is_owner)(scope, receive, send)
                    return
                exchange_of(scope).file = name
                served = await self._at(name, files[name])
        except KbError as error:
            if self._problems.get(name) != error.message:
                log.error("%s", error.message)
            self._problems[name] = error.message
            why = "this file cannot be opened now: the server's log says why; others are served"
            answer = refused(scope, 503, why) if is_owner else unknown(scope)
            await answer(scope, receive, send)
            return
        exchange_of(scope).file = name
        self._problems.pop(name, None)
        await served.endpoint({**scope, "root_path": f"/{name}"}, receive, send)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What runs beside the answers; its end closes the files."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._close_lost)
            yield
            for served in self._served.values():
                served.ended.set()
            tasks.cancel_scope.cancel()

    async def _at(self, name: str, path: Path) -> _Served:
        async with self._opening[name]:
            if (served := self._served.get(name)) is not None:
                if served.is_in_place:
                    return served
                served.ended.set()  # another file took its place
            clients = Clients(await self._in_thread(self._open_file, path), several=True)
            served = self._served[name] = _Served(clients, self._make_endpoint(clients))
            await self._tasks.start(self._serve, served)
            return served

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await anyio.to_thread.run_sync(function, *arguments, limiter=self._threads)

    async def _serve(self, served: _Served, *, task_status: Any) -> None:
        """Keep one file open until it is removed, or everything ends."""
        try:
            async with served.endpoint.running(), anyio.create_task_group() as beside:
                beside.start_soon(self._beside, served.clients)
                task_status.started()
                await served.ended.wait()
                beside.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_close, served.clients)

    async def _close_lost(self) -> None:
        while True:
            await anyio.sleep(LOOK_SECONDS)
            for name, served in list(self._served.items()):
                if not served.is_in_place:
                    self._served.pop(name)
                    served.ended.set()

    def _no_file(self, scope: Scope, files: dict[str, Path], is_owner: bool) -> Response:
        """The answer for a name that the folder lacks; only the owner gets a list."""
        if is_owner:
            exchange_of(scope).token = "owner"
            if scope["path"] == "/":
                listed = [{"name": name, "address": f"/{quote(name)}/mcp"} for name in files]
                for row in listed:
                    if problem := self._problems.get(row["name"]):
                        row["problem"] = problem
                return JSONResponse({"files": listed})
            return refused(scope, 404, "there is no such file: /NAME/mcp is the address of NAME.db")
        return unknown(scope)


def _close(clients: Clients) -> None:
    try:
        clients.end()
        clients.host.close()
    except FileError as error:  # it is gone, and what was noted of sessions with it
        log.info("%s", error.message)

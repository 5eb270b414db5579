"""What changed in the file, told to the clients that want to know: lists, and single documents.

Calls, watchers and other processes write to it. All of them are seen by looking at the file itself:
its time first, and only where that moved its documents.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourcesListChanged, ResourceUpdated

from kb.disk.holders import companion
from kb.errors import KbError
from kb.library import browsing
from kb.server.clients import Client, Clients
from kb.server.resources import document_uri
from kb.tools.session import Session

log = logging.getLogger("kb.server")

LOOK_SECONDS = 1.0
SEND_SECONDS = 1.0
# A look at a hundred thousand documents takes a tenth of a second: it may be a tenth of our time.
REST = 10

State = Mapping[tuple[str, str], bytes]  # collection and id of a document -> hash of its content


@dataclass(frozen=True, slots=True)
class Changes:
    """What is different from the last time."""

    list_changed: bool
    updated: list[tuple[str, str]]  # documents whose text is another one, or gone


def difference(old: State, new: State) -> Changes:
    """What changed from one state to the next."""
    changed = [key for key, value in old.items() if new.get(key) != value]
    return Changes(old.keys() != new.keys(), changed)


async def tell_changes(clients: Clients, bus: InMemorySubscriptionBus) -> None:
    """Look at the file from time to time, and tell who listens. Does not return."""
    stamp, state = _stamp(clients.host), await anyio.to_thread.run_sync(_state, clients.host)
    rest = LOOK_SECONDS
    while True:
        await anyio.sleep(rest)
        rest = LOOK_SECONDS
        now = _stamp(clients.host)
        if now == stamp:
            continue
        began = time.monotonic()
        new = await anyio.to_thread.run_sync(_state, clients.host)
        rest = max(LOOK_SECONDS, REST * (time.monotonic() - began))
        if new is None or state is None:
            state = new or state
            continue
        changes = difference(state, new)
        stamp, state = now, new
        if changes.list_changed or changes.updated:
            await _tell(clients, bus, changes)


async def _tell(clients: Clients, bus: InMemorySubscriptionBus, changes: Changes) -> None:
    if changes.list_changed:
        await bus.publish(ResourcesListChanged())
    aliases = clients.host.names.aliases
    for collection, document in changes.updated:
        also = [alias for alias, name in aliases.items() if name == collection]
        for name in (collection, *also):
            await bus.publish(ResourceUpdated(uri=document_uri(name, document)))
    for client in clients.all():
        # Who does not read what is sent must not keep it from others.
        with anyio.move_on_after(SEND_SECONDS):
            await _tell_one(client, changes)


async def _tell_one(client: Client, changes: Changes) -> None:
    channel: Any = client.channel
    if channel is None:
        return
    if changes.list_changed:
        await channel.send_resource_list_changed()
    for document in changes.updated:
        for uri in client.subscriptions.get(document_uri(*document), ()):
            await channel.send_resource_updated(uri)


def _stamp(session: Session) -> tuple[tuple[int, int], ...]:
    """What moves whenever anything is written: times and sizes of the file and of its log."""
    states = []
    for name in (session.database.path, companion(session.database.path, "-wal")):
        try:
            state = os.stat(name)
        except OSError:
            continue
        states.append((state.st_mtime_ns, state.st_size))
    return tuple(states)


def _state(session: Session) -> State | None:
    """The documents that clients may list; None where the file cannot be read just now."""
    try:
        return browsing.hashes_of_documents(session.base)
    except KbError as error:
        log.info("changes cannot be seen: %s", error.message)
        return None

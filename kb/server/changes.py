"""Tells clients that want to know what changed in the file: lists, and single documents.

Calls, watchers and other processes write to it. A look at the file itself sees them all: first at
its time, and only if that moved at its documents.
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
# Looking at a hundred thousand documents takes .1 s, and may take a tenth of our time.
REST = 10

State = Mapping[tuple[str, str], bytes]  # collection and id of a document -> hash of its content


@dataclass(frozen=True, slots=True)
class Changes:
    list_changed: bool
    updated: list[tuple[str, str]]  # documents whose text differs or is gone


def difference(old: State, new: State) -> Changes:
    changed = [key for key, value in old.items() if new.get(key) != value]
    return Changes(old.keys() != new.keys(), changed)


async def tell_changes(clients: Clients, bus: InMemorySubscriptionBus) -> None:
    """Look at the file from time to time, and tell listeners. Does not return."""
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
        # A client that does not read must not delay others.
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
    """Changes with every write: times and sizes of the file and of its log."""
    states = []
    for name in (session.database.path, companion(session.database.path, "-wal")):
        try:
            state = os.stat(name)
        except OSError:
            continue
        states.append((state.st_mtime_ns, state.st_size))
    return tuple(states)


def _state(session: Session) -> State | None:
    """The documents that clients may list; None if the file cannot be read just now."""
    try:
        return browsing.hashes_of_documents(session.base)
    except KbError as error:
        log.info("changes cannot be seen: %s", error.message)
        return None

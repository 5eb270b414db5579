"""Who is connected: every client has its own session, with limits, log and project.

Over stdio there is one client. Over HTTP a client of the handshake era names its session in each
request. One of the later protocol, which has no sessions, is known by what it says of itself, its
address and its token: programs that cannot be told apart share a session.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kb.server.access import ANYBODY, Principal, principal_of
from kb.tools.session import RateLimits, Session

IDLE_SECONDS = 30 * 60  # without a request, after which a client's session ends
MOST_CLIENTS = 1000  # beyond, the longest silent one makes room
MOST_OF_TOKEN = 100  # sessions: a client that restarts again and again leaves some behind
SESSION_HEADER = "mcp-session-id"


@dataclass(eq=False)
class Client:
    """One client, and how to reach it unasked."""

    session: Session
    principal: Principal = ANYBODY
    channel: Any = None  # of its latest request
    log_level: int | None = None  # None until it asks for records
    # Documents it wants to hear of: their address -> the addresses as it wrote them.
    subscriptions: dict[str, set[str]] = field(default_factory=dict)
    last_request: float = field(default_factory=time.monotonic)
    open_requests: int = 0  # while there are any, it is not idle


class Clients:
    """The clients of one process: the `host`, which opened the file, or `several` beside it."""

    def __init__(self, host: Session, *, several: bool = False) -> None:
        self.host = host
        self._several = several
        self._clients: dict[str, Client] = {} if several else {"": Client(host)}
        # By token: its limits hold for all sessions that are opened with it.
        self._limits: dict[str, RateLimits] = {}
        self._lock = threading.Lock()

    def at(self, context: Any) -> Client:
        """The client that sent a request."""
        client = self.open(_key(context) if self._several else "", _principal(context))
        client.channel, client.last_request = context.session, time.monotonic()
        if names := _program(context):
            client.session.log.know_client(" ".join(names))
        return client

    def open(self, key: str, principal: Principal) -> Client:
        """The client with a key, made if there is none."""
        gone = None
        with self._lock:
            if (client := self._clients.pop(key, None)) is None:
                gone = self._made_room(principal)
                limits = None
                if principal.is_guest:
                    limits = self._limits.setdefault(principal.key, self.host.limits.renewed())
                session = self.host.another(rights=principal.rights, limits=limits)
                session.project.keep_fresh()
                session.log.begin()
                client = Client(session, principal)
            self._clients[key] = client  # the latest is last
        if gone is not None:
            gone.session.end()
        return client

    def find(self, key: str) -> Client | None:
        return self._clients.get(key)

    def all(self) -> list[Client]:
        with self._lock:
            return list(self._clients.values())

    def heard(self) -> None:
        """The only client has sent something, if only a ping, which the library answers."""
        for client in self.all():
            client.last_request = time.monotonic()

    @property
    def silent_seconds(self) -> float:
        """How long nobody has asked anything."""
        return time.monotonic() - max((client.last_request for client in self.all()), default=0.0)

    def sessions(self) -> list[Session]:
        """The sessions of all clients, and the one that opened the file."""
        return list(dict.fromkeys([self.host, *(client.session for client in self.all())]))

    @contextmanager
    def answering(self, session_id: str) -> Iterator[None]:
        """Keep a client from being idle while its request is open."""
        if (client := self.find(session_id)) is not None:
            client.open_requests += 1
        try:
            yield
        finally:
            if client is not None:
                client.open_requests -= 1
                client.last_request = time.monotonic()

    def leave(self, session_id: str) -> None:
        with self._lock:
            client = self._clients.pop(session_id, None)
        if client is not None:
            client.session.end()

    def end_idle(self) -> None:
        """End the sessions of clients that have been silent for long."""
        if not self._several:
            return
        since = time.monotonic() - IDLE_SECONDS
        with self._lock:
            idle = [
                key
                for key, client in self._clients.items()
                if client.last_request < since and not client.open_requests
            ]
        for key in idle:
            self.leave(key)

    def end(self) -> None:
        """End all clients' sessions, which writes what they did."""
        for client in self.all():
            client.session.end()

    def _made_room(self, principal: Principal) -> Client | None:
        """Remove the longest silent client of a token that has too many, or of all."""
        keys = [key for key, it in self._clients.items() if it.principal.key == principal.key]
        if principal.is_guest and len(keys) >= MOST_OF_TOKEN:
            return self._clients.pop(keys[0])
        if len(self._clients) < MOST_CLIENTS:
            return None
        return self._clients.pop(next(iter(self._clients)))


def _principal(context: Any) -> Principal:
    return ANYBODY if context.request is None else principal_of(context.request.scope)


def _key(context: Any) -> str:
    request = context.request
    if request is None:
        return ""
    if session_id := request.headers.get(SESSION_HEADER):
        return str(session_id)
    host = request.client.host if request.client else ""
    return json.dumps([_principal(context).key, host, *_program(context)])


def _program(context: Any) -> list[str]:
    parameters = context.session.client_params
    return [parameters.client_info.name, parameters.client_info.version] if parameters else []

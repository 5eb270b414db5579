"""Which server has a file open: it says so in the user's cache, and commands ask it.

One small file per knowledge base names address, token and process. All of this must be quicker
than opening the file, so nothing here loads more than the standard library's sockets, and these
only if there is a server.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kb.disk.system import is_alive, status_fields
from kb.disk.write import replace_file
from kb.settings import VERSION, user_cache

if TYPE_CHECKING:
    from kb.server.http import Binding

CONNECT_SECONDS = 0.5
ANSWER_SECONDS = 20
MOST_BYTES = 50_000_000


class Running(NamedTuple):
    """A server that has a file open."""

    host: str
    port: int
    token: str  # the owner's
    asks: bool  # for a token, whatever the file says
    is_reachable: bool  # from other machines
    process: int
    version: str  # of kb
    project: str  # whose aliases it knows
    file: tuple[int, int]  # device and inode


def announce(database: Path, project: Path, binding: Binding) -> Path | None:
    """Say that this process serves a file; where it says so. None: it cannot be written."""
    place = _place(database)
    server = Running(
        binding.reached_at,
        binding.port,
        binding.access.token,
        binding.access.asks,
        binding.is_reachable,
        os.getpid(),
        VERSION,
        str(project),
        identity(database) or (0, 0),
    )
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Only this user may read the token.
        replace_file(place, json.dumps(server._asdict()), is_private=True)
    except (OSError, UnicodeError):
        return None
    return place


def retract(place: Path | None) -> None:
    """Withdraw an announcement, unless another server has taken over."""
    if place is not None and (server := _read(place)) is not None and server.process == os.getpid():
        with contextlib.suppress(OSError):
            place.unlink()


def running_server(database: Path, project: Path) -> Running | None:
    """The server that has this very file open for this project, if it seems alive."""
    server = _read(_place(database))
    if server is None or server.version != VERSION or server.project != str(project):
        return None
    is_there = server.file == identity(database) and is_alive(server.process)
    # One that is stopped (Ctrl-Z) would not answer; known on Linux.
    is_stopped = status_fields(server.process)[:1] in (["T"], ["t"])
    return server if is_there and not is_stopped else None


def ask(server: Running, path: str, question: dict[str, Any]) -> dict[str, Any] | None:
    """A server's answer; None if it gives none, or serves another file by now."""
    import socket

    body = json.dumps(question).encode()
    name = f"[{server.host}]" if ":" in server.host else server.host
    head = [
        f"POST {path} HTTP/1.0",  # so that the answer comes whole and ends with the connection
        f"Host: {name}:{server.port}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"Authorization: Bearer {server.token}",
    ]
    request = "\r\n".join([*head, "", ""]).encode() + body
    try:
        with socket.create_connection((server.host, server.port), CONNECT_SECONDS) as connection:
            connection.settimeout(ANSWER_SECONDS)
            connection.sendall(request)
            pieces, length = [], 0
            while piece := connection.recv(1 << 16):
                length += len(piece)
                if length > MOST_BYTES:
                    return None
                pieces.append(piece)
        status, _, rest = b"".join(pieces).partition(b"\r\n")
        if b" 200 " not in status + b" ":
            return None
        answer: dict[str, Any] = json.loads(rest.partition(b"\r\n\r\n")[2])
    except (OSError, ValueError):
        return None
    return answer if tuple(answer.get("file", ())) == server.file else None


def identity(database: Path) -> tuple[int, int] | None:
    """Tells a file from another one in its place."""
    try:
        state = os.stat(database)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _place(database: Path) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.realpath(database))).hexdigest()[:24]
    return user_cache() / "servers" / f"{name}.json"


def _read(place: Path) -> Running | None:
    try:
        fields = json.loads(place.read_text(encoding="utf-8"))
        return Running(**{**fields, "file": tuple(fields["file"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None

"""Which server has a file open: it says so in the user's cache, and a command asks it.

One small file for each knowledge base names address, token and process. Nothing here loads more
than the standard library's sockets, and these only where there is a server, since all of it has to
be quicker than opening the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import kb
from kb.disk.holders import status_fields
from kb.settings import user_cache

if TYPE_CHECKING:
    import socket

__all__ = ["Running", "announce", "ask", "identity", "retract", "running_server"]

CONNECT_SECONDS = 0.5
ANSWER_SECONDS = 20
MOST_BYTES = 50_000_000


class Running(NamedTuple):
    """A server that answers for a file."""

    host: str
    port: int
    token: str  # of whoever runs the server
    asks: bool  # for a token, whatever the file says
    is_reachable: bool  # from other machines
    process: int
    version: str  # of kb
    project: str  # whose aliases it knows
    file: tuple[int, int]  # device and number of the file it opened


def announce(
    database: Path,
    host: str,
    port: int,
    token: str,
    project: Path,
    *,
    asks: bool,
    is_reachable: bool,
) -> Path | None:
    """Say that this process serves a file; where that is said. None: it cannot be written."""
    import tempfile

    place = _place(database)
    said = Running(
        host,
        port,
        token,
        asks,
        is_reachable,
        os.getpid(),
        kb.__version__,
        str(project),
        identity(database) or (0, 0),
    )
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # The token is for this user alone: mkstemp makes files that nobody else can read.
        handle, name = tempfile.mkstemp(dir=place.parent)
        with open(handle, "w", encoding="utf-8") as stream:
            json.dump(said._asdict(), stream)
        os.replace(name, place)
    except (OSError, UnicodeError):
        return None
    return place


def retract(place: Path | None) -> None:
    """Take back what was announced, unless another server has taken over."""
    if place is not None and (said := _read(place)) is not None and said.process == os.getpid():
        with contextlib.suppress(OSError):
            place.unlink()


def running_server(database: Path, project: Path) -> Running | None:
    """The server that has this very file open for this project, if it seems to be alive."""
    said = _read(_place(database))
    if said is None or said.version != kb.__version__ or said.project != str(project):
        return None
    if said.file != identity(database) or not _is_alive(said.process) or _is_stopped(said.process):
        return None
    return said


def ask(server: Running, path: str, question: dict[str, Any]) -> dict[str, Any] | None:
    """What a server answers; None where it does not, or serves another file by now."""
    import socket

    body = json.dumps(question).encode()
    name = f"[{server.host}]" if ":" in server.host else server.host
    head = [
        f"POST {path} HTTP/1.0",  # so that the answer comes in one piece and ends with the line
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
            reply = _all_of(connection)
        status, _, rest = reply.partition(b"\r\n")
        if b" 200 " not in status + b" ":
            return None
        answer: dict[str, Any] = json.loads(rest.partition(b"\r\n\r\n")[2])
    except (OSError, ValueError):
        return None
    return answer if tuple(answer.get("file", ())) == server.file else None


def identity(database: Path) -> tuple[int, int] | None:
    """What tells a file from another one that takes its place."""
    try:
        state = os.stat(database)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _all_of(connection: socket.socket) -> bytes:
    pieces, length = [], 0
    while piece := connection.recv(1 << 16):
        length += len(piece)
        if length > MOST_BYTES:
            raise ValueError("more than any answer")
        pieces.append(piece)
    return b"".join(pieces)


def _place(database: Path) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.realpath(database))).hexdigest()[:24]
    return user_cache() / "servers" / f"{name}.json"


def _read(place: Path) -> Running | None:
    try:
        said = json.loads(place.read_text(encoding="utf-8"))
        return Running(**{**said, "file": tuple(said["file"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _is_alive(process: int) -> bool:
    if os.name == "nt":  # there it would end the process; whoever listens is asked instead
        return True
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def _is_stopped(process: int) -> bool:
    """Whether a process sleeps until it is continued (Ctrl-Z): it would not answer. On Linux."""
    return status_fields(process)[:1] in (["T"], ["t"])

"""A server over HTTP as a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)
from server_process import HANDSHAKE, HANGS, Killed, environment

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HANDSHAKE}
LATER = "2026-07-28"
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def of_later_protocol(method: str, called: str = "", **params: Any) -> tuple[dict[str, str], Any]:
    """Headers and message of a request of the protocol that has no sessions."""
    meta = {
        PROTOCOL_VERSION_META_KEY: LATER,
        CLIENT_INFO_META_KEY: HANDSHAKE["clientInfo"],
        CLIENT_CAPABILITIES_META_KEY: {},
    }
    headers = {"MCP-Protocol-Version": LATER, "Mcp-Method": method}
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": meta}}
    return {**headers, "Mcp-Name": called} if called else headers, message


def eventually(is_so: Callable[[], bool]) -> bool:
    """Whether something becomes true before a process would count as hanging."""
    until = time.monotonic() + HANGS
    while not is_so():
        if time.monotonic() > until:
            return False
    return True


class Stream:
    """An answer that goes on, read as bytes: it ends where the server says so, and in no other way.

    Args:
        message: that is answered by it; None for the stream of a session.
    """

    def __init__(self, port: int, headers: dict[str, str], message: Any = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), HANGS)
        body = b"" if message is None else json.dumps(message).encode()
        lines = [
            f"{'GET' if message is None else 'POST'} /mcp HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            *(f"{name}: {value}" for name, value in {**HEADERS, **headers}.items()),
            *([f"Content-Length: {len(body)}"] if body else []),
        ]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        head = b""
        while b"\r\n\r\n" not in head:
            part = self.socket.recv(65536)
            assert part, head
            head += part
        head, _, self.received = head.partition(b"\r\n\r\n")
        self.status = int(head.split()[1])

    def ends_within(self, seconds: float) -> bool:
        """Whether the server ends it in time; 0: has ended it. It may send pings meanwhile."""
        until = time.monotonic() + seconds
        while not self.received.endswith(b"0\r\n\r\n"):
            self.socket.settimeout(max(until - time.monotonic(), 0))
            try:
                part = self.socket.recv(65536)
            except (TimeoutError, BlockingIOError):
                return False
            assert part, "the connection was cut off"
            self.received += part
        return True

    def close(self) -> None:
        self.socket.close()


class HttpServer(Killed):
    """`kb serve --http` on a free port, or another command that serves."""

    def __init__(
        self, file: Path | None, *more: str, command: str = "serve", **variables: str
    ) -> None:
        where = [] if "--http" in more else ["--http", "127.0.0.1:0"]
        of = [] if file is None else ["--db", str(file)]
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "kb", *of, command, *where, *more],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**environment(), **variables},
            encoding="utf-8",
        )
        self.kill_after(2 * HANGS)
        self.said = ""
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.said += line
            if found := re.search(r"http://\S+:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            raise AssertionError(f"the server did not start: {self.said}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def request(
        self,
        method: str,
        path: str = "/mcp",
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, str], str]:
        """Status, headers (names in lower case) and text of a reply."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {**HEADERS, **(headers or {})})
            reply = connection.getresponse()
            found = {name.lower(): value for name, value in reply.getheaders()}
            return reply.status, found, reply.read().decode()
        finally:
            connection.close()

    def send(self, data: bytes, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """What bytes at the protocol's endpoint come to, as they are."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS)
        try:
            connection.request("POST", "/mcp", data, {**HEADERS, **headers})
            reply = connection.getresponse()
            found = {name.lower(): value for name, value in reply.getheaders()}
            return reply.status, found, reply.read()
        finally:
            connection.close()

    def open_session(self, **headers: str) -> dict[str, str]:
        """The headers of a session that is open."""
        status, answer, text = self.request("POST", "/mcp", INITIALIZE, headers)
        assert status == 200, text
        session = {**headers, "Mcp-Session-Id": answer["mcp-session-id"]}
        assert self.request("POST", "/mcp", READY, session)[0] == 202
        return session

    def end(self, with_signal: int = signal.SIGTERM) -> tuple[int, str]:
        """Ask it to end: exit code and what stderr still held."""
        os.kill(self.popen.pid, with_signal)
        _, errors = self.popen.communicate(timeout=HANGS)
        return self.popen.returncode, errors

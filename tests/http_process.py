"""A server over HTTP as a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from server_process import HANDSHAKE, HANGS, Killed, environment

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HANDSHAKE}


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

    def end(self, with_signal: int = signal.SIGTERM) -> tuple[int, str]:
        """Ask it to end: exit code and what stderr still held."""
        os.kill(self.popen.pid, with_signal)
        _, errors = self.popen.communicate(timeout=HANGS)
        return self.popen.returncode, errors

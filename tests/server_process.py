"""A server as a process of its own, driven line by line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from support import ROOT

ODD_SERVER = str(Path(__file__).parent / "server" / "odd_server.py")
HANDSHAKE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
HANGS = 60  # seconds until a process that hangs is killed and the test fails


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


class Killed:
    """A process that is killed at the end of its `with`, or when it hangs."""

    popen: subprocess.Popen[str]

    def kill_after(self, seconds: float) -> None:
        """Kill it after seconds as a machine that does nothing else would count them.

        Where many processes share the cores, each gets its part: what takes longer than that hangs.
        """
        self._ended = threading.Event()
        threading.Thread(target=self._watch, args=[seconds], daemon=True).start()

    def _watch(self, seconds: float) -> None:
        while seconds > 0:
            if self._ended.wait(1):
                return
            seconds -= 1 / max(1.0, processes_a_core())
        self.popen.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._ended.set()
        self.popen.kill()
        self.popen.communicate()


def processes_a_core() -> float:
    """How many processes wait for each core, over the last minute."""
    if not hasattr(os, "getloadavg"):
        return 1.0
    return os.getloadavg()[0] / (os.cpu_count() or 1)


class Process(Killed):
    """A server process driven line by line, so that a test sees the very bytes."""

    def __init__(self, *command: str, folder: Path | None = None) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            encoding="utf-8",
            cwd=folder,
        )
        self.kill_after(HANGS)

    def send(self, method: str, params: Any = None, request: int | None = None) -> None:
        assert self.popen.stdin is not None
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        message |= {} if params is None else {"params": params}
        message |= {} if request is None else {"id": request}
        self.popen.stdin.write(json.dumps(message) + "\n")
        self.popen.stdin.flush()

    def call(self, tool: str, arguments: Any, request: int) -> None:
        self.send("tools/call", {"name": tool, "arguments": arguments}, request)

    def reply(self) -> dict[str, Any]:
        """The next line of stdout, which has to be one JSON-RPC message."""
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line, f"the server ended: {self.errors()}"
        message: dict[str, Any] = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    def replies(self, count: int) -> dict[int, dict[str, Any]]:
        return {message["id"]: message for message in (self.reply() for _ in range(count))}

    def handshake(self) -> dict[str, Any]:
        self.send("initialize", HANDSHAKE, 0)
        answer: dict[str, Any] = self.reply()["result"]
        self.send("notifications/initialized")
        return answer

    def wait_for_error_line(self, text: str) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            if text in line:
                return
        pytest.fail(f"the server ended without writing {text!r}")

    def errors(self) -> str:
        assert self.popen.stderr is not None
        return self.popen.stderr.read()

    def end(self) -> tuple[int, str, str]:
        """Close the input: exit code, what stdout still held, stderr."""
        out, errors = self.popen.communicate()
        return self.popen.returncode, out, errors


def serving(file: Path, *more: str, folder: Path | None = None) -> Process:
    return Process("-m", "kb", "--db", str(file), "serve", *more, folder=folder)


def odd(file: Path) -> Process:
    return Process(ODD_SERVER, "--db", str(file), "serve")


def error_in(result: dict[str, Any]) -> dict[str, Any]:
    """The error that a tool's result tells of: in its text alone, which every client shows."""
    assert result["isError"]
    assert "structuredContent" not in result
    error: dict[str, Any] = json.loads(result["content"][0]["text"])
    return error


def assert_clean_end(file: Path, code: int, errors: str) -> None:
    assert code == 0
    assert "Traceback" not in errors
    assert not Path(f"{file}-wal").exists()
    assert not Path(f"{file}-shm").exists()

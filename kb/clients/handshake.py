"""Start the server once as a client will, and hear whether it answers."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp.client import Client as Connection
from mcp.client.stdio import StdioServerParameters, get_default_environment, stdio_client

from kb.errors import KbError

ANSWER_SECONDS = 60  # what the slowest of the clients waits
STDERR_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    name: str
    version: str
    tools: int
    seconds: float


class NoAnswer(KbError):
    """A configured server that cannot be started, or says nothing."""


def ask(command: Sequence[str], folder: Path, environment: Any = None) -> Answer:
    """Run the command in a folder, shake hands, list the tools and end it.

    It gets the few variables that every client passes on (home, user, PATH and the like), so that
    what works here does not hang on this shell.

    Args:
        environment: more variables, as a client's file gives them; whatever stands there.

    Raises:
        NoAnswer: with what it wrote on stderr.
    """
    if not command or not os.path.isabs(command[0]):
        raise NoAnswer(f"the command is not absolute: {' '.join(command) or '(none)'}")
    environment = environment or {}
    if not isinstance(environment, Mapping) or not all(
        isinstance(value, str) for value in environment.values()
    ):
        raise NoAnswer("its environment variables are not all texts")
    parameters = StdioServerParameters(
        command=command[0],
        args=list(command[1:]),
        env={**get_default_environment(), **environment},
        cwd=str(folder),
    )
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:

        async def shake_hands() -> Answer:
            with anyio.fail_after(ANSWER_SECONDS):
                async with Connection(stdio_client(parameters, errlog=said)) as server:
                    tools = (await server.list_tools()).tools
                    seconds = time.monotonic() - started
                    info = server.server_info
                    name, version = (info.name, info.version) if info else ("", "")
                    return Answer(name, version, len(tools), seconds)

        try:
            return anyio.run(shake_hands)
        except Exception as error:
            said.seek(0)
            lines = said.read().strip().splitlines()
            reason = (lines[-1] if lines else _innermost(error))[:STDERR_CHARACTERS]
            raise NoAnswer(f"the server did not answer: {reason}", command=list(command)) from error


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"it said nothing for {ANSWER_SECONDS} seconds"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

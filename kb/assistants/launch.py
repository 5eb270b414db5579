"""How an assistant starts the server, and whether it answers."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from kb.assistants.catalog import ASSISTANTS, HOME, PROJECT, Assistant, command_of, files_of
from kb.assistants.install import installed
from kb.errors import KbError
from kb.results.findings import BROKEN, HINT, SOUND, Finding

ROOT_OPTION = "--root"


@dataclass(frozen=True, slots=True)
class Place:
    """Which project and files, and whether the project's or the user's settings are meant."""

    project: Path
    databases: Sequence[Path] = ()  # none: the project's own
    is_project_file: bool = False


def server_command(assistant: Assistant, program: Sequence[str], place: Place) -> list[str]:
    """The whole command for a client's file.

    A server finds the project by its working directory. Clients that start the servers of the
    user's file elsewhere get the project as an argument: the client's own word for the open folder,
    or else the present project, which is then the only one they serve.
    """
    command = [*program]
    for path in place.databases:
        command += ["--db", _database(path, place)]
    command.append("serve")
    if not place.is_project_file and assistant.starts_in != PROJECT:
        command += [ROOT_OPTION, assistant.open_folder or os.path.abspath(place.project)]
    return command


def _database(path: Path, place: Place) -> str:
    file, root = Path(os.path.abspath(path)), Path(os.path.abspath(place.project))
    is_inside = place.is_project_file and file.is_relative_to(root)
    return file.relative_to(root).as_posix() if is_inside else str(file)


def serves_one_project(assistant: Assistant, place: Place) -> bool:
    """Whether an entry of the user's file is bound to the present project."""
    is_elsewhere = assistant.starts_in != PROJECT and not assistant.open_folder
    return is_elsewhere and not place.is_project_file


def start_once(assistant: Assistant, entry: Mapping[str, Any], place: Place) -> Answer:
    """Start the server of an entry where the client will, and have it answer; raises as `ask`. If
    there is no knowledge base yet, an empty folder stands for the project, so that the check
    creates none."""
    command = command_of(entry)
    environment = entry.get("env") or entry.get("environment")
    with _project_folder(place) as folder:
        stands_for = {os.path.abspath(place.project): str(folder)}
        if assistant.open_folder:
            stands_for[assistant.open_folder] = str(folder)
        command = [stands_for.get(part, part) for part in command]
        if place.is_project_file or assistant.starts_in == PROJECT:
            return ask(command, folder, environment)
        start = Path.home() if assistant.starts_in == HOME else Path(folder.anchor)
        return ask(command, start, environment)


@contextmanager
def _project_folder(place: Place) -> Iterator[Path]:
    """The project, or an empty folder if it has no knowledge base."""
    if place.databases or (place.project / ".kb").is_dir():
        yield place.project.absolute()
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def look_at_assistants(project: Path) -> Iterator[Finding]:
    """Start the server as each client that has it installed does, and check that it answers."""
    any_installed = False
    for assistant in ASSISTANTS.values():
        for scope, path in files_of(assistant, project).items():
            place = Place(project, is_project_file=scope == PROJECT)
            try:
                entries = installed(assistant, path)
            except KbError as error:
                yield Finding("clients", HINT, f"{assistant.title}: {error.message}")
                continue
            for name, entry in entries.items():
                any_installed = True
                yield _answer(assistant, place, path, name, entry)
    if not any_installed:
        yield Finding("clients", HINT, "no assistant has kb installed", "`kb install CLIENT`")


def _answer(
    assistant: Assistant, place: Place, path: Path, name: str, entry: Mapping[str, Any]
) -> Finding:
    try:
        answer = start_once(assistant, entry, place)
    except NoAnswer as error:
        again = f"`kb install {assistant.name}{' --project' if place.is_project_file else ''}`"
        return Finding(
            "clients", BROKEN, f"{assistant.title} ({path}, {name}): {error.message}", again
        )
    return Finding(
        "clients",
        SOUND,
        f"{assistant.title} ({path}): answered in {answer.seconds:.1f} s, {answer.tools} tools",
    )


ANSWER_SECONDS = 60  # as long as the slowest client waits
STDERR_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Answer:
    name: str
    version: str
    tools: int
    seconds: float


class NoAnswer(KbError):
    """A configured server that cannot be started, or says nothing."""


def ask(command: Sequence[str], folder: Path, environment: Any = None) -> Answer:
    """Run the command in a folder, shake hands, list the tools and end it; raises NoAnswer.

    It gets only the variables that every client passes on (home, user, PATH and the like), so that
    success does not depend on this shell, and those of `environment`, from a client's file.
    """
    import anyio  # here: with the client it takes half a second
    from mcp.client import Client as Connection
    from mcp.client.stdio import StdioServerParameters, get_default_environment, stdio_client

    program = (
        shutil.which(command[0], path=get_default_environment().get("PATH")) if command else ""
    )
    if not program:
        raise NoAnswer(f"there is no program to start: {' '.join(command) or '(none)'}")
    environment = environment or {}
    if not isinstance(environment, Mapping) or not all(
        isinstance(value, str) for value in environment.values()
    ):
        raise NoAnswer("its environment variables are not all texts")
    parameters = StdioServerParameters(
        command=program,
        args=list(command[1:]),
        env={**get_default_environment(), **environment},
        cwd=str(folder),
    )
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:

        async def shake_hands() -> Answer:
            with anyio.fail_after(ANSWER_SECONDS):
                async with Connection(
                    stdio_client(parameters, errlog=cast(TextIO, errors))
                ) as server:
                    tools = (await server.list_tools()).tools
                    seconds = time.monotonic() - started
                    info = server.server_info
                    name, version = (info.name, info.version) if info else ("", "")
                    return Answer(name, version, len(tools), seconds)

        try:
            return anyio.run(shake_hands)
        except Exception as error:
            errors.seek(0)
            lines = errors.read().strip().splitlines()
            reason = (lines[-1] if lines else _innermost(error))[:STDERR_CHARACTERS]
            raise NoAnswer(f"the server did not answer: {reason}", command=list(command)) from error


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"it said nothing for {ANSWER_SECONDS} seconds"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

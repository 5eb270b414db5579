"""With which arguments a client starts the server, and in which folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kb.clients.catalog import HOME, PROJECT, Client, command_of
from kb.clients.handshake import Answer, ask

ROOT_OPTION = "--root"


@dataclass(frozen=True, slots=True)
class Place:
    """Which project and which files are meant, and whether one project's or the user's settings."""

    project: Path
    databases: Sequence[Path] = ()  # none: the project's own
    is_project_file: bool = False


def server_command(client: Client, program: Sequence[str], place: Place) -> list[str]:
    """The whole command for a client's file.

    A server finds the project by the folder it is started in. Clients that start the servers of
    the user's file elsewhere get the project as an argument: by the client's own word for the
    folder that is open, or else the present one, which then is the one project they serve.
    """
    command = [*program]
    for path in place.databases:
        command += ["--db", os.path.abspath(path)]
    command.append("serve")
    if not place.is_project_file and client.starts_in != PROJECT:
        command += [ROOT_OPTION, client.open_folder or os.path.abspath(place.project)]
    return command


def serves_one_project(client: Client, place: Place) -> bool:
    """Whether an entry of the user's file is bound to the present project."""
    is_elsewhere = client.starts_in != PROJECT and not client.open_folder
    return is_elsewhere and not place.is_project_file


def start_once(client: Client, entry: Mapping[str, Any], place: Place) -> Answer:
    """Start the server of an entry where the client will, and have it answer.

    Where there is no knowledge base yet an empty folder stands for the project, so that none is
    made by looking.

    Raises:
        NoAnswer: with what it wrote on stderr.
    """
    command = command_of(entry)
    environment = entry.get("env") or entry.get("environment")
    with _project_folder(place) as folder:
        stands_for = {os.path.abspath(place.project): str(folder)}
        if client.open_folder:
            stands_for[client.open_folder] = str(folder)
        command = [stands_for.get(part, part) for part in command]
        if place.is_project_file or client.starts_in == PROJECT:
            return ask(command, folder, environment)
        start = Path.home() if client.starts_in == HOME else Path(folder.anchor)
        return ask(command, start, environment)


@contextmanager
def _project_folder(place: Place) -> Iterator[Path]:
    """The project, or an empty folder where it has no knowledge base."""
    if place.databases or (place.project / ".kb").is_dir():
        yield place.project.absolute()
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)

"""`kb install`, `kb uninstall`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.cli import render
from kb.cli.arguments import ASSISTANTS
from kb.errors import KbError, UsageError
from kb.settings import DATABASE_VARIABLES, database_paths, find_project

if TYPE_CHECKING:
    from kb.clients.catalog import Client
    from kb.clients.handshake import Answer
    from kb.clients.install import Change
    from kb.clients.launch import Place

CLIENT_NAMES = (
    "claude-code",
    "claude-desktop",
    "cursor",
    "vscode",
    "codex",
    "gemini",
    "zed",
    "opencode",
)


def add_options(add: Callable[..., argparse.ArgumentParser]) -> None:
    """The two commands with their options."""
    sub = add(
        "install",
        "install.install",
        "put the server into an assistant's configuration",
        group=ASSISTANTS,
        example="kb install claude-code --dry-run",
        needs_file=False,
    )
    sub.add_argument(
        "client",
        nargs="?",
        choices=CLIENT_NAMES,
        metavar="CLIENT",
        help=f"{', '.join(CLIENT_NAMES)}; without it: where kb is installed",
    )
    _add_place_options(sub)
    sub.add_argument(
        "--print", action="store_true", dest="show", help="print the lines; change nothing"
    )
    sub.add_argument(
        "--no-check", action="store_true", help="do not start the server to see whether it answers"
    )

    sub = add(
        "uninstall",
        "install.uninstall",
        "take the server out of an assistant's configuration",
        group=ASSISTANTS,
        example="kb uninstall claude-code --dry-run",
        needs_file=False,
    )
    sub.add_argument("client", choices=CLIENT_NAMES, metavar="CLIENT")
    _add_place_options(sub)


def _add_place_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--project", action="store_true", help="the project's own file, not the user's"
    )
    sub.add_argument("--name", default="kb", help="what the client calls the server (default: kb)")
    sub.add_argument(
        "--instructions",
        action="store_true",
        help="also the lines in the project's AGENTS.md (or what the client reads) "
        "that make the assistant use it",
    )
    sub.add_argument("--dry-run", action="store_true", help="show what would change")


def install(_: object, options: argparse.Namespace) -> int:
    """Add the server to a client's file, after it has answered once."""
    if options.client is None:
        return _list_clients(options)
    from kb.clients.catalog import CLIENTS
    from kb.clients.install import apply, plan_install, snippet
    from kb.clients.launch import server_command, start_once
    from kb.clients.program import program

    client = CLIENTS[options.client]
    place = _place(options)
    path = _config_file(client, place)
    command = server_command(client, program(), place)
    if options.show:
        text = snippet(client, options.name, command)
        render.text({"client": client.name, "file": str(path), "text": text}, text, options)
        render.remark(f"for {path}", options)
        return 0
    change = plan_install(client, path, options.name, command)
    assert change.entry is not None
    result: dict[str, Any] = {
        "client": client.name,
        "file": str(path),
        "status": change.status,
        "command": command,
    }
    if options.dry_run:
        return _show_plan(change, result, options)
    answer = None if options.no_check else start_once(client, change.entry, place)
    backup = apply(change)
    if answer is not None:
        result["answer"] = {
            "name": answer.name,
            "version": answer.version,
            "tools": answer.tools,
            "seconds": round(answer.seconds, 2),
        }
    if backup is not None:
        result["backup"] = str(backup)
    if options.instructions:
        result["instructions"] = _write_instructions(client, place)
    lines = _report(client, place, change, answer, backup)
    lines += _instructions_report(client, place, result.get("instructions"))
    render.text(result, "\n".join(lines), options)
    return 0


def uninstall(_: object, options: argparse.Namespace) -> int:
    """Take the server out of a client's file."""
    from kb.clients import instructions
    from kb.clients.catalog import CLIENTS
    from kb.clients.install import ABSENT, apply, plan_uninstall

    client = CLIENTS[options.client]
    place = _place(options)
    change = plan_uninstall(client, _config_file(client, place), options.name)
    result: dict[str, Any] = {
        "client": client.name,
        "file": str(change.path),
        "status": change.status,
    }
    if options.dry_run:
        return _show_plan(change, result, options)
    apply(change)
    lines = [f"{client.title}: kb is out of {change.path}"]
    if change.status == ABSENT:
        lines = [f"{client.title}: kb is not in {change.path}"]
    if options.instructions and client.instructions:
        file = place.project / client.instructions
        erased = instructions.erase(file)
        result["instructions"] = str(file) if erased else None
        lines += [f"the lines for assistants are out of {file}"] if erased else []
    render.text(result, "\n".join(lines), options)
    return 1 if change.status == ABSENT else 0


def _place(options: argparse.Namespace) -> Place:
    from kb.clients.launch import Place

    is_named = options.db or any(os.environ.get(variable) for variable in DATABASE_VARIABLES)
    databases = database_paths(options.db) if is_named else ()
    return Place(find_project(), databases, is_project_file=options.project)


def _config_file(client: Client, place: Place) -> Path:
    from kb.clients.catalog import Machine, project_file, user_file

    if not place.is_project_file:
        return user_file(client, Machine())
    path = project_file(client, place.project)
    if path is None:
        raise UsageError(f"{client.title} has no file of a project: leave --project out")
    return path


def _show_plan(change: Change, result: dict[str, Any], options: argparse.Namespace) -> int:
    difference = change.difference()
    result["difference"] = difference
    render.text(result, difference or f"nothing to change in {change.path}", options)
    return 0


def _report(
    client: Client, place: Place, change: Change, answer: Answer | None, backup: Path | None
) -> list[str]:
    """What was done and what to do next, for people."""
    from kb.clients.launch import serves_one_project

    word = {"added": "is now in", "changed": "is brought up to date in"}
    kept = f" (what was before: {backup.name})" if backup is not None else ""
    lines = [f"{client.title}: kb {word.get(change.status, 'was already in')} {change.path}{kept}"]
    if answer is not None:
        lines.append(
            f"started as {client.title} will, it answered in {answer.seconds:.1f} s: "
            f"{answer.name} {answer.version}, {answer.tools} tools"
        )
    if serves_one_project(client, place):
        lines.append(
            f"{client.title} starts the user's servers outside of projects: this one serves "
            f"{place.project}"
            + ("" if not client.project_files else "; with --project each project has its own")
        )
    if place.is_project_file:
        lines.append("the file names a command of this machine: think before you share it")
    asks = client.then_in_project if place.is_project_file else ""
    then = "; ".join(filter(None, (client.then, asks)))
    lines.append(f"next: {then}")
    return lines


def _write_instructions(client: Client, place: Place) -> dict[str, Any] | None:
    from kb.clients import instructions

    if not client.instructions:
        raise UsageError(f"{client.title} reads no file of instructions: leave --instructions out")
    file = place.project / client.instructions
    return {"file": str(file), "written": instructions.write(file)}


def _instructions_report(client: Client, place: Place, done: dict[str, Any] | None) -> list[str]:
    from kb.clients import instructions

    if not client.instructions:
        return []
    file = place.project / client.instructions
    if done is not None:
        return [
            f"the lines that make it use kb {'are now' if done['written'] else 'were'} in {file}"
        ]
    if instructions.are_in(file):
        return []
    return [
        f"so that it uses kb by itself, put these lines into {file} (or repeat this with "
        "--instructions):",
        "",
        instructions.LINES.rstrip(),
    ]


def _list_clients(options: argparse.Namespace) -> int:
    """Where kb is installed, user's files and the project's."""
    from kb.clients.catalog import CLIENTS, Machine, project_file, user_file
    from kb.clients.install import installed

    rows = []
    project = find_project()
    for client in CLIENTS.values():
        files = {"user": user_file(client, Machine()), "project": project_file(client, project)}
        for scope, path in files.items():
            if path is None:
                continue
            try:
                names = installed(client, path)
                state = ", ".join(names) if names else "-"
            except KbError as error:
                state = error.message
            rows.append(
                {"client": client.name, "scope": scope, "installed as": state, "file": str(path)}
            )
    render.table({"clients": rows}, rows, ("client", "scope", "installed as", "file"), options)
    return 0

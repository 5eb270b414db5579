"""`kb install`, `kb uninstall` and `kb doctor`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kb.assistants.catalog import (
    ASSISTANTS,
    Assistant,
    Machine,
    command_of,
    files_of,
    program,
    project_file,
    shared_program,
    user_file,
)
from kb.assistants.install import (
    ABSENT,
    LINES,
    Change,
    apply,
    erase_lines,
    has_lines,
    installed,
    plan_install,
    plan_uninstall,
    snippet,
    write_lines,
)
from kb.assistants.launch import (
    Answer,
    Place,
    look_at_assistants,
    server_command,
    serves_one_project,
    start_once,
)
from kb.cli import render
from kb.cli.commands import Parser
from kb.cli.exit_codes import FAILURE
from kb.cli.render import Show, progress
from kb.errors import EmbeddingError, KbError, UsageError
from kb.models.choose import make_embedder
from kb.results.findings import BROKEN, HINT, SOUND, Finding
from kb.server.running import running_server
from kb.settings import DATABASE_VARIABLES, database_paths, find_project
from kb.text.counted import counted


def install_options(parser: Parser) -> None:
    names = f"{', '.join(ASSISTANTS)}; without it: where kb is installed"
    parser.argument("client", "CLIENT", names, nargs="?", choices=ASSISTANTS)
    _add_place_options(parser)
    parser.flag("--print", "print the lines; change nothing", dest="show")
    parser.flag("--no-check", "do not start the server to see whether it answers")


def uninstall_options(parser: Parser) -> None:
    parser.argument("client", "CLIENT", choices=ASSISTANTS)
    _add_place_options(parser)


def _add_place_options(parser: Parser) -> None:
    parser.flag("--project", "the project's own file, not the user's")
    parser.option("--name", None, "what the client calls the server (default: kb)", default="kb")
    instructions = (
        "also the lines in the project's AGENTS.md (or what the client reads) "
        "that make the assistant use it"
    )
    parser.flag("--instructions", instructions)
    parser.flag("--dry-run", "show what would change")


def install(_: object, options: argparse.Namespace) -> int:
    """Add the server to a client's file, after it has answered once."""
    if options.client is None:
        return _list_assistants(options)
    assistant = ASSISTANTS[options.client]
    place = _place(options)
    path = _config_file(assistant, place)
    start = shared_program(program()) if options.project else program()
    command = server_command(assistant, start, place)
    if options.show:
        text = snippet(assistant, options.name, command)
        render.text({"client": assistant.name, "file": str(path), "text": text}, text, options)
        render.remark(f"for {path}", options)
        return 0
    change = plan_install(assistant, path, options.name, command)
    assert change.entry is not None
    result: dict[str, Any] = {
        "client": assistant.name,
        "file": str(path),
        "status": change.status,
        "command": command,
    }
    if options.dry_run:
        return _show_plan(change, result, options)
    answer = None if options.no_check else start_once(assistant, change.entry, place)
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
        if not assistant.instructions:
            raise UsageError(
                f"{assistant.title} reads no file of instructions: leave --instructions out"
            )
        file = place.project / assistant.instructions
        result["instructions"] = {"file": str(file), "written": write_lines(file)}
    lines = _report(assistant, place, change, answer, backup)
    lines += _instructions_report(assistant, place, result.get("instructions"))
    render.text(result, "\n".join(lines), options)
    return 0


def uninstall(_: object, options: argparse.Namespace) -> int:
    assistant = ASSISTANTS[options.client]
    place = _place(options)
    change = plan_uninstall(assistant, _config_file(assistant, place), options.name)
    result: dict[str, Any] = {
        "client": assistant.name,
        "file": str(change.path),
        "status": change.status,
    }
    if options.dry_run:
        return _show_plan(change, result, options)
    apply(change)
    lines = [f"{assistant.title}: kb is out of {change.path}"]
    if change.status == ABSENT:
        lines = [f"{assistant.title}: kb is not in {change.path}"]
    if options.instructions and assistant.instructions:
        file = place.project / assistant.instructions
        erased = erase_lines(file)
        result["instructions"] = str(file) if erased else None
        lines += [f"the lines for assistants are out of {file}"] if erased else []
    render.text(result, "\n".join(lines), options)
    return 1 if change.status == ABSENT else 0


def _place(options: argparse.Namespace) -> Place:
    is_named = options.db or any(os.environ.get(variable) for variable in DATABASE_VARIABLES)
    databases = database_paths(options.db) if is_named else ()
    return Place(find_project(), databases, is_project_file=options.project)


def _config_file(assistant: Assistant, place: Place) -> Path:
    if not place.is_project_file:
        return user_file(assistant, Machine())
    if (path := project_file(assistant, place.project)) is None:
        raise UsageError(f"{assistant.title} has no file of a project: leave --project out")
    return path


def _show_plan(change: Change, result: dict[str, Any], options: argparse.Namespace) -> int:
    difference = change.difference()
    result["difference"] = difference
    render.text(result, difference or f"nothing to change in {change.path}", options)
    return 0


def _report(
    assistant: Assistant, place: Place, change: Change, answer: Answer | None, backup: Path | None
) -> list[str]:
    word = {"added": "is now in", "changed": "is brought up to date in"}
    kept = f" (what was before: {backup.name})" if backup is not None else ""
    lines = [
        f"{assistant.title}: kb {word.get(change.status, 'was already in')} {change.path}{kept}"
    ]
    if answer is not None:
        lines.append(
            f"started as {assistant.title} will, it answered in {answer.seconds:.1f} s: "
            f"{answer.name} {answer.version}, {answer.tools} tools"
        )
    if serves_one_project(assistant, place):
        lines.append(
            f"{assistant.title} starts the user's servers outside of projects: this one serves "
            f"{place.project}"
            + ("" if not assistant.project_files else "; with --project each project has its own")
        )
    if place.is_project_file:
        command = command_of(change.entry)
        needed = "uv" if command[0] == "uvx" else f"`{command[0]}` on their path"
        lines.append(f"whoever shares the file needs {needed}")
        if absolute := [part for part in command if os.path.isabs(part)]:
            lines.append(f"it names files of this machine: {', '.join(absolute)}")
    asks = assistant.then_in_project if place.is_project_file else ""
    then = "; ".join(filter(None, (assistant.then, asks)))
    lines.append(f"next: {then}")
    return lines


def _instructions_report(
    assistant: Assistant, place: Place, done: dict[str, Any] | None
) -> list[str]:
    if not assistant.instructions:
        return []
    file = place.project / assistant.instructions
    if done is not None:
        return [
            f"the lines that make it use kb {'are now' if done['written'] else 'were'} in {file}"
        ]
    if has_lines(file):
        return []
    return [
        f"so that it uses kb by itself, put these lines into {file} (or repeat this with "
        "--instructions):",
        "",
        LINES.rstrip(),
    ]


def _list_assistants(options: argparse.Namespace) -> int:
    rows = []
    project = find_project()
    for assistant in ASSISTANTS.values():
        for scope, path in files_of(assistant, project).items():
            try:
                names = installed(assistant, path)
                state = ", ".join(names) if names else "-"
            except KbError as error:
                state = error.message
            rows.append(
                {"client": assistant.name, "scope": scope, "installed as": state, "file": str(path)}
            )
    render.table({"clients": rows}, rows, ("client", "scope", "installed as", "file"), options)
    return 0


_MARKS = {SOUND: ("ok", "green"), HINT: ("hint", "yellow"), BROKEN: ("BROKEN", "bold red")}


def doctor_options(parser: Parser) -> None:
    fix = "mend what can be mended without losing anything: indexes, vectors, orphan rows"
    parser.flag("--fix", fix)
    parser.flag("--full", "look through all of a large file too, not at samples of it")


def doctor(_: object, options: argparse.Namespace) -> int:
    paths = database_paths(options.db)
    path = paths[0]
    fixed = _fix(path, options) if options.fix else []
    with progress(options) as show:  # ends before printing: a bar would draw over the lines
        findings = list(_look(paths, full=options.full or options.fix, show=show))
    broken = [finding for finding in findings if finding.state == BROKEN]
    if options.json:
        result: dict[str, Any] = {
            "sound": not broken,
            "file": str(path),
            **({"files": [*map(str, paths)]} if len(paths) > 1 else {}),
            "findings": [finding.as_dict() for finding in findings],
        }
        render.print_json(result | {"fixed": fixed} if options.fix else result)
        return FAILURE if broken else 0
    for finding in findings:
        if finding.state != SOUND or not options.quiet:
            mark, style = _MARKS[finding.state]
            render.labelled(mark, style, f"{finding.check}: {finding.message}")
            if finding.remedy:
                render.labelled("", "", f"-> {finding.remedy}")
    if broken:
        can = sum(bool(finding.repair) for finding in broken)
        more = f"; --fix mends {can} of them" if can and not options.fix else ""
        render.say(f"{len(broken)} of {len(findings)} checks found something broken{more}")
    elif not options.quiet:
        hints = counted(sum(finding.state == HINT for finding in findings), "hint")
        render.say(f"all is sound ({counted(len(findings), 'check')}, {hints})")
    return FAILURE if broken else 0


def _look(paths: Sequence[Path], *, full: bool, show: Show) -> Iterator[Finding]:
    # Here: `kb install` loads nothing that syncs.
    from kb.library.health import check_configuration, check_program, look_at_file
    from kb.library.names import collection_names

    project = find_project()
    yield from check_program()
    for path in paths:
        server = running_server(path, project)
        is_offered = server is not None and server.is_reachable
        yield from look_at_file(path, is_offered=is_offered, full=full, progress=show)
    yield from check_configuration(project, set().union(*map(collection_names, paths)))
    yield from look_at_assistants(project)


def _fix(path: Path, options: argparse.Namespace) -> list[str]:
    """Mend what is safe to mend; what was mended, in words."""
    from kb.library.health import mend

    embedder = partial(make_embedder, threads=options.threads, allow_download=options.download)
    fixed = []
    with progress(options) as show:
        try:
            for what in mend(path, embedder, show):
                fixed.append(what)
                if not options.json:
                    print(f"mended: {what}")
        except EmbeddingError as error:
            render.say(f"the passages still wait for their vectors: {error.message}")
        except KbError as error:
            render.say(f"not mended: {error.message}")
    return fixed

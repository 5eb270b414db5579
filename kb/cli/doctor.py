"""`kb doctor`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kb.assistants.launch import look_at_assistants
from kb.cli import render
from kb.cli.arguments import Parser
from kb.cli.exit_codes import FAILURE
from kb.cli.progress import Show, progress
from kb.errors import EmbeddingError, KbError
from kb.library.health import (
    check_configuration,
    check_program,
    look_at_file,
    mend,
)
from kb.library.names import collection_names
from kb.models.choose import make_embedder
from kb.results.findings import BROKEN, Finding
from kb.server.running import running_server
from kb.settings import database_paths, find_project
from kb.text.counted import counted

_MARKS = {"sound": ("ok", "green"), "hint": ("hint", "yellow"), "broken": ("BROKEN", "bold red")}


def doctor_options(parser: Parser) -> None:
    parser.example = "kb doctor --fix"
    fix = "mend what can be mended without losing anything: indexes, vectors, orphan rows"
    parser.flag("--fix", fix)
    parser.flag("--full", "look through all of a large file too, not at samples of it")


def doctor(_: object, options: argparse.Namespace) -> int:
    paths = database_paths(options.db)
    path = paths[0]
    fixed = _fix(path, options) if options.fix else []
    with progress(options) as show:  # ends before printing: a bar would draw over the lines
        findings = list(_look(paths, full=options.full or options.fix, show=show))
    if not options.json:
        for finding in findings:
            _show(finding, options)
    broken = [finding for finding in findings if finding.state == BROKEN]
    if options.json:
        result: dict[str, Any] = {
            "sound": not broken,
            "file": str(path),
            **({"files": [*map(str, paths)]} if len(paths) > 1 else {}),
            "findings": [finding.as_dict() for finding in findings],
        }
        if options.fix:
            result["fixed"] = fixed
        render.print_json(result)
    else:
        _summary(findings, fixed, options)
    return FAILURE if broken else 0


def _look(paths: Sequence[Path], *, full: bool, show: Show) -> Iterator[Finding]:
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


def _show(finding: Finding, options: argparse.Namespace) -> None:
    if finding.state == "sound" and options.quiet:
        return
    mark, style = _MARKS[finding.state]
    render.labelled(mark, style, f"{finding.check}: {finding.message}")
    if finding.remedy:
        render.labelled("", "", f"-> {finding.remedy}")


def _summary(findings: list[Finding], fixed: list[str], options: argparse.Namespace) -> None:
    counts = {state: sum(f.state == state for f in findings) for state in _MARKS}
    if counts["broken"]:
        can = sum(bool(f.repair) for f in findings if f.state == "broken")
        more = f"; --fix mends {can} of them" if can and not options.fix else ""
        render.remark(
            f"{counts['broken']} of {len(findings)} checks found something broken{more}", options
        )
    elif not options.quiet:
        hints = counted(counts["hint"], "hint")
        render.remark(f"all is sound ({counted(len(findings), 'check')}, {hints})", options)

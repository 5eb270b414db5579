"""`kb doctor`."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.cli import render
from kb.cli.arguments import CARE
from kb.cli.exit_codes import FAILURE
from kb.cli.progress import progress
from kb.errors import EmbeddingError, KbError
from kb.settings import database_paths, find_project
from kb.text.counted import counted

if TYPE_CHECKING:
    from kb.store.findings import Finding

_MARKS = {"sound": ("ok", "green"), "hint": ("hint", "yellow"), "broken": ("BROKEN", "bold red")}


def add_options(add: Callable[..., argparse.ArgumentParser]) -> None:
    """The command with its options."""
    sub = add(
        "doctor",
        "doctor.doctor",
        "look whether all is sound; exit 3 when something is broken",
        group=CARE,
        example="kb doctor --fix",
        needs_file=False,
    )
    sub.add_argument(
        "--fix",
        action="store_true",
        help="mend what can be mended without losing anything: indexes, vectors, orphan rows",
    )


def doctor(_: object, options: argparse.Namespace) -> int:
    """Look at everything, each finding with its remedy."""
    from kb.store.findings import BROKEN

    paths = database_paths(options.db)
    path = paths[0]
    fixed = _fix(path, options) if options.fix else []
    findings = []
    for finding in _look(paths):
        findings.append(finding)
        if not options.json:
            _show(finding, options)
    broken = [finding for finding in findings if finding.state == BROKEN]
    if options.json:
        result: dict[str, Any] = {
            "sound": not broken,
            "file": str(path),
            **({"files": [str(one) for one in paths]} if len(paths) > 1 else {}),
            "findings": [finding.as_dict() for finding in findings],
        }
        if options.fix:
            result["fixed"] = fixed
        render.print_json(result)
    else:
        _summary(findings, fixed, options)
    return FAILURE if broken else 0


def _look(paths: Sequence[Path]) -> Iterator[Finding]:
    from kb.clients import environment
    from kb.clients.doctor import collection_names, look_at_clients, look_at_file

    project = find_project()
    return itertools.chain(
        environment.program(),
        *map(look_at_file, paths),
        environment.configuration(project, set().union(*map(collection_names, paths))),
        look_at_clients(project),
    )


def _fix(path: Path, options: argparse.Namespace) -> list[str]:
    """Mend what is safe; what was mended, in words."""
    from kb.clients.doctor import mend
    from kb.models.choose import make_embedder

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

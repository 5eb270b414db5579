"""`kb replicate` and `kb restore`: a copy elsewhere that lives, and the way back."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path

from kb.cli import render
from kb.cli.arguments import CARE
from kb.errors import FileError, UsageError
from kb.settings import database_paths
from kb.text.counted import counted, sized

BEHIND = 1


def add_options(add: Callable[..., argparse.ArgumentParser]) -> None:
    """The two commands with their options."""
    sub = add(
        "replicate",
        "replicate.replicate",
        "keep a copy elsewhere, at most a second behind, until it is ended",
        group=CARE,
        example="kb replicate sftp://me@host/~/handbook",
        needs_file=False,
    )
    sub.add_argument(
        "destination",
        nargs="?",
        metavar="DESTINATION",
        help="a folder, sftp://USER@HOST/FOLDER, or s3://BUCKET/FOLDER?endpoint=URL; without it: "
        "show how far the copy is, and exit with 1 when it is behind",
    )
    sub.add_argument(
        "--continue",
        dest="goes_on",
        action="store_true",
        help="go on with the copy that is there: one of this file, or this file was restored of it",
    )
    sub.add_argument("--once", action="store_true", help="bring the copy up to date, and end")
    sub.add_argument(
        "--stop", action="store_true", help="end it for good: the .db alone is complete again"
    )
    sub = add(
        "restore",
        "replicate.restore",
        "bring the file back from the copy that `kb replicate` keeps",
        group=CARE,
        example="kb restore sftp://me@host/~/handbook",
        needs_file=False,
    )
    sub.add_argument("destination", metavar="DESTINATION", help="as `kb replicate` was told")
    sub.add_argument(
        "--at",
        default="",
        metavar="TIME",
        help="as it was then, such as 2026-11-28T12:00:00Z (default: the newest)",
    )


def replicate(_: object, options: argparse.Namespace) -> int:
    """Copy until a signal comes; or show how far the copy is; or end it."""
    file = database_paths(options.db)[0]
    if options.stop:
        return _stop(file, options)
    if options.destination is None:
        return _show(file, options)
    from kb.store.replication.destination import parse_destination
    from kb.store.replication.replicate import replicate as keep
    from kb.store.replication.state import replication_state

    def tell(line: str) -> None:
        if not options.quiet:
            render.say(line)

    try:
        keep(
            file,
            parse_destination(options.destination),
            tell,
            goes_on=options.goes_on,
            once=options.once,
        )
    except (KeyboardInterrupt, SystemExit):
        state = replication_state(file)
        if state is not None:
            tell(f"ended: {state.sentence()}; {state.remedy()}")
    return 0


def restore(_: object, options: argparse.Namespace) -> int:
    """Write the file anew where there is none."""
    from kb.store.replication.destination import parse_destination
    from kb.store.replication.restore import restore as bring_back

    file = database_paths(options.db)[0]
    found = bring_back(parse_destination(options.destination), file, options.at)
    result = {"file": str(file), "bytes": found.size, "documents": found.documents}
    text = f"{file}: {counted(found.documents, 'document')} ({sized(found.size)})"
    render.text(result, text, options)
    named = ["--db", str(file)] if options.db else []
    command = shlex.join(["kb", *named, "replicate", options.destination, "--continue"])
    render.remark(f"`{command}` goes on from here", options)
    return 0


def _show(file: Path, options: argparse.Namespace) -> int:
    from kb.store.replication.state import replication_state

    if not file.exists():
        raise FileError(f"there is no knowledge base at {file}: make one with `kb add FOLDER`")
    state = replication_state(file)
    if state is None:
        raise UsageError(f"{file} is not replicated: `kb replicate DESTINATION` begins it")
    remedy = f"; {state.remedy()}" if state.is_behind else ""
    render.text(state.as_dict(), f"{state.sentence()}{remedy}", options)
    return BEHIND if state.is_behind else 0


def _stop(file: Path, options: argparse.Namespace) -> int:
    from kb.store.replication.replicate import stop

    if options.destination is not None or options.goes_on or options.once:
        raise UsageError("--stop stands alone")
    is_complete = stop(file)
    lacks = "" if is_complete else "; what was written last may be missing there"
    render.text(
        {"file": str(file), "replicated": False, "complete": is_complete},
        f"{file} is replicated no more; the copy stays where it is{lacks}",
        options,
    )
    return 0

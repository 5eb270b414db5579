"""`kb replicate` and `kb restore`: a live copy elsewhere, and the way back."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from kb.cli import render
from kb.cli.arguments import Parser
from kb.errors import UsageError
from kb.library import replicating
from kb.settings import database_paths
from kb.text.counted import counted, sized

BEHIND = 1


def replicate_options(parser: Parser) -> None:
    parser.example = "kb replicate sftp://me@host/~/handbook"
    destination = (
        "a folder, sftp://USER@HOST/FOLDER, or s3://BUCKET/FOLDER?endpoint=URL; without it: "
        "show how far the copy is, and exit with 1 when it is behind"
    )
    parser.argument("destination", "DESTINATION", destination, nargs="?")
    goes_on = "go on with the copy that is there: one of this file, or this file was restored of it"
    parser.flag("--continue", goes_on, dest="goes_on")
    parser.flag("--once", "bring the copy up to date, and end")
    parser.flag("--stop", "end it for good: the .db alone is complete again")


def replicate(_: object, options: argparse.Namespace) -> int:
    file = database_paths(options.db)[0]
    if options.stop:
        return _stop(file, options)
    if options.destination is None:
        return _show(file, options)

    def tell(line: str) -> None:
        if not options.quiet:
            render.say(line)

    try:
        replicating.replicate(
            file, options.destination, tell, goes_on=options.goes_on, once=options.once
        )
    except (KeyboardInterrupt, SystemExit):
        if (state := replicating.replication_state(file)) is not None:
            tell(f"ended: {state.sentence()}; {state.remedy()}")
    return 0


def restore_options(parser: Parser) -> None:
    parser.example = "kb restore sftp://me@host/~/handbook"
    parser.argument("destination", "DESTINATION", "as `kb replicate` was told")
    at = "as it was then, such as 2026-11-28T12:00:00Z (default: the newest)"
    parser.option("--at", "TIME", at, default="")


def restore(_: object, options: argparse.Namespace) -> int:
    file = database_paths(options.db)[0]
    documents = replicating.restore(options.destination, file, options.at)
    size = file.stat().st_size
    result = {"file": str(file), "bytes": size, "documents": documents}
    text = f"{file}: {counted(documents, 'document')} ({sized(size)})"
    render.text(result, text, options)
    named = ["--db", str(file)] if options.db else []
    command = shlex.join(["kb", *named, "replicate", options.destination, "--continue"])
    render.remark(f"`{command}` goes on from here", options)
    return 0


def _show(file: Path, options: argparse.Namespace) -> int:
    state = replicating.require_state(file)
    remedy = f"; {state.remedy()}" if state.is_behind else ""
    render.text(state.as_dict(), f"{state.sentence()}{remedy}", options)
    return BEHIND if state.is_behind else 0


def _stop(file: Path, options: argparse.Namespace) -> int:
    if options.destination is not None or options.goes_on or options.once:
        raise UsageError("--stop stands alone")
    is_complete = replicating.stop(file)
    lacks = "" if is_complete else "; what was written last may be missing there"
    render.text(
        {"file": str(file), "replicated": False, "complete": is_complete},
        f"{file} is replicated no more; the copy stays where it is{lacks}",
        options,
    )
    return 0

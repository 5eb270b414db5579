"""How the result of a sync looks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from kb.cli import render
from kb.ingest.embed import EmbedReport
from kb.ingest.report import SyncReport
from kb.text.counted import counted
from kb.tools.session import Session

MOST_SHOWN = 20  # files that failed, or notices, of one collection


def show_sync(
    kb: Session,
    options: argparse.Namespace,
    reports: list[SyncReport],
    embedded: EmbedReport,
    embedding_error: str,
    notice: str = "",
    said: Sequence[str] = (),
) -> None:
    """Print what syncs did, and the embedding after them.

    Args:
        embedding_error: why that could not be done; "" if it was, or was not wanted.
        notice: what else there is to say, unless that.
        said: what has been said already; it is part of the JSON.
    """
    if embedding_error:
        notice = f"searches use keywords alone: {embedding_error}"
    if options.json:
        result: dict[str, Any] = {
            "collections": [report.as_dict() for report in reports],
            "embedded": embedded.embedded,
            "reused": embedded.reused,
        }
        if notices := [*said, *([notice] if notice else [])]:
            result["notice"] = " ".join(notices)
        render.print_json(result)
    else:
        for report in reports:
            say_problems(report, options)
            if not options.quiet:
                print(summary(report))
        if (embedded.embedded or embedded.reused) and not options.quiet:
            reused = f", {embedded.reused} had a known text" if embedded.reused else ""
            made = counted(embedded.embedded, "passage")
            print(f"{made} embedded with {kb.model.model_name()}{reused}")
    if notice and (embedding_error or not options.quiet):
        render.say(notice)


def summary(report: SyncReport) -> str:
    """What a sync did, on one line."""
    if not report.is_stored:
        return f"{report.collection}: nothing there, so nothing was added"
    if report.errors and not report.errors[0]["path"]:  # of the whole collection
        return f"{report.collection}: not synced"
    changes = [
        f"{count:,} {word}"
        for count, word in (
            (report.added, "added"),
            (report.updated, "updated"),
            (report.removed, "removed"),
            (report.unchanged, "unchanged"),
            (len(report.errors), "failed"),
        )
        if count
    ]
    total = counted(report.total, "document")
    return f"{report.collection}: {', '.join(changes) or 'nothing there'} ({total})"


def say_problems(report: SyncReport, options: argparse.Namespace) -> None:
    """Tell the files that failed and the notices, some of each."""
    if options.quiet:
        return
    for problems_, what in (
        (report.errors, ("more file that failed", "more files that failed")),
        (report.notices, ("more notice", "more notices")),
    ):
        for problem in problems_[:MOST_SHOWN]:
            place = f"{problem['path']}: " if problem["path"] else ""
            render.say(f"{report.collection}: {place}{problem['message']}")
        if (more := len(problems_) - MOST_SHOWN) > 0:
            render.say(f"{report.collection}: {counted(more, *what)}: see --json")

"""`kb grep`, `kb record`, `kb recall`, `kb forget`: the working memory on the command line."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import asdict

from kb.cli import render
from kb.cli.exit_codes import NOTHING_FOUND
from kb.errors import DiscoveryNotFound, FileError, NoEmbeddings, UsageError
from kb.ingest.discoveries import (
    SHOWN_ID,
    all_discoveries,
    as_markdown,
    record_discovery,
    search_discoveries,
)
from kb.ingest.forget import find_discovery, forget_discovery
from kb.project.tree import STORED, grep_project
from kb.search.files import SearchedFile, Together
from kb.text.counted import counted
from kb.tools.searches import from_each
from kb.tools.session import Session

SHORTEST, LONGEST = 10, 1000  # characters, as for the tool
NOTHING_RECORDED = "nothing is recorded yet: `kb record TEXT` does it"


def record(kb: Session, options: argparse.Namespace) -> int:
    """Record a discovery."""
    text = sys.stdin.read() if options.text == "-" else options.text
    if not SHORTEST <= len(text.strip()) <= LONGEST:
        raise UsageError(
            f"a discovery has {SHORTEST} to {LONGEST} characters, this one {len(text.strip())}"
        )
    recorded = record_discovery(
        kb.model,
        text,
        options.type,
        options.module,
        options.origin,
        allow_secrets=options.allow_secrets,
    )
    result = {
        "id": recorded.discovery_id,
        "type": recorded.type,
        "module": recorded.module,
        "status": recorded.status,
    }
    place = f" of {recorded.module}" if recorded.module else ""
    if not options.quiet or options.json:
        render.text(
            result, f"{recorded.status}: {recorded.type}{place} {recorded.discovery_id}", options
        )
    if recorded.notice:
        render.say(recorded.notice)
    return 0


def recall(kb: Session, options: argparse.Namespace) -> int:
    """Search the discoveries; without a query print them all as Markdown, by module."""
    if options.query is None:
        together = Together(kb.files)
        with together.read():
            listed = together.each(lambda _, connection: all_discoveries(connection))
        rows = [
            row
            for own in listed.values()
            for row in own
            if options.type in ("", row["type"])
            and options.module.casefold() in ("", row.get("module", "").casefold())
        ]
        rows.sort(key=lambda row: (row.get("module", ""), row["type"], row["date"]))
        render.text({"discoveries": rows}, as_markdown(rows).rstrip("\n") if rows else "", options)
        render.remark("" if rows else NOTHING_RECORDED, options)
        return 0 if rows else 1
    try:
        found, lost = from_each(
            kb,
            lambda file: search_discoveries(
                file.model, options.query, options.type, options.module, options.limit
            ),
            unsaid=(NoEmbeddings,),
        )
    except NoEmbeddings:
        if any(map(_holds_discoveries, kb.files)):
            raise
        render.table({"results": [], "totalFound": 0}, [], (), options)
        render.remark(NOTHING_RECORDED, options)
        return NOTHING_FOUND
    rows = sorted((row for _, own in found for row in own[0]), key=lambda row: -row["score"])
    rows, total = rows[: options.limit], sum(count for _, (_, count, _) in found)
    notices = dict.fromkeys([*(notice for _, (_, _, notice) in found), lost])
    render.remark(" ".join(filter(None, notices)), options)
    columns = ("score", "id", "type", "module", "content")
    shown = [{**row, "id": row["id"][:SHOWN_ID]} for row in rows]
    render.table({"results": rows, "totalFound": total}, shown, columns, options)
    return 0 if rows else 1


def _holds_discoveries(file: SearchedFile) -> bool:
    with file.database.read() as connection:
        return bool(all_discoveries(connection))


def forget(kb: Session, options: argparse.Namespace) -> int:
    """Take a discovery back, with every trace of it in the file."""
    kb.log.flush()
    try:
        forgotten = forget_discovery(kb.database, options.id)
    except DiscoveryNotFound:
        _require_nowhere_else(kb, options.id)
        raise
    place = f" of {forgotten.module}" if forgotten.module else ""
    result = {
        "id": forgotten.discovery_id,
        "type": forgotten.type,
        "module": forgotten.module,
        "status": "forgotten",
    }
    if not options.quiet or options.json:
        plain = f"forgotten: {forgotten.type}{place} {forgotten.discovery_id}"
        render.text(result, plain, options)
    if forgotten.notice:
        render.say(forgotten.notice)
    return 0


def _require_nowhere_else(kb: Session, wanted: str) -> None:
    """Say which file holds a discovery that is not in the one that is written."""
    for database in kb.knowledge.beside.databases():
        try:
            with database.read() as connection:
                found = find_discovery(connection, wanted)
        except (DiscoveryNotFound, UsageError, FileError):
            continue
        command = shlex.join(["kb", "--db", str(database.path), "forget", found["id"]])
        raise UsageError(
            f"{database.path} holds this discovery, and is only read here: `{command}` forgets it"
        )


def grep(kb: Session, options: argparse.Namespace) -> int:
    """Search the project's files; print one line a match."""
    found, searched = grep_project(
        kb.project, options.pattern, options.glob, options.case_sensitive, options.limit
    )
    result = {
        "matches": [asdict(match) for match in found.matches],
        "totalMatches": found.total_matches,
        "filesSearched": found.files_searched,
        "searched": searched,
    }
    lines = [f"{one.file}:{one.line}:{one.column}:{one.text}" for one in found.matches]
    render.text(result, "\n".join(lines), options)
    if not options.quiet and not options.json:
        if not found.matches:
            render.say("nothing found")
        left = found.total_matches - len(found.matches)
        if left:
            render.say(f"{counted(left, 'more matching line')}; see all with -n")
        if found.truncated:
            render.say("the time was over before all was searched")
        if searched == STORED:
            render.say("the project's folder is not here: searched what is stored")
    return 0 if found.matches else 1

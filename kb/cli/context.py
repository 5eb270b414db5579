"""`kb grep`, `kb record`, `kb recall`, `kb forget`: the working memory on the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from kb.cli import render
from kb.cli.commands import Parser, Text
from kb.cli.exit_codes import NOTHING_FOUND
from kb.errors import NoEmbeddings, UsageError
from kb.results.memory import ForgottenDiscovery, RecordedDiscovery
from kb.text.counted import counted
from kb.tools.session import Session

SHOWN_ID = 8  # characters of an id: enough to tell thousands apart
SHORTEST, LONGEST = 10, 1000  # characters, as for the tool
NOTHING_RECORDED = "nothing is recorded yet: `kb record TEXT` does it"
TYPES = ("", "pattern", "rule", "decision", "issue")
_TYPES_SHOWN = "pattern, rule, decision or issue"


def record_options(parser: Parser) -> None:
    parser.argument("text", "TEXT", 'a sentence or two, or "-" to read stdin')
    _add_type(parser, f"{_TYPES_SHOWN} (default: told from the words)")
    parser.option("--module", "NAME", "the part it is about", default="")
    parser.option("--source", "TEXT", "where it comes from", dest="origin", default="")
    parser.option("--supersedes", "ID", "the one that this corrects", default="")
    secrets = "record it though it seems to hold a password, a key or a token"
    parser.flag("--allow-secrets", secrets)


def _add_type(parser: Parser, text: str) -> None:
    parser.option("--type", "TYPE", text, choices=TYPES, default="")


def record(session: Session, options: argparse.Namespace) -> int:
    text = sys.stdin.read() if options.text == "-" else options.text
    if not SHORTEST <= len(text.strip()) <= LONGEST:
        raise UsageError(
            f"a discovery has {SHORTEST} to {LONGEST} characters, this one {len(text.strip())}"
        )
    recorded = session.base.record(
        text,
        type=options.type,
        module=options.module,
        source=options.origin,
        supersedes=options.supersedes,
        allow_secrets=options.allow_secrets,
    )
    _say_outcome(recorded, options)
    return 0


def _say_outcome(
    discovery: RecordedDiscovery | ForgottenDiscovery, options: argparse.Namespace
) -> None:
    result = {
        "id": discovery.id,
        "type": discovery.type,
        "module": discovery.module or "",
        "status": discovery.status,
    }
    more = discovery.to_dict()
    result |= {key: more[key] for key in ("supersedes", "nearest") if key in more}
    about = f" of {discovery.module}" if discovery.module else ""
    if not options.quiet or options.json:
        render.text(result, f"{discovery.status}: {discovery.type}{about} {discovery.id}", options)
    if isinstance(discovery, RecordedDiscovery) and not options.quiet:
        for near in discovery.nearest or ():
            render.say(f"known: {near.id[:SHOWN_ID]} {near.content}")
    if discovery.notice:
        render.say(discovery.notice)


def recall_options(parser: Parser) -> None:
    parser.argument("query", "QUERY", "without it: all, by module", nargs="*", action=Text)
    _add_type(parser, f"only {_TYPES_SHOWN}")
    parser.option("--module", "NAME", "only of this part", default="")
    parser.limit(5)
    parser.table_format()


def recall(session: Session, options: argparse.Namespace) -> int:
    if options.query is None:
        rows = [
            discovery.to_dict()
            for discovery in session.base.recall(type=options.type, module=options.module)
        ]
        render.text({"discoveries": rows}, as_markdown(rows).rstrip("\n") if rows else "", options)
        render.remark("" if rows else NOTHING_RECORDED, options)
        return 0 if rows else 1
    try:
        results = session.base.recall(
            options.query, type=options.type, module=options.module, limit=options.limit
        )
    except NoEmbeddings:
        if session.base.has_discoveries():
            raise
        render.table({"results": [], "totalFound": 0}, [], (), options)
        render.remark(NOTHING_RECORDED, options)
        return NOTHING_FOUND
    render.remark(results.notice or "", options)
    columns = ("score", "id", "type", "module", "content")
    result = {key: value for key, value in results.to_dict().items() if key != "notice"}
    shown = [{**row, "id": row["id"][:SHOWN_ID]} for row in result["results"]]
    render.table(result, shown, columns, options)
    return 0 if shown else 1


def as_markdown(discoveries: Sequence[dict[str, Any]]) -> str:
    """The discoveries as a page with a chapter per module and a section per type."""
    lines = ["# Discoveries"]
    module = type_ = None
    for discovery in discoveries:
        if discovery.get("module", "") != module:
            module, type_ = discovery.get("module", ""), None
            lines += ["", f"## {module or 'The whole project'}"]
        if discovery["type"] != type_:
            type_ = discovery["type"]
            lines += ["", f"### {type_.capitalize()}s", ""]
        text = discovery["content"].replace("\n", "\n  ")
        source = f", {discovery['source']}" if discovery["source"] != "discovery" else ""
        by = discovery.get("supersededBy", "")[:SHOWN_ID]
        place = f"{discovery['date'][:10]}{source}, id {discovery['id'][:SHOWN_ID]}"
        lines.append(f"- {text} ({place}{by and f', superseded by {by}'})")
    return "\n".join(lines) + "\n"


def forget_options(parser: Parser) -> None:
    parser.argument("id", "ID", "as `kb recall` shows it; its beginning is enough")


def forget(session: Session, options: argparse.Namespace) -> int:
    session.log.flush()
    _say_outcome(session.base.forget(options.id), options)
    return 0


def grep_options(parser: Parser) -> None:
    parser.argument("pattern", "PATTERN", "a regular expression")
    parser.option("--glob", "GLOB", 'only files such as "src/**/*.ts"', default="")
    parser.flag("-s --case-sensitive", "tell A from a")
    parser.limit(1000, "matches")


def grep(session: Session, options: argparse.Namespace) -> int:
    results = session.base.grep(
        options.pattern,
        glob=options.glob,
        case_sensitive=options.case_sensitive,
        limit=options.limit,
    )
    lines = [f"{row.file}:{row.line}:{row.column}:{row.text}" for row in results]
    render.text(results.to_dict(), "\n".join(lines), options)
    if not options.quiet and not options.json:
        if not results.matches:
            render.say("nothing found")
        left = results.total_matches - len(results)
        if left:
            render.say(f"{counted(left, 'more matching line')}; see all with -n")
        if results.truncated:
            render.say("the time was over before all was searched")
        if results.notice:
            render.say(results.notice)
    return 0 if results.matches else 1

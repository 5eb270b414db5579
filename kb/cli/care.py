"""`kb tools`, `kb tool`, `kb status`, `kb copy`, `kb pack`, `kb split` and `kb merge`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from kb.cli import render, serve
from kb.cli.arguments import Parser, byte_count
from kb.cli.progress import progress
from kb.errors import EmbeddingError, UsageError
from kb.models.embedder import sends_to
from kb.results.care import CutFile, MovedCollections
from kb.server.background import embed_added
from kb.text.counted import counted, sized
from kb.text.json_text import JsonError, parse_json
from kb.tools.session import Session


def list_tools_options(parser: Parser) -> None:
    parser.example = "kb tools"
    parser.table_format()


def list_tools(_: Session, options: argparse.Namespace) -> int:
    from kb.tools.registry import load_tools  # here: takes 60 ms

    tools = load_tools().values()
    result = {
        "tools": [
            {
                "name": tool.name,
                "family": tool.family,
                "title": tool.title,
                "description": tool.description,
                "inputSchema": tool.input_schema,
                "outputSchema": tool.output_schema,
            }
            for tool in tools
        ]
    }
    rows = [
        {
            "tool": tool.name,
            "parameters": ", ".join(tool.input_schema["properties"]),
            "does": tool.description.split("\n")[0],
        }
        for tool in tools
    ]
    render.table(result, rows, ("tool", "parameters", "does"), options)
    return 0


def call_options(parser: Parser) -> None:
    parser.example = 'kb tool documents_search \'{"query": "retry", "limit": 3}\''
    parser.argument("name", "NAME", "as `kb tools` lists it")
    json = 'arguments as a JSON object, or "-" to read them from stdin'
    parser.argument("arguments", "JSON", json, nargs="?", default="{}")
    serve.add_reply_tokens(parser)
    serve.add_allow_docs(parser)


def call(session: Session, options: argparse.Namespace) -> int:
    """Call a tool and print its result exactly as a client would get it."""
    from kb.tools.registry import call_tool, load_tools

    text = sys.stdin.read() if options.arguments == "-" else options.arguments
    try:
        arguments = parse_json(text or "{}")
    except JsonError as error:
        raise UsageError(f"the arguments are not JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise UsageError('the arguments must be a JSON object, such as {"query": "wind"}')
    if (tool := load_tools().get(options.name)) is not None and tool.family == "external":
        session.project.restore()
    result = call_tool(session, options.name, arguments)
    print(render.as_json(result.content), flush=True)
    if session.activity.added.is_set():
        try:
            embed_added(session)
        except EmbeddingError as error:
            render.say(f"searches use keywords alone: {error.message}")
    return 1 if result.is_error else 0


def status_options(parser: Parser) -> None:
    parser.example = "kb status --calls"
    parser.flag("--calls", "how often, how well and how fast tools were called")
    parser.table_format()


def status(session: Session, options: argparse.Namespace) -> int:
    if options.calls:
        return _status_of_calls(session, options)
    files = [file.to_dict() for file in session.base.status()]
    if session.base.lost:
        render.say(session.base.lost)
    if len(files) > 1 and options.json:
        render.print_json({"files": files})
        return 0
    for file in files:
        _show_status(file, options)
    return 0


def _show_status(result: dict[str, Any], options: argparse.Namespace) -> None:
    model = result["model"]
    heading = f"{result['file']} ({sized(result['bytes'])})"
    characters = result["characters"]
    size = (
        f"{characters / 1e6:.1f} million characters"
        if characters >= 1e6
        else counted(characters, "character")
    )
    facts = [
        f"{counted(result['documents'], 'document')}, {size}, "
        f"{counted(result['chunks'], 'passage')}, {result['embedded_chunks']:,} with a vector",
        f"model: {model}, {result['width']} dimensions" if model else "no vectors yet",
    ]
    if model and (host := sends_to(model)):
        facts.append(f"texts and questions are sent to {host}")
    if tokens := result.get("tokens"):
        states = ", ".join(f"{number} {state}" for state, number in tokens.items())
        facts.append(f"tokens: {states}")
    if result["waiting"]:
        waiting = counted(result["waiting"], "passage waits", "passages wait")
        facts.append(f"{waiting} for a vector: run `kb sync`")
    facts += [
        f"{problem['message']}; {problem['remedy']}"
        for problem in result["problems"]
        if problem["check"] in ("log", "sources")
    ]
    if result["replication"]:
        facts.append(result["replication"]["message"])
    read = [
        f"  {f['score']:.2f}  {f['path']} ({counted(f['reads'], 'read')})"
        for f in result["topFiles"]
    ]
    if read:
        read.insert(0, "files read most and last:")
    if getattr(options, "format", None) not in (None, "table"):
        columns = ("collection", "kind", "documents", "passages", "embedded", "source", "synced")
        render.table(result, result["collections"], columns, options)
        return
    lines = [heading, *facts, *map(_line_of_collection, result["collections"]), *read]

    def on_terminal() -> None:
        from kb.cli import terminal

        terminal.status(heading, facts, result["collections"])
        for line in read:
            print(line)

    render.text(result, "\n".join(lines), options, on_terminal)


def _line_of_collection(row: dict[str, Any]) -> str:
    source = f" from {row['source']}" if row["source"] else ""
    synced = f", synced {row['synced']}" if row["synced"] else ""
    return f"  {row['collection']}: {counted(row['documents'], 'document')}{source}{synced}"


def _status_of_calls(session: Session, options: argparse.Namespace) -> int:
    rows = [calls.to_dict() for calls in session.base.tool_calls()]
    shown = [
        {**row, "errors": ", ".join(f"{code} {n}" for code, n in row["errors"].items())}
        for row in rows
    ]
    columns = ("tool", "calls", "successRate", "p50", "p95", "p99", "errors")
    render.table({"calls": rows}, shown, columns, options)
    render.remark("" if rows else "no calls yet", options)
    return 0 if rows else 1


def pack_options(parser: Parser) -> None:
    parser.example = "kb pack docs -o docs.tar.gz"
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("-o", "--output", metavar="BUNDLE", type=Path, required=True)
    parser.option("--name", None, "its name; by default the folder's", default="")
    parser.option("--description", None, "what it holds", default="")
    parser.option("--edition", "VERSION", "its version", default="")
    parser.option("--include", "GLOB", "only these", is_list=True)
    parser.option("--exclude", "GLOB", "not these", is_list=True)


def pack(session: Session, options: argparse.Namespace) -> int:
    packed = session.base.pack(
        options.folder,
        options.output,
        name=options.name,
        version=options.edition,
        description=options.description,
        include=options.include,
        exclude=options.exclude,
    )
    for line in packed.left_out:
        render.say(f"left out: {line}")
    text = f"{options.output}: {counted(packed.documents, 'document')} ({sized(packed.bytes)})"
    render.text(packed.to_dict() | {"bundle": str(options.output)}, text, options)
    return 0


def copy_options(parser: Parser) -> None:
    parser.example = "kb copy handbook.db"
    parser.argument("destination", "DEST", "a new file, or a folder", type=Path)
    share = "for others: without questions, reads, discoveries and paths of this machine"
    parser.flag("--share", share)


def copy(session: Session, options: argparse.Namespace) -> int:
    copied = session.base.copy(options.destination, share=options.share)
    render.text(copied.to_dict(), f"{copied.copy} ({sized(copied.bytes)})", options)
    if copied.without_source:
        names = ", ".join(copied.without_source)
        render.remark(f"without the source, which is outside of the project: {names}", options)
    return 0


def split_options(parser: Parser) -> None:
    parser.example = "kb split team.db handbook"
    parser.argument("file", "FILE", "made when it is missing", type=Path)
    parser.argument("names", "NAME", "collections to move", nargs="*")
    by_size = (
        "write shards of about this size, such as 2GB, into a new folder FILE: each has whole "
        "documents of all collections. `--db FILE` opens and syncs them together"
    )
    parser.option("--by-size", "SIZE", by_size, type=byte_count)


def split(session: Session, options: argparse.Namespace) -> int:
    """Move the named collections into another file, or cut all into shards."""
    if bool(options.names) == bool(options.by_size):
        raise UsageError("name the collections to move, or the size of shards by --by-size")
    with progress(options) as show:
        if options.by_size:
            cut = session.base.cut(options.file, options.by_size, progress=show)
            return _show_shards(cut, options)
        moved = session.base.split(options.file, options.names, progress=show)
    return _show_moved(moved, options)


def _show_shards(shards: CutFile, options: argparse.Namespace) -> int:
    lines = [
        f"{shard.file}: {counted(shard.documents, 'document')} ({sized(shard.bytes)})"
        for shard in shards
    ]
    lines.append(f"the file is as it was; `--db {options.file}` opens the shards in its place")
    if not options.quiet or options.json:
        render.text(shards.to_dict(), "\n".join(lines), options)
    return 0


def merge_options(parser: Parser) -> None:
    parser.example = "kb merge team.db"
    parser.argument("file", "FILE", "the other file", type=Path)
    parser.argument("names", "NAME", "collections (default: all)", nargs="*")


def merge(session: Session, options: argparse.Namespace) -> int:
    with progress(options) as show:
        moved = session.base.merge(options.file, options.names, progress=show)
    return _show_moved(moved, options)


def _show_moved(results: MovedCollections, options: argparse.Namespace) -> int:
    lines = [
        f"{row.collection}: {counted(row.documents, 'document')} moved to {results.file}"
        + (f" as {row.name}" if row.name != row.collection else "")
        for row in results
    ]
    if waiting := sum(row.waiting for row in results):
        wait = counted(waiting, "passage waits", "passages wait")
        lines.append(f"{wait} there for a vector: run `kb sync`")
    if not options.quiet or options.json:
        render.text(results.to_dict(), "\n".join(lines), options)
    return 0 if results.moved else 1

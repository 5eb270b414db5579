"""`kb tools`, `kb tool`, `kb status`, `kb copy`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kb.cli import render
from kb.cli.soundness import problems
from kb.errors import EmbeddingError, SourceError, UsageError
from kb.search.files import Together
from kb.store.call_statistics import call_statistics, logged_calls
from kb.store.collections import all_collections
from kb.store.contents import count_documents, passages_of_collections, sizes
from kb.store.database import Database
from kb.store.embeddings import current_model
from kb.store.findings import HINT, Finding
from kb.store.replicated import is_replicated
from kb.store.sessions import file_scores
from kb.store.tokens import count_tokens
from kb.store.waiting_log import waiting_log
from kb.text.counted import counted, sized
from kb.tools.session import Session

TOP_FILES = 10


def list_tools(_: Session, options: argparse.Namespace) -> int:
    """List the tools; with --json as a client sees them."""
    from kb.tools.registry import load_tools

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


def call(kb: Session, options: argparse.Namespace) -> int:
    """Call a tool and print its result, exactly as a client would get it."""
    from kb.server.background import embed_added
    from kb.tools.registry import call_tool, load_tools

    text = sys.stdin.read() if options.arguments == "-" else options.arguments
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the arguments are not JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise UsageError('the arguments must be a JSON object, such as {"query": "wind"}')
    if (tool := load_tools().get(options.name)) is not None and tool.family == "external":
        kb.project.restore()
    result = call_tool(kb, options.name, arguments)
    print(render.as_json(result.content), flush=True)
    if kb.activity.waits_for_vectors:
        try:
            embed_added(kb)
        except EmbeddingError as error:
            render.say(f"searches use keywords alone: {error.message}")
    return 1 if result.is_error else 0


def status(kb: Session, options: argparse.Namespace) -> int:
    """Show sizes, the model and what waits to be embedded."""
    if options.calls:
        return _status_of_calls(kb, options)
    files = [kb.database, *kb.knowledge.beside.databases()]
    if kb.lost:
        render.say(kb.lost)
    if len(files) > 1 and options.json:
        render.print_json({"files": [_facts(database) for database in files]})
        return 0
    for database in files:
        _show_status(_facts(database), options)
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
    if tokens := result.get("tokens"):
        states = ", ".join(f"{number} {state}" for state, number in tokens.items())
        facts.append(f"tokens: {states}")
    if result["waiting"]:
        waiting = counted(result["waiting"], "passage waits", "passages wait")
        facts.append(f"{waiting} for a vector: run `kb sync`")
    facts += [
        f"{one['message']}; {one['remedy']}" for one in result["problems"] if one["check"] == "log"
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


def _facts(database: Database) -> dict[str, Any]:
    """What `kb status --json` prints."""
    path = Path(database.path)
    with database.read() as connection:
        files = [file for file in file_scores(connection) if not file.is_archived]
        counts = sizes(connection)
        model = current_model(connection)
        rows = all_collections(connection)
        passages = passages_of_collections(connection)
        tokens = count_tokens(connection)
        documents = {
            row["collection_id"]: count_documents(connection, row["collection_id"]) for row in rows
        }
    found = problems(database)
    if waiting := waiting_log(database):
        found.append(Finding("log", HINT, waiting.sentence(with_commands=True), waiting.remedy))
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        **counts,
        "waiting": counts["chunks"] - counts["embedded_chunks"],
        **({"tokens": dict(tokens)} if tokens else {}),
        "problems": [finding.as_dict() for finding in found],
        "replication": _replication(path),
        "model": model["name"] if model else None,
        **({"width": model["width"]} if model else {}),
        "collections": [
            {
                "collection": row["name"],
                "kind": row["kind"],
                "documents": documents[row["collection_id"]],
                "passages": passages.get(row["collection_id"], (0, 0))[0],
                "embedded": passages.get(row["collection_id"], (0, 0))[1],
                "source": row["source"],
                "synced": row["synced_at"],
            }
            for row in rows
        ],
        "topFiles": [
            {
                "path": file.path,
                "score": round(file.score, 4),
                "reads": file.access_count,
                "lastRead": file.last_accessed_at,
            }
            for file in files[:TOP_FILES]
        ],
    }


def _replication(path: Path) -> dict[str, Any] | None:
    """How far a copy elsewhere is, of a file that has one."""
    if not is_replicated(path):
        return None
    from kb.store.replication.state import replication_state

    state = replication_state(path)
    if state is None:
        return None
    remedy = f"; {state.remedy()}" if state.is_behind else ""
    return {**state.as_dict(), "message": f"{state.sentence()}{remedy}"}


def _line_of_collection(row: dict[str, Any]) -> str:
    source = f" from {row['source']}" if row["source"] else ""
    synced = f", synced {row['synced']}" if row["synced"] else ""
    return f"  {row['collection']}: {counted(row['documents'], 'document')}{source}{synced}"


def _status_of_calls(kb: Session, options: argparse.Namespace) -> int:
    together = Together(kb.files)
    with together.read():
        logged = together.each(lambda _, connection: logged_calls(connection))
    rows = call_statistics(logged.values())
    shown = [
        {**row, "errors": ", ".join(f"{code} {n}" for code, n in row["errors"].items())}
        for row in rows
    ]
    columns = ("tool", "calls", "successRate", "p50", "p95", "p99", "errors")
    render.table({"calls": rows}, shown, columns, options)
    render.remark("" if rows else "no calls yet", options)
    return 0 if rows else 1


def pack(_: Session, options: argparse.Namespace) -> int:
    """Write a folder's documents as a bundle that `kb add` takes, with a manifest."""
    from kb.formats.parse import accepts
    from kb.sources.bundle import pack as write
    from kb.sources.folder import is_private_key, walk

    folder = Path(options.folder).expanduser().resolve()
    left_out: list[str] = []
    found = walk(
        folder,
        options.include,
        options.exclude,
        report=lambda path, message: left_out.append(f"{path}: {message}"),
        accepts=accepts,
        withhold=lambda path: left_out.append(f"{path}: secret by its name"),
    )
    files = []
    for file in found:
        if is_private_key(file):
            left_out.append(f"{file.path}: a private key")
        else:
            files.append(file)
    if not files:
        raise SourceError(f"{options.folder} holds no document: nothing was packed")
    manifest: dict[str, object] = {"name": options.name or folder.name}
    manifest |= {
        key: value
        for key, value in (("version", options.edition), ("description", options.description))
        if value
    }
    manifest["sources"] = {"files": [file.path for file in files]}
    size = write(files, options.output.expanduser(), manifest)
    for line in left_out:
        render.say(f"left out: {line}")
    result = {"bundle": str(options.output), "documents": len(files), "bytes": size}
    text = f"{options.output}: {counted(len(files), 'document')} ({sized(size)})"
    render.text(result, text, options)
    return 0


def copy(kb: Session, options: argparse.Namespace) -> int:
    """Write a clean, compact copy, for oneself or for others."""
    from kb.ingest.copying import copy_file

    destination = options.destination.expanduser()
    if destination.is_dir():
        destination = destination / Path(kb.database.path).name
    copied = copy_file(kb.database, destination, share=options.share)
    result = {"copy": str(destination), "bytes": copied.size}
    if options.share:
        result["withoutSource"] = copied.without_source
    render.text(result, f"{destination} ({sized(copied.size)})", options)
    if copied.without_source:
        names = ", ".join(copied.without_source)
        render.remark(f"without the source, which is outside of the project: {names}", options)
    return 0

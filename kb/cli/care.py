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
from kb.store.call_statistics import call_statistics
from kb.store.collections import all_collections
from kb.store.contents import count_documents, sizes
from kb.store.embeddings import current_model
from kb.store.findings import HINT, Finding
from kb.store.sessions import file_scores
from kb.store.waiting_log import waiting_log
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
            print(f"kb: searches use keywords alone: {error.message}", file=sys.stderr)
    return 1 if result.is_error else 0


def status(kb: Session, options: argparse.Namespace) -> int:
    """Show sizes, the model and what waits to be embedded."""
    if options.calls:
        return _status_of_calls(kb, options)
    path = Path(kb.database.path)
    with kb.database.read() as connection:
        files = [file for file in file_scores(connection) if not file.is_archived]
        counts = sizes(connection)
        model = current_model(connection)
        rows = [
            {**row, "documents": count_documents(connection, row["collection_id"])}
            for row in all_collections(connection)
        ]
    found = problems(kb.database)
    if waiting := waiting_log(kb.database):
        found.append(Finding("log", HINT, waiting.sentence(with_commands=True), waiting.remedy))
    result: dict[str, Any] = {
        "file": str(path),
        "bytes": path.stat().st_size,
        **counts,
        "waiting": counts["chunks"] - counts["embedded_chunks"],
        "problems": [finding.as_dict() for finding in found],
        "model": model["name"] if model else None,
        "collections": [
            {
                "collection": row["name"],
                "kind": row["kind"],
                "documents": row["documents"],
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
    lines = [
        f"{path} ({result['bytes'] / 1e6:.1f} MB)",
        f"{counts['documents']} documents, {counts['characters'] / 1e6:.1f} million characters, "
        f"{counts['chunks']} passages, {counts['embedded_chunks']} with a vector",
        f"model: {model['name']}, {model['width']} dimensions" if model else "no vectors yet",
    ]
    if result["waiting"]:
        lines.append(f"{result['waiting']} passages wait for their vector: run `kb sync`")
    if waiting:
        lines.append(f"{waiting.sentence(with_commands=True)}; {waiting.remedy}")
    lines += [
        f"  {row['name']}: {row['documents']} documents"
        + (f" from {row['source']}" if row["source"] else "")
        + (f", synced {row['synced_at']}" if row["synced_at"] else "")
        for row in rows
    ]
    if result["topFiles"]:
        lines.append("files read most and last:")
    lines += [f"  {f['score']:.2f}  {f['path']} ({f['reads']} reads)" for f in result["topFiles"]]
    render.text(result, "\n".join(lines), options)
    return 0


def _status_of_calls(kb: Session, options: argparse.Namespace) -> int:
    with kb.database.read() as connection:
        rows = call_statistics(connection)
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
    from kb.sources.folder import walk

    folder = Path(options.folder).expanduser().resolve()
    left_out: list[str] = []
    files = list(
        walk(
            folder,
            options.include,
            options.exclude,
            report=lambda path, message: left_out.append(f"{path}: {message}"),
            accepts=accepts,
        )
    )
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
        print(f"kb: left out: {line}", file=sys.stderr)
    result = {"bundle": str(options.output), "documents": len(files), "bytes": size}
    text = f"{options.output}: {len(files)} documents ({size / 1e6:.1f} MB)"
    render.text(result, text, options)
    return 0


def copy(kb: Session, options: argparse.Namespace) -> int:
    """Write a clean, compact copy."""
    destination = options.destination.expanduser()
    if destination.is_dir():
        destination = destination / Path(kb.database.path).name
    kb.database.copy_to(destination)
    size = destination.stat().st_size
    text = f"{destination} ({size / 1e6:.1f} MB)"
    render.text({"copy": str(destination), "bytes": size}, text, options)
    return 0

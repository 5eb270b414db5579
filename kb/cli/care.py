"""`kb tools` and `kb tool`, and what keeps a file: `kb status`, `kb copy`, `kb pack`, `kb split`,
`kb merge`, `kb token`, `kb datasette`, `kb replicate` and `kb restore`."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from kb.cli import render, serve
from kb.cli.commands import Parser, byte_count, positive
from kb.cli.render import progress
from kb.errors import EmbeddingError, FileError, UsageError
from kb.models.embedder import sends_to
from kb.results.care import MovedCollections
from kb.results.roles import READ, ROLES, WRITE
from kb.server.background import embed_added
from kb.settings import PACKAGE, database_paths
from kb.text.counted import counted, sized
from kb.text.json_text import JsonError, parse_json
from kb.tools.session import Session


def list_tools_options(parser: Parser) -> None:
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
    parser.flag("--calls", "how often, how well and how fast tools were called")
    parser.table_format()


def status(session: Session, options: argparse.Namespace) -> int:
    if options.calls:
        rows = [calls.to_dict() for calls in session.base.tool_calls()]
        shown = [
            {**row, "errors": ", ".join(f"{code} {n}" for code, n in row["errors"].items())}
            for row in rows
        ]
        columns = ("tool", "calls", "successRate", "p50", "p95", "p99", "errors")
        render.table({"calls": rows}, shown, columns, options)
        render.remark("" if rows else "no calls yet", options)
        return 0 if rows else 1
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
    lines = [heading, *facts]
    for row in result["collections"]:
        source = f" from {row['source']}" if row["source"] else ""
        synced = f", synced {row['synced']}" if row["synced"] else ""
        documents = counted(row["documents"], "document")
        lines.append(f"  {row['collection']}: {documents}{source}{synced}")
    lines += read

    def on_terminal() -> None:
        from kb.cli import terminal

        terminal.status(heading, facts, result["collections"])
        for line in read:
            print(line)

    render.text(result, "\n".join(lines), options, on_terminal)


def pack_options(parser: Parser) -> None:
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
            shards = session.base.cut(options.file, options.by_size, progress=show)
        else:
            moved = session.base.split(options.file, options.names, progress=show)
    if not options.by_size:
        return _show_moved(moved, options)
    lines = [
        f"{shard.file}: {counted(shard.documents, 'document')} ({sized(shard.bytes)})"
        for shard in shards
    ]
    lines.append(f"the file is as it was; `--db {options.file}` opens the shards in its place")
    if not options.quiet or options.json:
        render.text(shards.to_dict(), "\n".join(lines), options)
    return 0


def merge_options(parser: Parser) -> None:
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


ADD, LIST, REVOKE, FORGET = ACTIONS = ("add", "list", "revoke", "forget")
TOKEN_COLUMNS = ("name", "role", "state", "created", "expires", "revoked", "requestsPerMinute")


def token_options(parser: Parser) -> None:
    action = (
        "add (the token is printed this once), list, revoke (at once, also for a server that "
        "runs), or forget those that are revoked or have expired"
    )
    parser.argument("action", "ACTION", action, choices=ACTIONS)
    parser.argument("names", "NAME", "the person or program it is for", nargs="*")
    role = f"what it may do with the file: {READ} (default) or {WRITE}"
    parser.option("--role", None, role, choices=ROLES, default=READ)
    parser.option("--days", "N", "how long it is valid", type=positive)
    limit = "requests a minute (default: as the server has it)"
    parser.option("--limit", "N", limit, type=positive)
    parser.table_format()


def token(session: Session, options: argparse.Namespace) -> int:
    names: list[str] = options.names
    if options.action in (ADD, REVOKE) and not names:
        raise UsageError(f"say whose: kb token {options.action} NAME")
    if options.action in (LIST, FORGET) and names:
        raise UsageError(f"kb token {options.action} takes no name")
    if options.action == LIST:
        rows = [token.to_dict() for token in session.base.list_tokens()]
        blank = [{key: "" if row[key] is None else row[key] for key in row} for row in rows]
        render.table({"tokens": rows}, blank, TOKEN_COLUMNS, options)
        render.remark("" if rows else "no tokens: `kb token add NAME` makes one", options)
        return 0 if rows else 1
    if options.action == ADD:
        if len(names) > 1:
            raise UsageError("one token at a time: it is printed this once")
        made = session.base.add_token(
            names[0], options.role, days=options.days, requests_per_minute=options.limit
        )
        render.text({"name": names[0], "role": options.role, "token": made}, made, options)
        if not options.quiet:
            render.remark(
                f"{names[0]} may {options.role}. This is the only time that the token is shown; "
                "its owner's client sends it as `Authorization: Bearer TOKEN`",
                options,
            )
    elif options.action == REVOKE:
        session.base.revoke_tokens(*names)
        render.text({"revoked": names}, f"revoked: {', '.join(names)}", options)
    else:
        forgotten = session.base.forget_tokens()
        render.text({"forgotten": forgotten}, f"forgotten: {forgotten}", options)
        if not session.base.asks_for_tokens():
            render.remark("this file asks for no tokens any more", options)
    return 0


PROGRAM = "datasette"
PORT = 8001


def datasette_options(parser: Parser) -> None:
    parser.flag("--print", "print the command that starts it, and do not", dest="show")
    parser.option("--port", "N", f"where it listens ({PORT})", type=positive, default=PORT)
    parser.flag("--open", "open the browser too")


def datasette(session: Session, options: argparse.Namespace) -> int:
    """Write Datasette's configuration, and start it or print how."""
    places = (session.database.path, *session.knowledge.beside.paths)
    file, *others = (Path(path).absolute() for path in places)
    # The .gitignore beside the file covers this name.
    metadata_file = file.with_name(f"{file.name}.datasette.json")
    settings = metadata(file.stem, *(other.stem for other in others))
    try:
        metadata_file.write_text(json.dumps(settings, indent=2), encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write {metadata_file}: {error.strerror}") from error
    beside = shutil.which(PROGRAM, path=str(Path(sys.executable).parent))  # of this environment
    program = shutil.which(PROGRAM) or beside
    command = [
        *([program] if program else ["uvx", "--from", f"{PROGRAM}<1", PROGRAM]),
        *("serve", str(file), *map(str, others), "--metadata", str(metadata_file)),
        *(["--config", str(metadata_file)] if program and _has_config(program) else []),
        *("--port", str(options.port)),
        *(["--open"] if options.open else []),
    ]
    if options.show:
        result = {"metadata": str(metadata_file), "command": command}
        render.text(result, shlex.join(command), options)
        return 0
    if program is None:
        raise FileError(
            "Datasette is not installed: `pipx install datasette` does it, or run "
            f"{shlex.join(command)}"
        )
    session.close()
    return subprocess.run(command, check=False).returncode


def metadata(*names: str) -> dict[str, Any]:
    """The metadata of files by their names in Datasette."""
    import yaml  # here: other commands need none

    text = (PACKAGE / "assets" / "datasette.yaml").read_text(encoding="utf-8")
    general: dict[str, Any] = yaml.safe_load(text)
    of_file = {key: general.pop(key) for key in ("tables", "queries")}
    return {**general, "databases": dict.fromkeys(names, of_file)}


def _has_config(program: str) -> bool:
    """Whether it is Datasette 1.0 or later, which reads queries from its configuration alone. To
    earlier ones the option means something else."""
    done = subprocess.run(
        [program, "--version"], capture_output=True, encoding="utf-8", check=False
    )
    version = re.search(r"version (\d+)\.", done.stdout)
    return version is not None and int(version[1]) >= 1


def replicate_options(parser: Parser) -> None:
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
    from kb.library import replicating  # here: other commands load nothing of Litestream

    file = _only_file(options)
    if options.stop:
        if options.destination is not None or options.goes_on or options.once:
            raise UsageError("--stop stands alone")
        is_complete = replicating.stop(file)
        lacks = "" if is_complete else "; what was written last may be missing there"
        result = {"file": str(file), "replicated": False, "complete": is_complete}
        text = f"{file} is replicated no more; the copy stays where it is{lacks}"
        render.text(result, text, options)
        return 0
    if options.destination is None:
        state = replicating.require_state(file)
        remedy = f"; {state.remedy()}" if state.is_behind else ""
        render.text(state.as_dict(), f"{state.sentence()}{remedy}", options)
        return int(state.is_behind)

    def tell(line: str) -> None:
        if not options.quiet:
            render.say(line)

    try:
        replicating.replicate(
            file, options.destination, tell, goes_on=options.goes_on, once=options.once
        )
    except (KeyboardInterrupt, SystemExit):
        if (reached := replicating.replication_state(file)) is not None:
            tell(f"ended: {reached.sentence()}; {reached.remedy()}")
    return 0


def _only_file(options: argparse.Namespace) -> Path:
    file, *others = database_paths(options.db)
    if others:
        raise UsageError(f"one file at a time, such as `--db {file}`: there are {1 + len(others)}")
    return file


def restore_options(parser: Parser) -> None:
    parser.argument("destination", "DESTINATION", "as `kb replicate` was told")
    at = "as it was then, such as 2026-11-28T12:00:00Z (default: the newest)"
    parser.option("--at", "TIME", at, default="")


def restore(_: object, options: argparse.Namespace) -> int:
    from kb.library import replicating  # here: as above

    file = _only_file(options)
    documents = replicating.restore(options.destination, file, options.at)
    size = file.stat().st_size
    result = {"file": str(file), "bytes": size, "documents": documents}
    text = f"{file}: {counted(documents, 'document')} ({sized(size)})"
    render.text(result, text, options)
    named = ["--db", str(file)] if options.db else []
    command = shlex.join(["kb", *named, "replicate", options.destination, "--continue"])
    render.remark(f"`{command}` goes on from here", options)
    return 0

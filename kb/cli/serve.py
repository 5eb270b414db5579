"""`kb serve`, the MCP server over stdio or HTTP, and `kb ui`, the page in the browser."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kb.cli import render
from kb.cli.commands import Parser, add_shards, positive
from kb.disk.open_databases import opened
from kb.disk.secret import is_secret
from kb.errors import SourceError, UsageError
from kb.server.running import running_server
from kb.settings import find_project

if TYPE_CHECKING:
    from kb.server.http import Binding, HttpSettings
    from kb.tools.session import Session

TOKEN_VARIABLE = "KB_TOKEN"
# Ten a second without end: more than an assistant asks, with all its tools.
TOKEN_LIMIT = 600


def serve_options(parser: Parser) -> None:
    http = (
        "serve several clients over HTTP, at /mcp (default: 127.0.0.1:8642); beyond this "
        f"machine with tokens: see kb token, or {TOKEN_VARIABLE} and --token-file"
    )
    parser.option("--http", "HOST:PORT", http, nargs="?", const="")
    folder = "with --http: serve each file NAME.db of a folder at /NAME/mcp, for its own tokens"
    parser.option("--db-folder", "FOLDER", folder, type=Path)
    _add_access_options(parser)
    log = 'with --http: one line of JSON a request, "-" for stderr; never a token'
    parser.option("--access-log", "FILE", log)
    parser.flag("--log-queries", "tell in the access log what was searched for")
    origin = (
        "with --http: a page elsewhere that may use the protocol from a browser, such as "
        "http://localhost:6274"
    )
    parser.option("--allow-origin", "ORIGIN", origin, is_list=True)
    parser.option("--tools", "FAMILY,...", "only these tool families", default="")
    add_reply_tokens(parser)
    _add_watch(parser)
    rate = 'calls a minute, such as "search=30,read=100,grep=60", one number, or "off"'
    parser.option("--rate-limit", "LIMITS", rate, default="")

    def limited(text: str) -> int | None:
        return None if text == "off" else positive(text)

    limit = f'with --http: requests a minute of each token, or "off" (default: {TOKEN_LIMIT})'
    parser.option("--token-limit", "N", limit, type=limited, default=TOKEN_LIMIT)
    _add_root(parser, "serve")
    add_allow_docs(parser)
    replica = "serve a copy that follows what `kb replicate` keeps there, and write nothing"
    parser.option("--replica", "DESTINATION", replica, default="")
    writer = "with --replica: where to write instead, told to those who try"
    parser.option("--writer", "ADDRESS", writer, default="")
    add_shards(parser)


def ui_options(parser: Parser) -> None:
    http = "where on this machine (default: 127.0.0.1:8642, or any free port)"
    parser.option("--http", "HOST:PORT", http, default="")

    def port(text: str) -> str:
        return f":{positive(text)}"

    parser.option("--port", "N", "that port of this machine alone", type=port, dest="http")
    parser.flag("--no-open", "only print the address, open no browser")
    _add_access_options(parser)
    _add_watch(parser)
    _add_root(parser, "show")


def add_reply_tokens(parser: Parser) -> None:
    text = "about how long a reply may be (default: 20,000 tokens)"
    parser.option("--max-reply-tokens", "N", text, type=positive)


def add_allow_docs(parser: Parser) -> None:
    text = "a folder outside a project that its external_docs may lie in"
    parser.option("--allow-docs", "FOLDER", text, is_list=True)


def _add_watch(parser: Parser) -> None:
    parser.flag("--watch", "follow changes in the folders of all collections")


def _add_root(parser: Parser, verb: str) -> None:
    text = f"the project to {verb} (default: that of the folder it is started in)"
    parser.option("--root", "FOLDER", text, type=Path)


def _add_access_options(parser: Parser) -> None:
    file = f"with --http: where a token stands that opens everything (default: {TOKEN_VARIABLE})"
    parser.option("--token-file", "FILE", file, type=Path)
    name = "with --http: another name that clients reach it by, such as a reverse proxy's"
    parser.option("--allow-host", "NAME", name, is_list=True)


def serve(session: Session, options: argparse.Namespace) -> NoReturn:
    from kb.server import run

    _require_sense(options)
    if options.http is None:
        families = tuple(filter(None, options.tools.split(",")))
        run.serve(session, families, watch_folders=options.watch)
    if options.db_folder is not None:
        _serve_folder(session, options)
    binding = _binding(options.http, options, has_tokens=session.base.asks_for_tokens())

    def ready(address: str) -> None:
        if not options.quiet:
            render.say(f"serving at {address}/mcp, for people at {address}/; Ctrl-C ends it")

    run.serve_over_http(session, binding, _settings(options), ready)


def _serve_folder(session: Session, options: argparse.Namespace) -> NoReturn:
    from kb.server import run
    from kb.server.endpoint import files_in

    folder = options.db_folder.expanduser()
    names = files_in(folder)
    # The files have, or will have, tokens: one without any answers nobody from elsewhere.
    binding = _binding(options.http, options, has_tokens=True)

    def ready(address: str) -> None:
        if not options.quiet:
            listed = ", ".join(names) or "there is none yet"
            render.say(f"serving each NAME.db of {folder} at {address}/NAME/mcp: {listed}")

    run.serve_folder(folder, session, binding, _settings(options), ready)


def _require_sense(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other, before anything is opened or bound."""
    if options.http is None:
        for name in ("db_folder", "access_log"):
            if getattr(options, name) is not None:
                raise UsageError(
                    f"--{name.replace('_', '-')} is for a server over HTTP: add --http"
                )
    if options.db_folder is not None and options.shards:
        raise UsageError("--shards are searched with one file: leave out --db-folder")
    if options.db_folder is not None and options.db:
        raise UsageError("give one of --db FILE and --db-folder FOLDER")
    if options.log_queries and options.access_log is None:
        raise UsageError("--log-queries is for --access-log: add it")


def _settings(options: argparse.Namespace) -> HttpSettings:
    from kb.server.access import make_writer
    from kb.server.http import HttpSettings

    place = options.access_log
    return HttpSettings(
        families=tuple(filter(None, options.tools.split(","))),
        watch_folders=options.watch,
        requests_per_minute=options.token_limit,
        write_access=None if place is None else make_writer(place),
        log_queries=options.log_queries,
    )


def ui(session: Session, options: argparse.Namespace) -> int:
    """Show the page of a running server, else serve it until this command is ended."""
    from kb.server.access import is_loopback
    from kb.server.http import parse_address

    host, _ = parse_address(options.http)
    if not is_loopback(host):
        raise UsageError(f"the page is for this machine alone: {host} can be reached from others")
    running = running_server(session.database.path, find_project())
    if running is None or options.http or not is_loopback(running.host):
        _serve_page(session, host, options)
    else:
        token = running.token if running.asks or session.base.asks_for_tokens() else ""
        _show_page(f"http://{running.host}:{running.port}/", token, options)
    return 0


def _serve_page(session: Session, host: str, options: argparse.Namespace) -> NoReturn:
    from kb.server import run
    from kb.server.http import HttpSettings

    try:
        binding = _binding(options.http, options)
    except SourceError:
        if options.http:
            raise
        binding = _binding(f"{host}:0", options)

    def ready(address: str) -> None:
        token = (
            binding.access.token if binding.access.asks or session.base.asks_for_tokens() else ""
        )
        _show_page(f"{address}/", token, options)
        render.say("Ctrl-C ends it")

    run.serve_over_http(session, binding, HttpSettings(watch_folders=options.watch), ready)


def _show_page(address: str, token: str, options: argparse.Namespace) -> None:
    opened = f"{address}?token={token}" if token else address
    render.say(f"the page is at {opened}")
    if not options.no_open:
        import webbrowser

        webbrowser.open(opened)


def _binding(address: str, options: argparse.Namespace, *, has_tokens: bool = False) -> Binding:
    from kb.server.access import make_access
    from kb.server.http import bind, parse_address

    host, port = parse_address(address)
    access = make_access(
        host,
        _token(options),
        options.allow_host,
        has_tokens=has_tokens,
        origins=getattr(options, "allow_origin", ()),
    )
    return bind(host, port, access)


def _token(options: argparse.Namespace) -> str:
    """The token, from where other users of the machine cannot read it."""
    if options.token_file is None:
        return os.environ.get(TOKEN_VARIABLE, "")
    try:
        with opened(options.token_file.expanduser()) as stream:
            token = stream.read().decode("ascii").strip()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise SourceError(f"cannot read the token from {options.token_file}: {why}") from error
    if not token:
        raise SourceError(f"there is no token in {options.token_file}")
    file = options.token_file.expanduser().resolve()
    project = (getattr(options, "root", None) or find_project()).resolve()
    if file.is_relative_to(project) and not is_secret(str(file.relative_to(project))):
        raise SourceError(
            f"clients could read {options.token_file}: it lies in the project {project}; move it "
            "out of it, or into its folder .secrets"
        )
    return token

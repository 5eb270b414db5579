"""`kb serve`, the MCP server over stdio or HTTP, and `kb ui`, the page in the browser."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kb.cli import render
from kb.cli.arguments import ASSISTANTS, FIND, positive
from kb.errors import SourceError, UsageError
from kb.server.running import running_server
from kb.settings import find_project

if TYPE_CHECKING:
    from kb.server.http import Binding, HttpSettings
    from kb.tools.session import Session

TOKEN_VARIABLE = "KB_TOKEN"
# Ten a second for as long as it likes: more than an assistant asks, with all its tools.
TOKEN_LIMIT = 600


def add_options(add: Callable[..., argparse.ArgumentParser]) -> None:
    """The command with its options."""
    sub = add(
        "serve",
        "serve.serve",
        "run the MCP server, over stdin and stdout or HTTP",
        group=ASSISTANTS,
        example="kb serve --watch",
        creates=True,
    )
    sub.add_argument(
        "--http",
        nargs="?",
        const="",
        metavar="HOST:PORT",
        help="serve several clients over HTTP, at /mcp (default: 127.0.0.1:8642); beyond this "
        f"machine with tokens: see kb token, or {TOKEN_VARIABLE} and --token-file",
    )
    sub.add_argument(
        "--db-folder",
        type=Path,
        metavar="FOLDER",
        help="with --http: serve each file NAME.db of a folder at /NAME/mcp, for its own tokens",
    )
    _add_access_options(sub)
    sub.add_argument(
        "--access-log",
        metavar="FILE",
        help='with --http: one line of JSON a request, "-" for stderr; never a token',
    )
    sub.add_argument(
        "--log-queries", action="store_true", help="tell in the access log what was searched for"
    )
    sub.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="with --http: a page elsewhere that may use the protocol from a browser, such as "
        "http://localhost:6274",
    )
    sub.add_argument("--tools", default="", metavar="FAMILY,...", help="only these tool families")
    add_reply_tokens(sub)
    sub.add_argument(
        "--watch", action="store_true", help="follow changes in the folders of all collections"
    )
    sub.add_argument(
        "--rate-limit",
        default="",
        metavar="LIMITS",
        help='calls a minute, such as "search=30,read=100,grep=60", one number, or "off"',
    )
    sub.add_argument(
        "--token-limit",
        type=_limit,
        default=TOKEN_LIMIT,
        metavar="N",
        help=f'with --http: requests a minute of each token, or "off" (default: {TOKEN_LIMIT})',
    )
    sub.add_argument(
        "--root",
        type=Path,
        metavar="FOLDER",
        help="the project to serve (default: that of the folder it is started in)",
    )
    add_allow_docs(sub)
    _add_replica_options(sub)

    sub = add(
        "ui",
        "serve.ui",
        "show the knowledge base as a page in the browser",
        group=FIND,
        example="kb ui --no-open",
        creates=True,
    )
    sub.add_argument(
        "--http",
        default="",
        metavar="HOST:PORT",
        help="where on this machine (default: 127.0.0.1:8642, or any free port)",
    )
    sub.add_argument(
        "--no-open", action="store_true", help="only print the address, open no browser"
    )
    _add_access_options(sub)
    sub.add_argument(
        "--watch", action="store_true", help="follow changes in the folders of all collections"
    )
    sub.add_argument(
        "--root",
        type=Path,
        metavar="FOLDER",
        help="the project to show (default: that of the folder it is started in)",
    )


def _add_replica_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--replica",
        default="",
        metavar="DESTINATION",
        help="serve a copy that follows what `kb replicate` keeps there, and write nothing",
    )
    sub.add_argument(
        "--writer",
        default="",
        metavar="ADDRESS",
        help="with --replica: where to write instead, told to those who try",
    )


def add_reply_tokens(sub: argparse.ArgumentParser) -> None:
    """The option of commands that call tools."""
    sub.add_argument(
        "--max-reply-tokens",
        type=positive,
        default=None,
        metavar="N",
        help="about how long a reply may be (default: 20,000 tokens)",
    )


def add_allow_docs(sub: argparse.ArgumentParser) -> None:
    """The option of commands that activate a project."""
    sub.add_argument(
        "--allow-docs",
        action="append",
        default=[],
        metavar="FOLDER",
        help="a folder outside a project that its external_docs may lie in",
    )


def serve(kb: Session, options: argparse.Namespace) -> NoReturn:
    """Run the MCP server until its client goes, or over HTTP until it is ended."""
    from kb.server import run

    _require_sense(options)
    if options.http is None:
        families = tuple(filter(None, options.tools.split(",")))
        run.serve(kb, families, watch_folders=options.watch)
    if options.db_folder is not None:
        _serve_folder(kb, options)
    binding = _binding(options.http, options, has_tokens=_asks(kb))

    def ready(address: str) -> None:
        if not options.quiet:
            render.say(f"serving at {address}/mcp, for people at {address}/; Ctrl-C ends it")

    run.serve_over_http(kb, binding, _settings(options), ready)


def _serve_folder(kb: Session, options: argparse.Namespace) -> NoReturn:
    from kb.server import run
    from kb.server.folder import files_in

    folder = options.db_folder.expanduser()
    names = files_in(folder)
    # The files have their own tokens, or will have: what has none answers nobody from elsewhere.
    binding = _binding(options.http, options, has_tokens=True)

    def ready(address: str) -> None:
        if not options.quiet:
            known = ", ".join(names) or "there is none yet"
            render.say(f"serving each NAME.db of {folder} at {address}/NAME/mcp: {known}")

    run.serve_folder(folder, kb, binding, _settings(options), ready)


def _require_sense(options: argparse.Namespace) -> None:
    """Refuse what makes no sense together, before anything is opened or bound."""
    if options.http is None:
        for name in ("db_folder", "access_log"):
            if getattr(options, name) is not None:
                raise UsageError(
                    f"--{name.replace('_', '-')} is for a server over HTTP: add --http"
                )
    if options.db_folder is not None and (options.db or options.replica):
        raise UsageError("give one of --db FILE, --db-folder FOLDER and --replica DESTINATION")
    if options.log_queries and options.access_log is None:
        raise UsageError("--log-queries is for --access-log: add it")


def _settings(options: argparse.Namespace) -> HttpSettings:
    from kb.server.access_log import make_writer
    from kb.server.http import HttpSettings

    place = options.access_log
    return HttpSettings(
        families=tuple(filter(None, options.tools.split(","))),
        watch_folders=options.watch,
        requests_per_minute=options.token_limit,
        write_access=None if place is None else make_writer(place),
        log_queries=options.log_queries,
    )


def ui(kb: Session, options: argparse.Namespace) -> int:
    """Show the page: by a server that runs already, else by one of its own until it is ended."""
    from kb.server.access import is_loopback
    from kb.server.http import parse_address

    host, _ = parse_address(options.http)
    if not is_loopback(host):
        raise UsageError(f"the page is for this machine alone: {host} can be reached from others")
    known = running_server(kb.database.path, find_project())
    if known is None or options.http or not is_loopback(known.host):
        _serve_page(kb, host, options)
    else:
        token = known.token if known.asks or _asks(kb) else ""
        _show_page(f"http://{known.host}:{known.port}/", token, options)
    return 0


def _serve_page(kb: Session, host: str, options: argparse.Namespace) -> NoReturn:
    from kb.server import run
    from kb.server.http import HttpSettings

    try:
        binding = _binding(options.http, options)
    except SourceError:
        if options.http:
            raise
        binding = _binding(f"{host}:0", options)

    def ready(address: str) -> None:
        token = binding.access.token if binding.access.asks or _asks(kb) else ""
        _show_page(f"{address}/", token, options)
        render.say("Ctrl-C ends it")

    run.serve_over_http(kb, binding, HttpSettings(watch_folders=options.watch), ready)


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


def _asks(kb: Session) -> bool:
    """Whether the file asks for tokens."""
    from kb.store.tokens import has_tokens

    with kb.database.read() as connection:
        return has_tokens(connection)


def _limit(text: str) -> int | None:
    return None if text == "off" else positive(text)


def _add_access_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"with --http: where a token stands that opens everything (default: {TOKEN_VARIABLE})",
    )
    sub.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="with --http: another name that clients reach it by, such as a reverse proxy's",
    )


def _token(options: argparse.Namespace) -> str:
    """The token, from where other users of the machine cannot read it."""
    if options.token_file is None:
        return os.environ.get(TOKEN_VARIABLE, "")
    try:
        token: str = options.token_file.expanduser().read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no ASCII text"
        raise SourceError(f"cannot read the token from {options.token_file}: {why}") from error
    if not token:
        raise SourceError(f"there is no token in {options.token_file}")
    return token

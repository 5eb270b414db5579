"""Open the file and run one command on it: what a command line loads only when it needs it."""

from __future__ import annotations

import argparse
import importlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kb.cli import soundness
from kb.cli.streams import OutputError
from kb.errors import KbError, SourceError
from kb.models.choose import make_embedder
from kb.settings import database_path
from kb.sources.address import git_address, is_git, is_remote, is_web, typed_path, web_address
from kb.store.database import Database
from kb.tools.limits import DEFAULT_REPLY_TOKENS, RateLimits, parse_limits
from kb.tools.session import open_session

if TYPE_CHECKING:
    from kb.models.rerank import Reranker


def run_command(options: argparse.Namespace) -> int:
    """Its exit code. What goes wrong is raised."""
    module, name = options.command.split(".")
    path = database_path(options.db) if options.needs_file else ":memory:"
    if options.creates and not Path(path).exists():
        _require_folder(getattr(options, "source", None) or getattr(options, "folder", None))
    with Database(path, create=options.creates) as database:
        rate_limit = getattr(options, "rate_limit", "")
        session = open_session(
            database,
            model=options.model,
            reranker=_reranker(options),
            make_embedder=partial(
                make_embedder, threads=options.threads, allow_download=options.download
            ),
            reply_tokens=getattr(options, "max_reply_tokens", None) or DEFAULT_REPLY_TOKENS,
            limits=RateLimits(parse_limits(rate_limit)) if rate_limit else None,
            allowed_docs=getattr(options, "allow_docs", ()),
        )
        with session:
            if options.needs_file:
                soundness.warn(database)
            # Only now, so that a search does not wait for the import of what syncs and serves.
            command = getattr(importlib.import_module(f"kb.cli.{module}"), name)
            try:
                code: int = command(session, options)
            except (KbError, OutputError, BrokenPipeError):
                raise
            except Exception as error:
                from kb.store.health import require_sound  # here: it is hardly ever needed

                require_sound(database, error)
                raise
            soundness.warn_of_waiting_log(database)
            return code


def _reranker(options: argparse.Namespace) -> Reranker | None:
    if not options.reranker:
        return None
    from kb.models.rerank import CrossEncoder

    return CrossEncoder(options.reranker, allow_download=options.download)


def _require_folder(source: str | None) -> None:
    """A misspelt folder or address must not leave an empty file behind."""
    if not source:
        return
    if is_git(source):
        git_address(source)
    elif is_web(source):
        web_address(source)
    elif not is_remote(source) and not typed_path(source).exists():
        raise SourceError(f"there is no folder or file {source}", path=source)

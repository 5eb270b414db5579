"""Open the file and run one command on it: what a command line loads only when it needs it."""

from __future__ import annotations

import argparse
import contextlib
import importlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kb.cli import soundness
from kb.cli.exit_codes import FAILURE
from kb.cli.streams import OutputError
from kb.disk.holders import companion
from kb.errors import FileError, KbError, SourceError, UsageError
from kb.models.choose import make_embedder
from kb.search.files import left_out
from kb.settings import database_paths
from kb.sources.address import git_address, is_git, is_remote, is_web, typed_path, web_address
from kb.store.beside import FilesBeside
from kb.store.collections import all_collections
from kb.store.database import Database
from kb.tools.limits import DEFAULT_REPLY_TOKENS, RateLimits, parse_limits
from kb.tools.session import open_session

if TYPE_CHECKING:
    from kb.models.rerank import Reranker


def run_command(options: argparse.Namespace) -> int:
    """Its exit code. What goes wrong is raised."""
    module, name = options.command.split(".")
    needs_file = options.needs_file and getattr(options, "db_folder", None) is None
    path, *others = database_paths(options.db) if needs_file else [Path(":memory:")]
    replica = getattr(options, "replica", "")
    is_new = needs_file and options.creates and not replica and not path.exists()
    made = [folder for folder in path.parents if is_new and not folder.exists()]
    if is_new:
        _require_folder(getattr(options, "source", None) or getattr(options, "folder", None))
    if replica:
        database, beside = _replica(replica, options)
    else:
        database, beside = _opened(path, others, create=options.creates)
    code: int = FAILURE
    is_refused = False
    try:
        with database:
            code = _run_on(database, beside, options, module, name)
    except UsageError:
        is_refused = True
        raise
    finally:
        # A server that fails later may have been written to by others until then.
        if is_new and code and (is_refused or module != "serve"):
            _withdraw(database, made)
    return code


def _run_on(
    database: Database, beside: FilesBeside, options: argparse.Namespace, module: str, name: str
) -> int:
    """The exit code of a function of a module of commands, run on an open file."""
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
        beside=beside,
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


def _opened(path: Path, others: Sequence[Path], *, create: bool) -> tuple[Database, FilesBeside]:
    """The file that is written, and those that are read beside it.

    Where the first of several cannot be opened, the next one answers, and nothing is written.
    """
    try:
        return Database(path, create=create), FilesBeside(others)
    except FileError as error:
        lost = [left_out(str(path), error)]
        for number, other in enumerate(others, 1):
            with contextlib.suppress(FileError):
                refusal = f"nothing is written, since the first file cannot be: {error.message}"
                first = Database(other, create=False, refusal=refusal)
                return first, FilesBeside(others[number:], lost)
        raise


def _replica(address: str, options: argparse.Namespace) -> tuple[Database, FilesBeside]:
    """A copy that follows a destination."""
    from kb.store.replication.destination import parse_destination
    from kb.store.replication.follow import open_replica

    if options.db or options.watch:
        raise UsageError(
            "--replica is a file of its own, and is not written: leave out --db, --watch"
        )
    return open_replica(parse_destination(address), options.writer)


def _withdraw(database: Database, made: Sequence[Path]) -> None:
    """Take back a new file that a refused command put nothing into.

    Args:
        made: the folders that were made for it, the innermost first.
    """
    file = database.path.resolve()  # a link to it is not ours
    if database.in_memory or companion(file, "-wal").exists():  # another process has it open
        return
    aside = file.with_name(f"{file.name}.withdrawn")
    file.rename(aside)
    with Database(aside, create=False) as again, again.read() as connection:
        is_empty = not all_collections(connection)
    if not is_empty:  # another process was here
        aside.rename(file)
        return
    aside.unlink()
    for folder in made:
        if [one.name for one in folder.iterdir()] == [".gitignore"]:
            (folder / ".gitignore").unlink()
        with contextlib.suppress(OSError):  # not empty: others put something there
            folder.rmdir()


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

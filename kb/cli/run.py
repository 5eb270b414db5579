"""Opens the file and runs one command on it: loaded only for commands that need it."""

from __future__ import annotations

import argparse
import contextlib
import glob
import importlib
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kb.cli import render
from kb.cli.exit_codes import FAILURE
from kb.cli.render import Notice
from kb.cli.streams import OutputError
from kb.disk.holders import companion
from kb.errors import KbError, SourceError, UsageError
from kb.library.opening import Opened, holds_nothing, open_files, open_replica
from kb.models.choose import make_embedder, make_reranker
from kb.models.embedder import sends_to
from kb.settings import database_paths
from kb.sources.address import git_address, is_git, is_remote, is_web, typed_path, web_address
from kb.tools.session import DEFAULT_REPLY_TOKENS, RateLimits, open_session, parse_limits

# Commands that may take long: what they do, and how many bytes of the file a second, or 0.
SLOW: dict[str, tuple[str, float]] = {
    "collect.add": ("reading the folder", 0),
    "collect.sync": ("comparing files with what is stored", 0),
    "collect.reembed": ("embedding all passages anew", 0),
    "collect.move": ("comparing files with what is stored", 0),
    "collect.remove": ("removing passages and what belongs to them", 30e6),
    "care.copy": ("copying the file", 60e6),
    "care.pack": ("reading the folder", 0),
    "care.split": ("moving documents", 0),
    "care.merge": ("moving documents", 0),
    "browse.search": ("reading the folder", 0),  # of --from
    "read.graph": ("reading all links", 0),
    "install.doctor": ("looking at the file", 0),
    "evaluate.evaluate": ("reading the collection", 0),
    "care.restore": ("fetching the file", 0),
}
MIGRATED = 30e6  # bytes of an older file a second
# How long one thread keeps the interpreter while others wait. A search gives it up some fifty
# times: beside a document of 19 MB one took .6 s longer at Python's 5 ms, at this no longer.
SWITCH_SECONDS = 0.0005
ARENA_MAX = -8  # of glibc's malloc.h
READING = ("browse", "read")  # modules whose commands people name collections to


def run_command(options: argparse.Namespace) -> int:
    """Run a command and return its exit code. Raises what goes wrong."""
    module, name = options.command.split(".")
    if module == "serve":  # before the first thread, which opening a file starts
        import ctypes
        import platform

        # By default each thread has a heap, whose free memory others cannot use: over 20,000 calls
        # a server grew by 8 %, with one heap by less than 1 %.
        if platform.libc_ver()[0] == "glibc":
            ctypes.CDLL(None).mallopt(ARENA_MAX, 1)
        sys.setswitchinterval(SWITCH_SECONDS)
    needs_file = options.needs_file and getattr(options, "db_folder", None) is None
    shards = getattr(options, "shards", ())
    if hasattr(options, "shards") and bool(shards) != bool(options.workers):
        raise UsageError("--workers and --shards belong together: give both")
    path, *others = database_paths(options.db) if needs_file else [Path(":memory:")]
    if shards and module in READING and not (options.db or path.exists()):
        path = Path(":memory:")  # what is searched is elsewhere
    replica = getattr(options, "replica", "")
    is_new = needs_file and options.creates and not replica and not path.exists()
    made = [folder for folder in path.parents if is_new and not folder.exists()]
    if is_new:
        # A misspelt folder or address leaves no empty file behind.
        for source in filter(None, getattr(options, "sources", [getattr(options, "folder", None)])):
            if is_git(source):
                git_address(source)
            elif is_web(source):
                web_address(source)
            elif not is_remote(source) and not typed_path(source).exists():
                raise SourceError(f"there is no folder or file {source}", path=source)
    options.notice = Notice(options)
    options.notice.begin(partial(_opening, path))
    try:
        if replica:
            if options.db or options.watch or options.db_folder is not None:
                raise UsageError(
                    "--replica is a file of its own, and is not written: "
                    "leave out --db, --db-folder and --watch"
                )
            opened = open_replica(replica, options.writer)
        else:
            opened = open_files(path, others, create=options.creates)
    finally:
        options.notice.end()
    code: int = FAILURE
    is_refused = False
    try:
        with opened[0]:
            code = _run_on(opened, options, module, name)
    except UsageError:
        is_refused = True
        raise
    finally:
        options.notice.end()
        # Until a server fails, others may have written to its file.
        if is_new and code and (is_refused or module != "serve"):
            _withdraw(opened, made)
    return code


def _run_on(opened: Opened, options: argparse.Namespace, module: str, name: str) -> int:
    """Run a function of a module of commands on an open file; the exit code."""
    database, beside = opened
    rate_limit = getattr(options, "rate_limit", "")
    session = open_session(
        database,
        model=options.model,
        reranker=make_reranker(options.reranker, allow_download=options.download)
        if options.reranker
        else None,
        make_embedder=partial(
            make_embedder, threads=options.threads, allow_download=options.download
        ),
        reply_tokens=getattr(options, "max_reply_tokens", None) or DEFAULT_REPLY_TOKENS,
        limits=RateLimits(parse_limits(rate_limit)) if rate_limit else None,
        allowed_docs=getattr(options, "allow_docs", ()),
        beside=beside,
    )
    if options.model and (host := sends_to(options.model)):
        render.say(f"texts and questions are sent to {host}, which turns them into vectors")
    with session:
        if shards := getattr(options, "shards", ()):
            session.base.use_shards(options.workers, shards, options.shard_seconds)
        for finding in session.base.problems() if options.needs_file else ():
            render.say(f"{finding.message}; {finding.remedy}")
        if module in READING:
            session.names.inside = Path.cwd()
        # Only now, so that a search does not wait for the import of what syncs and serves.
        command = getattr(importlib.import_module(f"kb.cli.{module}"), name)
        slow = SLOW.get(options.command)
        if slow and getattr(options, "folder", "") is not None:
            doing, rate = slow
            seconds = database.path.stat().st_size / rate if rate else 0.0
            options.notice.begin(lambda: (doing, seconds))
        try:
            code: int = command(session, options)
        except (KbError, OutputError, BrokenPipeError):
            raise
        except Exception as error:
            session.base.require_sound(error)
            raise
        # The `.db` alone lacks what this command wrote.
        if database.log.waits and (waiting := session.base.waiting_log()):
            render.say(f"{waiting.message}; {waiting.remedy}")
        return code


def _opening(path: Path) -> tuple[str, float]:
    """What opening a file takes, for a `Notice`."""
    if any(path.parent.glob(f"{glob.escape(path.name)}.version-*")):  # a migration's first step
        return f"bringing {path} to this version of kb", path.stat().st_size / MIGRATED
    return f"opening {path}", 0.0


def _withdraw(opened: Opened, made: Sequence[Path]) -> None:
    """Remove a new file that a refused command left empty, and the folders made for it."""
    database, _ = opened
    file = database.path.resolve()  # a link to it is not ours
    if database.in_memory or companion(file, "-wal").exists():  # another process has it open
        return
    aside = file.with_name(f"{file.name}.withdrawn")
    file.rename(aside)
    if not holds_nothing(aside):  # another process was here
        aside.rename(file)
        return
    aside.unlink()
    for folder in made:
        if [entry.name for entry in folder.iterdir()] == [".gitignore"]:
            (folder / ".gitignore").unlink()
        with contextlib.suppress(OSError):  # not empty: others put something there
            folder.rmdir()

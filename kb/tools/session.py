"""One client's side of an open knowledge base: what it may do, what it did, its project."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kb.library.knowledge_base import KnowledgeBase
from kb.library.opening import on_database
from kb.tools.limits import DEFAULT_REPLY_TOKENS, RateLimits

if TYPE_CHECKING:
    from kb.model_in_use import ModelInUse
    from kb.open_file import OpenFile
    from kb.project.in_use import ProjectInUse
    from kb.search.files import SearchedFile
    from kb.store.database import Database
    from kb.store.names import Names


class Activity:
    """What background work listens to; all clients of a process share one.

    Attributes:
        last_call: `time.monotonic()` of the latest call, 0 before the first.
        added: set while documents added by calls wait for vectors.
    """

    def __init__(self, added: threading.Event) -> None:
        self.last_call = 0.0
        self.added = added

    def note_call(self) -> None:
        self.last_call = time.monotonic()


class Rights(NamedTuple):
    """What a client may do."""

    may_write: bool = True  # call tools that change what is stored
    may_choose_project: bool = True  # activate a project other than the one being served


ALL_RIGHTS = Rights()


class Session:
    """An open knowledge base as one client uses it; several may share its file. `reply_tokens` is
    about how many tokens a tool's reply may take."""

    def __init__(
        self,
        base: KnowledgeBase,
        *,
        reply_tokens: int = DEFAULT_REPLY_TOKENS,
        limits: RateLimits | None = None,
        activity: Activity | None = None,
        rights: Rights = ALL_RIGHTS,
    ) -> None:
        self.base = base
        self.reply_tokens = reply_tokens
        self.limits = limits or RateLimits()
        self.activity = activity or Activity(base.file.additions)
        self.rights = rights
        self.calls = base.call_log()
        self.log = base.session_log()

    @property
    def knowledge(self) -> OpenFile:
        return self.base.file

    @property
    def model(self) -> ModelInUse:
        return self.base.model

    @property
    def project(self) -> ProjectInUse:
        return self.base.project

    @property
    def files(self) -> list[SearchedFile]:
        return self.base.files

    @property
    def lost(self) -> str:
        return self.base.lost

    @property
    def database(self) -> Database:
        return self.base.database

    @property
    def names(self) -> Names:
        return self.base.names

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def another(self, *, rights: Rights = ALL_RIGHTS, limits: RateLimits | None = None) -> Session:
        """A session for another client of this process, with its own log and project; its limits
        are its own too unless given."""
        return Session(
            self.base.another(may_choose=rights.may_choose_project),
            reply_tokens=self.reply_tokens,
            limits=limits or self.limits.renewed(),
            activity=self.activity,
            rights=rights,
        )

    def on_file(self, path: Path) -> Session:
        """A session on another file, without a project, with the same settings."""
        return Session(
            self.base.on_file(path), reply_tokens=self.reply_tokens, limits=self.limits.renewed()
        )

    def flush(self) -> None:
        """Write what is collected in memory: calls, accesses, the session's events."""
        self.calls.flush()
        self.log.flush()

    def end(self) -> None:
        """End the session of a client that has left; the file stays open for others."""
        self.base.stop()
        self.log.end()
        self.calls.flush()

    def close(self) -> None:
        """End the session and close the file."""
        self.end()
        self.base.close()


def open_session(
    database: Database,
    *,
    reply_tokens: int = DEFAULT_REPLY_TOKENS,
    limits: RateLimits | None = None,
    **choices: Any,
) -> Session:
    """A new session on a file; the `choices` are arguments of `on_database`."""
    return Session(on_database(database, **choices), reply_tokens=reply_tokens, limits=limits)

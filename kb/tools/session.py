"""One client's side of an open knowledge base: what it may do, how often, what it did."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kb.errors import RateLimited, UsageError
from kb.library.knowledge_base import KnowledgeBase
from kb.library.opening import on_database

if TYPE_CHECKING:
    from kb.model_in_use import ModelInUse
    from kb.open_file import OpenFile
    from kb.project.in_use import ProjectInUse
    from kb.search.files import SearchedFile
    from kb.store.collections import Names
    from kb.store.database import Database


DEFAULT_REPLY_TOKENS = 20_000

WINDOW_SECONDS = 60.0
DEFAULT_LIMITS = {"context_search": 30, "read_file": 100, "grep_codebase": 60}
SHORT_NAMES = {"search": "context_search", "read": "read_file", "grep": "grep_codebase"}


class Window:
    """Counts events of the last minute, in memory; `clock` gives seconds that never go back."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._times: deque[float] = deque()
        self._lock = threading.Lock()

    def enter(self) -> int:
        """Count an event and return 0; at the limit return the seconds to wait instead."""
        with self._lock:
            times, now = self._times, self._clock()
            while times and now - times[0] >= WINDOW_SECONDS:
                times.popleft()
            if len(times) >= self.limit:
                return max(1, math.ceil(times[0] + WINDOW_SECONDS - now))
            times.append(now)
            return 0


class RateLimits:
    """How often each tool may be called in a minute; a tool that is not named has no limit."""

    def __init__(
        self,
        limits: Mapping[str, int] = DEFAULT_LIMITS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._calls = {name: Window(limit, clock) for name, limit in limits.items()}

    def renewed(self) -> RateLimits:
        """The same limits for another client, who has called nothing yet."""
        return RateLimits(self._limits, self._clock)

    def check(self, tool: str) -> None:
        """Count a call; raises RateLimited, and counts nothing, at the limit."""
        calls = self._calls.get(tool)
        if calls is not None and (wait := calls.enter()):
            raise RateLimited(
                f"Rate limit exceeded for {tool}", limit=calls.limit, retryAfterSeconds=wait
            )


def parse_limits(text: str) -> dict[str, int]:
    """Limits as the command line takes them: "off", "search=30,read=100,grep=60", or one number,
    else UsageError. What is not named keeps its default."""
    if text == "off":
        return {}
    limits = dict(DEFAULT_LIMITS)
    try:
        if "=" not in text:
            return dict.fromkeys(limits, _positive(text))
        for part in text.split(","):
            name, _, number = part.partition("=")
            name = SHORT_NAMES.get(name.strip(), name.strip())
            if name not in limits:
                raise ValueError(name)
            limits[name] = _positive(number)
    except ValueError as error:
        raise UsageError(
            f"the rate limit {text!r} is none of: off, a number of calls a minute, "
            "search=30,read=100,grep=60"
        ) from error
    return limits


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


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

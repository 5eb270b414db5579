"""How often a tool may be called in a minute."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from kb.errors import RateLimited, UsageError

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

"""What somebody waits for in another thread, and may stop waiting for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar


class Stop:
    """Ends the statement that runs while this is `current_stop`, and later ones."""

    def __init__(self) -> None:
        self._is_over = False
        self._interrupt: Callable[[], None] | None = None
        self._lock = threading.Lock()  # or the statement of whoever has the connection next ends

    def begins(self, interrupt: Callable[[], None]) -> bool:
        """Note how to end the statement that begins; False if it must not begin."""
        with self._lock:
            if not self._is_over:
                self._interrupt = interrupt
            return not self._is_over

    def ended(self) -> None:
        with self._lock:
            self._interrupt = None

    def end(self) -> bool:
        """End statements; whether one still runs or is about to: then call this again."""
        with self._lock:
            self._is_over = True
            if self._interrupt is not None:
                self._interrupt()
            return self._interrupt is not None


# Threads get a copy of it.
current_stop: ContextVar[Stop | None] = ContextVar("current_stop", default=None)

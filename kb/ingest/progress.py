"""How long work tells of itself."""

from __future__ import annotations

from collections.abc import Callable

# Called with a stage ("documents" or "embedding"), how much is done and how much there is.
Progress = Callable[[str, int, int], None]


def no_progress(stage: str, done: int, total: int) -> None:
    """The progress of work that nobody watches."""

"""What a sync did, and how it tells of its progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

# Called with a stage ("documents" or "embedding"), how much is done and how much there is.
Progress = Callable[[str, int, int], None]


def no_progress(stage: str, done: int, total: int) -> None:
    """The progress of work that nobody watches."""


@dataclass(slots=True)
class SyncReport:
    """What a sync of one collection did, in documents, and what it could not do."""

    collection: str
    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    total: int = 0
    renamed: int = 0  # counted under `updated` too
    errors: list[dict[str, str]] = field(default_factory=list)
    notices: list[dict[str, str]] = field(default_factory=list)
    is_stored: bool = True  # False: a new collection without documents was not made

    def tell(self, message: str, path: str = "") -> None:
        """Note what the user should know about a file, or the whole collection."""
        self.notices.append({"path": path, "message": message})

    def fail(self, path: str, message: str) -> None:
        self.errors.append({"path": path, "message": message})

    def include(self, other: SyncReport) -> None:
        """Add what the sync of another shard of the collection did."""
        for name in ("added", "updated", "removed", "unchanged", "total", "renamed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, others in ((self.errors, other.errors), (self.notices, other.notices)):
            mine += [problem for problem in others if problem not in mine]

"""What is stored but not yet in the `.db` alone, and who keeps it from getting there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kb.disk.holders import Holder, holders, readers_of_log
from kb.store.database import Database
from kb.store.write_ahead_log import log_size

COPY = "use `kb copy`, or copy the two files together"


@dataclass(frozen=True, slots=True)
class WaitingLog:
    """A write-ahead log that cannot be merged for now.

    Nothing is lost: every kb and every SQLite that opens the file reads the log with it.
    """

    path: Path
    size: int  # bytes
    held_by: list[Holder]

    @property
    def remedy(self) -> str:
        return f"end that process or its transaction; to copy all meanwhile, {COPY}"

    def sentence(self, *, with_commands: bool = False) -> str:
        """What a copy lacks and why; the whole commands are for the user's own eyes."""
        who = ", ".join(
            f"process {one.process} ({one.command if with_commands else one.program})"
            for one in self.held_by
        )
        return (
            f"up to {self.size / 1e6:.1f} MB of writes are in {self.path.name}-wal and not yet in "
            f"{self.path.name}, which {who or 'another process'} is reading: a plain copy of "
            f"{self.path.name} alone lacks them"
        )


def waiting_log(database: Database) -> WaitingLog | None:
    """Try to merge the log; what waits on if others keep it from being merged, else None."""
    if database.in_memory or not log_size(database.path):
        return None
    if not database.read_only and database.merge_log():
        return None
    return held_log(database)


def held_log(database: Database) -> WaitingLog:
    """The log of a file that could not be merged just now."""
    path = database.path
    return WaitingLog(path, log_size(path), readers_of_log(path) or holders(path))

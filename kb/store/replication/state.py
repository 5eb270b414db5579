"""How far the copy of a file is: said by the process that keeps it, read by everybody."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from kb.disk.holders import holders
from kb.store.findings import HINT, SOUND, Finding
from kb.store.replicated import is_replicated, litestream_folder
from kb.store.replication.litestream import CONFIGURATION, write_private

__all__ = ["Said", "State", "finding", "lock_of", "replication_state", "say", "stored_address"]

STATE = "kb-state.json"
LOCK = "kb.lock"
LATE_SECONDS = 10  # without a copy, after which it is said that the copy is behind


@dataclass(frozen=True, slots=True)
class Said:
    """What a running replicator says of itself."""

    process: int
    started_at: str
    copied_at: str = ""  # when all that was written until then was at the destination
    error: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """How a file is replicated."""

    file: Path
    address: str  # "" where Litestream was not started by kb
    is_running: bool
    process: int = 0
    copied_at: datetime | None = None
    error: str = ""

    @property
    def seconds(self) -> float | None:
        """How long ago everything was at the destination; None: never, as far as we know."""
        if self.copied_at is None:
            return None
        return max((datetime.now(UTC) - self.copied_at).total_seconds(), 0.0)

    @property
    def is_behind(self) -> bool:
        """Whether the copy lacks what was written a while ago, or may lack it."""
        if not self.address:
            return not self.is_running
        late = self.seconds is None or self.seconds > LATE_SECONDS
        return not self.is_running or bool(self.error) or late

    def sentence(self) -> str:
        """For people."""
        name = self.file.name
        if not self.address:
            runs = "runs" if self.is_running else "does not run now"
            return f"{name} is replicated by a Litestream that kb did not start, which {runs}"
        seconds = self.seconds
        clock = _clock(self.copied_at) if self.copied_at else ""
        if not self.is_running:
            as_of = f"is as of {clock}" if clock else "may lack anything"
            return f"{name} is not being copied now; the copy at {self.address} {as_of}"
        if self.error:
            return f"{name} is not being copied{f' since {clock}' * bool(clock)}: {self.error}"
        if seconds is None:
            return f"{name} is about to be copied to {self.address} (process {self.process})"
        return (
            f"{name} is copied to {self.address}: all that was written until {seconds:.1f} s ago "
            f"is there (process {self.process})"
        )

    def remedy(self) -> str:
        """What to do where the copy is behind."""
        if not self.is_behind:
            return ""
        if self.is_running and self.address:
            return "it tries on by itself; `kb replicate --stop` gives it up"
        start = f"`kb replicate {self.address}`" if self.address else "start it"
        return f"{start} goes on, `kb replicate --stop` ends it"

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        seconds = self.seconds
        return {
            "destination": self.address,
            "running": self.is_running,
            **({"process": self.process} if self.process else {}),
            **(
                {"copiedAt": self.copied_at.isoformat(timespec="milliseconds")}
                if self.copied_at
                else {}
            ),
            **({"behindSeconds": round(seconds, 1)} if seconds is not None else {}),
            **({"error": self.error} if self.error else {}),
        }


def replication_state(file: Path) -> State | None:
    """How a file is replicated; None if it is not."""
    if not is_replicated(file):
        return None
    folder = litestream_folder(file)
    address = stored_address(file)
    if not address:
        return State(file, "", any(one.program == "litestream" for one in holders(file)))
    try:
        said = Said(**json.loads((folder / STATE).read_text(encoding="utf-8")))
        copied_at = datetime.fromisoformat(said.copied_at) if said.copied_at else None
    except (OSError, ValueError, TypeError):
        return State(file, address, _is_held(file))
    is_running = _is_held(file)
    return State(
        file,
        address,
        is_running,
        said.process if is_running else 0,
        copied_at,
        said.error if is_running else "",
    )


def stored_address(file: Path) -> str:
    """Where a file was told to be copied to; "" if kb was not told."""
    try:
        told = json.loads((litestream_folder(file) / CONFIGURATION).read_text(encoding="utf-8"))
        return str(told["x-kb"]["address"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def say(file: Path, said: Said) -> None:
    """Let everybody know."""
    write_private(litestream_folder(file) / STATE, json.dumps(asdict(said)))


def lock_of(file: Path) -> FileLock:
    """What the one process holds that keeps the copy of a file."""
    return FileLock(litestream_folder(file) / LOCK)


def finding(file: Path) -> Finding | None:
    """What `kb doctor` says of it."""
    state = replication_state(file)
    if state is None:
        return None
    how = HINT if state.is_behind else SOUND
    return Finding("replication", how, state.sentence(), state.remedy())


def _is_held(file: Path) -> bool:
    lock = lock_of(file)
    try:
        with lock.acquire(timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # a folder that this user may not write to: nothing is known
        return False


def _clock(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")

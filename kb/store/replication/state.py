"""How far the copy of a file is: noted by the process that keeps it, read by everybody."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from kb.disk.holders import holders
from kb.disk.write import replace_file
from kb.results.findings import HINT, SOUND, Finding
from kb.store.replication.litestream import CONFIGURATION
from kb.store.write_ahead_log import is_replicated, litestream_folder

STATE = "kb-state.json"
LOCK = "kb.lock"
LATE_SECONDS = 10  # without a copy, after which it is said that the copy is behind


@dataclass(frozen=True, slots=True)
class State:
    file: Path
    address: str  # "" where Litestream was not started by kb
    is_running: bool
    process: int = 0
    copied_at: datetime | None = None  # all that was written until then is at the destination
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
        late = self.seconds is None or self.seconds > LATE_SECONDS
        return not self.is_running or bool(self.address and (self.error or late))

    def sentence(self) -> str:
        """For people."""
        name, seconds = self.file.name, self.seconds
        if not self.address:
            runs = "runs" if self.is_running else "does not run now"
            return f"{name} is replicated by a Litestream that kb did not start, which {runs}"
        clock = f"{self.copied_at.astimezone():%Y-%m-%d %H:%M:%S}" if self.copied_at else ""
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
        seconds, copied_at = self.seconds, self.copied_at
        fields = {
            "destination": self.address,
            "running": self.is_running,
            "process": self.process or None,
            "copiedAt": copied_at and copied_at.isoformat(timespec="milliseconds"),
            "behindSeconds": None if seconds is None else round(seconds, 1),
            "error": self.error or None,
        }
        return {name: value for name, value in fields.items() if value is not None}


def replication_state(file: Path) -> State | None:
    """How a file is replicated; None if it is not."""
    if not is_replicated(file):
        return None
    if not (address := stored_address(file)):
        return State(file, "", any(holder.program == "litestream" for holder in holders(file)))
    is_running = False
    try:
        with lock_of(file).acquire(timeout=0):
            pass
    except Timeout:
        is_running = True
    except OSError:  # a folder that this user may not write to: nothing is known
        pass
    note = _read(file, STATE)
    try:
        copied_at = datetime.fromisoformat(note.get("copied_at", ""))
    except (ValueError, TypeError):
        copied_at = None
    now = {key: note[key] for key in ("process", "error") if is_running and key in note}
    return State(file, address, is_running, copied_at=copied_at, **now)


def stored_address(file: Path) -> str:
    """Where kb was told to copy a file; "" if it was not."""
    try:
        return str(_read(file, CONFIGURATION)["x-kb"]["address"])
    except (LookupError, TypeError):
        return ""


def note_state(file: Path, process: int, copied_at: str, error: str) -> None:
    note = {"process": process, "copied_at": copied_at, "error": error}
    replace_file(litestream_folder(file) / STATE, json.dumps(note), is_private=True)


def lock_of(file: Path) -> FileLock:
    """The lock of the one process that keeps a file's copy."""
    return FileLock(litestream_folder(file) / LOCK)


def finding(file: Path) -> Finding | None:
    state = replication_state(file)
    if state is None:
        return None
    how = HINT if state.is_behind else SOUND
    return Finding("replication", how, state.sentence(), state.remedy())


def _read(file: Path, name: str) -> dict[str, Any]:
    """The JSON file of this name in Litestream's folder; {} if it cannot be read."""
    try:
        content = json.loads((litestream_folder(file) / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}

"""What checks find out about a file, or about what it depends on."""

from __future__ import annotations

from typing import NamedTuple

SOUND, HINT, BROKEN = "sound", "hint", "broken"


class Finding(NamedTuple):
    """The outcome of one check."""

    check: str
    state: str  # SOUND, HINT (nothing is lost or wrong) or BROKEN
    message: str
    remedy: str = ""
    repair: str = ""  # what `--fix` does about it: a key of `REPAIRS`, or the caller's own

    def as_dict(self) -> dict[str, str]:
        return {key: value for key, value in self._asdict().items() if value}


class Reach(NamedTuple):
    """Something outside the project that a collection reads."""

    name: str  # of the collection
    source: str
    is_private: bool = False  # private addresses that the source names, not the source itself

    @property
    def what(self) -> str:
        return f"private addresses named by {self.source}" if self.is_private else self.source

"""What a sync did."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


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

    is_stored: bool = True  # False: nothing was there for a new collection, so it was not made

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        del fields["is_stored"]
        return fields

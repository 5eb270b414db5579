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

    def tell(self, message: str, path: str = "") -> None:
        """Note what the user should know of a file, or of the whole collection."""
        self.notices.append({"path": path, "message": message})

    def fail(self, path: str, message: str) -> None:
        """Note why a file could not be stored, or listed."""
        self.errors.append({"path": path, "message": message})

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        del fields["is_stored"]
        return fields

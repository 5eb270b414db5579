"""Points in time as the file keeps them."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> str:
    """The current time as stored in the file."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

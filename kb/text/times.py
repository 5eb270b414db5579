"""Points in time as the file keeps them: UTC to the second, which sort as text."""

from __future__ import annotations

from datetime import UTC, datetime

_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def utc_now() -> str:
    """The current time as it is stored."""
    return datetime.now(UTC).strftime(_FORMAT)


def stored_time(moment: datetime) -> str:
    """A UTC time as it is stored: 2026-11-28T12:00:00Z."""
    return moment.strftime(_FORMAT)


def parse_time(text: str) -> datetime:
    """What `stored_time` wrote; ValueError for another form."""
    return datetime.strptime(text, _FORMAT).replace(tzinfo=UTC)

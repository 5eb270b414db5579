"""The date of a document: as it says itself, or else as its path does."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from kb.text.times import stored_time

_ISO_DATE = re.compile(r"(?<!\d)(\d{4})[-/.](\d{2})[-/.](\d{2})(?!\d)")
_WRITTEN_DATES = ("%B %d, %Y", "%b %d, %Y", "%d %B %Y", "%d %b %Y", "%B %d %Y", "%m/%d/%Y")
# As mail has them: Mon, 30 Nov 2026 12:00:00 +0000.
_MAIL_DATE = re.compile(r"(?<=, )\d{1,2} [A-Z][a-z]{2} \d{4}(?= \d\d:)")
# In front matter, in lower case and without signs; that of the last change first.
_KEYS = (
    *("updated", "updatedat", "lastupdated", "lastmodified", "lastmodifiedat", "lastmod"),
    *("modified", "date", "published", "created", "createdat", "creationdate"),
)


def document_date(metadata: Mapping[str, Any], path: str) -> str:
    """The date that a document's metadata or its path says, as YYYY-MM-DD; "" if none."""
    values = {re.sub(r"\W|_", "", key).lower(): value for key, value in metadata.items()}
    archive = metadata.get("archive")
    dates = [*map(values.get, _KEYS), archive.get("date") if isinstance(archive, dict) else None]
    return next(filter(None, map(read_date, dates)), "") or first_iso_date(path.replace("_", "-"))


def file_date(modified_ns: int) -> str:
    """A file's time as it is stored; "" if no calendar has it."""
    with contextlib.suppress(OverflowError, ValueError, OSError):
        return stored_time(datetime.fromtimestamp(modified_ns // 10**9, UTC))
    return ""


def read_date(value: Any) -> str:
    """A date as YYYY-MM-DD from text or from seconds or milliseconds since 1970; "" if none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value / 1000 if value > 1e11 else value
        if not 1e8 < seconds < 1e10:
            return ""
        return datetime.fromtimestamp(seconds, UTC).date().isoformat()
    if not isinstance(value, str):
        return ""
    if day := first_iso_date(value):
        return day
    if match := _MAIL_DATE.search(value):
        value = match[0]
    for form in _WRITTEN_DATES:
        with contextlib.suppress(ValueError):
            return datetime.strptime(value.strip().rstrip("."), form).date().isoformat()
    return ""


def first_iso_date(text: str) -> str:
    """The first valid date in a text, as YYYY-MM-DD; "" if none."""
    for match in _ISO_DATE.finditer(text):
        with contextlib.suppress(ValueError):
            return date(*map(int, match.groups())).isoformat()
    return ""

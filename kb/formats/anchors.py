"""The names under which headings are linked, as the common renderers make them."""

from __future__ import annotations

import re

__all__ = ["slug"]

_DROPPED = re.compile(r"[^\w\- ]")


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading's text."""
    return _DROPPED.sub("", heading.strip().lower()).replace(" ", "-")

"""A text in another markup, rewritten as Markdown with the same lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["LinedText", "code_fence"]


@dataclass(frozen=True, slots=True)
class LinedText:
    """What the Markdown parser reads in place of the file; its line n is the file's line n."""

    markdown: str
    values: dict[str, Any] = field(default_factory=dict)  # what the file's header says


def code_fence(language: str = "") -> str:
    """A fence that no line of code is likely to close."""
    return "~~~~~~~~~~~~" + language

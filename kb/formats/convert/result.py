"""What a converter makes of a file, and the form in which it comes out of the child process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kb.text.decode import encodable

__all__ = ["PLACE_KINDS", "Converted", "ConverterError", "Place"]

PLACE_KINDS = ("page", "slide", "sheet", "cell")


class ConverterError(Exception):
    """Why a file cannot be converted, as a clause that follows its name."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the text from one line on stands in the file that it was made of."""

    line: int  # 1-based, of the converted text
    kind: str  # one of PLACE_KINDS
    label: str  # the number of a page, slide or cell, from 1; the name of a sheet


@dataclass(frozen=True, slots=True)
class Converted:
    """A file as Markdown, in which headings, lists, tables, code and links are kept."""

    text: str
    title: str = ""  # what the file itself gives as its title; "" for none
    places: tuple[Place, ...] = ()  # in the order of their lines
    metadata: dict[str, str] = field(default_factory=dict)  # author, date and the like
    notices: tuple[str, ...] = ()  # what the user should know about this file

    def as_message(self) -> dict[str, Any]:
        """The same as values that JSON can hold."""
        return {
            "text": self.text,
            "title": self.title,
            "places": [[place.line, place.kind, place.label] for place in self.places],
            "metadata": self.metadata,
            "notices": list(self.notices),
        }

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Converted:
        """Read what `as_message` made; nothing that a damaged child sends gets further.

        Raises:
            ValueError: it is not of that form.
        """
        text, title = message.get("text"), message.get("title")
        places, notices = message.get("places"), message.get("notices")
        metadata = message.get("metadata")
        if not (
            isinstance(text, str)
            and isinstance(title, str)
            and isinstance(places, list)
            and isinstance(metadata, dict)
            and isinstance(notices, list)
        ):
            raise ValueError("no such message")
        return cls(
            encodable(text),
            encodable(title),
            tuple(_place(one) for one in places),
            {encodable(str(key)): encodable(str(value)) for key, value in metadata.items()},
            tuple(encodable(str(notice)) for notice in notices),
        )


def _place(one: Any) -> Place:
    line, kind, label = one
    if not isinstance(line, int) or line < 1 or kind not in PLACE_KINDS:
        raise ValueError("no such place")
    return Place(line, kind, encodable(str(label)))

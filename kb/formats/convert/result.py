"""What a converter makes of a file, and the form in which it comes out of the child process."""

from __future__ import annotations

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
    def from_message(cls, message: Any) -> Converted:
        """Read what `as_message` made; nothing that a damaged child sends gets further.

        Raises:
            ValueError: it is not of that form.
        """
        if not isinstance(message, dict):
            raise ValueError("no such message")
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
            _storable(text),
            _storable(title),
            tuple(_place(one) for one in places),
            {_storable(key): _storable(value) for key, value in metadata.items()},
            tuple(map(_storable, notices)),
        )


def _place(one: Any) -> Place:
    line, kind, label = one if isinstance(one, list) and len(one) == 3 else (0, "", "")
    if not isinstance(line, int) or line < 1 or kind not in PLACE_KINDS:
        raise ValueError("no such place")
    return Place(line, kind, _storable(label))


def _storable(value: Any) -> str:
    """As text of which nothing is lost in the file: SQLite's own functions end at a NUL."""
    return encodable(str(value)).replace("\0", "\N{REPLACEMENT CHARACTER}")

"""What a converter makes of a file, and how it comes out of the child process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kb.text.counted import counted, most_first
from kb.text.decode import encodable

REMARKS = "conversion"  # in the metadata of a converted document: see `Converted.remarks`
ORIGIN_KINDS = ("page", "slide", "sheet", "cell")


class ConverterError(Exception):
    """Why a file cannot be converted, as a clause that follows its name."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where in a converted file the text from one line on comes from."""

    line: int  # 1-based, of the converted text
    kind: str  # one of ORIGIN_KINDS
    label: str  # the number of a page, slide or cell, from 1; the name of a sheet

    def __post_init__(self) -> None:
        if self.line < 1 or self.kind not in ORIGIN_KINDS:
            raise ValueError(f"no such origin: {self.kind} at line {self.line}")


@dataclass(frozen=True, slots=True)
class Converted:
    """A file as Markdown, with its headings, lists, tables, code and links."""

    text: str
    title: str = ""  # the file's own; "" if it has none
    origins: tuple[Origin, ...] = ()  # in the order of their lines
    metadata: dict[str, str] = field(default_factory=dict)  # author, date and the like
    notices: tuple[str, ...] = ()  # what the user should know about this file
    left_out: dict[str, int] = field(default_factory=dict)  # on purpose: words by reason

    @property
    def remarks(self) -> list[str]:
        """What a reader should know: what is left out, and all notices."""
        parts = [f"{reason} ({counted(n, 'word')})" for reason, n in most_first(self.left_out)]
        return [f"left out: {', '.join(parts)}", *self.notices] if parts else list(self.notices)

    @classmethod
    def from_message(cls, message: Any) -> Converted:
        """Read `asdict` of one from a child that may be damaged; ValueError if it is malformed."""
        from pydantic import TypeAdapter  # here: only conversions need it

        return TypeAdapter(cls).validate_python(_storable(message))


# Read as Latin-1 where Windows' encoding was meant, and bullets of symbol fonts.
_MEANT = {n: bytes([n]).decode("cp1252", "ignore") for n in range(0x80, 0xA0)}
_MEANT |= dict(zip(map(ord, "\uf0a7\uf0a8\uf0b7\uf0d8\uf0e0\uf0fc"), "▪□•➢→✓", strict=True))


def _storable(value: Any) -> Any:
    """The value with text that can be read, and that SQLite keeps whole: its functions end at a
    NUL."""
    if isinstance(value, str):
        text = value if value.isascii() else encodable(value).translate(_MEANT)
        return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, dict):
        return {_storable(key): _storable(part) for key, part in value.items()}
    return [_storable(part) for part in value] if isinstance(value, list) else value

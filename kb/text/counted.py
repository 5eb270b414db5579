"""Numbers with what they count: "1 passage", "2 passages", "a, b and 3 more"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

MAX_NAMED = 5


def counted(number: int, singular: str, several: str = "") -> str:
    """A number and its noun: `singular` ("passage waits") or `several`; by default with an s."""
    return f"{number:,} {singular if number == 1 else several or f'{singular}s'}"


def some_of(things: Sequence[str], most: int = MAX_NAMED) -> str:
    """The first things, separated by commas, and how many more there are."""
    shown = ", ".join(things[:most])
    return f"{shown} and {len(things) - most} more" if len(things) > most else shown


def most_first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Names and their counts, highest first, then by name."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def sized(size: int) -> str:
    """A number of bytes for people: "830 bytes", "12.5 kB", "3.4 MB", "1.2 GB"."""
    if size < 1000:
        return counted(size, "byte")
    for unit, bytes_of_it in (("kB", 1e3), ("MB", 1e6)):
        if round(size / bytes_of_it, 1) < 1000:
            return f"{size / bytes_of_it:.1f} {unit}"
    return f"{size / 1e9:,.1f} GB"


def as_texts(texts: Iterable[str]) -> tuple[str, ...]:
    """Some texts, or one alone, which Python takes for a sequence of letters."""
    return (texts,) if isinstance(texts, str) else tuple(texts)

"""Numbers with what they count: "1 passage", "2 passages"."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, one: str, several: str = "") -> str:
    """A number and its noun, with the verb or whatever else depends on the number.

    Args:
        one: what follows 1, such as "passage waits".
        several: what follows any other number; `one` with an s by default.
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"

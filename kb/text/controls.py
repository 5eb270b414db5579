"""Characters that steer a terminal, or reverse what it shows: no output may hold them."""

from __future__ import annotations

import re

# C0 but tab, newline and a carriage return before one; DEL and C1; embeddings, overrides and
# isolates of the bidirectional algorithm.
_STEERING = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
_PICTURES = 0x2400  # U+2400 and on show the characters from 0 on


def visible(text: str) -> str:
    """The text with each steering character made visible."""
    return text if _is_plain(text) else _STEERING.sub(_shown, text)


def flat(value: object) -> str:
    """The text on one line, with each steering character made visible."""
    return " ".join(visible(str(value)).split())


def escaped_in_json(text: str) -> str:
    """JSON of the same values with steering characters, which only strings hold, escaped."""
    return text if _is_plain(text) else _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(_PICTURES + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else "\N{REPLACEMENT CHARACTER}"

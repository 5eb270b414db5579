r"""Names of files as text, and back.

A name on disk is bytes. Python gives those that are not UTF-8 as lone surrogates, which neither
SQLite nor a JSON reply can hold. In kb such a byte is written as `\xe9`: text that can be stored,
shown and typed, and from which the file is found again. A name that holds these very letters has
its backslash written as `\x5c`, so that no two names become one.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
from pathlib import Path
from typing import Any

_ESCAPED = re.compile(r"\\x(5c|[89a-f][0-9a-f])")
_AMBIGUOUS = re.compile(r"\\(?=x(?:5c|[89a-f][0-9a-f]))")
_SURROGATES = re.compile("[\ud800-\udfff]")
# A locale may decode names otherwise; as text they are the same everywhere.
_UTF_8 = sys.getfilesystemencoding().lower() == "utf-8"
_STEP = 100_000  # characters
_FIRST_BYTE = 0xDC00  # what Python adds to a byte that it cannot decode (PEP 383)


def storable(name: str | os.PathLike[str]) -> str:
    """A name or path from the disk as text that can be stored, one for each name."""
    text = os.fspath(name)
    if not _UTF_8:
        text = os.fsencode(text).decode("utf-8", "surrogateescape")
    # Paths are stored with "/" on every system: on Windows it separates names too.
    text = text.replace("\\", "/") if os.sep == "\\" else _AMBIGUOUS.sub(r"\\x5c", text)
    return text if _is_unicode(text) else _without_surrogates(text)


def on_disk(text: str) -> str:
    """The name or path that `storable` made this text of."""
    text = _ESCAPED.sub(_letter, text) if "\\x" in text else text
    return text if _UTF_8 else os.fsdecode(text.encode("utf-8", "surrogateescape"))


def below(root: str, path: str) -> Path:
    """Where a stored path lies below a stored root."""
    return Path(on_disk(root), on_disk(path))


def printable(text: str) -> str:
    """Text that UTF-8 can hold, with other bytes written as in `storable`."""
    if _is_unicode(text):
        return text
    # In the C locale every letter beyond ASCII comes as such bytes.
    with contextlib.suppress(UnicodeEncodeError):
        text = os.fsencode(text).decode("utf-8", "surrogateescape")
    return _without_surrogates(text)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _without_surrogates(text: str) -> str:
    """Five million of them take .5 s; no step blocks other threads for a tenth of one."""
    for byte in range(0x80, 0x100):
        if (half := chr(_FIRST_BYTE + byte)) in text:
            text = text.replace(half, f"\\x{byte:02x}")
    return "".join(
        _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text[start : start + _STEP])
        for start in range(0, len(text), _STEP)
    )


def without_bytes(text: str) -> str:
    """The text with a question mark for each byte written by `storable`."""
    return _ESCAPED.sub("?", text)


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = printable(error.object[error.start : error.end])
    return text.encode("ascii", "backslashreplace").decode(), error.end


# The name of an error handler for streams: what they cannot hold is escaped as `printable` does.
ESCAPING = "kb.escaping"
codecs.register_error(ESCAPING, _escaped)


def writable(value: Any) -> Any:
    """A JSON value with all texts `printable`; other objects stay."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list | tuple):
        return [writable(item) for item in value]
    if isinstance(value, dict):
        return {writable(key): writable(item) for key, item in value.items()}
    return value


def _letter(match: re.Match[str]) -> str:
    byte = int(match[1], 16)
    return chr(byte if byte < 0x80 else _FIRST_BYTE + byte)


def clean(text: str) -> str:
    """Text that SQLite and FTS5 can hold: no NUL, no lone surrogate."""
    text = text.replace("\0", " ")
    return text if text.isascii() else printable(text)

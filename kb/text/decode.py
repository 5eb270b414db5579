"""Bytes of a file -> text, or why they are not text.

Encodings in order: by a byte order mark; UTF-16 by its pattern of NULs; UTF-8; UTF-8 with a few
damaged places; where most letters lie beyond ASCII, the old encoding whose text is most like a
language (Cyrillic, Greek, Hebrew, Arabic, East Asian); the one-byte encodings of Western Europe.
The last two with a notice, as they are guesses.
"""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Sequence
from typing import NamedTuple


class Decoded(NamedTuple):
    """A file's text with line ends as `\\n` and without byte order mark."""

    text: str
    encoding: str  # the Python codec that read it
    notice: str  # what the user should know; "" for text that was read without doubt


class NoTextError(ValueError):
    """Why bytes are not text in any encoding that is read."""


_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

# Text holds tab, line ends, form feed, backspace (overstruck manual pages), escape (coloured logs).
_CONTROLS = bytes(sorted({*range(0x20), 0x7F} - {*b"\b\t\n\r\f\x1b"}))

# Compressed data has 9 to 12 %; of 1,100 real documents in three languages none has any.
_MAX_CONTROLS = 0.05

# As UTF-16, every pair of bytes of an English page holds a NUL, and of a page of Japanese
# Markdown three in ten at least (measured on 124).
_MIN_NUL_PAIRS = 0.1

# The old encodings of other scripts. Thai is not among them: Korean would be taken for it.
_OTHER_SCRIPTS = (
    *("cp1251", "koi8_r", "cp1253", "cp1255", "cp1256"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949"),
)
# Of the letters of a page in Western or Central Europe at most a quarter lies beyond ASCII.
_MIN_OTHER_LETTERS = 0.35
_MIN_OTHER_BYTES = 24  # fewer say too little of a language
_SAMPLE = 50_000  # bytes


# What programs write under a narrower name, as browsers know (WHATWG's Encoding Standard).
_MEANT = {
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}


def encodable(text: str) -> str:
    """The text without lone surrogates, which an escape such as "\\ud800" in JSON can make."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def decode(data: bytes) -> Decoded:
    """Read a text file's bytes. Raises NoTextError if they are binary or contradict their BOM."""
    text, encoding, notice = _read(data)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    nul = text.find("\0")
    if nul >= 0:
        # SQLite stores a NUL in a text, but its functions and its shell end there.
        line = text.count("\n", 0, nul) + 1
        raise NoTextError(f"binary data (a NUL character in line {line})")
    return Decoded(text, encoding, notice)


def decode_as(data: bytes, encoding: str) -> str:
    """The text in a declared encoding; as `decode`, with its error, where that is wrong or ""."""
    # LookupError: no such encoding. UnicodeError is a ValueError, and some codecs raise others.
    with contextlib.suppress(LookupError, ValueError):
        if encoding:
            name = codecs.lookup(encoding).name
            if name == "ascii":
                with contextlib.suppress(UnicodeDecodeError):
                    return data.decode()
            return data.decode(_MEANT.get(name, name))
    return decode(data).text


def _read(data: bytes) -> tuple[str, str, str]:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _marked(data[len(mark) :], encoding), encoding, ""
    if data.startswith(codecs.BOM_UTF8):
        text, notice = _utf_8(data.removeprefix(codecs.BOM_UTF8))
        return text, "utf-8-sig", notice
    if b"\0" in data:
        return *_wide(data), "no byte order mark: read as UTF-16 by its pattern of NULs"
    if len(data.translate(None, _CONTROLS)) < len(data) * (1 - _MAX_CONTROLS):
        raise NoTextError("binary data (many control characters)")
    text, notice = _utf_8(data)
    replaced = text.count(_REPLACEMENT) if notice else 0
    # One bad byte must not garble a page of Japanese. Western text is hardly ever valid UTF-8.
    if replaced and sum(character > "\x7f" for character in text) < 10 * replaced:
        return _other_script(data) or _western(data)
    return text, "utf-8", notice


def _utf_8(data: bytes) -> tuple[str, str]:
    """The text, and a notice if U+FFFD replaces invalid bytes."""
    try:
        return data.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        line = _line_at(data, error.start)
        text = data.decode("utf-8", "replace")
        return text, f"damaged UTF-8: unreadable bytes replaced, the first in line {line}"


def _other_script(data: bytes) -> tuple[str, str, str] | None:
    """The text in an old encoding of another script; None if none is likely."""
    part = data[:_SAMPLE]
    beyond = sum(byte > 0x7F for byte in part)
    letters = beyond + sum(chr(byte).isalpha() for byte in part if byte <= 0x7F)
    if beyond < _MIN_OTHER_BYTES or beyond < letters * _MIN_OTHER_LETTERS:
        return None
    # The end of the part may lie within a letter.
    whole = part if len(part) == len(data) else part.rpartition(b"\n")[0] or part
    if not (encoding := likeliest_encoding(whole, _OTHER_SCRIPTS)):
        return None
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    name = encoding.replace("cp125", "windows-125").replace("_", "-")
    return text, encoding, f"not UTF-8: read as {name}, which its letters suggest"


def likeliest_encoding(data: bytes, encodings: Sequence[str]) -> str:
    """The encoding in which bytes look most like a language; "" if none fits."""
    from charset_normalizer import from_bytes  # here: hardly any file needs it

    best = from_bytes(data, cp_isolation=list(encodings)).best()
    return best.encoding if best else ""


def _western(data: bytes) -> tuple[str, str, str]:
    """Windows-1252 if any of 0x80 to 0x9F occurs, which are invisible in Latin-1; else that."""
    if any(0x80 <= byte <= 0x9F for byte in data):
        with contextlib.suppress(UnicodeDecodeError):  # five bytes mean nothing there
            text = data.decode("windows-1252")
            return text, "windows-1252", "not UTF-8: read as Windows-1252 (Latin-1 with dashes)"
    return data.decode("latin-1"), "latin-1", "not UTF-8: read as Latin-1"


def _marked(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        name = encoding.upper()
        raise NoTextError(f"the byte order mark says {name}, but it is not valid {name}") from error


def _wide(data: bytes) -> tuple[str, str]:
    """UTF-16 without a mark: all NULs on one side of the byte pairs, and all of it valid."""
    left, right = data[::2].count(0), data[1::2].count(0)
    one_side = 0 in (left, right) and left + right >= len(data) // 2 * _MIN_NUL_PAIRS
    if one_side and len(data) % 2 == 0 and not _is_plain_in_pairs(data[:_SAMPLE]):
        encoding = "utf-16-le" if left == 0 else "utf-16-be"
        with contextlib.suppress(UnicodeDecodeError):
            text = data.decode(encoding)
            if sum(text.count(chr(code)) for code in _CONTROLS) <= len(text) * _MAX_CONTROLS:
                return text, encoding
    raise NoTextError(f"binary data (a NUL byte in line {_line_at(data, data.index(0))})")


def _is_plain_in_pairs(data: bytes) -> bool:
    """Whether most pairs of bytes are two of ASCII: as UTF-16 they would be odd ideographs."""
    pairs = zip(data[::2], data[1::2], strict=False)
    plain = sum(0x20 <= first < 0x7F and 0x20 <= other < 0x7F for first, other in pairs)
    return 2 * plain > len(data) // 2


def _line_at(data: bytes, position: int) -> int:
    before = data[:position].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return before.count(b"\n") + 1

"""The one list of what is secret: files that no tool shows and that are never stored.

A file is secret by a part of its path or because it begins as a private key. Tokens inside a
document do not make it secret: documentation is full of examples.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache

from kb.text.assets import asset

SECRET_FOLDERS: list[str] = asset("secret-names")["folders"]
_GLOBS: list[str] = [*SECRET_FOLDERS, *asset("secret-names")["files"]]


def _any_of(globs: Sequence[str], *, with_slash: bool) -> re.Pattern[str]:
    chosen = [glob.casefold() for glob in globs if ("/" in glob) == with_slash]
    return re.compile("|".join(fnmatch.translate(glob) for glob in chosen))


_NAME, _NAMES = _any_of(_GLOBS, with_slash=False), _any_of(_GLOBS, with_slash=True)
_FOLDER = _any_of(SECRET_FOLDERS, with_slash=False)
_FOLDER_NAMES = _any_of(SECRET_FOLDERS, with_slash=True)
_FIRST_NAMES = {glob.casefold().split("/")[0] for glob in _GLOBS}  # more than needed: a look ahead
_LONGEST = max(glob.count("/") for glob in _GLOBS) + 1  # names in a glob

# Characters that look like a dot or a slash and that NFKC leaves as they are.
_LOOK_ALIKES = str.maketrans(
    {
        **dict.fromkeys("\u2044\u2215\u29f8\u2571\u27cb\u1735", "/"),
        **dict.fromkeys("\u2216\u29f5\u29f9\u2572\u27cd", "\\"),
        **dict.fromkeys("\u3002\ua4f8\U00010a50", "."),
    }
)

# Armoured keys, alone or behind a certificate or openssl's header; PuTTY's and age's keys.
_PRIVATE_KEY = re.compile(
    r"[\s\ufeff]*(?:"
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY"
    r"|(?:-----BEGIN CERTIFICATE-----|Bag Attributes)[^\0]*?^-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY"
    r"|PuTTY-User-Key-File-\d|(?:#[^\n]*\n)*AGE-SECRET-KEY-1)",
    re.MULTILINE,
)


def is_secret(path: str) -> bool:
    """Whether any part of a path, written with "/", has a secret name."""
    return _any_part(path, _is_secret_name, _NAMES)


def secret_folder(path: str) -> bool:
    """Whether any part of a path names a folder that holds nothing but credentials."""
    return _any_part(path, lambda name: bool(_FOLDER.match(plain_name(name))), _FOLDER_NAMES)


def begins_as_private_key(text: str) -> bool:
    """Whether a text is a private key, not a document that shows one."""
    return _PRIVATE_KEY.match(text) is not None


def plain_name(name: str) -> str:
    """A name as the file systems see it that fold case and width.

    They also drop invisible letters and trailing dots or blanks, and take what follows a colon
    for the name of a stream.
    """
    return folded(name).casefold().split(":")[0].strip(" ").rstrip(" .")


def folded(text: str) -> str:
    """The text with look-alikes and wide letters as plain ones, without invisible ones."""
    if text.isascii():
        return text
    # Look-alikes first and last: NFKC makes some and unmakes others.
    plain = unicodedata.normalize("NFKC", text.translate(_LOOK_ALIKES)).translate(_LOOK_ALIKES)
    return "".join(
        letter
        for letter in plain
        if unicodedata.category(letter) != "Cf" and not "\ufe00" <= letter <= "\ufe0f"
    )


def _any_part(path: str, is_one: Callable[[str], bool], several: re.Pattern[str]) -> bool:
    parts = path.split("/")
    if any(map(is_one, parts)):
        return True
    if _FIRST_NAMES.isdisjoint(part.casefold() for part in parts) and path.isascii():
        return False
    plain = [plain_name(part) for part in parts]
    return any(
        several.match("/".join(plain[start : start + length]))
        for length in range(2, min(_LONGEST, len(plain)) + 1)
        for start in range(len(plain) - length + 1)
    )


# Names come again and again in the paths of a folder, which are judged by the thousand.
@lru_cache(maxsize=10_000)
def _is_secret_name(name: str) -> bool:
    return _NAME.match(plain_name(name)) is not None

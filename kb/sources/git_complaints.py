"""What git complains of, and what can be done about it."""

from __future__ import annotations

import re

__all__ = ["complaint"]

_USER = re.compile(r"//[^/@\s]+@")
_DENIED = re.compile(r"could not read|Authentication failed|Permission denied|publickey")
_LOGIN = re.compile(r"^\S+@\S+: ")
_UNKNOWN_HOST = re.compile(r"Host key verification failed|No \S+ host key is known")
_OF_ANOTHER = re.compile(r"dubious ownership in repository at ('.+')")


def complaint(output: bytes, code: int) -> str:
    """What git complains of, on one line and without names of users."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line and not line.startswith(("hint:", "warning:"))]
    said = [line for line in lines if line.startswith(("fatal:", "error:", "ERROR:"))] or lines
    text = said[0].partition(": ")[2] or said[0] if said else f"git ended with {code}"
    if text.startswith("Could not read from remote") and (before := lines[: lines.index(said[0])]):
        text = _LOGIN.sub("", before[-1])  # what ssh said, for which git has no words
    if found := _OF_ANOTHER.search(text):
        text += f": `git config --global --add safe.directory {found[1]}` trusts it"
    if _UNKNOWN_HOST.search(text):
        text += " ssh does not know this server: log in once by hand"
    if _DENIED.search("\n".join(lines)):
        text += ": it is not there, or git has no credentials for it (see git help credentials)"
    return _USER.sub("//", text)[:600]

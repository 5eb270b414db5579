"""The lines for AGENTS.md and its like that make an assistant use the server."""

from __future__ import annotations

import re
from pathlib import Path

from kb.assistants import config_file
from kb.text.assets import asset

BEGIN, END = "<!-- kb: begin -->", "<!-- kb: end -->"
LINES: str = asset("agents")["lines"]
# Without a line end behind it the file had none before the lines came, and gets none again.
_BLOCK = re.compile(
    rf"(?P<before>\r?\n)?{re.escape(BEGIN)}.*?{re.escape(END)}(?P<after>\r?\n)?", re.DOTALL
)


def write(path: Path) -> bool:
    """Put the lines at the end of a file, in the place of older ones. False: they are there.

    Raises:
        ConfigurationError: the file cannot be read or written.
    """
    old = config_file.read(path)
    before = config_file.text_of(old)
    line_end = "\r\n" if "\r\n" in before else "\n"
    lines = LINES.strip().replace("\n", line_end)
    if (block := _BLOCK.search(before)) is not None:
        around = (block["before"] or "", block["after"] or "")
        text = before[: block.start()] + lines.join(around) + before[block.end() :]
    elif not before or before.endswith("\n"):
        text = before + (line_end if before else "") + lines + line_end
    else:
        text = before + 2 * line_end + lines
    if text == before:
        return False
    config_file.require_writable(path)
    config_file.replace(old, old.encoded(text))
    return True


def are_in(path: Path) -> bool:
    """Whether a file has lines of ours, present or older ones.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    return _BLOCK.search(config_file.text_of(config_file.read(path))) is not None


def erase(path: Path) -> bool:
    """Take the lines out again; a file of nothing else goes. False: they are not there.

    Raises:
        ConfigurationError: the file cannot be read or written.
    """
    old = config_file.read(path)
    before = config_file.text_of(old)
    if (block := _BLOCK.search(before)) is None:
        return False
    config_file.require_writable(path)
    start = before[: block.start()]
    if not block["after"]:
        start = start.removesuffix("\n").removesuffix("\r")
    if text := start + before[block.end() :]:
        config_file.replace(old, old.encoded(text))
    else:
        config_file.delete(old)
    return True

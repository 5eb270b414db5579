"""The lines for AGENTS.md and the like that make an assistant use the server."""

from __future__ import annotations

import re
from pathlib import Path

from kb.assistants import config_file
from kb.text.assets import asset

BEGIN, END = "<!-- kb: begin -->", "<!-- kb: end -->"
LINES: str = asset("agents")["lines"]
# Without a line end after it: the file had none before the lines came, and gets none again.
_BLOCK = re.compile(
    rf"(?P<before>\r?\n)?{re.escape(BEGIN)}.*?{re.escape(END)}(?P<after>\r?\n)?", re.DOTALL
)


def write(path: Path) -> bool:
    """Put the lines at the end of a file, or in place of older ones; False: they are there. Raises
    ConfigurationError if the file cannot be read or written, as `erase`."""
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
    """Whether a file has our lines, current or older ones."""
    return _BLOCK.search(config_file.text_of(config_file.read(path))) is not None


def erase(path: Path) -> bool:
    """Remove the lines, and a file of nothing else; False: they are not there."""
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

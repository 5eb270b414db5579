"""Put the server into a client's configuration, and lines that make an assistant use it into the
file that it reads; and take both out again.

A change of the configuration concerns one entry; all else stays byte for byte. The previous content
is kept beside the file as long as kb is in it: removing kb from a file that nobody else has touched
restores it.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kb.assistants import config_file
from kb.assistants.catalog import Assistant, command_of, is_ours, make_entry, servers_keys
from kb.assistants.config_file import ConfigText, Malformed, look_up, placed
from kb.errors import UsageError
from kb.text.assets import asset

ADDED, CHANGED, UNCHANGED, REMOVED, ABSENT = "added", "changed", "unchanged", "removed", "absent"


@dataclass(frozen=True, slots=True)
class Change:
    """A planned change of one file. Nothing is written before `apply`."""

    assistant: Assistant
    old: ConfigText
    new: bytes | None  # None: the file is deleted
    status: str
    entry: Mapping[str, Any] | None  # the server's, after the change

    @property
    def path(self) -> Path:
        return self.old.path

    def difference(self) -> str:
        """The lines that change, as a unified diff."""
        before = (self.old.data or b"").decode().splitlines(keepends=True)
        after = (self.new or b"").decode().splitlines(keepends=True)
        lines = difflib.unified_diff(before, after, str(self.path), str(self.path))
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def plan_install(assistant: Assistant, path: Path, name: str, command: Sequence[str]) -> Change:
    """Plan to add the server to a file, or to update it there.

    Raises:
        ConfigurationError: the file is broken, with the place, or read-only.
        UsageError: another server has the name.
    """
    old = config_file.read(path)
    with placed(path):
        values = assistant.format.read(old.text)
        keys = [*servers_keys(assistant, values), name]
        present = look_up(values, keys)
        if present is not None and not is_ours(command_of(present)):
            shown = " ".join(command_of(present)) or json.dumps(present)
            raise UsageError(
                f'{path} has another server of the name "{name}" ({shown}): choose a name for '
                "this one with --name, or remove that one first"
            )
        entry = make_entry(assistant, command, keys[:-1])
        if present is not None:
            # Additions to our entry are kept.
            entry = {key: entry[key] for key in entry if key in ("command", "args")}
        text = assistant.format.put(old.text, keys, entry)
        entry = look_up(assistant.format.read(text), keys)
    if text == old.text and old.data is not None:
        return Change(assistant, old, old.data, UNCHANGED, entry)
    config_file.require_writable(path)
    return Change(assistant, old, old.encoded(text), ADDED if present is None else CHANGED, entry)


def plan_uninstall(assistant: Assistant, path: Path, name: str) -> Change:
    """Plan to remove the server from a file; raises as `plan_install`."""
    old = config_file.read(path)
    with placed(path):
        values = assistant.format.read(old.text)
        keys = [*servers_keys(assistant, values), name]
        if (entry := look_up(values, keys)) is None:
            return Change(assistant, old, old.data, ABSENT, None)
        if not is_ours(command_of(entry)):
            raise UsageError(f'the server "{name}" of {path} is not kb: it was left as it is')
        backup = config_file.read(config_file.backup_path(path))
        new = _as_before(assistant, old, keys, entry, backup)
    config_file.require_writable(path)
    return Change(assistant, old, new, REMOVED, None)


def apply(change: Change) -> Path | None:
    """Write a change. Returns the path of the backup, if one was made."""
    if change.status in (UNCHANGED, ABSENT):
        return None
    backup = config_file.backup_path(change.path)
    made = None
    if change.status == ADDED or (change.status == CHANGED and not backup.exists()):
        made = config_file.keep_backup(change.old)
    if change.new is None:
        config_file.delete(change.old)
    else:
        config_file.replace(change.old, change.new)
    if change.status == REMOVED:
        backup.unlink(missing_ok=True)
    return made


def installed(assistant: Assistant, path: Path) -> dict[str, Mapping[str, Any]]:
    """The entries of a file that start kb, by name; raises ConfigurationError if it is broken."""
    old = config_file.read(path)
    with placed(path):
        values = assistant.format.read(old.text)
    servers = look_up(values, servers_keys(assistant, values))
    if not isinstance(servers, Mapping):
        return {}
    return {name: entry for name, entry in servers.items() if is_ours(command_of(entry))}


def snippet(assistant: Assistant, name: str, command: Sequence[str]) -> str:
    """The lines of a file with this server alone."""
    keys = [*assistant.keys, name]
    text: str = assistant.format.put("", keys, make_entry(assistant, command, assistant.keys))
    return text


def _as_before(
    assistant: Assistant,
    old: ConfigText,
    keys: Sequence[str],
    entry: Mapping[str, Any],
    backup: ConfigText,
) -> bytes | None:
    """The file without the entry; None if nothing is left of a file that kb made."""
    before: Mapping[str, Any] = {}
    if backup.data is not None:
        with contextlib.suppress(Malformed):
            before = assistant.format.read(backup.text)
            if look_up(before, keys) is None:
                added = assistant.format.put(backup.text, keys, dict(entry))
                if backup.encoded(added) == old.data:  # nobody else has touched it
                    return backup.data
    text = assistant.format.remove(old.text, keys)
    # Objects that were made for the entry are removed too.
    for depth in range(len(keys) - 1, 0, -1):
        inside = look_up(assistant.format.read(text), keys[:depth])
        if inside == {} and look_up(before, keys[:depth]) is None:
            text = assistant.format.remove(text, keys[:depth])
    if backup.data is None and not assistant.format.read(text) and text.strip() in ("", "{}"):
        return None
    return old.encoded(text)


# The lines for AGENTS.md and the like that make an assistant use the server.
BEGIN, END = "<!-- kb: begin -->", "<!-- kb: end -->"
LINES: str = asset("agents")["lines"]
# Without a line end after it: the file had none before the lines came, and gets none again.
_BLOCK = re.compile(
    rf"(?P<before>\r?\n)?{re.escape(BEGIN)}.*?{re.escape(END)}(?P<after>\r?\n)?", re.DOTALL
)


def write_lines(path: Path) -> bool:
    """Put the lines at the end of a file, or in place of older ones; False: they are there. Raises
    ConfigurationError if the file cannot be read or written, as `erase_lines`."""
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


def has_lines(path: Path) -> bool:
    """Whether a file has our lines, current or older ones."""
    return _BLOCK.search(config_file.text_of(config_file.read(path))) is not None


def erase_lines(path: Path) -> bool:
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

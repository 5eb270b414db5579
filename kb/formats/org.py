"""Org files as Markdown, line for line: orgparse finds the headings, the rest is rewritten here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orgparse

from kb.formats.lined import LinedText, code_fence

__all__ = ["as_markdown"]

_KEYWORD = re.compile(r"\s*#\+(?P<name>[\w-]+):\s*(?P<value>.*?)\s*\Z", re.IGNORECASE)
_BLOCK = re.compile(r"\s*#\+(?P<end>begin|end)_(?P<name>\w+)\s*(?P<rest>.*)\Z", re.IGNORECASE)
_CODE_BLOCKS = ("src", "example", "export")
_DRAWER = re.compile(r"\s*:[\w-]+:\s*\Z")
_LINK = re.compile(r"\[\[(?P<target>[^\[\]]+)\](?:\[(?P<text>[^\[\]]*)\])?\]")
_RULE = re.compile(r"\s*\|[-+]+\|\s*\Z")
_ITEM = re.compile(r"(?P<indent>\s*)(?P<mark>[-+]|\d+[.)])(?P<rest>\s+.*)\Z")
_PLAIN_SCHEME = re.compile(r"[a-z][a-z0-9+-]*:", re.IGNORECASE)
_VERBATIM = re.compile(r"(?<![\w=~])[=~](\S|\S[^=~`]*\S)[=~](?![\w=~])")
MOST_LEVELS = 6
# What orgparse is told: headings, their drawers and the file's own keywords. It looks for dates in
# all else, in exponential time; and it takes the cube of a heading's length to look for tags.
_TOLD = re.compile(r"\*|\s*(?::|#\+)")
_TAGS = re.compile(r":[\w@:]+:")
_COLON = "\ue03a"  # for that in a heading, while orgparse looks at it
LONGEST_TOLD = 500  # characters; a longer heading is text


def as_markdown(source: str) -> LinedText:
    """The text as Markdown with the same lines, and the values of its keywords."""
    lines = source.split("\n")
    headings = dict(_headings(lines))
    reader = _Reader(headings)
    written = [reader.line(number, line) for number, line in enumerate(lines, start=1)]
    return LinedText("\n".join(written), reader.values)


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The Markdown of each line that is a heading."""
    for node in orgparse.loads("\n".join(map(_told, lines)))[1:]:
        if not 1 <= node.linenumber <= len(lines):
            continue
        heading = node.get_heading(format="raw").strip().replace(_COLON, ":")
        text = _VERBATIM.sub(r"`\1`", _inline(heading))
        anchor = node.properties.get("CUSTOM_ID") or node.properties.get("ID") or ""
        named = f" {{#{anchor}}}" if anchor and not re.search(r"[\s{}]", str(anchor)) else ""
        yield node.linenumber, f"{'#' * min(node.level, MOST_LEVELS)} {text}{named}"


def _told(line: str) -> str:
    """A line as orgparse gets it: empty if it says nothing of headings."""
    if len(line) > LONGEST_TOLD or not _TOLD.match(line):
        return ""
    if not line.startswith("*"):
        return line
    *words, last = line.rstrip().rsplit(maxsplit=1)
    kept = f"{words[0]} " if words and _TAGS.fullmatch(last) else line
    return kept.replace(":", _COLON)


@dataclass(slots=True)
class _Reader:
    """One pass over the lines."""

    headings: dict[int, str]
    values: dict[str, Any] = field(default_factory=dict)
    _block: str = ""  # name of the verbatim block we are in
    _is_drawer: bool = False

    def line(self, number: int, line: str) -> str:
        """One line of the Markdown."""
        if self._block:
            return self._in_block(line)
        if number in self.headings:
            self._is_drawer = False
            return self.headings[number]
        if self._is_drawer:
            return self._in_drawer(line)
        if block := _BLOCK.match(line):
            return self._begin(block)
        if keyword := _KEYWORD.match(line):
            self._keep(keyword["name"].lower(), keyword["value"])
            return ""
        if _DRAWER.match(line):
            self._is_drawer = True
            return ""
        if line.lstrip().startswith("# ") or line.strip() == "#":
            return ""
        return self._text(line)

    def _text(self, line: str) -> str:
        stripped = line.strip()
        if _RULE.match(line):
            return line.replace("+", "|")
        if stripped.startswith(": "):
            return f"    {stripped[2:]}"
        if re.fullmatch(r"-{5,}", stripped):
            return ""
        if item := _ITEM.match(line):
            mark = "-" if item["mark"] in "-+" else "1."
            return f"{item['indent']}{mark}{_inline(item['rest'])}"
        return _inline(line)

    def _in_block(self, line: str) -> str:
        block = _BLOCK.match(line)
        if block and block["end"].lower() == "end" and block["name"].lower() == self._block:
            self._block = ""
            return code_fence()
        return line

    def _begin(self, block: re.Match[str]) -> str:
        name = block["name"].lower()
        if block["end"].lower() == "begin" and name in _CODE_BLOCKS:
            self._block = name
            return code_fence(block["rest"].split(" ", 1)[0] if name == "src" else "")
        return ""

    def _in_drawer(self, line: str) -> str:
        stripped = line.strip()
        if stripped.upper() == ":END:":
            self._is_drawer = False
        elif (
            found := re.fullmatch(r":ID:\s*(\S+)", stripped, re.IGNORECASE)
        ) and not self.values.get("id"):
            self.values["id"] = found[1]
        return ""

    def _keep(self, name: str, value: str) -> None:
        key = {"title": "title", "author": "author", "date": "date", "filetags": "tags"}.get(name)
        if key and value:
            self.values[key] = [tag for tag in value.split(":") if tag] if key == "tags" else value


def _inline(text: str) -> str:
    return _LINK.sub(lambda found: _link(found["target"], found["text"]), text)


def _link(target: str, text: str | None) -> str:
    """A link to a file, a page or a heading; `id:` names the note that has this id."""
    shown = text or target
    if target.startswith("id:"):
        return f"[[{target[3:]}|{shown}]]"
    target = re.sub(r"\A(?:file|attachment):", "", target)
    path, separator, place = target.partition("::")
    if path.startswith(("*", "#")):
        return shown
    fragment = place.lstrip("*#") if separator and not place.isdigit() else ""
    if not _PLAIN_SCHEME.match(path) and "/" not in path and "." not in path:
        return f"[[{path}|{shown}]]"
    return f"[{shown}](<{path}{f'#{fragment}' if fragment else ''}>)"

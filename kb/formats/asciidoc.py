"""AsciiDoc as Markdown, line for line, so that lines, links and outline are those of the file.

Only what carries structure is rewritten: headings, delimited blocks, lists, links, anchors. No
attribute is expanded and nothing is included, so nothing but the file itself is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kb.formats.lined import LinedText, code_fence

__all__ = ["as_markdown"]

_TITLE = re.compile(r"(?P<marks>={1,6}|#{1,6})[ \t]+(?P<text>\S.*?)(?:[ \t]+(?P=marks))?[ \t]*\Z")
_UNDERLINES = "=-~^+"  # of titles on two lines, by level
_DELIMITER = re.compile(
    r"(?:-{4,}|\.{4,}|={4,}|\*{4,}|_{4,}|\+{4,}|/{4,}|--|`{3,}|[|,:!]={3,})[ \t]*\Z"
)
_VERBATIM = "-.+`"  # first characters of the delimiters whose content is code
_ATTRIBUTE = re.compile(r":!?(?P<name>[\w-]+)!?:(?:[ \t]+(?P<value>.*))?\Z")
_BLOCK_ATTRIBUTES = re.compile(r"\[(?P<content>[^\[\]]*(?:\[[^\]]*\][^\[\]]*)?)\][ \t]*\Z")
_ANCHOR = re.compile(r"\[\[(?P<id>[\w:.-]+)(?:,[^\]]*)?\]\]")
_OWN_ID = re.compile(r"(?:^|,)\s*(?:id=)?\"?#?(?P<id>[A-Za-z_][\w:.-]*)")
_LANGUAGE = re.compile(
    r"source\s*%?\w*,\s*(?:language=)?\"?(?P<language>[\w+#-]+)|,\s*(?P<bare>\w+)\s*\Z"
)
_BLOCK_MACRO = re.compile(r"(?P<name>\w+)::(?P<target>[^\[\s]*)\[(?P<text>[^\]]*)\]\s*\Z")
_ITEM = re.compile(r"(?P<indent>\s*)(?P<mark>\*{1,6}|\.{1,6}|-|\d+\.)[ \t]+(?P<text>\S.*)\Z")
_BLOCK_TITLE = re.compile(r"\.(?P<text>[^\s.].*)\Z")

_INLINE: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (_ANCHOR, ""),
    (
        re.compile(r"(?:link|xref):(?P<url>[^\s\[\]]+)\[(?P<text>(?:[^\]\\]|\\.)*)\]"),
        lambda found: _link(found["url"], found["text"]),
    ),
    (
        re.compile(r"<<(?P<url>[^<>,]+)(?:,(?P<text>[^<>]*))?>>"),
        lambda found: _cross_reference(found["url"].strip(), (found["text"] or "").strip()),
    ),
    (
        re.compile(r"(?P<url>https?://[^\s\[\]<>]+)\[(?P<text>(?:[^\]\\]|\\.)*)\]"),
        lambda found: _link(found["url"], found["text"]),
    ),
    (re.compile(r"image:(?P<url>[^\s\[\]:]+)\[(?P<text>[^\]]*)\]"), r"\g<text>"),
)


def as_markdown(source: str) -> LinedText:
    """The text as Markdown with the same lines, and what its header says."""
    reader = _Reader(source.split("\n"))
    return LinedText("\n".join(reader.lines()), reader.values)


@dataclass(slots=True)
class _Reader:
    """One pass over the lines."""

    source: list[str]
    values: dict[str, Any] = field(default_factory=dict)
    _delimiter: str = ""  # that ends the verbatim block or the comment we are in
    _anchor: str = ""  # of the next heading
    _language: str = ""  # of the next block of code
    _is_header: bool = False  # between the title and the first blank line: authors, revision

    def lines(self) -> list[str]:
        """The lines of the Markdown."""
        written: list[str] = []
        skip = False
        for number, line in enumerate(self.source):
            if skip:
                written.append("")
                skip = False
                continue
            following = self.source[number + 1] if number + 1 < len(self.source) else ""
            level = 0 if self._delimiter else _underlined(line, following, written)
            if level:
                written.append(self._heading(level, line))
                skip = True
            else:
                written.append(self._line(line.rstrip()))
        return written

    def _line(self, line: str) -> str:
        if self._delimiter:
            return self._in_block(line)
        if _DELIMITER.match(line):
            return self._delimited(line)
        if self._is_header and not line.startswith(":"):
            self._is_header = bool(line) and not _DELIMITER.match(line)
            if self._is_header:
                return ""
        if line.startswith("//") and not line.startswith("///"):
            return ""
        if title := _TITLE.match(line):
            return self._heading(len(title["marks"]), title["text"])
        if attribute := _ATTRIBUTE.match(line):
            self._keep(attribute["name"], attribute["value"] or "")
            return ""
        if anchor := _ANCHOR.fullmatch(line):
            self._anchor = anchor["id"]
            return ""
        if attributes := _BLOCK_ATTRIBUTES.match(line):
            self._attributes(attributes["content"])
            return ""
        if macro := _BLOCK_MACRO.match(line):
            return _block_macro(macro)
        if line == "+":
            return ""
        return self._text(line)

    def _text(self, line: str) -> str:
        if item := _ITEM.match(line):
            mark = "1." if item["mark"][0] in ".0123456789" else "-"
            return f"{item['indent']}{mark} {_inline(item['text'])}"
        if title := _BLOCK_TITLE.match(line):
            return _inline(title["text"])
        if re.fullmatch(r"[-*_=']{3,}", line):
            return ""
        return _inline(line)

    def _in_block(self, line: str) -> str:
        if line != self._delimiter:
            return "" if self._delimiter.startswith("/") else line
        ended, self._delimiter = self._delimiter, ""
        return "" if ended.startswith("/") else code_fence()

    def _delimited(self, line: str) -> str:
        language, self._language = self._language, ""
        if line.startswith("/"):
            self._delimiter = line
            return ""
        if line[0] in _VERBATIM and line != "--":
            self._delimiter = line
            return code_fence(language)
        return ""

    def _heading(self, level: int, text: str) -> str:
        inner = _ANCHOR.search(text)
        anchor, self._anchor = self._anchor or (inner["id"] if inner else ""), ""
        text = _inline(text.strip())
        self._is_header = level == 1 and "title" not in self.values
        if level == 1 and "title" not in self.values:
            self.values["title"] = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
        return f"{'#' * level} {text}" + (f" {{#{anchor}}}" if anchor else "")

    def _attributes(self, content: str) -> None:
        if content.startswith(("source", ",")):
            found = _LANGUAGE.search(content)
            self._language = (found["language"] or found["bare"] or "") if found else ""
        elif content.startswith("#") or "id=" in content:
            found = _OWN_ID.search(content.partition("id=")[2] if "id=" in content else content)
            self._anchor = found["id"] if found else ""

    def _keep(self, name: str, value: str) -> None:
        key = {"doctitle": "title", "description": "description", "keywords": "tags"}.get(name)
        if name in ("author", "revdate", "date"):
            key = "date" if name == "revdate" else name
        if key and value:
            self.values.setdefault(key, value)


def _underlined(line: str, following: str, before: list[str]) -> int:
    """The level of a title that is underlined, as older documents write it; else 0."""
    following = following.rstrip()
    text = line.rstrip()
    if len(following) < 3 or not text or text[0].isspace() or following[0] not in _UNDERLINES:
        return 0
    if set(following) != {following[0]} or abs(len(following) - len(text)) > 2:
        return 0
    is_free = not before or not before[-1].strip()
    if not is_free or not any(map(str.isalnum, text)) or _DELIMITER.match(text):
        return 0
    return _UNDERLINES.index(following[0]) + 1


def _inline(text: str) -> str:
    for pattern, replacement in _INLINE:
        text = pattern.sub(replacement, text)
    return text


def _link(url: str, text: str) -> str:
    shown = text.split(",", 1)[0].strip('"^ ').replace("\\]", "]") or url.rpartition("/")[2] or url
    return f"[{shown}](<{url}>)"


def _cross_reference(target: str, text: str) -> str:
    is_file = "/" in target or re.search(r"\.\w+(?:#|\Z)", target)
    return _link(target if is_file else f"#{target.lstrip('#')}", text or target)


def _block_macro(macro: re.Match[str]) -> str:
    """An include is a link to what it includes; a picture leaves its description."""
    if macro["name"] == "include" and macro["target"]:
        return _link(macro["target"], "")
    if macro["name"] in ("image", "video", "audio"):
        return macro["text"].split(",", 1)[0].strip('"')
    return ""

"""Org files, as Markdown with the same lines: orgparse finds the headings, the rest is ours."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orgparse

from kb.formats.links import without_trailing_punctuation
from kb.formats.markdown import plain_heading, read_markdown
from kb.formats.outline import Block, Body, Heading, Link
from kb.text.sentences import context_of

_KEYWORD = re.compile(r"\s*#\+(?P<name>[\w-]+):\s*(?P<value>.*?)\s*\Z", re.IGNORECASE)
_BLOCK = re.compile(r"\s*#\+(?P<end>begin|end)_(?P<name>\w+)\s*(?P<rest>.*)\Z", re.IGNORECASE)
_CODE_BLOCKS = ("src", "example", "export")
_DRAWER = re.compile(r"\s*:[\w-]+:\s*\Z")
# Verbatim text and code hold no links: =a= ~b~, with no word close to their marks.
_INLINE = re.compile(
    r"""(?<![^\s("'{-])(?:=(?P<verbatim>[^\s=](?:(?:[^\n=]|=\w){0,120}[^\s=])?)=
          |~(?P<code>[^\s~](?:(?:[^\n~]|~\w){0,120}[^\s~])?)~)(?=[\s,.;:!?"')}\[-]|\Z)
    | \[\[(?P<target>[^\s\[\]][^\[\]]*)\](?:\[(?P<text>[^\[\]]*)\])?\]
    | (?P<web>https?://[^\s<>\[\]]+)""",
    re.VERBOSE,
)
_TARGET = re.compile(r"<<([^<>\n]+)>>|^[ \t]*#\+name:(.*)$", re.IGNORECASE | re.MULTILINE)
_RULE = re.compile(r"\s*\|[-+]+\|\s*\Z")
_ITEM = re.compile(r"(?P<indent>\s*)(?P<mark>[-+]|\d+[.)])(?P<rest>\s+.*)\Z")
_DESCRIPTION = re.compile(r"\s*[-+*]\s+(?:\[[ X-]\]\s+)?(?P<term>\S.{0,400}?)\s+::(?:\s|\Z)")
MOST_LEVELS = 6
_OTHER_TYPE = re.compile(r"(?!https?:)[A-Za-z][\w+-]*:")  # of a link: mail, a key, a package's own
# All that orgparse gets to see: it looks for dates in exponential time, and for tags in cubic.
_TOLD = re.compile(r"\*|\s*(?::|#\+)")
_TAGS = re.compile(r":[\w@:]+:")
_COLON = "\ue03a"  # for that in a heading, while orgparse looks at it
LONGEST_TOLD = 500  # characters; a longer heading is text


# No line of code is likely to close such a fence.
_FENCE = "~~~~~~~~~~~~"


def read(text: str, lines: Sequence[str], path: str = "") -> Body:
    sources = text.split("\n")
    reader = _Reader(dict(_headings(sources)))
    markdown = "\n".join(reader.line(number, line) for number, line in enumerate(sources, 1))
    reader.end_text()
    targets = {"".join(names).strip().casefold() for names in _TARGET.findall(text)}
    targets |= {heading.lstrip("# ").casefold() for heading in reader.headings.values()}
    links = tuple(_inside(link, targets) for link in reader.links)
    body = read_markdown(markdown, lines, has_front_matter=False)
    return replace(
        body,
        front_matter=reader.values,
        links=links,
        labels=tuple(reader.labels),
        definitions=tuple(_definitions(body.blocks, lines)),
    )


def _definitions(blocks: Iterable[Block], lines: Sequence[str]) -> Iterator[Heading]:
    """The items of description lists, `- term :: what it is`, except in other items."""
    for block in blocks:
        item = _DESCRIPTION.match(lines[block.start_line - 1])
        if item is not None and block.kind == "list_item":
            start = block.start_line
            yield Heading(1, plain_heading(_shown(item["term"])), start, start, block.end_line)


def _inside(link: Link, targets: Container[str]) -> Link:
    """A link to a name, as one within the file if that has such a place."""
    is_here = link.kind == "wiki" and link.url.casefold() in targets
    return replace(link, url=f"#{link.url}") if is_here else link


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    for node in orgparse.loads("\n".join(map(_without_text, lines)))[1:]:
        if not 1 <= node.linenumber <= len(lines):
            continue
        text = _shown(node.get_heading(format="raw").strip().replace(_COLON, ":"))
        anchor = node.properties.get("CUSTOM_ID") or node.properties.get("ID") or ""
        named = f" {{#{anchor}}}" if anchor and not re.search(r"[\s{}]", str(anchor)) else ""
        yield node.linenumber, f"{'#' * min(node.level, MOST_LEVELS)} {text}{named}"


def _without_text(line: str) -> str:
    """A line for orgparse: empty if it says nothing about headings."""
    if len(line) > LONGEST_TOLD or not _TOLD.match(line):
        return ""
    if not line.startswith("*"):
        return line
    *words, last = line.rstrip().rsplit(maxsplit=1)
    return (f"{words[0]} " if words and _TAGS.fullmatch(last) else line).replace(":", _COLON)


@dataclass(slots=True)
class _Reader:
    headings: dict[int, str]
    values: dict[str, Any] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)  # lines of a paragraph, an item or a row
    _text_line: int = 0  # the first of them
    _block: str = ""  # name of the verbatim block we are in
    _is_drawer: bool = False

    def line(self, number: int, line: str) -> str:
        if self._block:
            block = _BLOCK.match(line)
            if block and block["end"].lower() == "end" and block["name"].lower() == self._block:
                self._block = ""
                return _FENCE
            return line
        if number in self.headings:
            self._is_drawer = False
            self._add_text(number, line, begins=True)
            self.end_text()
            return self.headings[number]
        if self._is_drawer:
            stripped = line.strip()
            if stripped.upper() == ":END:":
                self._is_drawer = False
            elif id_ := re.fullmatch(r":ID:\s*(\S+)", stripped, re.IGNORECASE):
                self.values.setdefault("id", id_[1])
                self.labels.append(id_[1])
            return ""
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
        return self._text(number, line)

    def end_text(self) -> None:
        text, self._texts = "\n".join(self._texts), []
        for match in _INLINE.finditer(text):
            url, kind, end = _link(match)
            if url:
                line = self._text_line + text.count("\n", 0, match.start())
                context = context_of(text, match.start(), match.start() + end, 0, len(text))
                self.links.append(Link(url, kind, line, context))

    def _add_text(self, number: int, line: str, *, begins: bool) -> None:
        if begins or not line.strip() or number != self._text_line + len(self._texts):
            self.end_text()
            self._text_line = number
        self._texts.append(line)

    def _text(self, number: int, line: str) -> str:
        stripped = line.strip()
        if _RULE.match(line):
            return line.replace("+", "|")
        if stripped.startswith(": "):
            return f"    {stripped[2:]}"
        if re.fullmatch(r"-{5,}", stripped):
            return ""
        item = _ITEM.match(line)
        self._add_text(number, line, begins=item is not None or stripped.startswith("|"))
        if item is not None:
            mark = "-" if item["mark"] in "-+" else "1."
            return f"{item['indent']}{mark}{_shown(item['rest'])}"
        return _shown(line)

    def _begin(self, block: re.Match[str]) -> str:
        name = block["name"].lower()
        if block["end"].lower() == "begin" and name in _CODE_BLOCKS:
            self._block = name
            return _FENCE + (block["rest"].split(" ", 1)[0] if name == "src" else "")
        return ""

    def _keep(self, name: str, value: str) -> None:
        key = {"title": "title", "author": "author", "date": "date", "filetags": "tags"}.get(name)
        if key and value:
            self.values[key] = [tag for tag in value.split(":") if tag] if key == "tags" else value


def _shown(text: str) -> str:
    """A line as Markdown: links as what they show, verbatim text as code."""
    return _INLINE.sub(_as_shown, text)


def _as_shown(match: re.Match[str]) -> str:
    if match["target"]:
        return match["text"] or match["target"]
    code = match["verbatim"] or match["code"]
    return f"`{code}`" if code and "`" not in code else match[0]


def _link(match: re.Match[str]) -> tuple[str, str, int]:
    """What a link leads to ("": nowhere else), its kind and its length; `id:` names a note."""
    length = len(match[0])
    if match["web"]:
        url = without_trailing_punctuation(match["web"])
        return url, "autolink", len(url)
    target = " ".join((match["target"] or "").split())
    scheme, _, rest = target.partition(":")
    if scheme == "id":
        return rest.partition("::")[0], "ref", length
    if scheme == "roam":
        return rest, "wiki", length
    if scheme == "attachment":
        return rest.partition("::")[0], "attachment", length
    is_file = scheme in ("file", "file+sys", "file+emacs")
    target = rest if is_file else target
    if target.startswith(("*", "#")):
        return f"#{target[1:]}", "wiki" if target.startswith("*") else "inline", length
    if not is_file and _OTHER_TYPE.match(target):
        return "", "", length
    path, _, place = target.partition("::")
    # What has no mark is searched for as text, or is a line.
    fragment = place[1:] if place.startswith(("*", "#")) else ""
    if not is_file and not re.search(r"[/.~]", path):
        return path, "wiki", length
    return f"{path}#{fragment}" if fragment else path, "inline", length

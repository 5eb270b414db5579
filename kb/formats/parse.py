"""The text of one file -> title, summary, front matter, sections and blocks with their lines.

Markdown (markdown-it-py), reStructuredText (docutils), AsciiDoc and Org have headings, source code
(tree-sitter) has symbols, a table its columns; any other text is paragraphs. A heading inside a
list or quote opens no section, as in the outlines of editors and GitHub.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import PurePosixPath
from posixpath import splitext
from typing import Any

from kb.disk.read import MAXIMUM_DOCUMENT
from kb.formats.convert.formats import HTML, MANUAL, Format, format_of
from kb.formats.convert.result import REMARKS, Converted
from kb.formats.front_matter import front_matter_title, read_front_matter
from kb.formats.navigation import NAVIGATION_FILES
from kb.formats.outline import (
    Body,
    ParsedDocument,
    build_sections,
    first_prose,
    line_blocks,
    one_line,
    with_terms,
)
from kb.formats.source_code import grammar_of
from kb.text.suffixes import text_format

MAXIMUM_CONVERTED = 200_000_000  # bytes of a file that is converted: pictures take most of them


def accepts(path: str) -> int:
    """How many bytes a document at this path may have; 0 if it is none."""
    name = path.rpartition("/")[2]  # called for every file of a folder: no Path here
    if text_format(name) or name in NAVIGATION_FILES:
        return MAXIMUM_DOCUMENT
    return MAXIMUM_CONVERTED if format_of(path) else 0


def is_markdown(path: str) -> bool:
    """Whether a document at this path is Markdown, as a file or once converted."""
    return text_format(path) == "markdown" or format_of(path) is not None


def is_markdown_text(text: str, path: str) -> bool:
    """As `is_markdown`, or by the look of a text whose name says nothing."""
    return is_markdown(path) or (not _named_format(path) and looks_like(text) == "markdown")


def _named_format(path: str) -> str:
    return "source code" if grammar_of(splitext(path)[1].lower()) else text_format(path)


def unnamed_format(text: str, path: str) -> Format | None:
    """The format to convert a text from, if its name says nothing."""
    kind = "" if _named_format(path) else looks_like(text)
    format_ = {"html": HTML, "manual": MANUAL}.get(kind)
    return format_ if format_ and format_.is_available else None


def parse(text: str, path: str) -> ParsedDocument:
    """Parse `text` (decoded, no BOM, lines ended by "\\n" alone) by the suffix of `path`.

    Never raises: what cannot be read as its format becomes plain text, with a notice.
    """
    lines = _lines(text)
    name = PurePosixPath(path).name
    kind = "navigation" if name in NAVIGATION_FILES else _named_format(name) or looks_like(text)
    if module := _READERS.get(kind):
        body: Body = import_module(f"kb.formats.{module}").read(text, lines, path)
    else:
        blocks = line_blocks(lines)
        body = Body((), blocks, first_prose(blocks, lines, str), {})
    return _document(body, lines, path, one_line(front_matter_title(body.front_matter)))


def parse_converted(converted: Converted, path: str) -> ParsedDocument:
    """Parse what a converter made of the file at `path`: Markdown under the file's own title."""
    from kb.formats.markdown import read_markdown

    lines = _lines(converted.text)
    body = read_markdown(converted.text, lines, has_front_matter=False)
    values: dict[str, Any] = {**converted.metadata}
    if converted.remarks:
        values[REMARKS] = converted.remarks
    body = replace(body, front_matter=values, notices=converted.notices, tags=())
    return _document(body, lines, path, one_line(converted.title))


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _document(body: Body, lines: Sequence[str], path: str, title: str) -> ParsedDocument:
    body = with_terms(body, lines)
    title = title or next((h.text for h in body.headings if h.level == 1 and h.text), "")
    return ParsedDocument(
        title=title or PurePosixPath(path).name,
        summary=body.summary,
        front_matter=body.front_matter,
        sections=build_sections(body.headings, lines, title),
        blocks=tuple(body.blocks),
        total_lines=len(lines),
        notices=body.notices,
        links=body.links,
        labels=body.labels,
        tags=body.tags,
    )


# Each with a function `read`; only files of a format pay for what its reader imports.
_READERS = {
    "markdown": "markdown",
    "restructured text": "restructured_text",
    "asciidoc": "asciidoc",
    "org": "org",
    "table": "tables",
    "source code": "source_code",
    "navigation": "navigation",
}


# What a text is whose name does not say it


_CHARACTERS = 20_000  # of the beginning, that are looked at

# In this order: a manual page has comments, HTML a comment of Org's kind nowhere.
_MARKS = (
    ("html", r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b"),
    ("manual", r"(?:[.']\\\".*?\n|\.\s*\n|'\s*\n)*\.(?:TH|Dd|Dt)\s"),
    ("org", r"\s*#\+[A-Za-z_]+:"),
    ("restructured text", r".*?^\.\.[ ](?:[\w:-]+::|_[^:\n]+:)"),
    ("asciidoc", r"(?:\s+|//[^/\n]*\n|:[\w-]+:.*?\n|\[\[.*?\]\]\n)*=[ ]\S"),
)
_PATTERNS = tuple((name, re.compile(marks, re.I | re.S | re.M)) for name, marks in _MARKS)
_HASH = re.compile(r"^#{1,6}[ \t]+\S", re.M)
# Comments of a program stand close to what they are about.
_HEADING = re.compile(r"(?:\A|(?<=\n\n))#{1,6}[ \t]+\S[^\n]*(?:\n\n|\n?\Z)")
_UNDERLINED = re.compile(
    r"(?:\A|(?<=\n\n))(?P<text>\S[^\n]*)\n(?P<line>={3,}|-{3,})[ \t]*(?:\n|\Z)"
)


def looks_like(text: str) -> str:
    """A format as `text_format` names it, "html" or "manual"; else "plain text"."""
    head = text[:_CHARACTERS]
    for name, pattern in _PATTERNS:
        if pattern.match(head):
            return name
    headings = len(_HEADING.findall(head))
    underlined = any(
        abs(len(match["text"]) - len(match["line"])) < 3 for match in _UNDERLINED.finditer(head)
    )
    is_marked = underlined or headings * 2 > len(_HASH.findall(head))
    return "markdown" if is_marked or read_front_matter(text).line_count else "plain text"

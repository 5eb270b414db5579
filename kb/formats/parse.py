"""The text of one file -> title, summary, front matter, sections and blocks with their lines.

Markdown (markdown-it-py), reStructuredText (docutils), AsciiDoc and Org have headings, source code
(tree-sitter) has symbols, a table its columns; any other text is paragraphs. A heading inside a
list or a block quote belongs to that list or quote and opens no section, as in the outlines that
editors and GitHub show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from posixpath import splitext

from kb.disk.read import MAXIMUM_DOCUMENT
from kb.formats.convert.formats import format_of
from kb.formats.convert.result import Converted
from kb.formats.front_matter import front_matter_title
from kb.formats.logseq import block_ids, page_properties
from kb.formats.markdown import read_markdown
from kb.formats.navigation import NAVIGATION_FILES, read_navigation
from kb.formats.outline import (
    MAXIMUM_HEADING,
    Block,
    Body,
    Heading,
    ParsedDocument,
    build_sections,
    first_prose,
    one_line,
)
from kb.formats.source_code import SOURCE_SUFFIXES, read_source
from kb.text.suffixes import (
    ASCIIDOC_SUFFIXES,
    MARKDOWN_SUFFIXES,
    ORG_SUFFIXES,
    RESTRUCTURED_TEXT_SUFFIXES,
    TABLE_SUFFIXES,
    TEXT_SUFFIXES,
)

__all__ = ["MAXIMUM_CONVERTED", "accepts", "is_markdown", "parse", "parse_converted"]

MAXIMUM_CONVERTED = 200_000_000  # bytes of a file that is converted: pictures take most of them


def accepts(path: str) -> int:
    """How many bytes a file of this path may have as a document; 0 when it is none."""
    name = path.rpartition("/")[2]  # every file of a folder is asked about: no Path here
    if splitext(name)[1].lower() in TEXT_SUFFIXES or name in NAVIGATION_FILES:
        return MAXIMUM_DOCUMENT
    return MAXIMUM_CONVERTED if format_of(path) else 0


def is_markdown(path: str) -> bool:
    """Whether the text of a document of this path is Markdown, as a file or once converted."""
    return splitext(path)[1].lower() in MARKDOWN_SUFFIXES or format_of(path) is not None


def parse(text: str, path: str) -> ParsedDocument:
    """Parse `text` (decoded, no BOM, lines ended by "\\n" alone) by the suffix of `path`.

    Never raises on any text: what cannot be read as its format is read as plain text, with a
    notice. Only "\\n" ends a line, so line numbers are those of an editor.
    """
    lines = _lines(text)
    suffix = PurePosixPath(path).suffix.lower()
    if PurePosixPath(path).name in NAVIGATION_FILES:
        body = read_navigation(text, lines, PurePosixPath(path).name)
    elif suffix in MARKDOWN_SUFFIXES:
        body = read_markdown(text, lines)
        properties = body.front_matter or page_properties(lines, path)
        body = replace(body, front_matter=properties, labels=block_ids(text))
    elif suffix in RESTRUCTURED_TEXT_SUFFIXES:
        body = _read_restructured_text(text, lines)
    elif suffix in ASCIIDOC_SUFFIXES or suffix in ORG_SUFFIXES:
        body = _read_lined(text, lines, suffix)
    elif suffix in TABLE_SUFFIXES:
        from kb.formats.csv_table import read_table

        body = read_table(text, lines, path)
    elif suffix in SOURCE_SUFFIXES:
        body = read_source(text, lines, path)
    else:
        body = _read_plain_text(lines)
    return _document(body, lines, path, one_line(front_matter_title(body.front_matter)))


def parse_converted(converted: Converted, path: str) -> ParsedDocument:
    """Parse what a converter made of the file at `path`: Markdown under the file's own title."""
    lines = _lines(converted.text)
    body = read_markdown(converted.text, lines, has_front_matter=False)
    body = replace(body, front_matter=dict(converted.metadata), notices=converted.notices, tags=())
    return _document(body, lines, path, one_line(converted.title))


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _document(body: Body, lines: Sequence[str], path: str, title: str) -> ParsedDocument:
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


def _read_lined(text: str, lines: Sequence[str], suffix: str) -> Body:
    """Read a markup that is turned into Markdown line for line."""
    # Only files of these formats pay for the imports.
    if suffix in ORG_SUFFIXES:
        from kb.formats.org import as_markdown
    else:
        from kb.formats.asciidoc import as_markdown
    lined = as_markdown(text)
    body = read_markdown(lined.markdown, lines, has_front_matter=False)
    return replace(body, front_matter=lined.values)


def _read_restructured_text(text: str, lines: Sequence[str]) -> Body:
    # Only files of this format pay for importing docutils (.03 s).
    from kb.formats.restructured_links import find_references
    from kb.formats.restructured_text import (
        RestructuredTextError,
        plain_text,
        read_blocks,
        read_titles,
    )

    found = find_references(lines)
    links, labels = tuple(found.links), tuple(found.labels)
    try:
        titles = read_titles(text, found.substitutions)
    except RestructuredTextError as error:
        plain = _read_plain_text(lines)
        notice = f"The file could not be read as reStructuredText, so it has no headings: {error}."
        return Body((), plain.blocks, plain.summary, {}, (notice,), links, labels)
    headings = [
        Heading(min(t.level, 6), one_line(t.text[:MAXIMUM_HEADING]), t.start_line, t.end_line)
        for t in titles
    ]
    blocks = [Block(*block) for block in read_blocks(lines, titles)]
    summary = first_prose(blocks, lines, partial(plain_text, substitutions=found.substitutions))
    return Body(headings, blocks, summary, {}, (), links, labels)


def _read_plain_text(lines: Sequence[str]) -> Body:
    blocks: list[Block] = []
    start = 0
    for number, line in enumerate((*lines, ""), start=1):
        if line.strip():
            start = start or number
        elif start:
            blocks.append(Block(start, number - 1, "paragraph"))
            start = 0
    return Body((), blocks, first_prose(blocks, lines, str), {})

"""What of a document is cut together: a section without subsections, a term with its definition.

A definition that fits stays whole, with those inside it; small ones in a row share a passage,
whose section is the one around them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from kb.formats.outline import Block, ParsedDocument, Section

SHARED_FILL = 0.2  # of a passage that small definitions share
SHORT_FILL = 0.1  # of an introduction that shares one with the first definition

# How full a passage of a section is with these blocks; above 1 it does not fit.
Fill = Callable[[Section | None, Sequence[Block]], float]


@dataclass(frozen=True, slots=True)
class Unit:
    """Blocks that are cut together, and the section whose headings stand in front of them."""

    section: Section | None
    blocks: list[Block]


@dataclass(slots=True)
class _Node:
    section: Section | None
    parts: list[Block | _Node] = field(default_factory=list)


def units_of(document: ParsedDocument, fill: Fill) -> Iterator[Unit]:
    for unit in _of_headings(document):
        if any(block.kind == "definition" for block in unit.blocks):
            yield from _packed(_tree(document, unit), fill)
        else:
            yield unit


def terms_of(document: ParsedDocument, block: Block) -> list[Section]:
    """The terms that a definition's block belongs to, innermost first."""
    sections = document.sections
    position = bisect_right(sections, block.start_line, key=attrgetter("start_line")) - 1
    terms: list[Section] = []
    above: int | None = position
    while above is not None and sections[above].term_end_line:
        if sections[above].end_line >= block.start_line:
            terms.append(sections[above])
        above = sections[above].parent
    return terms


def _of_headings(document: ParsedDocument) -> Iterator[Unit]:
    """The blocks of each section with a body, after empty headings above it."""
    headings = (section for section in document.sections if not section.term_end_line)
    section: Section | None = None
    blocks: list[Block] = []
    for block in document.blocks:
        if block.kind == "front_matter":
            continue
        if block.kind == "heading":
            following = next(headings)
            has_body = not blocks or blocks[-1].kind != "heading"
            if blocks and (has_body or section is None or following.parent != section.position):
                yield Unit(section, blocks)
                blocks = []
            section = following
        blocks.append(block)
    if blocks:
        yield Unit(section, blocks)


def _tree(document: ParsedDocument, unit: Unit) -> _Node:
    root = _Node(unit.section)
    path = [root]
    for block in unit.blocks:
        terms = terms_of(document, block) if block.kind == "definition" else []
        for depth, term in enumerate(reversed(terms), start=1):
            if len(path) <= depth or path[depth].section is not term:
                del path[depth:]
                path.append(_Node(term))
                path[-2].parts.append(path[-1])
        del path[len(terms) + 1 :]
        path[-1].parts.append(block)
    return root


def _packed(node: _Node, fill: Fill) -> list[Unit]:
    """The units of a node: a definition that fits is one, small ones share one."""
    section = node.section
    whole = list(_blocks_of(node))
    if section is not None and section.term_end_line and fill(section, whole) <= 1:
        return [Unit(section, whole)]
    units: list[Unit] = []
    opening: list[Block] = []  # headings without text, or a short introduction
    is_open = False  # whether a small definition may join the last unit
    for is_block, parts in groupby(node.parts, lambda part: isinstance(part, Block)):
        if is_block:
            blocks = [part for part in parts if isinstance(part, Block)]
            is_short = not units and fill(section, blocks) < SHORT_FILL
            opening, is_open = (blocks if is_short else []), False
            units += [] if is_short else [Unit(section, blocks)]
            continue
        for part in parts:
            assert isinstance(part, _Node)
            first, *others = _packed(part, fill)
            is_small = not others and fill(section, first.blocks) < SHARED_FILL
            before = opening or (units[-1].blocks if is_open and is_small else [])
            together = [*before, *first.blocks]
            if not before or fill(section, together) > 1:
                units += [Unit(section, opening), first] if opening else [first]
            elif opening:
                is_heading = all(block.kind in ("heading", "reference") for block in opening)
                units.append(Unit(first.section if is_heading else section, together))
            else:
                units[-1] = Unit(section, together)
            units += others
            is_open = is_small and fill(section, units[-1].blocks) < SHARED_FILL
            opening = []
    return units + ([Unit(section, opening)] if opening else [])


def _blocks_of(node: _Node) -> Iterator[Block]:
    for part in node.parts:
        yield from (part,) if isinstance(part, Block) else _blocks_of(part)

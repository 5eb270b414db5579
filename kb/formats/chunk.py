"""A parsed document -> chunks: ranges of its text, each small enough for the embedding model.

A chunk stays within one section and holds whole blocks where they fit. A definition that fits stays
whole, with those inside it; small ones in a row share a chunk, whose section is the one around
them. A longer section is cut where its content says: of the best kind of cut that leaves a chunk
well filled, the one whose following text hashes lowest. An edit then mostly moves only the cuts
beside it; were chunks filled to the brim, it could move every cut up to the section's end.
"""

from __future__ import annotations

import unicodedata
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import accumulate, chain, groupby, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from kb.formats.front_matter import front_matter_title
from kb.formats.outline import Block, ParsedDocument, Range, Section
from kb.formats.pieces import MAXIMUM_CHARACTERS, NO_LEAD, Piece, Source, split_blocks, token_count
from kb.formats.wordless import has_words
from kb.text.headings import PATH_SEPARATOR

if TYPE_CHECKING:
    from tokenizers import Tokenizer


MAXIMUM_TOKENS = 256  # what all-MiniLM-L6-v2 reads, with [CLS] and [SEP]

# What the title and heading path in front of a chunk may cost, see `_cost`: an upper bound of
# their tokens. English takes about a quarter of it, Chinese a half.
MAXIMUM_PREFIX_COST = 128
_BLANKS_OF_ASCII = bytes(code for code in range(128) if chr(code).isspace())
_ALPHANUMERICS_OF_ASCII = bytes(code for code in range(128) if chr(code).isalnum())

# Long sections are cut from here on: with less, chunks are small; with more, edits move more cuts.
MINIMUM_FILL = 0.65
# One place in 32 is an anchor: it may be cut as soon as the chunk is this full, so that cuts that
# an edit has moved soon fall together again. Measured on 240 replaced lines in sections of 2,000:
# 1.35 chunks changed on average, two at most in 93 of 100 edits, nine in the worst; without
# anchors 1.7 on average and 23 in the worst. In real documents it is two at most in 98 of 100.
ANCHOR_FILL = 0.35
_ANCHOR_HASH = 2**32 // 32
TINY_FILL = 0.2  # a chunk emptier than this is avoided where another cut allows it


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of a document's text: `text[start_character:end_character]`."""

    position: int  # 1-based, in document order
    section: int | None  # position of its section; None before the first heading
    heading_path: str
    start_line: int  # 1-based, inclusive
    end_line: int
    start_character: int
    end_character: int
    # What stands in front of it in the document and is needed to understand it: the header row of
    # its table, the line that introduces its list, the sentence before its code. Mostly empty.
    lead: Range = NO_LEAD


def passage(text: str, start: int, end: int, lead: Range = NO_LEAD) -> str:
    """A chunk's text, with its lead in front."""
    body = text[start:end]
    return f"{text[slice(*lead)]}\n{body}" if lead != NO_LEAD else body


def chunk(text: str, document: ParsedDocument, tokenizer: Tokenizer) -> tuple[Chunk, ...]:
    """Cut `text`, from which `document` was parsed, into chunks in document order.

    Every character outside front matter is in exactly one chunk, but for blanks and text without
    words. A heading without a body opens the chunk of its first subsection. A document with nothing
    but a title in front matter has one empty chunk at its end.
    """
    if tokenizer.truncation is not None or tokenizer.padding is not None:
        raise ValueError("the tokenizer truncates or pads, so it cannot count tokens")
    source = Source(text, document, tokenizer)
    chunks: list[Chunk] = []

    @cache
    def budget(path: str) -> int:
        return MAXIMUM_TOKENS - 2 - token_count(embedding_text(document.title, path, ""), tokenizer)

    def fill(section: Section | None, blocks: Sequence[Block]) -> float:
        start, end = source.range(blocks[0])[0], source.range(blocks[-1])[1]
        tokens = source.token_count(start, end)
        path = section.heading_path if section else ""
        return max(tokens / budget(path), (end - start) / MAXIMUM_CHARACTERS)

    units = (
        _packed(_tree(document, unit), fill)
        if any(block.kind == "definition" for block in unit.blocks)
        else [unit]
        for unit in _of_headings(document)
    )
    for unit in chain.from_iterable(units):
        section = unit.section
        path = section.heading_path if section else ""
        terms = {
            block.start_line: [
                source.lines(term.start_line, term.term_end_line)
                for term in terms_of(document, block)[:2]
            ]
            for block in unit.blocks
            if block.kind == "definition"
        }
        for start, end, lead in _ranges(source, unit.blocks, budget(path), terms):
            if not has_words(text[start:end]):
                continue
            lines = source.line(start), source.line(end - 1)
            position = section.position if section else None
            chunks.append(Chunk(len(chunks) + 1, position, path, *lines, start, end, lead))
    if not chunks and front_matter_title(document.front_matter):
        last = document.total_lines
        chunks.append(Chunk(1, None, "", last, last, len(text), len(text)))
    return tuple(chunks)


def embedding_text(title: str, heading_path: str, text: str) -> str:
    """Return what is embedded for a chunk: title, heading path and text on separate lines.

    A long title or path is cut, the path from its front, so that together they cost
    `MAXIMUM_PREFIX_COST` at most and the same words always give the same text.
    """
    return "\n".join(part for part in (*_prefix(title, heading_path), text) if part.strip())


@lru_cache(maxsize=64)  # the chunks of a section follow each other
def _prefix(title: str, heading_path: str) -> tuple[str, str]:
    title = " ".join(title.split())
    path = " ".join(heading_path.split())
    if path == title:
        path = ""
    title = _cut_to_cost(title, MAXIMUM_PREFIX_COST - min(_cost_of(path), MAXIMUM_PREFIX_COST // 2))
    remaining = MAXIMUM_PREFIX_COST - _cost_of(title)
    while PATH_SEPARATOR in path and _cost_of(path) > remaining:
        path = path.split(PATH_SEPARATOR, 1)[1]
    return title, _cut_to_cost(path, remaining)


@lru_cache(maxsize=1 << 14)
def _cost(character: str) -> int:
    """Bound a character's tokens without a tokenizer, weighted by what they are in practice."""
    if character.isspace():
        return 0
    if character.isascii() and character.isalnum():
        return 1  # a whole English word is a token or two
    return 2 * len(unicodedata.normalize("NFD", character))  # a Hangul syllable is three tokens


def _cost_of(text: str) -> int:
    if not text.isascii():
        return sum(map(_cost, text))
    signs = text.encode().translate(None, _BLANKS_OF_ASCII)
    return len(signs) + len(signs.translate(None, _ALPHANUMERICS_OF_ASCII))


def _cut_to_cost(text: str, maximum: int) -> str:
    if _cost_of(text) <= maximum:
        return text.rstrip()
    costs = list(accumulate(map(_cost, text)))
    return text[: bisect_right(costs, maximum)].rstrip()


# From sections to ranges of text


def _ranges(
    source: Source, blocks: Sequence[Block], budget: int, terms: Mapping[int, Sequence[Range]]
) -> Iterator[tuple[int, int, Range]]:
    """The ranges of a unit's chunks with leads; `terms`: a block's term and that around it."""
    start, end = source.range(blocks[0])[0], source.range(blocks[-1])[1]
    needs_lead = any(term[0] < start for term in terms.get(blocks[0].start_line, ()))
    is_whole = not needs_lead and source.fits(start, end, budget)
    if is_whole and list(source.without_gaps(start, end)) == [(start, end)]:
        yield (*source.trimmed(start, end), NO_LEAD)
        return
    pieces = list(split_blocks(source, blocks, budget, terms))
    gaps = [number for number, piece in enumerate(pieces) if number and piece.is_behind_gap]
    for first_piece, last_piece in pairwise([0, *gaps, len(pieces)]):
        together = pieces[first_piece:last_piece]
        for first, last in _Packing(source.text, together, budget).groups():
            opening = together[first]
            yield (*source.trimmed(opening.start, together[last - 1].end), opening.lead)


# From pieces to chunks


class _Packing:
    """Pieces of one section, grouped into chunks; a group is pieces[first:last]."""

    def __init__(self, text: str, pieces: Sequence[Piece], budget: int) -> None:
        self._text = text
        self._pieces = pieces
        self._budget = budget
        self._tokens = list(accumulate((piece.tokens for piece in pieces), initial=0))
        self._ends = [piece.end for piece in pieces]
        # The least first piece from which all the rest fits into one chunk.
        self._tail = next((i for i in range(len(pieces)) if self._furthest(i) == len(pieces)), 0)

    def groups(self) -> Iterator[tuple[int, int]]:
        first = 0
        while first < len(self._pieces):
            last = self._cut_after(first)
            yield first, last
            first = last

    def _fill(self, first: int, last: int) -> float:
        tokens = self._tokens[last] - self._tokens[first] + self._pieces[first].lead_tokens
        characters = self._ends[last - 1] - self._pieces[first].start
        return max(tokens / self._budget, characters / MAXIMUM_CHARACTERS)

    def _furthest(self, first: int) -> int:
        room = self._budget - self._pieces[first].lead_tokens
        by_tokens = bisect_right(self._tokens, self._tokens[first] + room) - 1
        limit = self._pieces[first].start + MAXIMUM_CHARACTERS
        return max(min(by_tokens, bisect_right(self._ends, limit)), first + 1)

    def _cut_after(self, first: int) -> int:
        last = self._furthest(first)
        if last == len(self._pieces):
            return last
        if self._tail <= last:
            return self._halve(first, last)
        full = [
            i
            for i in range(first + 1, last + 1)
            if (fill := self._fill(first, i)) >= MINIMUM_FILL
            or (fill >= ANCHOR_FILL and self._hash(i) < _ANCHOR_HASH)
        ]
        good = [i for i in full if not self._is_tiny(i)]
        if not good:
            good = [i for i in range(first + 1, last + 1) if not self._is_tiny(i)][-1:]
            if not good or self._fill(first, good[0]) < TINY_FILL:
                good = full or [last]
        return max(good, key=lambda i: (self._pieces[i].cut, -self._hash(i), i))

    def _is_tiny(self, first: int) -> bool:
        """Whether a chunk that starts here must end almost at once, before a large piece."""
        return self._fill(first, self._furthest(first)) < TINY_FILL

    def _halve(self, first: int, last: int) -> int:
        """Cut near the middle what two chunks can hold, rather than leave a tiny rest."""
        middle = self._fill(first, len(self._pieces)) / 2

        def rank(i: int) -> tuple[int, float]:
            distance = abs(self._fill(first, i) - middle)
            return (self._pieces[i].cut if distance < (1 - MINIMUM_FILL) / 2 else -1, -distance)

        return max(range(max(self._tail, first + 1), last + 1), key=rank)

    def _hash(self, i: int) -> int:
        piece = self._pieces[i]
        return zlib.crc32(self._text[piece.start : piece.end].encode())


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

"""The blocks of a document -> pieces: lines, sentences or parts of them, none to be cut further.

A block that fits into a chunk is one piece. Text without words is in none (`wordless.py`). `Source`
tokenizes the text once, and counts the tokens of any range.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from kb.formats.leads import NO_LEAD, Leads, introduction
from kb.formats.outline import Block, ParsedDocument, Range
from kb.formats.tokens import token_starts
from kb.formats.wordless import wordless_ranges

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAXIMUM_CHARACTERS = 2000  # of a chunk: a word of any length can be a single [UNK]

# WordPiece makes at most one token of each character of a word, and [UNK] of a longer word.
_MAXIMUM_WORD = 100

# A stretch without line or sentence ends is cut into eighths of a chunk, which fill chunks well.
_FRAGMENTS = 8

# Of one line; 20 MB of ". " would be ten million pieces. More of them are no sentences.
MOST_SENTENCES = 500_000

_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*[ \t]+|[。！？；｡][”’」』）]*")
_MODEL_SPACE = " \t\n\u3000"  # str.isspace holds for more, which the model's tokenizer drops


class Source:
    """A document's text, tokenized once."""

    def __init__(self, text: str, document: ParsedDocument, tokenizer: Tokenizer) -> None:
        self.text = text
        self._lines = array("Q", [0])
        self._lines.extend(match.end() for match in re.finditer("\n", text))
        self._wordless = wordless_ranges(text)
        first = next((b for b in document.blocks if b.kind != "front_matter"), None)
        start = self.range(first)[0] if first else len(text)
        # Where each token starts, and whether it opens a word: a cut there adds no token.
        self._tokens, self._opens_word = token_starts(text, start, tokenizer)

    def range(self, block: Block) -> tuple[int, int]:
        """Where a block begins and ends, in characters, without its last line end."""
        after = block.end_line < len(self._lines)
        end = self._lines[block.end_line] - 1 if after else len(self.text)
        return self._lines[block.start_line - 1], end

    def lines(self, first: int, last: int) -> Range:
        """Where these lines begin and end, in characters, without the last line end."""
        return self.range(Block(first, last, ""))

    def line(self, character: int) -> int:
        """The line, from 1, that a character stands in."""
        return bisect_right(self._lines, character)

    def token_count(self, start: int, end: int) -> int:
        """Count the tokens of a range; exact when neither end cuts a word."""
        return bisect_left(self._tokens, end) - bisect_left(self._tokens, start)

    def fits(self, start: int, end: int, budget: int) -> bool:
        """Whether a range can be a chunk of at most so many tokens."""
        return end - start <= MAXIMUM_CHARACTERS and self.token_count(start, end) <= budget

    def cuts_word(self, character: int) -> bool:
        """Whether a cut in front of a character would change the tokens of its word."""
        around = self.text[character - 1 : character + 1]
        if len(around) < 2 or around[0] in _MODEL_SPACE or around[1] in _MODEL_SPACE:
            return False
        token = bisect_left(self._tokens, character)
        starts_here = token < len(self._tokens) and self._tokens[token] == character
        return not (starts_here and self._opens_word[token])

    def word_starts(self, start: int, end: int, tokens: int | None = None) -> Iterator[int]:
        """Yield where words start behind a range's first character, after at most `tokens`."""
        last = bisect_left(self._tokens, end)
        if tokens is not None:
            last = min(last, bisect_left(self._tokens, start) + tokens + 1)
        for token in range(bisect_right(self._tokens, start), last):
            if self._opens_word[token]:
                yield self._tokens[token]

    def without_gaps(self, start: int, end: int) -> Iterator[Range]:
        """The parts of a range between stretches without words."""
        first = bisect_right(self._wordless, (start, start))
        if first and self._wordless[first - 1][1] > start:
            start = min(self._wordless[first - 1][1], end)
        for gap_start, gap_end in self._wordless[first:]:
            if gap_start >= end:
                break
            if gap_start > start:
                yield start, gap_start
            start = min(gap_end, end)
        if start < end:
            yield start, end

    def cut_to(self, lead: Range, tokens: int) -> Range:
        """The beginning of a lead, in at most so many tokens."""
        start, end = lead
        if self.token_count(start, end) <= tokens:
            return lead
        fitting = list(self.word_starts(start, end, tokens))
        return self.trimmed(start, fitting[-1]) if fitting else NO_LEAD

    def trimmed(self, start: int, end: int) -> tuple[int, int]:
        """Take blanks off both ends, but not the first line's indentation."""
        text = self.text[start:end].rstrip()
        if start and self.text[start - 1] != "\n":
            start += len(text) - len(text.lstrip())
            text = text.lstrip()
        return start, start + len(text)


class Cut(IntEnum):
    """What is in front of a piece; the higher, the better to cut there."""

    AFTER_HEADING = 0
    IN_SENTENCE = 1
    SENTENCE = 2
    LINE = 3
    BLANK_LINE = 4
    AFTER_COLON = 5  # a block that the one before it announces
    BLOCK = 6


@dataclass(frozen=True, slots=True)
class Piece:
    start: int
    end: int
    cut: Cut
    tokens: int
    lead: Range = NO_LEAD  # what a chunk that begins with it needs in front
    lead_tokens: int = 0
    is_behind_gap: bool = False  # text without words stands between it and the piece before


def split_blocks(
    source: Source, blocks: Sequence[Block], budget: int, terms: Mapping[int, Sequence[Range]]
) -> Iterator[Piece]:
    """The pieces of a section's blocks, in order.

    A piece and its lead have at most `budget` tokens together. `terms` says by a block's first line
    where its term and the one around that stand.
    """
    cut = Cut.BLOCK
    intro = NO_LEAD
    gap_end = source.range(blocks[0])[0]  # where the last part that has words ends
    for block in blocks:
        start, end = source.range(block)
        share = 2 if block.kind in ("table", "html") else 4  # a header row has to be whole
        leads = Leads(source.text, (start, end), block.kind, intro, terms.get(block.start_line, ()))
        for part_start, part_end in source.without_gaps(start, end):
            is_behind_gap = bool(source.text[gap_end:part_start].strip())
            part = part_start, part_end
            for piece in _split_part(source, *part, cut, budget, leads, budget // share):
                yield replace(piece, is_behind_gap=True) if is_behind_gap else piece
                is_behind_gap = False
            gap_end = part_end
        cut = Cut.BLOCK
        if block.kind == "heading":
            cut = Cut.AFTER_HEADING
        elif source.text[start:end].rstrip().endswith((":", "：")):
            cut = Cut.AFTER_COLON
        if block.kind != "list_item":  # what introduces a list introduces all its items
            intro = introduction(source.text, (start, end), block.kind)


def _split_part(
    source: Source, start: int, end: int, cut: Cut, budget: int, leads: Leads, most_of_lead: int
) -> Iterator[Piece]:
    """Yield a block, or a part of it, as one piece if it fits, else its lines with their leads."""

    @cache
    def measure(lead: Range) -> tuple[Range, int]:
        lead = source.cut_to(lead, most_of_lead)
        return lead, source.token_count(*lead)

    lead, tokens = measure(leads.at(start))
    if source.fits(start, end, budget - tokens):
        yield Piece(start, end, cut, source.token_count(start, end), lead, tokens)
        return
    budget -= max(measure(lead)[1] for lead in leads.different)
    for piece in _split_lines(source, start, end, cut, budget):
        lead, tokens = measure(leads.at(piece.start))
        yield replace(piece, lead=lead, lead_tokens=tokens)


def _split_lines(source: Source, start: int, end: int, cut: Cut, budget: int) -> Iterator[Piece]:
    while start < end:
        line_end = source.text.find("\n", start, end)
        line_end = end if line_end < 0 else line_end
        if source.fits(start, line_end, budget):
            if source.text[start:line_end].strip():
                yield Piece(start, line_end, cut, source.token_count(start, line_end))
                cut = Cut.LINE
            else:
                cut = Cut.BLANK_LINE
        else:
            yield from _split_line(source, start, line_end, cut, budget)
            cut = Cut.LINE
        start = line_end + 1


def _split_line(source: Source, start: int, end: int, cut: Cut, budget: int) -> Iterator[Piece]:
    matches = _SENTENCE_END.finditer(source.text, start, end)
    ends = [match.end() for match in islice(matches, MOST_SENTENCES + 1)]
    if len(ends) > MOST_SENTENCES:
        ends = []
    for sentence_start, sentence_end in pairwise([start, *ends, end]):
        if source.fits(sentence_start, sentence_end, budget):
            tokens = source.token_count(sentence_start, sentence_end)
            pieces = [Piece(sentence_start, sentence_end, cut, tokens)]
        else:
            pieces = list(_split_sentence(source, sentence_start, sentence_end, cut, budget))
        yield from (p for p in pieces if source.text[p.start : p.end].strip())
        cut = Cut.SENTENCE


def _split_sentence(source: Source, start: int, end: int, cut: Cut, budget: int) -> Iterator[Piece]:
    """Yield pieces that end at a space, else at a word of the tokenizer's, else anywhere."""
    while start < end:
        limit = min(end, start + MAXIMUM_CHARACTERS // _FRAGMENTS)
        if limit < end or source.token_count(start, limit) > budget // _FRAGMENTS:
            few = list(source.word_starts(start, limit, budget // _FRAGMENTS))
            spaces = [w for w in few if source.text[w - 1] in _MODEL_SPACE]
            words = few or [next(source.word_starts(start, limit), limit)]
            limit = (spaces or words)[-1]
        yield Piece(start, limit, cut, _piece_tokens(source, start, limit))
        cut = Cut.IN_SENTENCE
        start = limit


def _piece_tokens(source: Source, start: int, end: int) -> int:
    """Bound the tokens of a piece, either end of which may cut a word."""
    if source.cuts_word(end):  # then it holds no other word
        text = source.text[start:end]
        is_long = len(text) > _MAXIMUM_WORD and text.isascii() and text.isalnum()
        return 1 if is_long else _MAXIMUM_WORD
    if source.cuts_word(start):
        return _MAXIMUM_WORD + source.token_count(next(source.word_starts(start, end), end), end)
    return source.token_count(start, end)

"""A parsed document -> chunks: ranges of its text, each small enough for the embedding model.

A chunk stays within one section and holds whole blocks where they fit. A section too long for
one chunk is cut where the content says: of the best kind of cut that leaves a chunk well filled,
the one whose following text hashes lowest. An edit then mostly moves no cut but those beside it;
were chunks filled to the brim, it could move every cut up to the section's end.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from kb.front_matter import front_matter_title
from kb.parse import PATH_SEPARATOR, Block, ParsedDocument, Section

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAXIMUM_TOKENS = 256  # what all-MiniLM-L6-v2 reads, with [CLS] and [SEP]
MAXIMUM_CHARACTERS = 2000  # of a chunk: a word of any length can be a single [UNK]

# What the title and heading path in front of a chunk may cost, see `_cost`: an upper bound of
# their tokens. English takes about a quarter of it, Chinese a half.
MAXIMUM_PREFIX_COST = 128

# Inside a long section, cuts are looked for where a chunk is this full. With less, chunks are
# smaller; with more, there are fewer cuts to choose from and an edit moves more of them.
MINIMUM_FILL = 0.65
# One place in 32 is an anchor: it may be cut as soon as the chunk is this full, so that cuts that
# an edit has moved soon fall together again. Measured on 240 replaced lines in sections of 2,000:
# 1.35 chunks changed on average, two at most in 93 of 100 edits, nine in the worst; without
# anchors 1.7 on average and 23 in the worst. In real documents it is two at most in 98 of 100.
ANCHOR_FILL = 0.35
_ANCHOR_HASH = 2**32 // 32
TINY_FILL = 0.2  # a chunk emptier than this is avoided where another cut allows it

# WordPiece makes at most one token of each character of a word, and [UNK] of a longer word.
_MAXIMUM_WORD = 100

# A stretch without a line or sentence end that must be cut yields pieces an eighth of a chunk
# long, so that they fill chunks well.
_FRAGMENTS = 8

# Characters encoded in one call: 10 MB of base64 in a single one took 3 GB of memory. A part
# ends behind one of these, at which words always end, so it encodes as it does in the whole.
_ENCODED_AT_ONCE = 1 << 18
_WORD_ENDS = ("\n", " ", "。", ",", ".", "/", "-")

_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*[ \t]+|[。！？；｡][”’」』）]*")
_MODEL_SPACE = " \t\n\u3000"  # str.isspace holds for more, which the model's tokenizer drops


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


def chunk(text: str, document: ParsedDocument, tokenizer: Tokenizer) -> tuple[Chunk, ...]:
    """Cut `text`, from which `document` was parsed, into chunks in document order.

    Every non-blank character outside front matter is in exactly one chunk. A heading without
    a body of its own opens the chunk of its first subsection. A document that says nothing but
    its title, in front matter, has one empty chunk at its end; a blank one has none.

    Args:
        tokenizer: the embedding model's own, with neither truncation nor padding.
    """
    if tokenizer.truncation is not None or tokenizer.padding is not None:
        raise ValueError("the tokenizer truncates or pads, so it cannot count tokens")
    source = _Source(text, document, tokenizer)
    chunks: list[Chunk] = []
    for section, blocks in _units(document):
        path = section.heading_path if section else ""
        prefix = embedding_text(document.title, path, "")
        prefix_tokens = len(tokenizer.encode(prefix, add_special_tokens=False).ids)
        for start, end in _ranges(source, blocks, MAXIMUM_TOKENS - 2 - prefix_tokens):
            lines = source.line(start), source.line(end - 1)
            position = section.position if section else None
            chunks.append(Chunk(len(chunks) + 1, position, path, *lines, start, end))
    if not chunks and front_matter_title(document.front_matter):
        last = document.total_lines
        chunks.append(Chunk(1, None, "", last, last, len(text), len(text)))
    return tuple(chunks)


def embedding_text(title: str, heading_path: str, text: str) -> str:
    """Return what is embedded for a chunk: title, heading path and text on separate lines.

    A long title or path is cut, the path from its front, so that together they cost
    `MAXIMUM_PREFIX_COST` at most and the same words always give the same text.
    """
    parts = (*_prefix(title, heading_path), text)
    return "\n".join(part for part in parts if part.strip())


@lru_cache(maxsize=64)  # the chunks of a section follow each other
def _prefix(title: str, heading_path: str) -> tuple[str, str]:
    title = " ".join(title.split())
    path = " ".join(heading_path.split())
    if path == title:
        path = ""
    half = MAXIMUM_PREFIX_COST // 2
    title = _cut_to_cost(title, MAXIMUM_PREFIX_COST - min(sum(map(_cost, path)), half))
    remaining = MAXIMUM_PREFIX_COST - sum(map(_cost, title))
    while PATH_SEPARATOR in path and sum(map(_cost, path)) > remaining:
        path = path.split(PATH_SEPARATOR, 1)[1]
    return title, _cut_to_cost(path, remaining)


def _cost(character: str) -> int:
    """Bound a character's tokens without a tokenizer, weighted by what they are in practice."""
    if character.isspace():
        return 0
    if character.isascii() and character.isalnum():
        return 1  # a whole English word is a token or two
    return 2 * len(unicodedata.normalize("NFD", character))  # a Hangul syllable is three tokens


def _cut_to_cost(text: str, maximum: int) -> str:
    costs = list(accumulate(map(_cost, text)))
    return text[: bisect_right(costs, maximum)].rstrip()


# From sections to ranges of text


def _units(document: ParsedDocument) -> Iterator[tuple[Section | None, list[Block]]]:
    """Yield the blocks of each section with a body; empty headings above it go in front."""
    sections = iter(document.sections)
    section: Section | None = None
    blocks: list[Block] = []
    for block in document.blocks:
        if block.kind == "front_matter":
            continue
        if block.kind == "heading":
            following = next(sections)
            has_body = not blocks or blocks[-1].kind != "heading"
            if blocks and (has_body or section is None or following.parent != section.position):
                yield section, blocks
                blocks = []
            section = following
        blocks.append(block)
    if blocks:
        yield section, blocks


def _ranges(source: _Source, blocks: Sequence[Block], budget: int) -> Iterator[tuple[int, int]]:
    start, end = source.range(blocks[0])[0], source.range(blocks[-1])[1]
    if source.fits(start, end, budget):
        yield source.trimmed(start, end)
        return
    pieces = list(_split_blocks(source, blocks, budget))
    for first, last in _Packing(source.text, pieces, budget).groups():
        yield source.trimmed(pieces[first].start, pieces[last - 1].end)


class _Source:
    """A document's text, tokenized once."""

    def __init__(self, text: str, document: ParsedDocument, tokenizer: Tokenizer) -> None:
        self.text = text
        self._lines = array("Q", [0])
        self._lines.extend(match.end() for match in re.finditer("\n", text))
        self._tokens = array("Q")  # where each starts
        self._opens_word = bytearray()  # whether it opens a word: a cut there adds no token
        first = next((b for b in document.blocks if b.kind != "front_matter"), None)
        start = self.range(first)[0] if first else len(text)
        while start < len(text):
            end = self._encoding_end(start)
            encoding = tokenizer.encode(text[start:end], add_special_tokens=False)
            self._tokens.extend(start + offset for offset, _ in encoding.offsets)
            words = [None, *encoding.word_ids]
            self._opens_word.extend(word != before for before, word in pairwise(words))
            start = end

    def _encoding_end(self, start: int) -> int:
        limit = start + _ENCODED_AT_ONCE
        if limit < len(self.text):
            for mark in _WORD_ENDS:
                if end := self.text.rfind(mark, start, limit) + 1:
                    return end
        return len(self.text)

    def range(self, block: Block) -> tuple[int, int]:
        after = block.end_line < len(self._lines)
        end = self._lines[block.end_line] - 1 if after else len(self.text)
        return self._lines[block.start_line - 1], end

    def line(self, character: int) -> int:
        return bisect_right(self._lines, character)

    def token_count(self, start: int, end: int) -> int:
        """Count the tokens of a range; exact when neither end cuts a word."""
        return bisect_left(self._tokens, end) - bisect_left(self._tokens, start)

    def fits(self, start: int, end: int, budget: int) -> bool:
        return end - start <= MAXIMUM_CHARACTERS and self.token_count(start, end) <= budget

    def cuts_word(self, character: int) -> bool:
        around = self.text[character - 1 : character + 1]
        if len(around) < 2 or around[0] in _MODEL_SPACE or around[1] in _MODEL_SPACE:
            return False
        token = bisect_left(self._tokens, character)
        starts_here = token < len(self._tokens) and self._tokens[token] == character
        return not (starts_here and self._opens_word[token])

    def word_starts(self, start: int, end: int) -> Iterator[int]:
        """Yield where words start within a range, beyond its first character."""
        for token in range(bisect_right(self._tokens, start), bisect_left(self._tokens, end)):
            if self._opens_word[token]:
                yield self._tokens[token]

    def trimmed(self, start: int, end: int) -> tuple[int, int]:
        """Take blank characters off both ends, but not the first line's indentation."""
        text = self.text[start:end].rstrip()
        if start and self.text[start - 1] != "\n":
            start += len(text) - len(text.lstrip())
            text = text.lstrip()
        return start, start + len(text)


# From blocks to pieces


class _Cut(IntEnum):
    """What the place in front of a piece is; the higher, the better to cut there."""

    AFTER_HEADING = 0
    IN_SENTENCE = 1
    SENTENCE = 2
    LINE = 3
    BLANK_LINE = 4
    AFTER_COLON = 5  # a block that the one before it announces
    BLOCK = 6


@dataclass(frozen=True, slots=True)
class _Piece:
    """Text that is not cut any further."""

    start: int
    end: int
    cut: _Cut
    tokens: int


def _split_blocks(source: _Source, blocks: Sequence[Block], budget: int) -> Iterator[_Piece]:
    cut = _Cut.BLOCK
    for block in blocks:
        start, end = source.range(block)
        yield from _split_lines(source, start, end, cut, budget)
        cut = _Cut.BLOCK
        if block.kind == "heading":
            cut = _Cut.AFTER_HEADING
        elif source.text[start:end].rstrip().endswith((":", "：")):
            cut = _Cut.AFTER_COLON


def _split_lines(source: _Source, start: int, end: int, cut: _Cut, budget: int) -> Iterator[_Piece]:
    """Yield a block as one piece if it fits, else its lines, else their sentences."""
    if source.fits(start, end, budget):
        yield _Piece(start, end, cut, source.token_count(start, end))
        return
    while start < end:
        line_end = source.text.find("\n", start, end)
        line_end = end if line_end < 0 else line_end
        if source.fits(start, line_end, budget):
            if source.text[start:line_end].strip():
                yield _Piece(start, line_end, cut, source.token_count(start, line_end))
                cut = _Cut.LINE
            else:
                cut = _Cut.BLANK_LINE
        else:
            yield from _split_line(source, start, line_end, cut, budget)
            cut = _Cut.LINE
        start = line_end + 1


def _split_line(source: _Source, start: int, end: int, cut: _Cut, budget: int) -> Iterator[_Piece]:
    ends = [match.end() for match in _SENTENCE_END.finditer(source.text, start, end)]
    for sentence_start, sentence_end in pairwise([start, *ends, end]):
        if source.fits(sentence_start, sentence_end, budget):
            tokens = source.token_count(sentence_start, sentence_end)
            pieces = [_Piece(sentence_start, sentence_end, cut, tokens)]
        else:
            pieces = list(_split_sentence(source, sentence_start, sentence_end, cut, budget))
        yield from (p for p in pieces if source.text[p.start : p.end].strip())
        cut = _Cut.SENTENCE


def _split_sentence(
    source: _Source, start: int, end: int, cut: _Cut, budget: int
) -> Iterator[_Piece]:
    """Yield pieces that end at a space, else at a word of the tokenizer's, else anywhere."""
    while start < end:
        limit = min(end, start + MAXIMUM_CHARACTERS // _FRAGMENTS)
        words = list(source.word_starts(start, limit))
        if limit < end or source.token_count(start, limit) > budget // _FRAGMENTS:
            few = [w for w in words if source.token_count(start, w) <= budget // _FRAGMENTS]
            spaces = [w for w in few if source.text[w - 1] in _MODEL_SPACE]
            limit = (spaces or few or words[:1] or [limit])[-1]
        yield _Piece(start, limit, cut, _piece_tokens(source, start, limit))
        cut = _Cut.IN_SENTENCE
        start = limit


def _piece_tokens(source: _Source, start: int, end: int) -> int:
    """Bound the tokens of a piece, either end of which may cut a word."""
    if source.cuts_word(end):  # then it holds no other word
        text = source.text[start:end]
        is_long = len(text) > _MAXIMUM_WORD and text.isascii() and text.isalnum()
        return 1 if is_long else _MAXIMUM_WORD
    if source.cuts_word(start):
        word = next(source.word_starts(start, end), end)
        return _MAXIMUM_WORD + source.token_count(word, end)
    return source.token_count(start, end)


# From pieces to chunks


class _Packing:
    """Pieces of one section, grouped into chunks; a group is pieces[first:last]."""

    def __init__(self, text: str, pieces: Sequence[_Piece], budget: int) -> None:
        self._text = text
        self._pieces = pieces
        self._budget = budget
        self._tokens = list(accumulate((piece.tokens for piece in pieces), initial=0))
        self._ends = [piece.end for piece in pieces]
        # The least first piece from which all the rest fits into one chunk.
        self._tail = next(i for i in range(len(pieces)) if self._furthest(i) == len(pieces))

    def groups(self) -> Iterator[tuple[int, int]]:
        first = 0
        while first < len(self._pieces):
            last = self._cut_after(first)
            yield first, last
            first = last

    def _fill(self, first: int, last: int) -> float:
        """How full a chunk of these pieces is; 1 is as much as it can hold."""
        tokens = self._tokens[last] - self._tokens[first]
        characters = self._ends[last - 1] - self._pieces[first].start
        return max(tokens / self._budget, characters / MAXIMUM_CHARACTERS)

    def _furthest(self, first: int) -> int:
        by_tokens = bisect_right(self._tokens, self._tokens[first] + self._budget) - 1
        limit = self._pieces[first].start + MAXIMUM_CHARACTERS
        return max(min(by_tokens, bisect_right(self._ends, limit)), first + 1)

    def _cut_after(self, first: int) -> int:
        last = self._furthest(first)
        if last == len(self._pieces):
            return last
        if self._tail <= last:
            return self._halve(first, last)
        full = [i for i in range(first + 1, last + 1) if self._is_full(first, i)]
        good = [i for i in full if not self._is_tiny(i)]
        if not good:
            good = [i for i in range(first + 1, last + 1) if not self._is_tiny(i)][-1:]
            if not good or self._fill(first, good[0]) < TINY_FILL:
                good = full or [last]
        return max(good, key=lambda i: (self._pieces[i].cut, -self._hash(i), i))

    def _is_full(self, first: int, last: int) -> bool:
        fill = self._fill(first, last)
        return fill >= MINIMUM_FILL or (fill >= ANCHOR_FILL and self._hash(last) < _ANCHOR_HASH)

    def _is_tiny(self, first: int) -> bool:
        """Whether a chunk that starts here must end almost at once, before a large piece."""
        return self._fill(first, self._furthest(first)) < TINY_FILL

    def _halve(self, first: int, last: int) -> int:
        """Cut what two chunks can hold near its middle, rather than leave a tiny rest."""
        middle = self._fill(first, len(self._pieces)) / 2

        def rank(i: int) -> tuple[int, float]:
            distance = abs(self._fill(first, i) - middle)
            return (self._pieces[i].cut if distance < (1 - MINIMUM_FILL) / 2 else -1, -distance)

        return max(range(max(self._tail, first + 1), last + 1), key=rank)

    def _hash(self, i: int) -> int:
        piece = self._pieces[i]
        return zlib.crc32(self._text[piece.start : piece.end].encode())

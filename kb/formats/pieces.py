"""The blocks of a document -> pieces: lines, sentences or parts of them, none to be cut further.

A block that fits into a chunk is one piece. Text without words is in none (`wordless.py`). `Source`
tokenizes the text once, and counts the tokens of any range. A word's tokens depend on nothing but
the word, and most words of a text have been met before: each is tokenized once and looked up
afterwards.

A passage that begins inside a block may need something in front of it to be understood: a row of a
long table the header, an item the line that says what is listed, code the sentence before it. Such
a lead is a range of the document's text, which is embedded, indexed and shown with the passage; the
passage keeps its lines.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache, cached_property, lru_cache
from itertools import chain, islice, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

from kb.formats.outline import Block, ParsedDocument, Range
from kb.formats.wordless import wordless_ranges

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer


# Characters cut in one call: 10 MB of base64 at once took 3 GB of memory, and a million Chinese
# characters take twice the time of their parts. A part ends behind one of these, where words always
# end. A very long stretch without any is cut anywhere: no model knows such a word.
_AT_ONCE = 1 << 14
_LONGEST_STRETCH = 1 << 16
_WORD_ENDS = ("\n", " ", "。", ",", ".", "/", "-")

# What is between two of these is cut in the same way whatever stands beside it, and punctuation of
# ASCII is always a token by itself. Other spaces and control characters are left to the tokenizer.
_SPACES = " \t\n\r"
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_WORD = re.compile(rf"[^{_SPACES}{re.escape(_PUNCTUATION)}]+|[{re.escape(_PUNCTUATION)}]")
_SPACE, _INSIDE, _ALONE = range(3)
_KINDS = bytes(
    _SPACE if chr(code) in _SPACES else _ALONE if chr(code) in _PUNCTUATION else _INSIDE
    for code in range(129)
)
# Words are what is left of the UTF-8 when spaces and punctuation are blanks, in half the time of a
# regular expression. Texts with `_OTHER_BLANKS`, at which bytes are cut too, are left to that.
_AS_BLANKS = bytes(
    code if code > 0x7F or _KINDS[code] == _INSIDE else ord(" ") for code in range(256)
)
_OTHER_BLANKS = ("\v", "\f")

_MOST_REMEMBERED = 100_000  # words, which take about 10 MB
_LONGEST_REMEMBERED = 30  # bytes; longer words, as Chinese has them, are hardly met again

# The tokens of a word: for each 2 * its first character + whether the tokenizer takes it for the
# beginning of a word, for it may find several words in what we take for one.
_Tokens = tuple[int, ...]


def token_starts(text: str, start: int, tokenizer: Tokenizer) -> tuple[array[int], bytearray]:
    """The place of each token of a text from `start` on, and whether it opens a word."""
    import numpy as np

    words = _words_of(tokenizer)
    starts, opens = array("Q"), bytearray()
    while start < len(text):
        end = _end_of_part(text, start)
        tokens = words.tokens(text[start:end])
        tokens += 2 * start
        starts.frombytes((tokens >> 1).astype(np.uint64).tobytes())
        opens += (tokens & 1).astype(np.uint8).tobytes()
        start = end
    return starts, opens


def token_count(text: str, tokenizer: Tokenizer) -> int:
    """How many tokens a short text has."""
    return _words_of(tokenizer).count(text)


class _Words:
    def __init__(self, tokenizer: Tokenizer) -> None:
        special = [re.escape(t.content) for t in tokenizer.get_added_tokens_decoder().values()]
        self._odd = re.compile("|".join([*special, *_OTHER_BLANKS]))
        self._odd_word = re.compile("|".join([*special, _WORD.pattern]))
        self._tokenizer = tokenizer
        self._cuts: dict[bytes, _Tokens] = {}
        self._different: dict[_Tokens, _Tokens] = {}  # most words share theirs with others

    def tokens(self, text: str) -> NDArray[np.int64]:
        import numpy as np

        if self._odd.search(text):
            matches = list(self._odd_word.finditer(text))
            places = np.array([match.start() for match in matches], np.int64)
            is_word = np.ones(len(matches), bool)
            words = [match[0].encode() for match in matches]
        else:
            utf8 = text.encode()
            codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
            kind = np.frombuffer(_KINDS, np.uint8)[np.minimum(codes, 128)]
            begins = kind != _SPACE
            begins[1:] &= (kind[1:] == _ALONE) | (kind[:-1] != _INSIDE)
            places = np.flatnonzero(begins)
            is_word = kind[places] == _INSIDE
            words = utf8.translate(_AS_BLANKS).split()
        cuts = self._look_up(words)
        counts = np.ones(len(places), np.int64)
        counts[is_word] = np.fromiter(map(len, cuts), np.int64, len(cuts))
        tokens = np.ones(counts.sum(), np.int64)
        tokens[np.repeat(is_word, counts)] = np.fromiter(chain.from_iterable(cuts), np.int64)
        tokens += np.repeat(2 * places, counts)
        return tokens

    def count(self, text: str) -> int:
        if self._odd.search(text):
            return len(self.tokens(text))
        utf8 = text.encode()
        signs = len(utf8) - len(utf8.translate(None, _PUNCTUATION.encode()))
        return signs + sum(map(len, self._look_up(utf8.translate(_AS_BLANKS).split())))

    def _look_up(self, words: list[bytes]) -> list[_Tokens]:
        if len(self._cuts) > _MOST_REMEMBERED:
            self._cuts = {}  # another thread may be at work with the old one
        cached = cuts = self._cuts
        different = set(words)
        if missing := different.difference(cached):
            fresh = dict(self._tokenized(list(missing)))
            cached |= {word: cut for word, cut in fresh.items() if len(word) <= _LONGEST_REMEMBERED}
            cuts = {word: cached[word] for word in different - missing} | fresh
        return list(map(cuts.__getitem__, words))

    def _tokenized(self, words: Sequence[bytes]) -> Iterator[tuple[bytes, _Tokens]]:
        """Each word with its tokens, by one call of the tokenizer."""
        joined = b" ".join(words).decode()
        encoding = self._tokenizer.encode(joined, add_special_tokens=False)
        numbers = [None, *encoding.word_ids]
        opens = [number != before for before, number in pairwise(numbers)]
        starts = [start for start, _ in encoding.offsets]
        first = begin = 0
        for word, text in zip(words, joined.split(" "), strict=True):
            end = begin + len(text)
            last = first
            while last < len(starts) and starts[last] < end:
                last += 1
            cut = tuple(2 * (starts[i] - begin) + opens[i] for i in range(first, last))
            yield word, self._different.setdefault(cut, cut)
            first, begin = last, end + 1


@lru_cache(maxsize=4)
def _words_of(tokenizer: Tokenizer) -> _Words:
    return _Words(tokenizer)


def _end_of_part(text: str, start: int) -> int:
    limit, longest = start + _AT_ONCE, start + _LONGEST_STRETCH
    if limit >= len(text):
        return len(text)
    for mark in _WORD_ENDS:
        if end := text.rfind(mark, start, limit) + 1:
            return end
    further = [text.find(mark, limit, longest) + 1 for mark in _WORD_ENDS]
    return min(filter(None, further), default=min(longest, len(text)))


NO_LEAD: Range = (0, 0)

LONGEST_INTRODUCTION = 200  # characters of a sentence; of a longer one its end
_MOST_HEADER_LINES = 6
_LINE_END = re.compile("\n")
_LONGEST_HTML_HEADER = 2_000

_INTRODUCED = frozenset({"list_item", "fence", "code", "table", "directive"})
_INTRODUCTION_END = re.compile(r"[.!?…:][\"'”’»)\]*_]*\s+(?=\S)|[。！？：][”’」』）]*(?=\S)")
_RULE_SIGNS = frozenset("-=|+: \t>")
_ASCIIDOC_TABLE = re.compile(r"^[|,:!]={3,}[ \t]*$")
_HTML_HEADER = re.compile(r"<thead\b.*?</thead>|<tr\b(?:(?!</tr>).)*?<th\b.*?</tr>", re.I | re.S)
_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\(?(?:\d{1,9}|[A-Za-z#])[.)])[ \t]+\S")


def introduction(text: str, block: Range, kind: str) -> Range:
    """The last sentence of a block that may introduce the next one."""
    if kind != "paragraph":
        return NO_LEAD
    start, end = block
    end = start + len(text[start:end].rstrip())
    low = max(start, end - LONGEST_INTRODUCTION)
    places = [match.end() for match in _INTRODUCTION_END.finditer(text, low, end)]
    if not places and low > start:
        space = text.find(" ", low, end)
        places = [space + 1 if space >= 0 else low]
    return (places[-1] if places else start), end


class Leads:
    """The leads of one block, by where a passage begins in it."""

    def __init__(
        self, text: str, block: Range, kind: str, introduced_by: Range, terms: Sequence[Range] = ()
    ) -> None:
        self._text, self._block, self._kind = text, block, kind
        self._intro = introduced_by if kind in _INTRODUCED else NO_LEAD
        self._term = terms[0] if terms else NO_LEAD
        # A definition that goes on belongs to its term, one that begins to the term around it.
        self._intro = next((term for term in terms if term[0] < block[0]), self._intro)

    def at(self, place: int) -> Range:
        """The lead of a passage that begins at this position."""
        if place <= self._block[0]:
            return self._intro
        number = bisect_right(self._inner, place, key=itemgetter(0))
        return self._inner[number - 1][1] if number else self._intro

    @property
    def different(self) -> set[Range]:
        return {self._intro, *(lead for _, lead in self._inner)}

    @cached_property
    def _inner(self) -> list[tuple[int, Range]]:
        # Most blocks fit into a passage, and nobody asks what their lines hang on.
        if self._term != NO_LEAD:
            return [(max(self._term[1], self._block[0]), self._term)]
        return list(_inside(self._text, self._block, self._kind, self._intro))


def _inside(text: str, block: Range, kind: str, intro: Range) -> Iterator[tuple[int, Range]]:
    """From which position on which lead applies, after the block's beginning."""
    lines = _lines(text, block)
    if len(lines) < 2:
        return
    header = NO_LEAD
    if kind in ("table", "paragraph"):
        header = _header(text, lines)
    elif kind == "html":
        table_end = min(block[1], block[0] + _LONGEST_HTML_HEADER)
        match = _HTML_HEADER.search(text, block[0], table_end)
        if match and "<table" in text[block[0] : match.end()].lower():
            header = match.span()
    if header != NO_LEAD:
        yield header[1], header
    elif kind in ("fence", "directive"):
        if re.search(r"\w", text[slice(*lines[0])]):  # it names the language, or the title
            opening = lines[0] if intro == NO_LEAD else (intro[0], lines[0][1])
            yield lines[1][0], opening
    elif kind in ("list_item", "paragraph"):
        yield from _hanging(text, lines, intro, is_list=kind == "list_item")


def _hanging(
    text: str, lines: Sequence[Range], intro: Range, *, is_list: bool
) -> Iterator[tuple[int, Range]]:
    """Indented lines belong to the item or line above them."""
    above: list[tuple[int, Range]] = []  # indentation and line of what a line may hang on
    for number, line in enumerate(lines):
        indent = _trimmed(text, line)[0] - line[0]
        opens = _ITEM.match(text, *line) is not None if is_list else indent == 0
        if opens or number == 0:
            above = [line_above for line_above in above if line_above[0] < indent]
        inner = [line_above for at, line_above in above if at < indent]
        if number:
            yield line[0], inner[-1] if inner else intro
        if opens or number == 0:
            above.append((indent, _trimmed(text, line)))


def _header(text: str, lines: Sequence[Range]) -> Range:
    """The header row of a table: above a rule, between two, or the first of an AsciiDoc table."""
    texts = [text[start:end] for start, end in lines[:_MOST_HEADER_LINES]]
    rules = [number for number, line in enumerate(texts) if _is_rule(line)]
    if rules and rules[0] == 1 and "|" in texts[0]:
        return _trimmed(text, lines[0])
    if len(rules) > 1 and rules[0] == 0 and "=" in texts[rules[1]] and rules[1] > 1:
        return _trimmed(text, (lines[1][0], lines[rules[1] - 1][1]))
    opening = next((i for i, line in enumerate(texts) if _ASCIIDOC_TABLE.match(line)), len(texts))
    if opening + 1 < len(texts) and len(lines) > opening + 2 and not _is_rule(texts[opening + 1]):
        return _trimmed(text, lines[opening + 1])
    return NO_LEAD


def _is_rule(line: str) -> bool:
    signs = set(line)
    return bool(signs & {"-", "="}) and signs <= _RULE_SIGNS


def _lines(text: str, block: Range) -> list[Range]:
    """The lines of a block that are not blank."""
    start, end = block
    ends = [start - 1, *(m.start() for m in _LINE_END.finditer(text, start, end)), end]
    lines = [(before + 1, after) for before, after in pairwise(ends)]
    return [(first, last) for first, last in lines if text[first:last].strip()]


def _trimmed(text: str, line: Range) -> Range:
    start, end = line
    raw = text[start:end]
    start += len(raw) - len(raw.lstrip())
    return start, start + len(raw.strip())


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
        if source.token_count(*lead) > most_of_lead:  # its beginning is enough
            fitting = list(source.word_starts(*lead, most_of_lead))
            lead = source.trimmed(lead[0], fitting[-1]) if fitting else NO_LEAD
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

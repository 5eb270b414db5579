"""Where the tokens of a text start, as the embedding model's tokenizer cuts it.

A word's tokens depend on nothing but the word, and most words of a text have been met before: each
is tokenized once and looked up afterwards.
"""

from __future__ import annotations

import re
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

__all__ = ["token_count", "token_starts"]

# Characters that are cut in one call: 10 MB of base64 in a single one took 3 GB of memory, and a
# million Chinese characters take half a GB and twice the time of so many parts. A part ends behind
# one of these, at which words always end, so it is cut as it is in the whole. A stretch without any
# is cut if it is very long: a model knows neither such a word nor its parts.
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
# Words are what is left when spaces and punctuation are blanks, in UTF-8: bytes are cut at blanks
# in half the time in which a regular expression finds words. They would be cut at two more signs,
# which a word may hold; a text with these is left to the expression.
_AS_BLANKS = bytes(
    code if code > 0x7F or _KINDS[code] == _INSIDE else ord(" ") for code in range(256)
)
_OTHER_BLANKS = ("\v", "\f")

_MOST_REMEMBERED = 100_000  # words, which take about 10 MB
_LONGEST_PLAIN = 20  # of a longer word too many beginnings are looked up
_LONGEST_REMEMBERED = 30  # bytes; longer words, as Chinese has them, are hardly met again

# The tokens of a word: for each 2 * its first character + whether the tokenizer takes it for the
# beginning of a word, for it may find several words in what we take for one.
_Tokens = tuple[int, ...]
_ONE_TOKEN: _Tokens = (1,)  # of punctuation, and of most words
_ONE = 0  # the number of this way


def token_starts(text: str, start: int, tokenizer: Tokenizer) -> tuple[array[int], bytearray]:
    """The place of each token of a text from `start` on, and whether it opens a word.

    Args:
        tokenizer: one of BERT's kind, with neither truncation nor padding.
    """
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
    """The words that a tokenizer has met, each with its tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        special = [re.escape(one.content) for one in tokenizer.get_added_tokens_decoder().values()]
        self._special = re.compile("|".join(special)) if special else None
        self._with_special = re.compile("|".join([*special, _WORD.pattern]))
        self._tokenizer = tokenizer
        self._token = tokenizer.token_to_id
        self._known = _Known()
        self._learning = threading.Lock()

    def tokens(self, text: str) -> NDArray[np.int64]:
        """The tokens of a text, as those of a word."""
        import numpy as np

        if self._is_odd(text):
            found = list(self._with_special.finditer(text))
            places = np.array([match.start() for match in found], np.int64)
            of_words, ways = self._look_up([match[0].encode() for match in found])
            return ways.tokens(places, np.array(of_words, np.int64))
        kinds = np.frombuffer(_KINDS, np.uint8)
        utf8 = text.encode()
        if len(utf8) == len(text):
            kind = kinds[np.frombuffer(utf8, np.uint8)]
        else:
            codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
            kind = kinds[np.minimum(codes, 128)]
        begins = kind != _SPACE
        begins[1:] &= (kind[1:] == _ALONE) | (kind[:-1] != _INSIDE)
        places = np.flatnonzero(begins)
        of_words, ways = self._look_up(utf8.translate(_AS_BLANKS).split())
        numbers = np.full(len(places), _ONE, np.int64)
        numbers[kind[places] == _INSIDE] = of_words
        return ways.tokens(places, numbers)

    def count(self, text: str) -> int:
        """The tokens of a short text."""
        if self._is_odd(text):
            return len(self.tokens(text))
        utf8 = text.encode()
        numbers, ways = self._look_up(utf8.translate(_AS_BLANKS).split())
        signs = len(utf8) - len(utf8.translate(None, _PUNCTUATION.encode()))
        return signs + sum(map(ways.lengths.__getitem__, numbers))

    def _is_odd(self, text: str) -> bool:
        """Whether words of a text are not simply what stands between spaces and punctuation."""
        is_special = self._special is not None and self._special.search(text) is not None
        return is_special or any(sign in text for sign in _OTHER_BLANKS)

    def _look_up(self, words: list[bytes]) -> tuple[list[int], _Ways]:
        """The number of the way in which each word is cut, and these ways."""
        if len(self._known.numbers) > _MOST_REMEMBERED:
            self._known = _Known()  # another thread may be at work with the old one
        known = self._known
        different = set(words)
        if missing := different.difference(known.numbers):
            with self._learning:
                fresh = dict(self._tokenized(missing))
                short = {w: one for w, one in fresh.items() if len(w) <= _LONGEST_REMEMBERED}
                known.numbers |= {word: known.ways.number(one) for word, one in short.items()}
                ways = known.ways.copied() if len(short) < len(fresh) else known.ways
            if ways is not known.ways:
                numbers = {w: known.numbers[w] for w in different if w not in fresh or w in short}
                numbers |= {w: ways.add(one) for w, one in fresh.items() if w not in short}
                return list(map(numbers.__getitem__, words)), ways
        return list(map(known.numbers.__getitem__, words)), known.ways

    def _tokenized(self, words: Iterable[bytes]) -> Iterator[tuple[bytes, _Tokens]]:
        """Each of some words with its tokens; those of the rest in one call of the tokenizer."""
        rest: list[bytes] = []
        for word in words:
            if tokens := self._plain_tokens(word):
                yield word, tokens
            else:
                rest.append(word)
        if rest:
            yield from self._tokenized_together(rest)

    def _plain_tokens(self, word: bytes) -> _Tokens:
        """What WordPiece makes of letters and digits: the longest beginning of what is left.

        The tokenizer takes three times as long. () where it has to be asked.
        """
        if len(word) > _LONGEST_PLAIN or not (word.isascii() and word.isalnum()):
            return ()
        written = word.decode().lower()
        if self._token(written) is not None:
            return _ONE_TOKEN
        tokens = []
        start, prefix = 0, ""
        while start < len(written):
            end = len(written)
            while self._token(prefix + written[start:end]) is None:
                end -= 1
                if end == start:
                    return ()
            tokens.append(2 * start)
            start, prefix = end, "##"
        tokens[0] += 1
        return tuple(tokens)

    def _tokenized_together(self, words: Sequence[bytes]) -> Iterator[tuple[bytes, _Tokens]]:
        written = b" ".join(words).decode()
        encoding = self._tokenizer.encode(written, add_special_tokens=False)
        numbers = [None, *encoding.word_ids]
        opens = [number != before for before, number in pairwise(numbers)]
        starts = [start for start, _ in encoding.offsets]
        first = begin = 0
        for word, text in zip(words, written.split(" "), strict=True):
            end = begin + len(text)
            last = first
            while last < len(starts) and starts[last] < end:
                last += 1
            yield word, tuple(2 * (starts[i] - begin) + opens[i] for i in range(first, last))
            first, begin = last, end + 1


class _Ways:
    """The different ways in which words are cut, by number: most words share theirs with others."""

    def __init__(self) -> None:
        self.lengths = array("q")  # tokens of each
        self._starts = array("q")  # where they begin among those of all
        self._tokens = array("q")
        self._numbers: dict[_Tokens, int] = {}
        self.number(_ONE_TOKEN)

    def number(self, tokens: _Tokens) -> int:
        """The number of a way; called by one thread at a time."""
        if tokens not in self._numbers:
            self._numbers[tokens] = self.add(tokens)
        return self._numbers[tokens]

    def add(self, tokens: _Tokens) -> int:
        """Give a way a number, even if it has one."""
        self._starts.append(len(self._tokens))
        self._tokens.extend(tokens)
        self.lengths.append(len(tokens))
        return len(self.lengths) - 1

    def copied(self) -> _Ways:
        """The same, for words that are not remembered to be added to."""
        copy = _Ways()
        copy.lengths, copy._starts, copy._tokens = self.lengths[:], self._starts[:], self._tokens[:]
        return copy

    def tokens(self, places: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tokens of words that begin at these places and are cut in these ways."""
        import numpy as np

        lengths = np.array(self.lengths)[numbers]
        ends = np.cumsum(lengths)
        first = np.array(self._starts)[numbers] - ends + lengths
        which = np.repeat(first, lengths) + np.arange(lengths.sum())
        tokens: NDArray[np.int64] = np.array(self._tokens)[which]
        tokens += np.repeat(2 * places, lengths)
        return tokens


class _Known:
    """Words that were met, each with the number of the way in which it is cut."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self.ways = _Ways()


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

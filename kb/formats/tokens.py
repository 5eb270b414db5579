"""Where the tokens of a text start, as the embedding model's tokenizer cuts it.

A word's tokens depend on nothing but the word, and most words of a text have been met before: each
is tokenized once and looked up afterwards.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, pairwise
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

_MOST_REMEMBERED = 100_000  # words, which take about 20 MB
_LONGEST_REMEMBERED = 30  # characters; longer words, as Chinese has them, are hardly met again

# The tokens of a word: for each 2 * its first character + whether the tokenizer takes it for the
# beginning of a word, for it may find several words in what we take for one.
_Tokens = tuple[int, ...]


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
        part = text[start:end]
        places, found = words.cut(part)
        tokens = words.tokens(found)
        counts = np.fromiter(map(len, tokens), np.int64, len(tokens))
        all_of_them = np.fromiter(chain.from_iterable(tokens), np.int64, counts.sum())
        all_of_them += np.repeat(2 * (places + start), counts)
        starts.frombytes((all_of_them >> 1).astype(np.uint64).tobytes())
        opens += (all_of_them & 1).astype(np.uint8).tobytes()
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
        self._known: dict[str, _Tokens] = {}

    def cut(self, text: str) -> tuple[NDArray[np.int64], list[str]]:
        """The words of a text, and where each begins."""
        import numpy as np

        if self._special and self._special.search(text):
            found = list(self._with_special.finditer(text))
            places = np.array([match.start() for match in found], np.int64)
            return places, [match[0] for match in found]
        kinds = np.frombuffer(_KINDS, np.uint8)
        if text.isascii():
            kind = kinds[np.frombuffer(text.encode(), np.uint8)]
        else:
            codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
            kind = kinds[np.minimum(codes, 128)]
        begins = kind != _SPACE
        begins[1:] &= (kind[1:] == _ALONE) | (kind[:-1] != _INSIDE)
        return np.flatnonzero(begins), _WORD.findall(text)

    def count(self, text: str) -> int:
        """The tokens of a short text."""
        is_special = self._special and self._special.search(text)
        words = (self._with_special if is_special else _WORD).findall(text)
        return sum(map(len, self.tokens(words)))

    def tokens(self, words: list[str]) -> list[_Tokens]:
        """The tokens of each word."""
        known = self._known
        found = {word: known[word] for word in set(words) if word in known}
        if missing := set(words).difference(found):
            fresh = dict(self._tokenized(missing))
            if len(known) > _MOST_REMEMBERED:
                self._known = known = {}  # another thread may be at work with the old ones
            known |= {w: one for w, one in fresh.items() if len(w) <= _LONGEST_REMEMBERED}
            found |= fresh
        return list(map(found.__getitem__, words))

    def _tokenized(self, words: Iterable[str]) -> Iterator[tuple[str, _Tokens]]:
        """Each of some words with its tokens, all in one call of the tokenizer."""
        words = list(words)
        encoding = self._tokenizer.encode(" ".join(words), add_special_tokens=False)
        numbers = [None, *encoding.word_ids]
        opens = [number != before for before, number in pairwise(numbers)]
        starts = [start for start, _ in encoding.offsets]
        first = begin = 0
        for word in words:
            end = begin + len(word)
            last = first
            while last < len(starts) and starts[last] < end:
                last += 1
            yield word, tuple(2 * (starts[i] - begin) + opens[i] for i in range(first, last))
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

"""Where the tokens of a text start, as the embedding model's tokenizer cuts it.

A word's tokens depend on nothing but the word, and most words of a text have been met before: each
is tokenized once and looked up afterwards.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING

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

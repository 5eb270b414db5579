"""The signs of all vectors' dimensions, one bit each: which chunks may be the nearest.

The Hamming distance of two such codes follows the angle between the vectors (Charikar 2002). Closer
to it comes the sum of a query's dimensions in which a code has another sign (Dong, Charikar and Li
2008), also of dimensions in three bits, each again a count of bits (as in RaBitQ, Gao and Long
2024). So the first picks some thousands of all codes, and the second the best of these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kb.errors import DamagedFileError
from kb.store.chunks import ChunkRange
from kb.store.connection import Connection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SLAB_BITS = 10  # 1,024 chunk ids a slab: rebuilding one reads 400 kB
DAMAGED = "vectors in the file are damaged: `kb doctor --fix` makes them anew from the texts"
AT_ONCE = 32_768  # codes: what is made of them stays in the cache, and calls are few
SAMPLE = 16  # in large files every 16th distance tells how far the nearest reach
WEIGHT_BITS = 3  # of a query's dimension; more find no more
FULL_WEIGHT = 2.0  # times the dimensions' root mean square: longer ones count no more than that
SUMMED = 3  # counts of 64 bits that a byte can hold
# Of very many codes the words that a query is strongest in, two thirds of them, choose three times
# as many as are wanted, and all words choose of these: .8 of the time, and hardly less found.
MANY = 32  # times as many as are wanted
STRONG = 2 / 3
BEFORE = 3


class SignCodes(NamedTuple):
    """The codes of some chunks.

    Attributes:
        ids: the chunks, ascending.
        words: shape (64-bit words of a code, chunks): reading one word of all codes after the other
            takes a fifth of the time that one code after the other takes.
    """

    ids: NDArray[np.int64]
    words: NDArray[np.uint64]

    def at(self, places: Any) -> SignCodes:
        """Those at some positions, ascending, or in a slice."""
        return SignCodes(self.ids[places], self.words[:, places])

    def without(self, places: NDArray[np.int64]) -> SignCodes:
        import numpy as np

        stay = np.ones(len(self.ids), dtype=np.bool_)
        stay[places] = False
        return self.at(stay)

    def places_of(self, chunk_ids: Set[int]) -> NDArray[np.int64]:
        """The positions of those chunks that have a code."""
        import numpy as np

        chunks = np.sort(np.fromiter(chunk_ids, np.int64, len(chunk_ids)))
        places = np.searchsorted(self.ids, chunks)
        return places[places < np.searchsorted(self.ids, chunks, "right")]

    def within(self, ranges: Sequence[ChunkRange]) -> SignCodes:
        """Those in ranges of ids that do not overlap."""
        import numpy as np

        slices: list[list[int]] = []
        for first, last in sorted(ranges):
            start, end = np.searchsorted(self.ids, first), np.searchsorted(self.ids, last, "right")
            if slices and slices[-1][1] == start:
                slices[-1][1] = int(end)  # nothing lies between: no copy is made
            else:
                slices.append([int(start), int(end)])
        if len(slices) == 1:
            return self.at(slice(*slices[0]))
        places = [np.arange(start, end) for start, end in slices]
        return self.at(np.concatenate(places) if places else slice(0))

    def nearest(self, vector: NDArray[np.float32], wide: int, few: int, most: int) -> Probable:
        """The chunks whose vectors are probably nearest, the most probable first.

        Args:
            wide: about how many are chosen by Hamming distance.
            few: where there are no more, all are returned as they are.
            most: how many are returned.

        Raises:
            DamagedFileError: the codes are not as wide as the vector.
        """
        import numpy as np

        if len(self.ids) <= few:
            return Probable(self.ids)
        query = _query_code(vector.tobytes())
        if len(query.code) != len(self.words):
            raise DamagedFileError(DAMAGED)
        ids, words = self.ids, [*self.words]
        if len(ids) > wide:
            near = _near(words, query, wide)
            ids, words = ids[near], [word.take(near) for word in words]
        differing = _differing(words, query.code, query.weights)
        best = np.argsort(differing, kind="stable")[:most]  # of equal ones the first
        return Probable(ids[best], differing[best])


class Probable(NamedTuple):
    """Chunks whose vectors may be the nearest, the most probable first.

    `differing`: how much of the query each has with another sign, if needed; it compares between
    files of one model.
    """

    ids: NDArray[np.int64]
    differing: NDArray[np.uint16] | None = None


def _near(words: Sequence[NDArray[np.uint64]], query: QueryCode, wide: int) -> NDArray[np.int64]:
    """Positions of about `wide` codes that differ least, ascending."""
    import numpy as np

    code, count = query.code, len(words[0])
    strong, weak = np.split(query.strongest, [math.ceil(len(words) * STRONG)])
    if count <= MANY * wide or not len(weak):
        return _lowest(_differing(words, code), wide)
    differing = _differing([words[index] for index in strong], code[strong])
    places = _lowest(differing, BEFORE * wide)
    rest = _differing([words[index].take(places) for index in weak], code[weak])
    return places[_lowest(differing[places] + rest, wide)]


def _differing(
    words: Sequence[NDArray[np.uint64]],
    code: NDArray[np.uint64],
    weights: NDArray[np.uint64] | None = None,
) -> NDArray[np.uint16]:
    """How many bits of each code differ, weighed as `QueryCode` says; by default each counts 1.

    All words of a batch in one call where that can be: a call costs what a thousand words cost.
    """
    import numpy as np

    width, count = len(words), len(words[0])
    differing = np.zeros(count, dtype=np.uint16)
    other = np.empty((2, width, min(AT_ONCE, count)), dtype=np.uint64)
    bits = np.empty(other.shape[1:], dtype=np.uint8)
    for start in range(0, count, AT_ONCE):
        sums = differing[start : start + AT_ONCE]
        signs, weighed = other[:, :, : len(sums)]
        counts = bits[:, : len(sums)]
        for word, part, out in zip(words, code, signs, strict=True):
            np.bitwise_xor(word[start : start + AT_ONCE], part, out=out)
        if weights is None:
            _add(sums, np.bitwise_count(signs, out=counts))
            continue
        for weight in weights:
            np.bitwise_and(signs, weight[:, None], out=weighed)
            sums += sums
            _add(sums, np.bitwise_count(weighed, out=counts))
    return differing


def _add(sums: NDArray[np.uint16], counts: NDArray[np.uint8]) -> None:
    """Add the bits of each word, in bytes as long as these hold them: that is faster."""
    for first in range(0, len(counts), SUMMED):
        sums += counts[first : first + SUMMED].sum(axis=0, dtype=counts.dtype)


class QueryCode(NamedTuple):
    """A query's vector.

    Attributes:
        code: its signs.
        weights: how much each dimension counts, shape (bits of a weight, words), the highest first.
        strongest: the words of the code in which it is strongest first.
    """

    code: NDArray[np.uint64]
    weights: NDArray[np.uint64]
    strongest: NDArray[np.int64]


@lru_cache(maxsize=16)
def _query_code(vector: bytes) -> QueryCode:
    """Cached, because several files are asked the same."""
    import numpy as np

    numbers = np.frombuffer(vector, dtype=np.float32)
    padded = np.zeros((-(-len(numbers) // 64), 64), dtype=np.float32)
    padded.reshape(-1)[: len(numbers)] = numbers
    full = max(FULL_WEIGHT * float(np.sqrt(np.mean(numbers**2))), 1e-12)
    most = 2**WEIGHT_BITS - 1
    counted = np.minimum(np.rint(np.abs(padded) * (most / full)), most).astype(np.uint16)
    bits = [counted & 1 << bit for bit in reversed(range(WEIGHT_BITS))]
    return QueryCode(
        sign_codes(padded.reshape(1, -1)).view(np.uint64)[0],
        np.packbits(np.stack(bits) > 0, axis=2).view(np.uint64)[:, :, 0],
        np.argsort(-np.sum(counted**2, axis=1, dtype=np.int64), kind="stable"),
    )


def codes_within(connection: Connection, ranges: Sequence[ChunkRange]) -> SignCodes:
    read: dict[Sequence[ChunkRange], SignCodes] = connection.cached("sign codes")
    for whole, codes in read.items():
        if all(any(a <= first and last <= b for a, b in whole) for first, last in ranges):
            return codes.within(ranges)
    read.clear()  # those read last are kept
    codes = read[tuple(ranges)] = _read(connection, ranges)
    return codes.within(ranges)


def sign_codes(vectors: NDArray[Any]) -> NDArray[np.uint8]:
    """One bit a dimension, set where it is positive, padded to whole 64-bit words."""
    import numpy as np

    padding = -vectors.shape[1] % 64
    return np.packbits(np.pad(vectors > 0, ((0, 0), (0, padding))), axis=1)


def _lowest(numbers: NDArray[np.uint16], count: int) -> NDArray[np.int64]:
    """Positions of about `count` of the least numbers, ascending; the first of equal ones."""
    import numpy as np

    step = SAMPLE if len(numbers) > SAMPLE * count else 1
    up_to = np.cumsum(np.bincount(numbers[::step]))
    border = int(np.searchsorted(up_to, count / step))
    places = np.flatnonzero(numbers <= border)
    equal = np.flatnonzero(numbers[places] == border)
    surplus = min(max(len(places) - count, 0), len(equal))
    return np.delete(places, equal[len(equal) - surplus :])


def _read(connection: Connection, ranges: Sequence[ChunkRange]) -> SignCodes:
    import numpy as np

    slabs = [
        row
        for first, last in sorted(ranges)
        for row in connection.tuples("slabs", first=first, last=last)
    ]
    if not slabs:
        return SignCodes(np.zeros(0, dtype=np.int64), np.zeros((0, 0), dtype=np.uint64))
    total = sum(len(offsets) for _, offsets, _ in slabs) // 2
    width = sum(len(signs) for _, _, signs in slabs) // max(total, 1)
    if width % 8 or any(
        len(offsets) % 2 or len(signs) != len(offsets) // 2 * width for _, offsets, signs in slabs
    ):
        raise DamagedFileError(DAMAGED)
    ids = np.empty(total, dtype=np.int64)
    words = np.empty((width // 8, total), dtype=np.uint64)
    start = 0
    # Slab by slab, which lies in the cache while its words are put in order.
    for slab_id, offsets, signs in slabs:
        end = start + len(offsets) // 2
        ids[start:end] = np.frombuffer(offsets, dtype=np.uint16)
        ids[start:end] += slab_id << SLAB_BITS
        words[:, start:end] = np.frombuffer(signs, dtype=np.uint64).reshape(end - start, -1).T
        start = end
    return SignCodes(ids, words)

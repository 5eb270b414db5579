"""The signs of all vectors' dimensions, one bit each: which chunks may be the nearest.

The Hamming distance of two such codes follows the angle between the vectors. Closer to it comes the
sum of a query's dimensions with the signs of a code (Charikar 2002 has the first, Dong, Charikar
and Li 2008 the second), so the first picks some hundreds of all codes and the second the best of
these. A connection keeps the codes that it read last, as long as nobody changes the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kb.errors import DamagedFileError
from kb.store.connection import Connection
from kb.store.ids import ChunkRange

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SLAB_BITS = 10  # 1,024 chunk ids a slab: rebuilding one reads 400 kB
DAMAGED = "vectors in the file are damaged: `kb doctor --fix` makes them anew from the texts"
KEPT = "sign codes"
AT_ONCE = 65_536  # codes
SAMPLE = 16  # of large files every so manieth distance says up to which the nearest are taken


@dataclass(frozen=True, slots=True)
class SignCodes:
    """The codes of some chunks.

    Attributes:
        ids: the chunks, ascending.
        words: shape (64-bit words of a code, chunks): a scan reads one word of all codes after
            the other, which takes a fifth of the time that one code after the other takes.
    """

    ids: NDArray[np.int64]
    words: NDArray[np.uint64]

    def at(self, places: Any) -> SignCodes:
        """Those at some places, ascending, or in a slice."""
        return SignCodes(self.ids[places], self.words[:, places])

    def without(self, places: NDArray[np.int64]) -> SignCodes:
        """All but those at some places."""
        import numpy as np

        kept = np.ones(len(self.ids), dtype=np.bool_)
        kept[places] = False
        return self.at(kept)

    def places_of(self, chunk_ids: Sequence[int]) -> NDArray[np.int64]:
        """Where those of some chunks are that have a code."""
        import numpy as np

        wanted = np.unique(np.array(chunk_ids, dtype=np.int64))
        places = np.searchsorted(self.ids, wanted)
        places = np.minimum(places, max(len(self.ids) - 1, 0))
        if not len(self.ids):
            return places[:0]
        found: NDArray[np.int64] = places[self.ids[places] == wanted]
        return found

    def within(self, ranges: Sequence[ChunkRange]) -> SignCodes:
        """Those of some ranges of ids, which do not overlap."""
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

    def nearest(
        self, vector: NDArray[np.float32], wide: int, few: int, *, are_compared: bool = False
    ) -> Probable:
        """The chunks whose vectors are probably nearest, in no order.

        Args:
            wide: about how many are chosen by Hamming distance.
            few: how many of these are returned.
            are_compared: they get their products, also where there are no more than `few`.

        Raises:
            DamagedFileError: the codes are not as wide as the vector.
        """
        import numpy as np

        if not len(self.ids) or (len(self.ids) <= few and not are_compared):
            return Probable(self.ids)
        asked, tables = _asked(vector.tobytes())
        if len(asked) != len(self.words):
            raise DamagedFileError(DAMAGED)
        kept = self
        if len(self.ids) > wide:
            kept = self.at(_lowest(_differing(self.words, asked), wide))
        products = _products(kept.words, tables)
        if len(kept.ids) <= few:
            return Probable(kept.ids, products)
        best = np.argpartition(-products, few)[:few]
        return Probable(kept.ids[best], products[best])


@dataclass(frozen=True, slots=True)
class Probable:
    """Chunks whose vectors may be the nearest.

    Attributes:
        products: of their codes with the query, the greater the nearer, where they were needed.
    """

    ids: NDArray[np.int64]
    products: NDArray[np.float32] | None = None


def _differing(words: NDArray[np.uint64], asked: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """The Hamming distance of each code from one, some codes at a time: these stay in the cache."""
    import numpy as np

    differing = np.zeros(words.shape[1], dtype=np.uint16)
    for start in range(0, len(differing), AT_ONCE):
        own = differing[start : start + AT_ONCE]
        for word, one in zip(words, asked, strict=True):
            own += np.bitwise_count(word[start : start + AT_ONCE] ^ one)
    return differing


@lru_cache(maxsize=16)
def _asked(vector: bytes) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
    """The code of a query's vector, and what each byte of a code adds to the product with it.

    Several files are asked the same.
    """
    import numpy as np

    numbers = np.frombuffer(vector, dtype=np.float32)
    code = sign_codes(numbers.reshape(1, -1)).view(np.uint64)[0]
    padded = np.pad(numbers, (0, 64 * len(code) - numbers.size)).reshape(-1, 8)
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    return code, np.einsum("bk,jk->jb", bits.astype(np.float32), padded)


def _products(words: NDArray[np.uint64], tables: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sums of a vector's numbers over the dimensions that each code has set.

    By a table for each byte of a code. As a product of matrices it would start a thread on every
    core, which on a busy machine wait for each other a hundred times as long as this takes.
    """
    import numpy as np

    columns = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), -1, 8)
    found = np.zeros(columns.shape[1], dtype=np.float32)
    for number, table in enumerate(tables):
        found += table.take(columns[number // 8, :, number % 8])
    return found


def codes_within(connection: Connection, ranges: Sequence[ChunkRange]) -> SignCodes:
    """The codes of some ranges of chunks."""
    kept = connection.kept(KEPT)
    if kept is None or not all(_holds(kept[0], one) for one in ranges):
        kept = (tuple(ranges), _read(connection, ranges))
        connection.keep(KEPT, kept)
    codes: SignCodes = kept[1].within(ranges)
    return codes


def _holds(ranges: Sequence[ChunkRange], one: ChunkRange) -> bool:
    return any(first <= one[0] and one[1] <= last for first, last in ranges)


def sign_codes(vectors: NDArray[Any]) -> NDArray[np.uint8]:
    """One bit a dimension, set where it is positive, padded to whole 64-bit words."""
    import numpy as np

    padding = -vectors.shape[1] % 64
    return np.packbits(np.pad(vectors > 0, ((0, 0), (0, padding))), axis=1)


def _lowest(numbers: NDArray[np.uint16], count: int) -> NDArray[np.int64]:
    """Places of about so many of the least numbers, which are small; of equal ones the first."""
    import numpy as np

    step = SAMPLE if len(numbers) > SAMPLE * count else 1
    up_to = np.cumsum(np.bincount(numbers[::step]))
    border = int(np.searchsorted(up_to, count / step))
    below = np.flatnonzero(numbers < border)
    equal = np.flatnonzero(numbers == border)
    return np.concatenate([below, equal[: max(count - len(below), 0)]])


def _read(connection: Connection, ranges: Sequence[ChunkRange]) -> SignCodes:
    import numpy as np

    slabs = [
        row
        for first, last in sorted(ranges)
        for row in connection.tuples("slabs", first=first, last=last)
    ]
    if not slabs:
        return SignCodes(np.zeros(0, dtype=np.int64), np.zeros((0, 0), dtype=np.uint64))
    if any(len(offsets) % 2 for _, offsets, _ in slabs):
        raise DamagedFileError(DAMAGED)
    ids = np.concatenate(
        [
            np.frombuffer(offsets, dtype=np.uint16).astype(np.int64) + (slab_id << SLAB_BITS)
            for slab_id, offsets, _ in slabs
        ]
    )
    codes = np.frombuffer(b"".join(signs for _, _, signs in slabs), dtype=np.uint8)
    if codes.size % len(ids) or codes.size // len(ids) % 8:
        raise DamagedFileError(DAMAGED)
    words = codes.view(np.uint64).reshape(len(ids), -1)
    return SignCodes(ids, np.ascontiguousarray(words.T))

"""Embedding models, the vectors that they made of texts, and the index of these.

The signs of a vector's dimensions, one bit each, say which chunks may be the nearest; int8 vectors
give the exact order: docs/decisions/0002-vectors.md and 0022-search-at-size.md.

The Hamming distance of two such codes follows the angle between the vectors (Charikar 2002). Closer
to it comes the sum of a query's dimensions in which a code has another sign (Dong, Charikar and Li
2008), also of dimensions in three bits, each again a count of bits (as in RaBitQ, Gao and Long
2024). So the first picks some thousands of all codes, and the second the best of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kb.errors import DamagedFileError
from kb.store.connection import Connection, Row
from kb.store.contents import ChunkRange, all_document_ids

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


SLAB_BITS = 10  # 1,024 chunk ids a slab: rebuilding one reads 400 kB
DAMAGED = "vectors in the file are damaged: `kb doctor --fix` makes them anew from the texts"
CODES_AT_ONCE = 32_768  # codes: what is made of them stays in the cache, and calls are few
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
    other = np.empty((2, width, min(CODES_AT_ONCE, count)), dtype=np.uint64)
    bits = np.empty(other.shape[1:], dtype=np.uint8)
    for start in range(0, count, CODES_AT_ONCE):
        sums = differing[start : start + CODES_AT_ONCE]
        signs, weighed = other[:, :, : len(sums)]
        counts = bits[:, : len(sums)]
        for word, part, out in zip(words, code, signs, strict=True):
            np.bitwise_xor(word[start : start + CODES_AT_ONCE], part, out=out)
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


# Codes chosen by Hamming distance for each result, or this share of a large file.
WIDE_PER_RESULT = 60
WIDE_SHARE = 1 / 64
# Vectors compared exactly for each result; more, up to a limit, if they may be among `SOUGHT`.
EXACT_PER_RESULT = 4
MOST_PER_RESULT = 14
SOUGHT = 20
CHANCE = 3.2  # standard deviations
FEWEST_RESULTS = 100
AT_ONCE = 256  # vectors that are read and compared: as numbers they stay in the cache


def query_blob(vector: NDArray[np.float32]) -> bytes:
    """A query's vector in the form of stored ones."""
    from kb.models.embedder import quantize

    return quantize(vector.reshape(1, -1)).tobytes()


def nearest_chunks(
    connection: Connection,
    vector: NDArray[np.float32],
    ranges: Iterable[ChunkRange],
    depth: int,
    *,
    only: Set[int] | None = None,
    without: Set[int] | None = None,
    fewest: int = FEWEST_RESULTS,
) -> list[tuple[int, float]]:
    """Chunk ids with their cosine distance, nearest first; ties by id.

    The first vectors compared tell how far distances lie from what the codes let expect, and so how
    many more may be near.

    Args:
        vector: unit vector, shape (width,).
        depth: how many to return at most.
        only: if given, no other chunk is considered. Filters act before the top is taken, so that a
            small set never comes back empty beside a large one.
        without: chunks that are not considered.
        fewest: results for which vectors are compared, if fewer are asked for.
    """
    import numpy as np

    results = max(depth, fewest)
    probable = probably_nearest(connection, vector, ranges, results, only=only, without=without)
    first = results * EXACT_PER_RESULT
    ids, distances = _compare(connection, vector, probable.ids[:first])
    if probable.differing is not None and len(ids) == first:
        rest = probable.ids[first : _promising(probable.differing, distances)]
        more, farther = _compare(connection, vector, rest)
        ids, distances = np.append(ids, more), np.append(distances, farther)
    best = np.lexsort((ids, distances))[:depth]
    return list(zip(ids[best].tolist(), distances[best].tolist(), strict=True))


def probably_nearest(
    connection: Connection,
    vector: NDArray[np.float32],
    ranges: Iterable[ChunkRange],
    results: int,
    *,
    only: Set[int] | None = None,
    without: Set[int] | None = None,
) -> Probable:
    """The chunks to compare to find so many of the nearest."""
    ranges = tuple(ranges)
    read: dict[Sequence[ChunkRange], SignCodes] = connection.cached("sign codes")
    covering = (
        whole
        for whole in read
        if all(any(a <= first and last <= b for a, b in whole) for first, last in ranges)
    )
    if (whole := next(covering, None)) is None:
        read.clear()  # those read last are kept
        read[whole := ranges] = _read(connection, ranges)
    codes = read[whole].within(ranges)
    if only is not None:
        latest = connection.cached("codes of a filter")
        if latest.get("only") is not only or latest["ranges"] != ranges:
            latest |= {"only": only, "ranges": ranges, "codes": codes.at(codes.places_of(only))}
        codes = latest["codes"]
    if without is not None:
        codes = codes.without(codes.places_of(without))
    wide = max(results * WIDE_PER_RESULT, int(len(codes.ids) * WIDE_SHARE))
    return codes.nearest(vector, wide, results * EXACT_PER_RESULT, results * MOST_PER_RESULT)


def _promising(differing: NDArray[np.uint16], distances: NDArray[np.float32]) -> int:
    """How many chunks may be among the nearest, by a least-squares fit of the first distances."""
    import numpy as np

    codes = differing - np.mean(differing[: len(distances)])
    compared = codes[: len(distances)]
    expected = np.mean(distances)
    slope = np.sum(compared * (distances - expected)) / max(float(np.sum(compared**2)), 1.0)
    deviation = np.sqrt(np.mean((distances - expected - slope * compared) ** 2))
    border = np.partition(distances, SOUGHT)[SOUGHT]
    return int(np.sum(expected + slope * codes - CHANCE * deviation < border))


def chunk_distances(
    connection: Connection, vector: NDArray[np.float32], chunk_ids: Sequence[int]
) -> dict[int, float]:
    """The cosine distance of each chunk that has a vector."""
    import numpy as np

    ids, distances = _compare(connection, vector, np.array(chunk_ids, dtype=np.int64))
    return dict(zip(ids.tolist(), distances.tolist(), strict=True))


def _compare(
    connection: Connection, vector: NDArray[np.float32], chunk_ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Those chunks that have a vector, in order, with their cosine distances."""
    import numpy as np

    query = np.frombuffer(query_blob(vector), dtype=np.int8).astype(np.float32)
    ids = [np.zeros(0, dtype=np.int64)]
    distances = [np.zeros(0, dtype=np.float32)]
    for start in range(0, len(chunk_ids), AT_ONCE):
        batch = chunk_ids[start : start + AT_ONCE].tolist()
        rows = connection.tuples("vectors_of_chunks", chunk_ids=batch)
        if not rows:
            continue
        vectors = _matrix([blob for _, blob in rows]).astype(np.float32)
        if vectors.shape[1] != len(query):
            raise DamagedFileError(DAMAGED)
        ids.append(np.array([chunk_id for chunk_id, _ in rows]))
        distances.append(_distances(vectors, query))
    return np.concatenate(ids), np.concatenate(distances)


def cosine_distance(first: bytes, second: bytes) -> float:
    """The cosine distance of two stored vectors, where sqlite-vec is missing."""
    import numpy as np

    query = _matrix([second])[0].astype(np.float32)
    return float(_distances(_matrix([first]).astype(np.float32), query)[0])


IN_PLACE_OF_EXTENSION: Mapping[str, Any] = {
    "vec_int8": bytes,
    "vec_distance_cosine": cosine_distance,
    "vec_version": lambda: "missing, numpy compares",
}


def _distances(vectors: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cosine distances to the bit as sqlite-vec has them, but faster: 32 bits hold the sums."""
    import numpy as np

    # Not as products of matrices, which would start a thread on every core.
    products = np.vecdot(vectors, query).astype(np.float64)
    lengths = np.sqrt(np.vecdot(vectors, vectors).astype(np.float64))
    length = np.sqrt(float(np.vecdot(query, query)))
    cosines = products / np.maximum(lengths * length, 1e-12)  # of zeros: 0
    distances: NDArray[np.float32] = (1 - cosines).astype(np.float32)
    return distances


def chunk_vectors(connection: Connection, document_id: int) -> dict[int, bytes]:
    return dict(connection.tuples("document_vectors", document_id=document_id))


def rebuild_slabs(connection: Connection, chunk_ids: Iterable[int]) -> None:
    """Bring the slabs of these chunks in line, in the transaction that changed them."""
    import numpy as np

    for slab_id in sorted({chunk_id >> SLAB_BITS for chunk_id in chunk_ids}):
        rows = connection.tuples("slab_vectors", slab_id=slab_id)
        if not rows:
            connection.run("delete_slab", slab_id=slab_id)
            continue
        offsets = np.array([offset for offset, _ in rows], dtype=np.uint16)
        signs = sign_codes(_matrix([blob for _, blob in rows]))
        connection.run(
            "replace_slab", slab_id=slab_id, offsets=offsets.tobytes(), signs=signs.tobytes()
        )


def rebuild_document_vectors(connection: Connection, document_ids: Iterable[int]) -> None:
    """Bring the mean directions of these documents in line with their chunks' vectors.

    A document with one vector needs none of its own. Call it as `rebuild_slabs`.
    """
    from kb.models.embedder import quantize

    for document_id in document_ids:
        blobs = list(chunk_vectors(connection, document_id).values())
        if len(blobs) < 2:
            connection.run("delete_document_vector", document_id=document_id)
        else:
            mean = quantize(mean_vector(blobs).reshape(1, -1))
            connection.run(
                "replace_document_vector", document_id=document_id, vector=mean.tobytes()
            )


def rebuild_all_vectors(connection: Connection) -> None:
    """Bring the whole index in line, after every chunk's vector has changed."""
    connection.run("delete_slabs")
    slab_ids = connection.column("all_slab_ids")
    rebuild_slabs(connection, (slab_id << SLAB_BITS for slab_id in slab_ids))
    rebuild_document_vectors(connection, all_document_ids(connection))


def mean_vector(blobs: Sequence[bytes]) -> NDArray[np.float32]:
    """The centroid of stored vectors, of unit length; shape (width,)."""
    import numpy as np

    vectors = _matrix(blobs)
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    mean = unit.mean(axis=0)
    centroid: NDArray[np.float32] = mean / max(float(np.linalg.norm(mean)), 1e-12)
    return centroid.astype(np.float32)


def _matrix(blobs: Sequence[bytes]) -> NDArray[np.int8]:
    """Stored vectors as rows; DamagedFileError where they are not equally wide."""
    import numpy as np

    if len({len(blob) for blob in blobs}) > 1:
        raise DamagedFileError(DAMAGED)
    return np.frombuffer(b"".join(blobs), dtype=np.int8).reshape(len(blobs), -1)


def current_model(connection: Connection) -> Row | None:
    """The model whose vectors are searched; None while the file has no vector."""
    return connection.once("current model", lambda: connection.row("current_model"))


def find_model_id(connection: Connection, name: str, sha256: str, width: int) -> int | None:
    model_id: int | None = connection.value("find_model", name=name, sha256=sha256, width=width)
    return model_id


def insert_model(
    connection: Connection, name: str, sha256: str, width: int, slope: float, intercept: float
) -> int:
    """Note a model with its newest calibration. Returns its row id."""
    key = {"name": name, "sha256": sha256, "width": width}
    if connection.value("find_model", **key) is None:
        # A deleted model's number is given again: its vectors must not become the new model's.
        connection.run("forget_vectors_without_model")
        connection.run("delete_vectors_without_model")
    connection.run("insert_model", **key, slope=slope, intercept=intercept)
    return connection.count("find_model", **key)


def set_current_model(connection: Connection, model_id: int) -> None:
    """Make a model the current one, if there is none."""
    connection.run("set_current_model", model_id=model_id)


def set_build_of_model(
    connection: Connection, model_id: int, name: str, sha256: str, width: int
) -> None:
    """Note that a model's vectors are of another build, unless that one has a row."""
    connection.run("set_build_of_model", name=name, sha256=sha256, width=width, model_id=model_id)


def switch_model(connection: Connection, model_id: int) -> None:
    """Make another model's vectors the ones in use, in one transaction."""
    use_vectors_of_model(connection, model_id)
    connection.run("unset_current_models")
    set_current_model(connection, model_id)
    connection.run("delete_other_models")
    delete_unused_vectors(connection)
    rebuild_all_vectors(connection)


def vectors_of(connection: Connection, model_id: int, hashes: Sequence[bytes]) -> dict[bytes, int]:
    """The vector ids of texts that the model has already embedded, by hash."""
    written = [value.hex() for value in hashes]
    rows = connection.tuples("vectors_by_hash", model_id=model_id, text_hashes=written)
    return {bytes.fromhex(value): vector_id for value, vector_id in rows}


def insert_vectors(
    connection: Connection, model_id: int, vectors: Iterable[tuple[bytes, bytes]]
) -> None:
    """Store embeddings: pairs of a text's hash and its vector."""
    rows = ({"model_id": model_id, "text_hash": key, "vector": value} for key, value in vectors)
    connection.run_many("insert_vector", rows)


def set_chunk_vectors(connection: Connection, chosen: Iterable[tuple[int, bytes, int]]) -> None:
    """Give chunks (id, text hash, vector id) their vectors, unless the text has changed since."""
    names = ("chunk_id", "text_hash", "vector_id")
    connection.run_many(
        "set_chunk_vector", (dict(zip(names, triple, strict=True)) for triple in chosen)
    )


def use_vectors_of_model(connection: Connection, model_id: int) -> None:
    """Give every chunk the model's vector of its text, or none."""
    connection.run("use_vectors_of_model", model_id=model_id)


def delete_unused_vectors(connection: Connection) -> None:
    """Delete the vectors of the current model that no chunk uses any more."""
    connection.run("delete_unused_vectors")


def vectors_of_document(connection: Connection, document_id: int) -> list[int]:
    return connection.column("vectors_of_document", document_id=document_id)


def delete_if_unused(connection: Connection, vector_ids: Sequence[int]) -> None:
    connection.run("delete_unused_of_vectors", vector_ids=[*vector_ids])


def has_vectors_without_model(connection: Connection) -> bool:
    """Whether somebody deleted the row of the model that made the file's vectors."""
    return bool(connection.value("has_vectors_without_model"))

"""The vector index: `kb/store/sign_codes.py` finds candidates, int8 vectors give the exact order.

See docs/decisions/0002-vectors.md and 0022-search-at-size.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from kb.errors import DamagedFileError
from kb.store.chunks import ChunkRange
from kb.store.connection import Connection
from kb.store.contents import all_document_ids
from kb.store.sign_codes import DAMAGED, SLAB_BITS, Probable, codes_within, sign_codes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
    codes = codes_within(connection, ranges := tuple(ranges))
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

"""The vector index finds what a comparison with every vector finds, filters included."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from numpy.typing import NDArray
from support import another_process

from kb.errors import DamagedFileError
from kb.models.embedder import quantize
from kb.store.connection import Connection
from kb.store.contents import WHOLE_FILE, collection_range
from kb.store.database import Database
from kb.store.opening import connect
from kb.store.vectors import (
    SignCodes,
    chunk_distances,
    mean_vector,
    nearest_chunks,
    probably_nearest,
    query_blob,
    rebuild_all_vectors,
    rebuild_slabs,
    sign_codes,
)

Vectors = NDArray[np.float32]


def unit(vectors: Vectors) -> Vectors:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def random_vectors(count: int, width: int = 64, seed: int = 0) -> Vectors:
    return unit(np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32))


def clustered_vectors(count: int, width: int, seed: int = 0) -> Vectors:
    """Groups of texts on like subjects, as real documents are."""
    dice = np.random.default_rng(seed)
    centres = dice.standard_normal((50, width))
    noise = dice.standard_normal((count, width)) * 0.7
    return unit((centres[dice.integers(50, size=count)] + noise).astype(np.float32))


def store(connection: Connection, collections: dict[int, Vectors]) -> None:
    """A file whose collections hold chunks with these vectors, and nothing else."""
    run = connection.apsw.execute
    run("DELETE FROM collections; DELETE FROM models; DELETE FROM vectors")
    width = next(iter(collections.values())).shape[1]
    run("INSERT INTO models VALUES (1, 'test', ?, '', 1, 0, 1)", (width,))
    for collection_id, vectors in collections.items():
        run(
            "INSERT INTO collections (collection_id, name, kind, created_at) "
            "VALUES (?, ?, 'documents', '')",
            (collection_id, f"c{collection_id}"),
        )
        run(
            "INSERT INTO documents (document_id, collection_id, path, title, summary, "
            "content_hash, character_count, line_count, indexed_at, content) "
            "VALUES (?, ?, 'a', '', '', x'', 0, 0, '', '')",
            (collection_id, collection_id),
        )
        first = collection_id << 32
        for number, vector in enumerate(quantize(vectors)):
            text_hash = f"{collection_id} {number}".encode()
            run(
                "INSERT INTO vectors (model_id, text_hash, vector) VALUES (1, ?, ?)",
                (text_hash, vector.tobytes()),
            )
            run(
                "INSERT INTO chunks VALUES (?, ?, ?, NULL, 1, 1, 0, 0, '', ?, ?)",
                (first + number, collection_id, number, text_hash, connection.last_id()),
            )
    rebuild_all_vectors(connection)


@pytest.fixture
def connection(tmp_path: Path) -> Connection:
    """A file in memory, with a transaction of its own each test."""
    database = Database(":memory:")
    with database.read() as opened:
        return opened


def brute_force(
    vectors: Vectors, query: Vectors, depth: int, keep: Callable[[int], bool] = lambda _: True
) -> list[int]:
    small = quantize(vectors).astype(np.float64)
    wanted = quantize(query.reshape(1, -1)).astype(np.float64)[0]
    cosine = small @ wanted / np.linalg.norm(small, axis=1) / np.linalg.norm(wanted)
    order = sorted(range(len(vectors)), key=lambda i: (round(1 - cosine[i], 6), i))
    return [i for i in order if keep(i)][:depth]


def found(connection: Connection, query: Vectors, depth: int, **options: object) -> list[int]:
    ranges = options.pop("ranges", [WHOLE_FILE])
    rows = nearest_chunks(connection, query, ranges, depth, **options)  # type: ignore[arg-type]
    assert [distance for _, distance in rows] == sorted(distance for _, distance in rows)
    return [chunk_id & 0xFFFFFFFF for chunk_id, _ in rows]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    count=st.integers(1, 60),
    width=st.sampled_from([1, 8, 63, 64, 65, 100, 384]),
    depth=st.integers(1, 70),
    seed=st.integers(0, 1000),
)
def test_a_small_set_is_compared_exactly_at_any_width(
    connection: Connection, count: int, width: int, depth: int, seed: int
) -> None:
    vectors = random_vectors(count, width, seed)
    store(connection, {1: vectors})
    query = random_vectors(1, width, seed + 1)[0]
    assert found(connection, query, depth) == brute_force(vectors, query, depth)


def test_distances_are_true_cosine_distances(connection: Connection) -> None:
    vectors = random_vectors(30, 384)
    store(connection, {1: vectors})
    rows = nearest_chunks(connection, vectors[7], [WHOLE_FILE], 30)
    assert rows[0][0] & 0xFF == 7
    for chunk_id, distance in rows:
        assert distance == pytest.approx(1 - vectors[chunk_id & 0xFF] @ vectors[7], abs=0.003)


def test_distances_are_to_the_bit_those_of_the_database(connection: Connection) -> None:
    vectors = random_vectors(600, 384)
    store(connection, {1: vectors})
    of_database = dict(
        connection.apsw.execute(
            "SELECT chunk_id, vec_distance_cosine(vec_int8(vector), vec_int8(?)) "
            "FROM chunks JOIN vectors USING (vector_id)",
            (query_blob(vectors[3]),),
        ).fetchall()
    )
    assert chunk_distances(connection, vectors[3], list(of_database)) == of_database


def test_vectors_of_another_width_are_reported_as_damage(connection: Connection) -> None:
    vectors = random_vectors(5)
    store(connection, {1: vectors})
    for damaged in ("= 1", "> 0"):  # one of them, all of them
        connection.apsw.execute(f"UPDATE vectors SET vector = x'0102' WHERE vector_id {damaged}")
        with pytest.raises(DamagedFileError):
            nearest_chunks(connection, vectors[0], [WHOLE_FILE], 5)


def test_where_many_lie_close_together_more_of_them_are_compared(connection: Connection) -> None:
    [centre, aside] = random_vectors(2, 384)
    vectors = unit(centre + 0.4 * random_vectors(1500, 384, seed=3))
    query = unit((centre + aside)[None])[0]
    store(connection, {1: vectors})
    nearest = brute_force(vectors, query, 10)
    probable = probably_nearest(connection, query, [WHOLE_FILE], 10).ids & 0xFFFFFFFF
    assert not {*nearest} <= {*probable[:400].tolist()}
    assert found(connection, query, 10) == nearest


@pytest.mark.slow
def test_a_large_set_is_searched_nearly_exactly(connection: Connection) -> None:
    vectors = clustered_vectors(5000, 384)
    store(connection, {1: vectors})
    hits = 0
    for query in clustered_vectors(40, 384)[:40]:
        hits += len(set(found(connection, query, 10)) & set(brute_force(vectors, query, 10)))
    assert hits / 400 >= 0.97


def codes_of(vectors: Vectors) -> SignCodes:
    words = sign_codes(vectors).view(np.uint64).T
    return SignCodes(np.arange(len(vectors)), np.ascontiguousarray(words))


@pytest.mark.parametrize("width", [1, 63, 100, 384, 1024])
def test_the_finer_choice_is_by_the_querys_dimensions_that_have_another_sign(width: int) -> None:
    vectors = random_vectors(500, width)
    [query] = random_vectors(1, width, seed=9)
    weights = np.minimum(np.rint(np.abs(query) * 3.5 / np.sqrt(np.mean(query**2))), 7)
    differing = ((vectors > 0) != (query > 0)) @ weights
    codes = codes_of(vectors)
    for some in (codes, codes.at(slice(0, 400)), codes.at(np.arange(0, 500, 3))):
        found = some.nearest(query, wide=500, few=20, most=20)
        wanted = sorted(some.ids.tolist(), key=lambda one: (differing[one], one))[:20]
        assert found.ids.tolist() == wanted
        assert found.differing is not None
        assert found.differing.tolist() == differing[wanted].tolist()


def test_the_wide_choice_takes_the_least_that_differ_of_more_codes_than_are_scanned_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kb.store.vectors.CODES_AT_ONCE", 100)
    vectors = random_vectors(950, 384)
    [query] = random_vectors(1, 384, seed=9)
    vectors[::3] = -query  # more bits than a byte counts
    differing = ((vectors > 0) != (query > 0)).sum(axis=1)
    chosen = codes_of(vectors).nearest(query, wide=100, few=20, most=100).ids
    assert sorted(differing[chosen].tolist()) == np.sort(differing)[:100].tolist()


def test_of_very_many_codes_those_near_in_a_querys_strongest_words_are_looked_at() -> None:
    dice = np.random.default_rng(1)
    query = dice.choice([-1, 1], 384).astype(np.float32)
    query[:128] *= 0.1
    vectors = random_vectors(5000, 384)
    near, others = np.arange(7, 5000, 250), np.arange(8, 5000, 25)
    vectors[near] = query * dice.choice([-1, 1], (len(near), 384), p=[0.33, 0.67])

    def chosen() -> list[int]:
        return sorted(codes_of(vectors).nearest(query, wide=100, few=20, most=100).ids.tolist())

    vectors[near, :128] = random_vectors(len(near), 128, seed=4)  # which tell nothing
    assert {*near.tolist()} <= {*chosen()}
    vectors[near, :128] = query[:128]
    vectors[others, :128] = -query[:128]
    vectors[others, 128:] = query[128:] * dice.choice([-1, 1], (len(others), 256), p=[0.3, 0.7])
    assert {*near.tolist()} <= {*chosen()}  # all words together decide


def test_of_equal_codes_no_more_are_chosen_than_were_asked_for() -> None:
    vectors = np.repeat(random_vectors(1), 3000, axis=0)
    chosen = codes_of(vectors).nearest(vectors[0], wide=50, few=20, most=1000).ids
    assert chosen.tolist() == list(range(50))


def test_a_small_collection_beside_a_large_one_is_always_found(connection: Connection) -> None:
    query = random_vectors(1)[0]
    near = unit(query + 0.05 * random_vectors(5000, seed=3))
    store(connection, {1: near, 2: -near[:3], 3: near[:3]})
    assert found(connection, query, 10, ranges=[collection_range(2)]) == brute_force(
        -near[:3], query, 10
    )
    both = [collection_range(2), collection_range(3)]
    rows = nearest_chunks(connection, query, both, 10)
    assert {chunk_id >> 32 for chunk_id, _ in rows} == {2, 3}
    assert len(rows) == 6


def test_filters_act_before_the_nearest_are_taken(connection: Connection) -> None:
    vectors = clustered_vectors(5000, 64)
    store(connection, {1: vectors})
    first = 1 << 32
    farthest = brute_force(vectors, -vectors[0], 3)
    only = [first + i for i in farthest]
    assert sorted(found(connection, vectors[0], 10, only=only)) == sorted(farthest)
    assert found(connection, vectors[0], 10, only=[]) == []
    without = set(brute_force(vectors, vectors[0], 4900))
    rest = found(connection, vectors[0], 10, without=[first + i for i in without])
    assert rest == brute_force(vectors, vectors[0], 10, lambda i: i not in without)
    assert found(connection, vectors[0], 9, without=[first + i for i in range(5000)]) == []


def test_equal_distances_are_ordered_by_id(connection: Connection) -> None:
    vectors = np.repeat(random_vectors(1), 40, axis=0)
    store(connection, {1: vectors})
    assert found(connection, vectors[0], 40) == list(range(40))


def test_an_empty_file_or_range_finds_nothing(connection: Connection) -> None:
    query = random_vectors(1)[0]
    assert found(connection, query, 10) == []
    store(connection, {1: random_vectors(3)})
    assert found(connection, query, 10, ranges=[collection_range(2)]) == []
    assert found(connection, query, 10, ranges=[]) == []


def test_vectors_of_zeros_break_nothing(connection: Connection) -> None:
    vectors = random_vectors(5)
    vectors[2] = 0
    store(connection, {1: vectors})
    assert sorted(found(connection, vectors[0], 10)) == [0, 1, 2, 3, 4]
    assert len(found(connection, vectors[2], 10)) == 5
    assert np.isfinite(mean_vector([quantize(vectors[2:3]).tobytes()])).all()


def test_chunks_without_a_vector_are_not_in_the_index(connection: Connection) -> None:
    vectors = random_vectors(5)
    store(connection, {1: vectors})
    connection.apsw.execute("UPDATE chunks SET vector_id = NULL WHERE position > 1")
    rebuild_slabs(connection, [1 << 32])
    assert sorted(found(connection, vectors[4], 10)) == [0, 1]
    connection.apsw.execute("UPDATE chunks SET vector_id = NULL")
    rebuild_slabs(connection, [1 << 32])
    assert connection.apsw.execute("SELECT count(*) FROM vector_slabs").get == 0


def test_the_centroid_has_unit_length_and_lies_between() -> None:
    vectors = random_vectors(2)
    centroid = mean_vector([quantize(vectors[i : i + 1]).tobytes() for i in range(2)])
    assert centroid @ centroid == pytest.approx(1, abs=1e-5)
    assert centroid @ vectors[0] == pytest.approx(float(centroid @ vectors[1]), abs=0.01)


def test_codes_are_read_anew_after_a_change_by_anybody(tmp_path: Path) -> None:
    vectors = random_vectors(30, 384)
    path = tmp_path / "kb.db"
    with Database(path) as database, another_process(), Database(path) as other:
        for count, writer in ((10, database), (20, other), (30, database)):
            with writer.write() as connection:
                store(connection, {1: vectors[:count]})
            for _ in range(2):  # the second time from memory
                with database.read() as connection:
                    assert len(found(connection, vectors[0], 100)) == count


def test_codes_in_memory_serve_a_part_of_what_they_were_read_for(connection: Connection) -> None:
    vectors = random_vectors(30, 384)
    store(connection, {number: vectors[10 * number - 10 : 10 * number] for number in (1, 2, 3)})
    everywhere = [collection_range(number) for number in (1, 2, 3)]
    assert len(found(connection, vectors[0], 100, ranges=everywhere)) == 30
    for parts in ((2,), (1, 3), (3, 2), (1, 2, 3)):
        ranges = [collection_range(number) for number in parts]
        rows = nearest_chunks(connection, vectors[0], ranges, 100)
        assert {chunk_id >> 32 for chunk_id, _ in rows} == set(parts)
        assert len(rows) == 10 * len(parts)


def test_without_the_extension_distances_are_the_same_to_the_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on Windows on ARM, for which there is no sqlite-vec."""
    blobs = [query_blob(vector) for vector in random_vectors(60, width=384)]
    question = "SELECT vec_distance_cosine(vec_int8(?), vec_int8(?))"

    def distances(connection: apsw.Connection) -> list[float]:
        pairs = itertools.pairwise(blobs)
        return [connection.execute(question, pair).get for pair in pairs]

    with connect(Path(), in_memory=True) as connection:
        expected = distances(connection)
    monkeypatch.setitem(sys.modules, "sqlite_vec", None)
    with connect(Path(), in_memory=True) as connection:
        assert "missing" in connection.execute("SELECT vec_version()").get
        assert distances(connection) == expected

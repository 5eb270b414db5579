"""The vectors of queries by each file's model, and what to tell where there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kb.errors import EmbeddingError
from kb.model_in_use import ModelInUse
from kb.search.files import SearchedFile, Together
from kb.search.query import Query
from kb.store.chunks import count_with_vector, has_waiting
from kb.store.connection import Connection, Row
from kb.store.ids import WHOLE_FILE, ChunkRange
from kb.text.counted import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WORDS_ALONE = "There are no embeddings yet: judged by words alone until `kb sync` has made some."


def vectors_for(
    together: Together,
    corrected: Mapping[SearchedFile, Sequence[tuple[Query, str]]],
    models: Mapping[SearchedFile, Row | None],
    by_words: Sequence[bool],
    hybrid: bool,
) -> tuple[dict[SearchedFile, list[NDArray[np.float32] | None]], list[str]]:
    """The vectors of the queries by each file's model, and what kept some from having any.

    Outside of any read: a model takes a second to load.

    Args:
        models: each file's `current_model`.
    """
    vectors: dict[SearchedFile, list[NDArray[np.float32] | None]] = {}
    problems: list[str] = []
    for file in [*together.files]:
        try:
            queries = [query for query, _ in corrected[file]]
            vectors[file], problem = _vectors_of(file.model, models[file], queries, by_words)
            if not hybrid and any(vector is None for vector in vectors[file]):
                raise EmbeddingError(
                    problem or "the file has no embeddings yet: run `kb sync`, or set hybridSearch"
                )
        except EmbeddingError as error:
            together.leave_out(file, error)
        else:
            problems.append(problem)
    return vectors, list(filter(None, problems))


def _vectors_of(
    model: ModelInUse, current: Row | None, queries: Sequence[Query], by_words: Sequence[bool]
) -> tuple[list[NDArray[np.float32] | None], str]:
    """The vector of each query that is not judged by its words alone, and what went wrong."""
    if all(by_words):
        return [None] * len(queries), ""
    texts = [
        query.words_to_embed for query, alone in zip(queries, by_words, strict=True) if not alone
    ]
    vectors, problem = model.try_embed_queries(texts, current)
    left = iter(vectors)
    return [None if alone else next(left) for alone in by_words], problem


def some_wait(together: Together, searched: Mapping[SearchedFile, set[ChunkRange]]) -> str:
    """What to say while some of the passages that were searched have no vector yet."""
    places = {
        file: {WHOLE_FILE} if WHOLE_FILE in ranges else ranges for file, ranges in searched.items()
    }

    def waits(file: SearchedFile, connection: Connection) -> bool:
        return any(has_waiting(connection, place) for place in places.get(file, ()))

    def count(file: SearchedFile, connection: Connection) -> list[tuple[int, int]]:
        return [count_with_vector(connection, place) for place in places.get(file, ())]

    if not any(together.each(waits).values()):
        return ""
    counts = [one for found in together.each(count).values() for one in found]
    total, embedded = (sum(numbers) for numbers in zip(*counts, strict=True))
    return (
        f"{embedded:,} of {counted(total, 'passage has', 'passages have')} vectors yet: the "
        "others are found by words alone until `kb sync` has made theirs."
    )

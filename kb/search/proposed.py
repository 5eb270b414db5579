"""The passages that the lists propose, by words and by meaning, before anything else is asked.

Of several files the lists are put together first, so that all of them have no more candidates than
one file of the same passages would have: whatever is known of a candidate costs its look-up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kb.models.embedder import BUNDLED_CALIBRATION, Calibration
from kb.search.keywords import WordLists, word_lists
from kb.search.operators import Filters, chunk_filters
from kb.search.query import Query
from kb.store.connection import Connection
from kb.store.ids import ChunkRange
from kb.store.vectors import nearest_chunks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FIRST_OF_FILE = 10  # that stay, however good those of other files are


@dataclass(frozen=True, slots=True)
class Proposed:
    """What one file's lists propose.

    Attributes:
        nearest: chunk ids with their distance, nearest first.
        words: what the keyword index says; None: meaning alone is asked for, or nothing.
        best: the first of the keyword list, which become candidates.
        filters: what the operators let pass.
    """

    calibration: Calibration
    nearest: Sequence[tuple[int, float]] = ()
    words: WordLists | None = None
    best: Sequence[int] = ()
    filters: Filters = (None, None)


def propose(
    connection: Connection,
    query: Query,
    vector: NDArray[np.float32] | None,
    ranges: Sequence[ChunkRange],
    depth: int,
    *,
    use_keywords: bool = True,
    calibration: Calibration | None = None,
    filters: Filters | None = None,
    of_several: bool = False,
) -> Proposed:
    """What one file's lists propose; arguments as those of `kb.search.hybrid.search`.

    Args:
        of_several: the file gives its share of `depth` passages from several files.
    """
    calibration = calibration or BUNDLED_CALIBRATION
    if query.asks_for_nothing:
        return Proposed(calibration)  # an empty text is near to nothing in particular
    only, without = filters = filters or chunk_filters(connection, query, ranges)
    if only is not None and not only:
        return Proposed(calibration)
    nearest: list[tuple[int, float]] = []
    if vector is not None and not (use_keywords and query.is_exact):
        nearest = nearest_chunks(
            connection,
            vector,
            ranges,
            depth,
            only=None if only is None else sorted(only),
            without=None if without is None else sorted(without),
            of_several=of_several,
        )
    if not use_keywords:
        return Proposed(calibration, nearest)
    words = word_lists(connection, query, ranges, depth, only, without)
    return Proposed(calibration, nearest, words, list(words.chunks)[:depth], filters)


def best_together(proposed: Sequence[Proposed], depth: int) -> list[Proposed]:
    """What some files propose, with the best `depth` of all in each list.

    Scores of words are each file's own, so that they say roughly which are the best.
    """
    near = [
        [one.calibration.standard(1 - distance) for _, distance in one.nearest] for one in proposed
    ]
    by_words = [
        [one.words.chunks[chunk_id] for chunk_id in one.best] if one.words else []
        for one in proposed
    ]
    kept_near, kept_words = _kept(near, depth), _kept(by_words, depth)
    return [
        replace(one, nearest=one.nearest[:nearest], best=one.best[:words])
        for one, nearest, words in zip(proposed, kept_near, kept_words, strict=True)
    ]


def _kept(lists: Sequence[Sequence[float]], depth: int) -> list[int]:
    """How many of each list, best first, are among the best of all or its own first ones."""
    merits = sorted((merit for one in lists for merit in one), reverse=True)
    least = merits[depth - 1] if len(merits) >= depth else -math.inf
    return [
        max(sum(merit >= least for merit in one), min(len(one), FIRST_OF_FILE)) for one in lists
    ]

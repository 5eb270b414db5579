"""The passages that the lists propose, by words and by meaning, before anything else is asked.

Of several files the lists are put together first, so that all of them have no more candidates than
one file of the same passages would have: whatever is known of a candidate costs its look-up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kb.models.embedder import BUNDLED_CALIBRATION, Calibration
from kb.search.keywords import WordLists, word_lists
from kb.search.operators import Filters, chunk_filters
from kb.search.query import Query
from kb.store.connection import Connection
from kb.store.ids import ChunkRange
from kb.store.sign_codes import Probable
from kb.store.vectors import EXACT_PER_RESULT, FEWEST_RESULTS, nearest_probable, probably_nearest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEPTH = 100  # passages of each list that become candidates
FIRST_OF_FILE = 10  # that stay, however good those of other files are


class Proposed(NamedTuple):
    """What one file's lists propose.

    Attributes:
        nearest: chunk ids with their distance, nearest first.
        probable: of which these are, where the file is one of several.
        words: what the keyword index says; None: meaning alone is asked for, or nothing.
        best: the first of the keyword list, which become candidates.
        filters: what the operators let pass.
    """

    calibration: Calibration
    nearest: Sequence[tuple[int, float]] = ()
    probable: Probable | None = None
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
    share: int = 0,
) -> Proposed:
    """What one file's lists propose; arguments as those of `kb.search.hybrid.search`.

    Args:
        share: of one of several files: how many of `depth` it may propose by words. Which of them
            are the nearest is left to `probable_together`.
    """
    calibration = calibration or BUNDLED_CALIBRATION
    if query.asks_for_nothing:
        return Proposed(calibration)  # an empty text is near to nothing in particular
    only, without = filters = filters or chunk_filters(connection, query, ranges)
    if only is not None and not only:
        return Proposed(calibration)
    nearest: list[tuple[int, float]] = []
    probable = None
    if vector is not None and not (use_keywords and query.is_exact):
        probable = probably_nearest(
            connection,
            vector,
            ranges,
            depth,
            only=None if only is None else sorted(only),
            without=None if without is None else sorted(without),
            are_compared=bool(share),
        )
        if not share:
            nearest = nearest_probable(connection, vector, probable, depth)
    if not use_keywords:
        return Proposed(calibration, nearest, probable)
    words = word_lists(connection, query, ranges, share or depth, only, without)
    best = list(words.chunks)[: share or depth]
    return Proposed(calibration, nearest, probable, words, best, filters)


def probable_together(
    proposed: Sequence[Proposed], models: Sequence[object], depth: int
) -> list[list[int]]:
    """The chunks of some files whose distances have to be known to find the nearest `depth` of all.

    Args:
        models: of each file. The codes of one are compared with each other, so that all files have
            no more than one file of the same passages would have.
    """
    import numpy as np

    few = max(depth, FEWEST_RESULTS) * EXACT_PER_RESULT
    most: dict[object, float] = {}
    for model in set(models):
        differing = [
            one.probable.differing
            for one, own in zip(proposed, models, strict=True)
            if own == model and one.probable is not None and one.probable.differing is not None
        ]
        room = min(few, 2 * few * len(differing) // len(proposed))
        every = np.concatenate(differing) if differing else np.zeros(0)
        most[model] = np.partition(every, room - 1)[room - 1] if len(every) > room else math.inf
    chosen: list[list[int]] = []
    for one, model in zip(proposed, models, strict=True):
        if one.probable is None or one.probable.differing is None:
            chosen.append([])
            continue
        among = int((one.probable.differing <= most[model]).sum())
        kept = max(among, FIRST_OF_FILE * EXACT_PER_RESULT)
        chosen.append(one.probable.ids[:kept].tolist())
    return chosen


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
    kept_near, kept_words = kept_together(near, depth), kept_together(by_words, depth)
    return [
        one._replace(nearest=one.nearest[:nearest], best=one.best[:words])
        for one, nearest, words in zip(proposed, kept_near, kept_words, strict=True)
    ]


def kept_together(lists: Sequence[Sequence[float]], depth: int) -> list[int]:
    """How many of each list are among the best `depth` of all, or are its own first ones.

    Args:
        lists: how good things are, the best first.
    """
    merits = [(merit, -number) for number, one in enumerate(lists) for merit in one]
    kept = Counter(-number for _, number in sorted(merits, reverse=True)[:depth])
    return [max(kept[number], FIRST_OF_FILE) for number in range(len(lists))]

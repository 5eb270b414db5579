"""What is read of the passages that the lists propose, and whose documents promise most."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kb.search.proposed import DEPTH, Proposed, kept_together
from kb.search.query import Query
from kb.store.citation_keys import page_key
from kb.store.connection import Connection
from kb.store.ids import ChunkRange
from kb.store.vectors import query_blob

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Of candidates by words and by meaning those whose documents are looked at as a whole.
PROMISING = 40
LONGEST_PATH = 300  # characters
MOST_NAMED = 20  # documents of whose path a query is the end


class Candidates(NamedTuple):
    """The passages that a file's lists propose.

    Attributes:
        rows: of the statement `candidates`.
        named: first chunks of the documents whose path is asked for.
    """

    proposed: Proposed
    rows: Sequence[tuple[Any, ...]] = ()
    named: Sequence[int] = ()


def read_candidates(
    connection: Connection,
    query: Query,
    vector: NDArray[np.float32] | None,
    proposed: Proposed,
    ranges: Sequence[ChunkRange],
) -> Candidates:
    """The passages that a file's lists propose, with what stands in rows of theirs."""
    words = proposed.words
    if words is None:
        return Candidates(proposed)
    only, without = proposed.filters
    ids = dict.fromkeys(
        [*words.literal, *proposed.best, *(chunk_id for chunk_id, _ in proposed.nearest)]
    )
    if query.must and only is not None and len(ids) < DEPTH:
        # What the operators let pass is found, even where no single word of it ranks.
        ids |= dict.fromkeys(sorted(only.difference(ids))[:DEPTH])
    named = _named(connection, query, ranges, only, without)
    ids |= dict.fromkeys(named)
    blob = None if vector is None else query_blob(vector)
    rows = connection.tuples("candidates", query=blob, chunk_ids=json.dumps(list(ids)))
    return Candidates(proposed, rows, named)


def promising_together(candidates: Sequence[Candidates]) -> list[set[int]]:
    """The documents of each file's candidates that are among the best by words or the nearest.

    Of several files these are the best of all, and each file's own first ones.
    """
    promising: list[set[int]] = [set() for _ in candidates]
    for merit in (_merit_of_words, _merit_of_meaning):
        ordered = [
            sorted(
                ((value, row[1]) for row in one.rows if (value := merit(one, row)) is not None),
                key=lambda pair: -pair[0],
            )
            for one in candidates
        ]
        kept = kept_together([[value for value, _ in own] for own in ordered], PROMISING)
        for documents, own, most in zip(promising, ordered, kept, strict=True):
            documents.update(document_id for _, document_id in own[:most])
    return promising


def _merit_of_words(one: Candidates, row: tuple[Any, ...]) -> float | None:
    assert one.proposed.words is not None
    return one.proposed.words.chunks.get(row[0], 0.0)


def _merit_of_meaning(one: Candidates, row: tuple[Any, ...]) -> float | None:
    """How near a passage and its document are on average, as the packaged model counts."""
    if row[2] is None:
        return None
    return one.proposed.calibration.standard(1 - (row[2] + row[3]) / 2)


def _named(
    connection: Connection,
    query: Query,
    ranges: Sequence[ChunkRange],
    only: set[int] | None,
    without: set[int] | None,
) -> list[int]:
    """The first passages of the documents whose path, or the end of it, is the query."""
    path = query.text.strip()
    if query.has_operators or len(path) > LONGEST_PATH or not {".", "/"} & {*path}:
        return []
    return [
        row[0]
        for first, last in ranges
        for row in connection.tuples(
            "first_chunks_named", key=page_key(path), first=first, last=last, limit=MOST_NAMED
        )
        if (only is None or row[0] in only) and row[0] not in (without or ())
    ]

"""What is near to the best passages is near to the query as well (Rocchio 1971).

The vectors of the passages that rank first are added to the query's, and the nearness of every
candidate is that to the sum:

    q' = q + 0.2 v,  v the sum of the three best passages' vectors, divided by three

All follows from cosines, so that those of other models are first put on the packaged one's scale.
Chosen and measured in docs/decisions/0023-feedback-and-common-words.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import nlargest

from kb.search.ranking import Evidence, support

BEST = 3  # passages that are added; two or four gain less
SHARE = 0.2  # of their mean; with 0.25 SciFact loses
_COSINE = Evidence._fields.index("cosine")


def fed_back(
    candidates: Sequence[Evidence],
    vectors: Sequence[bytes],
    readable: float,
    standard: Callable[[float], float],
) -> list[Evidence]:
    """The candidates with their cosines to the query and the best of them, in their order.

    Args:
        vectors: of each candidate, as they are stored (int8); all of one model.
        readable: the share of the query that the model can read.
        standard: makes a cosine of the model one of the packaged English one.
    """
    places = [place for place, one in enumerate(candidates) if one.cosine is not None]
    known = [candidates[place] for place in places]
    if not (readable and known):
        return [*candidates]
    import numpy as np

    stored = b"".join([vectors[place] for place in places])
    matrix = np.frombuffer(stored, dtype=np.int8).reshape(len(known), -1).astype(np.float32)
    matrix /= np.maximum(np.sqrt(np.einsum("ij,ij->i", matrix, matrix)), 1.0)[:, np.newaxis]
    supports = [support(one, readable) for one in known]
    best = nlargest(BEST, range(len(known)), key=supports.__getitem__)
    # Fewer than three pull less: a passage alone is no evidence for itself.
    weight = len(best) / BEST
    near = [weight * standard(mean) for mean in (matrix @ matrix[best].mean(axis=0)).tolist()]
    of_query = weight * sum(known[place].cosine or 0.0 for place in best) / len(best)
    of_each_other = weight * sum(near[place] for place in best) / len(best)
    length = max(1 + 2 * SHARE * of_query + SHARE**2 * of_each_other, 1e-6) ** 0.5
    nearness = iter(near)
    return [
        one
        if one.cosine is None
        else Evidence._make(
            (*one[:_COSINE], (one.cosine + SHARE * next(nearness)) / length, *one[_COSINE + 1 :])
        )
        for one in candidates
    ]

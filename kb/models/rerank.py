"""A finer order for the best candidates, on request.

Late interaction (Khattab and Zaharia 2020, ColBERT), with the token vectors of the embedding
model that is installed anyway: each token of the query takes its greatest cosine over the
passage's tokens, and a passage's score is the mean of these. A fastembed cross-encoder takes its
place where the user names one. Gains and cost: docs/decisions/0003-ranking.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kb.models.embedder import Embedder, Floats, available_cores

CANDIDATES = 20
LATE_INTERACTION_WEIGHT = 0.3  # 0.5 lost on three of seven judged collections


class TokenEmbedder(Embedder, Protocol):
    def token_vectors(self, texts: Sequence[str]) -> list[Floats]:
        """For each text the unit vectors of its tokens: shape (tokens, width)."""


class Reranker(Protocol):
    """Anything that scores how well passages answer a query."""

    weight: float  # share of its scores in the new order; the rest keeps the old one

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """One score a passage; greater is better."""


class LateInteraction:
    """Greatest cosine over the passage for each query token, averaged."""

    weight = LATE_INTERACTION_WEIGHT

    def __init__(self, embedder: TokenEmbedder) -> None:
        self._embedder = embedder

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        terms = self._embedder.token_vectors([query])[0]
        # One passage a batch: padding to the longest would cost more than it saves.
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(available_cores()) as pool:
            vectors = pool.map(lambda text: self._embedder.token_vectors([text])[0], passages)
            return [float((terms @ tokens.T).max(axis=1).mean()) for tokens in vectors]


def blend(old: Sequence[float], new: Sequence[float], weight: float) -> list[int]:
    """Positions in their new order: both scores are spread over 0 to 1, then weighted."""
    scores = [0.0] * len(old)
    for part, share in ((old, 1 - weight), (new, weight)):
        low, high = min(part, default=0.0), max(part, default=0.0)
        for at, score in enumerate(part if high > low else ()):
            scores[at] += share * ((score - low) / (high - low))
    return sorted(range(len(scores)), key=lambda position: (-scores[position], position))

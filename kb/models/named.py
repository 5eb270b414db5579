"""Models that fastembed names, which are not packaged: on this machine, or to be downloaded.

`import fastembed` takes half a second, so only what runs one of its models imports it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kb.errors import EmbeddingError
from kb.models.embedder import BUNDLED_CALIBRATION, CALIBRATIONS, PACKAGED_MODELS, unit_vectors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A model runs one text at a time: nothing is padded, and a core's cache holds one text's numbers.
TEXTS_A_RUN = 1


class FastembedEmbedder:
    """A model run by fastembed, loaded at the first text.

    Args:
        name: one that fastembed lists.
        threads: onnxruntime's; more than one was slower on a busy machine.
        allow_download: let fastembed fetch a model that is not in its cache.
    """

    def __init__(self, name: str, *, threads: int = 1, allow_download: bool = False) -> None:
        self.name = name
        self.width = 384  # until it is loaded
        self.sha256 = ""
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


def _fastembed() -> Any:
    try:
        from fastembed import TextEmbedding
        from loguru import logger
    except ImportError as error:
        raise EmbeddingError(f"fastembed cannot be loaded: {error}") from error
    logger.disable("fastembed")  # our own error says what failed, once
    return TextEmbedding

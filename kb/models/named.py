"""Models that fastembed names, which are not packaged: on this machine, or to be downloaded.

`import fastembed` takes half a second, so only what runs one of its models imports it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from kb.errors import EmbeddingError
from kb.models.embedder import (
    BUNDLED_CALIBRATION,
    CALIBRATIONS,
    PACKAGED_MODELS,
    Floats,
    unit_vectors,
)

MAX_BATCH = 1  # texts: nothing is padded, and a core's cache holds one text's numbers


class FastembedEmbedder:
    """A model that fastembed lists, run by it and loaded at the first text.

    Args:
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
        """Load the model now, not at the first text. Raises EmbeddingError if it cannot be had."""
        with self._lock:
            if self._model is None:
                self._model = self._load_named()
                self.width = int(self._model.embedding_size)

    def embed(self, texts: Sequence[str]) -> Floats:
        import numpy as np

        if not texts:
            return np.zeros((0, self.width), dtype=np.float32)
        with self._running():
            vectors = [*self._model.embed([*texts], batch_size=MAX_BATCH)]
        return unit_vectors(np.array(vectors, dtype=np.float32))

    def embed_queries(self, texts: Sequence[str]) -> Floats:
        return self.embed(texts)

    def token_vectors(self, texts: Sequence[str]) -> list[Floats]:
        """As `PackagedEmbedder.token_vectors`; [CLS] and [SEP] are left out."""
        import numpy as np

        with self._running():
            output = self._model.model.onnx_embed([*texts])
        vectors: list[Floats] = []
        for rows, mask in zip(output.model_output, output.attention_mask, strict=True):
            tokens = rows[: int(mask.sum())][1:-1]
            if not len(tokens):
                tokens = np.zeros((1, rows.shape[-1]), dtype=np.float32)
            vectors.append(unit_vectors(tokens))
        return vectors

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        self.load()
        try:
            yield
        except Exception as error:
            raise EmbeddingError(f"the model {self.name} failed: {error}") from error

    def _load_named(self) -> Any:
        try:
            from fastembed import TextEmbedding
            from loguru import logger
        except ImportError as error:
            raise EmbeddingError(f"fastembed cannot be loaded: {error}") from error
        logger.disable("fastembed")  # our own error says what failed, once
        supported = [model["model"] for model in TextEmbedding.list_supported_models()]
        if self.name not in supported:
            from kb.text.nearest import nearest

            raise EmbeddingError(
                f"fastembed knows no model {self.name}",
                suggestions=nearest(self.name, [*supported, *PACKAGED_MODELS]),
            )
        if not self._allow_download:
            # Without it a missing model takes 41 s of retries to fail.
            os.environ["HF_HUB_OFFLINE"] = "1"
        try:
            return TextEmbedding(
                self.name, threads=self._threads, local_files_only=not self._allow_download
            )
        except Exception as error:
            hint = "" if self._allow_download else "; allow its download with --download"
            raise EmbeddingError(
                f"the model {self.name} is not on this machine{hint}", details=str(error)
            ) from error


class CrossEncoder:
    """A fastembed cross-encoder on this machine, or to be downloaded."""

    weight = 1.0

    def __init__(self, name: str, *, allow_download: bool = False) -> None:
        self.name = name
        self._allow_download = allow_download
        self._model: Any = None

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        if self._model is None:
            self._model = self._load()
        return [float(score) for score in self._model.rerank(query, list(passages))]

    def _load(self) -> Any:
        if not self._allow_download:
            os.environ["HF_HUB_OFFLINE"] = "1"
        try:
            from fastembed.rerank.cross_encoder import TextCrossEncoder

            return TextCrossEncoder(self.name, local_files_only=not self._allow_download)
        except Exception as error:
            raise EmbeddingError(
                f"the reranker {self.name} is not on this machine: allow its download with "
                "--download, or leave --reranker out",
                details=str(error),
            ) from error

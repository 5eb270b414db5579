"""Models that a server has: the OpenAI-compatible `/embeddings`, and `/rerank` as Jina speaks it.

`http://127.0.0.1:11434/v1#nomic-embed-text` names one, `...#NAME@512` the first 512 dimensions of
one that was trained for that (Matryoshka Representation Learning, Kusupati et al. 2022). Only the
user names a server, and only what is embedded is sent to it.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from kb.errors import EmbeddingError, UsageError
from kb.models.embedder import BUNDLED_CALIBRATION, Floats, unit_vectors
from kb.text.assets import asset

KEY_VARIABLE = "KB_MODEL_KEY"
ATTEMPTS, QUERY_ATTEMPTS = 3, 2
FIRST_PAUSE = 0.5  # seconds before the second attempt; twice as long before the next
MAX_PAUSE = 20.0  # that a server may ask for
QUERY_SECONDS = 10.0  # a question waits for its vectors no longer, and is answered by words
BATCH_SECONDS = 120.0
MAX_REPLY = 64 << 20  # bytes
MIN_WIDTH, MAX_WIDTH = 8, 8192


class _Server:
    """A server at `URL#NAME`; UsageError if that names no model, or holds a password."""

    def __init__(self, address: str, path: str) -> None:
        url, _, self.model = address.partition("#")
        parts = urlsplit(url)
        if not self.model or not parts.hostname:
            raise UsageError(f"{address} names no model: write http://HOST:PORT/v1#MODEL")
        if parts.password or parts.username:
            raise UsageError(
                f"the address of a model is kept in the file: put its key into {KEY_VARIABLE}, "
                "not into the address"
            )
        self.host = parts.netloc
        self._url = f"{url.rstrip('/')}/{path}"

    def post(self, body: Mapping[str, Any], *, is_query: bool) -> Any:
        """The server's answer; EmbeddingError once no failure that may pass is tried again."""
        end = time.monotonic() + (QUERY_SECONDS if is_query else BATCH_SECONDS)
        attempts = QUERY_ATTEMPTS if is_query else ATTEMPTS
        for attempt in range(attempts):
            pause = FIRST_PAUSE * 2**attempt
            try:
                return self._post({"model": self.model, **body}, end)
            except _Passing as error:
                pause = min(error.pause or pause, MAX_PAUSE)
                if attempt == attempts - 1 or time.monotonic() + pause > end:
                    raise EmbeddingError(f"the model at {self.host}: {error}") from error
            time.sleep(pause)
        raise AssertionError("unreachable")

    def _post(self, body: Mapping[str, Any], end: float) -> Any:
        import httpx2  # here: it takes a tenth of a second

        key = os.environ.get(KEY_VARIABLE, "")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        left = max(end - time.monotonic(), 0.1)
        data = bytearray()
        try:
            with (
                httpx2.Client(timeout=left, headers=headers, trust_env=False) as client,
                client.stream("POST", self._url, json=body) as response,
            ):
                for part in response.iter_bytes():
                    data += part
                    if len(data) > MAX_REPLY:
                        raise EmbeddingError(f"the model at {self.host} sends too much")
                    if time.monotonic() > end:
                        raise _Passing("it takes too long")
                if response.status_code != 200:
                    self._fail(response.status_code, response.headers, bytes(data))
        except (httpx2.TimeoutException, httpx2.TransportError, OSError) as error:
            is_slow = isinstance(error, httpx2.TimeoutException)
            raise _Passing("it takes too long" if is_slow else str(error) or "no answer") from error
        except (httpx2.InvalidURL, UnicodeError) as error:
            raise EmbeddingError(f"{self._url} is not an address: {error}") from error
        try:
            return json.loads(bytes(data))
        except ValueError as error:
            raise EmbeddingError(f"the model at {self.host} answers, but not in JSON") from error

    def _fail(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        answer = " ".join(data[:300].decode(errors="replace").split())
        if status in (401, 403):
            raise EmbeddingError(
                f"the server of the model at {self.host} refuses the key ({status}): "
                f"set {KEY_VARIABLE}"
            )
        if status == 429 or status >= 500:
            wait = headers.get("retry-after", "")
            raise _Passing(f"{status} {answer}", float(wait) if wait.isdigit() else 0.0)
        raise EmbeddingError(f"the model at {self.host} answers with {status}: {answer}")


class _Passing(Exception):
    """A failure that another attempt may not meet; `pause` is what the server asks for."""

    def __init__(self, text: str, pause: float = 0.0) -> None:
        super().__init__(text)
        self.pause = pause


class AddressEmbedder:
    """An embedding model at `URL#MODEL` or `URL#MODEL@WIDTH`; UsageError for other names."""

    def __init__(self, name: str) -> None:
        address, width = name, 0
        if match := re.fullmatch(r"(.+#.+)@(\d{1,5})", name):
            address, width = match[1], int(match[2])
        self.name = name
        self.sha256 = ""
        self.width = width
        self.calibration = BUNDLED_CALIBRATION  # until the file's own passages say more
        self._requested_width = width
        self._server = _Server(address, "embeddings")
        model = self._server.model.lower()
        prefixes = (pair for part, pair in asset("model-prefixes").items() if part in model)
        prefix: Sequence[str] = next(prefixes, ("", ""))
        self._query_prefix, self._passage_prefix = prefix

    def embed(self, texts: Sequence[str]) -> Floats:
        """As `Embedder.embed`. Raises EmbeddingError."""
        return self._embed([self._passage_prefix + text for text in texts], is_query=False)

    def embed_queries(self, texts: Sequence[str]) -> Floats:
        """As `Embedder.embed_queries`. Raises EmbeddingError."""
        return self._embed([self._query_prefix + text for text in texts], is_query=True)

    def _embed(self, texts: Sequence[str], *, is_query: bool) -> Floats:
        import numpy as np

        if not texts:
            return np.zeros((0, self.width), dtype=np.float32)
        body: dict[str, Any] = {"input": list(texts), "encoding_format": "float"}
        if self._requested_width:
            body["dimensions"] = self._requested_width
        vectors = self._vectors(self._server.post(body, is_query=is_query), len(texts))
        if self._requested_width:
            vectors = vectors[:, : self._requested_width]
        width = vectors.shape[1]
        if not max(MIN_WIDTH, self._requested_width) <= width <= MAX_WIDTH:
            raise EmbeddingError(f"the model {self.name} gives vectors of {width} dimensions")
        if self.width and width != self.width:
            raise EmbeddingError(
                f"the model {self.name} now gives {width} dimensions where it gave {self.width}"
            )
        self.width = width
        return unit_vectors(vectors)

    def _vectors(self, answer: Any, count: int) -> Floats:
        import numpy as np

        try:
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors: Floats = np.array([row["embedding"] for row in rows], dtype=np.float32)
            is_whole = [row["index"] for row in rows] == list(range(count))
        except (KeyError, TypeError, ValueError) as error:
            raise EmbeddingError(
                f"the model at {self._server.host} gives no embeddings: {str(answer)[:200]}"
            ) from error
        if not is_whole or vectors.ndim != 2:
            raise EmbeddingError(
                f"the model at {self._server.host} gives {len(rows)} vectors for {count} texts"
            )
        if not np.isfinite(vectors).all() or not np.abs(vectors).max(axis=1).all():
            raise EmbeddingError(f"the model at {self._server.host} gives vectors without a length")
        return vectors


class AddressReranker:
    """A reranking model at an address, `URL#MODEL`. Raises as `AddressEmbedder`."""

    weight = 1.0

    def __init__(self, name: str) -> None:
        self.name = name
        self._server = _Server(name, "rerank")

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """One score a passage. Raises EmbeddingError."""
        body = {"query": query, "documents": list(passages), "top_n": len(passages)}
        answer = self._server.post(body, is_query=True)
        try:
            scores = {row["index"]: float(row["relevance_score"]) for row in answer["results"]}
            if not all(map(math.isfinite, scores.values())):
                raise ValueError
            return [scores[number] for number in range(len(passages))]
        except (KeyError, TypeError, ValueError) as error:
            raise EmbeddingError(
                f"the reranker at {self._server.host} gives no scores: {str(answer)[:200]}"
            ) from error

"""Where texts become vectors: on this process's threads, or wherever another engine takes them.

An engine neither reads nor writes the file: `kb/ingest/embed.py` stores what comes, so that the
file keeps its one writer wherever the model runs. One text goes through a model at a time, so its
vector depends neither on other texts nor on how many processes share the work.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from kb.errors import EmbeddingError
from kb.models.choose import make_embedder
from kb.models.embedder import Embedder, available_cores, quantize

# Every machine that helps embeds these first, for comparison with this one.
PROBES = (
    "Calibrate the vane before the first storm of the year.",
    "HTTP 429: retry after the number of seconds that the header names.",
    "Ein Satz in einer anderen Sprache, mit Umlauten: größer, öfter, früher.",
)
# Processors that round alike give equal bytes; others were seen to give a cosine of .9996
# (docs/decisions/0014-embedding-speed.md), other models one of .3.
MIN_COSINE = 0.999

_loaded: dict[str, Embedder] = {}
_lock = threading.Lock()

Batch = dict[bytes, str]  # texts by the hash of each
Vectors = dict[bytes, bytes]  # int8 vectors by the hash of their text


class Engine(Protocol):
    """What runs a model on texts."""

    def run(self, embedder: Embedder, batches: Iterator[Batch]) -> Generator[Vectors]:
        """The vectors of all texts of all batches, in any order, some at a time.

        Batches are taken in the thread that asks for the vectors, not many more than are at work:
        what is under way is lost when the caller ends the iteration. An empty batch, which tells
        that the caller is busy otherwise, is answered at once by no vectors.

        Raises EmbeddingError if the model cannot be used.
        """


class Threads:
    """The engine of one process: each batch on a thread of its own, on every core.

    onnxruntime releases the interpreter's lock. At most two batches a thread are under way, so that
    an interruption loses little.
    """

    def run(self, embedder: Embedder, batches: Iterator[Batch]) -> Generator[Vectors]:
        """As `Engine.run`, in the order of the batches."""
        workers = available_cores()
        waiting: deque[Future[Vectors]] = deque()

        def vectors(batch: Batch) -> Vectors:
            return dict(zip(batch, vectors_of(embedder, list(batch.values())), strict=True))

        with ThreadPoolExecutor(workers) as pool:
            try:
                for batch in batches:
                    waiting.append(pool.submit(vectors, batch))
                    if len(waiting) >= 2 * workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


def vectors_of(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """The int8 vector of each text, as the file holds it."""
    if not texts:
        return []
    return [vector.tobytes() for vector in quantize(embedder.embed(texts))]


def vectors_by_model(name: str, sha256: str, texts: Sequence[str]) -> list[bytes]:
    """As `vectors_of`, with this machine's installed model of a name, if it is the file's.

    Raises EmbeddingError if this machine lacks the model, or has another build of it.
    """
    with _lock:
        if (embedder := _loaded.get(name)) is None:
            embedder = _loaded[name] = make_embedder(name)
    if embedder.sha256 != sha256:
        raise EmbeddingError(
            f"another build of the model {name} is installed (SHA-256 {embedder.sha256[:12]}..., "
            f"not {sha256[:12]}...): install the same version of kb"
        )
    return vectors_of(embedder, texts)


def unlike(vectors: Sequence[bytes], expected: Sequence[bytes]) -> str:
    """What is wrong with another machine's vectors of the probes; "" if nothing is."""
    if list(vectors) == list(expected):
        return ""
    if [len(vector) for vector in vectors] != [len(vector) for vector in expected]:
        return "its vectors have another width"
    import numpy as np

    ours, theirs = (
        np.stack([np.frombuffer(vector, np.int8) for vector in some]).astype(np.float64)
        for some in (expected, vectors)
    )
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    least = float(np.min(np.sum(ours * theirs, axis=1) / lengths))
    if least < MIN_COSINE:
        return f"its vectors are not those of this machine (cosine {least:.4f})"
    return ""

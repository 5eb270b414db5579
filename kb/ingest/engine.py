"""Where texts become vectors: on this process's threads, or wherever another engine takes them.

An engine is given texts by their hash, a few at a time, and gives back vectors by the same hashes,
in any order. It neither reads nor writes the file: `kb/ingest/embed.py` stores what comes, so that
the file keeps its one writer wherever the model runs. What is to be done with each batch is
`kb.models.step.vectors_of`, which depends on nothing but the model and the texts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from kb.models.embedder import Embedder, available_cores
from kb.models.step import vectors_of

Batch = dict[bytes, str]  # texts by the hash of each
Vectors = dict[bytes, bytes]  # int8 vectors by the hash of their text


class Engine(Protocol):
    """What runs a model on texts."""

    def run(self, embedder: Embedder, batches: Iterator[Batch]) -> Generator[Vectors]:
        """The vectors of all texts of all batches, in any order, some at a time.

        Batches are taken from the thread that asks for the vectors, not many more than are at work:
        what is under way is lost when the caller ends the iteration. A batch without texts, which
        only tells that the caller is busy otherwise, is answered at once by no vectors.

        Raises:
            EmbeddingError: the model cannot be used.
        """
        ...


class Threads:
    """The engine of one process: each batch on a thread of its own, on every core.

    onnxruntime releases the interpreter's lock, so threads that share one loaded model keep all
    cores busy. At most two batches a thread are under way: an interruption loses little.
    """

    def run(self, embedder: Embedder, batches: Iterator[Batch]) -> Generator[Vectors]:
        """As `Engine.run`; in the order of the batches."""
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

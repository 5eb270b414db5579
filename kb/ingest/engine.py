"""Where texts become vectors: on this process's threads, or wherever another engine takes them.

An engine neither reads nor writes the file: `kb/ingest/embed.py` stores what comes, so that the
file keeps its one writer wherever the model runs. One text goes through a model at a time, so its
vector depends neither on other texts nor on how many processes share the work.

The engine of many machines gives batches to a Dask scheduler, whose workers hold the model. A
worker gets texts only after it has embedded three sentences as this machine does, by the model of
the SHA-256 that the file stores. What workers lose is handed out again; without a worker or a
scheduler this machine goes on alone: docs/decisions/0019-workers.md.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import logging
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from typing import Any, Protocol

from kb.errors import EmbeddingError, UsageError
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
CONNECT_SECONDS = 10.0
PATIENCE = 30.0  # seconds without a worker, or without a word from the scheduler
LOOK_SECONDS = 1.0  # how often it is asked which workers there are
AHEAD = 2  # batches a thread of a worker: one at work and one at hand
MAX_TRIES = 3  # of one batch
MAX_TOLD = 3  # workers of which it is said why they are left out
# What tls:// needs, as `distributed.Security` and Dask name it. The certificate may hold the key.
TLS_FILES = {
    "tls_ca_file": "distributed.comm.tls.ca-file",
    "tls_client_cert": "distributed.comm.tls.client.cert",
}


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


def require_extra() -> None:
    """Raise UsageError if the extra is not installed."""
    if find_spec("distributed") is None:
        raise UsageError(
            "--workers needs the extra dask, which is not installed: pip install 'kbfile[dask]'"
        )


def connect(address: str, *, direct: bool = False) -> Any:
    """A client of a scheduler, with keys and certificates as Dask is configured.

    Args:
        address: as Dask writes it: `tcp://host:8786`, or `tls://host:8786`.
        direct: it talks to the workers without the scheduler between, which takes half the time.

    Raises:
        UsageError: the address is none, or Dask's configuration lacks what it needs.
        OSError: nobody answers; its text is a sentence for people.
    """
    import distributed

    make: Any = distributed.Client  # which has no types
    make_security: Any = distributed.Security
    security = make_security()
    missing = [key for name, key in TLS_FILES.items() if not getattr(security, name)]
    if missing and address.startswith("tls://"):
        raise UsageError(
            f"{address} needs what Dask's configuration does not name: " + ", ".join(missing)
        )
    # What Dask logs of lost connections is said in our own words.
    for name in ("distributed", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # versions: each worker is tried instead
            client = make(
                address,
                timeout=CONNECT_SECONDS,
                security=security,
                set_as_default=False,
                name="kb",
                direct_to_workers=direct,
            )
    except ValueError as error:
        raise UsageError(f"{address} is not the address of a Dask scheduler: {error}") from error
    except (OSError, ImportError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OSError(f"no Dask scheduler answers at {address} ({reason})") from error
    for topic in ("print", "warn"):  # nothing that a worker says reaches our terminal
        client.unsubscribe_topic(topic)
    return client


class DaskWorkers:
    """The workers of one scheduler, for as long as it is entered. Raises UsageError as `connect`.

    Args:
        say: told which workers are left out, and that this machine goes on alone.
    """

    def __init__(self, address: str, say: Callable[[str], None]) -> None:
        require_extra()
        self._address = address
        self._say = say
        self._client: Any = None
        self._left_out: dict[str, str] = {}

    def __enter__(self) -> DaskWorkers:
        try:
            self._client = connect(self._address)
        except OSError as error:
            self._go_on_alone(str(error))
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def run(self, embedder: Embedder, batches: Iterator[Batch]) -> Generator[Vectors]:
        """As `Engine.run`. Where the workers are lost, the rest is done on this machine."""
        if (first := next(batches, None)) is None:
            return  # workers are tried for nothing else
        batches = chain([first], batches)
        if self._client is not None:
            work = _Work(self._client, self._address, embedder, self._tell_left_out)
            try:
                yield from work.run(batches)
                return
            except _LostError as lost:
                why = str(lost)
            finally:
                work.end()
            self._go_on_alone(why)
            batches = chain(work.unfinished.values(), batches)
        yield from Threads().run(embedder, batches)

    def _go_on_alone(self, why: str) -> None:
        self._say(f"{why}: embedding goes on on this machine alone")
        self._close()

    def _tell_left_out(self, worker: str, why: str) -> None:
        if worker not in self._left_out and len(self._left_out) < MAX_TOLD:
            self._say(f"the worker {worker} gets no texts: {why}")
        self._left_out[worker] = why

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(OSError, TimeoutError):
                client.close(timeout=CONNECT_SECONDS)


class _LostError(Exception):
    """The workers or the scheduler cannot be used any more."""


@dataclass(frozen=True, slots=True)
class _Handed:
    batch: Batch
    workers: frozenset[str]  # that may embed it
    tries: int


class _Work:
    def __init__(
        self, client: Any, address: str, embedder: Embedder, leave_out: Callable[[str, str], None]
    ) -> None:
        self._client = client
        self._executor = client.get_executor(pure=True)
        self._address = address
        self._embedder = embedder
        self._leave_out = leave_out
        self._expected = vectors_of(embedder, PROBES)
        self._workers: dict[str, str] = {}  # by address: why it is left out, "" if it is not
        self._slots = 0
        self._looked = 0.0
        self._heard = time.monotonic()  # when there was last a worker that can embed
        self._handed: dict[Future[list[bytes]], _Handed] = {}
        self.unfinished: dict[bytes, Batch] = {}  # by the first hash of each

    def run(self, batches: Iterator[Batch]) -> Generator[Vectors]:
        """As `Engine.run`. Raises _LostError: what is left is `unfinished`."""
        while not self._slots:
            yield from self._collect()
        for batch in batches:
            if not batch:
                yield {}
                continue
            self.unfinished[next(iter(batch))] = batch
            self._hand_out(batch)
            while len(self._handed) >= self._slots:
                yield from self._collect()
        while self._handed:
            yield from self._collect()

    def end(self) -> None:
        """Take back what the workers still have."""
        if self._handed and self._client.status == "running":
            self._executor.shutdown(wait=False)

    def _collect(self) -> Iterator[Vectors]:
        """Wait for something and return all that has come as one answer."""
        self._look()
        if not self._handed:
            time.sleep(LOOK_SECONDS / 10)  # for a worker
            return
        finished, _ = concurrent.futures.wait(
            self._handed, LOOK_SECONDS, concurrent.futures.FIRST_COMPLETED
        )
        vectors: Vectors = {}
        failures: dict[Future[list[bytes]], str] = {}
        for future in finished:
            if future.cancelled():
                failures[future] = "batches are cancelled there"
            elif error := future.exception():
                failures[future] = f"{type(error).__name__}: {error}"
            else:
                batch = self._handed.pop(future).batch
                vectors.update(zip(batch, future.result(), strict=True))
                del self.unfinished[next(iter(batch))]
        if vectors:
            yield vectors
        for future, why in failures.items():  # handed out once more
            self._look(at_once=True)
            if (handed := self._handed.pop(future, None)) is None:
                continue  # that was done while looking
            if handed.tries >= MAX_TRIES:
                raise _LostError(f"the workers at {self._address} fail ({why})")
            self._hand_out(handed.batch, handed.tries + 1)

    def _hand_out(self, batch: Batch, tries: int = 1) -> None:
        fit = sorted(worker for worker, why in self._workers.items() if not why)
        name, sha256 = self._embedder.name, self._embedder.sha256
        # The same texts have the same key, so workers answer again with what they have.
        digest = hashlib.sha256(f"{name} {sha256} {tries}".encode())
        for key in batch:
            digest.update(key)
        future = self._executor.submit(
            vectors_by_model,
            name,
            sha256,
            list(batch.values()),
            key=f"kb-embed-{digest.hexdigest()[:32]}",
            workers=fit or None,
        )
        self._handed[future] = _Handed(batch, frozenset(fit), tries)

    def _look(self, *, at_once: bool = False) -> None:
        if not at_once and time.monotonic() - self._looked < LOOK_SECONDS:
            return
        gone = f"the Dask scheduler at {self._address} is gone"
        if self._client.status != "running":
            raise _LostError(gone)
        try:
            threads: dict[str, int] = self._client.nthreads(callback_timeout=PATIENCE)
        except (OSError, TimeoutError) as error:
            raise _LostError(gone) from error
        new = [worker for worker in threads if worker not in self._workers]
        reasons = self._workers | (self._try(new) if new else {})
        self._workers = {worker: reasons[worker] for worker in threads if worker in reasons}
        fit = {worker for worker, why in self._workers.items() if not why}
        self._slots = AHEAD * sum(threads[worker] for worker in fit)
        self._looked = now = time.monotonic()
        if fit:
            self._heard = now
        elif self._workers:
            raise _LostError(f"no worker at {self._address} can embed with this file's model")
        elif now - self._heard > PATIENCE:
            raise _LostError(f"the Dask scheduler at {self._address} has no worker")
        for future, handed in list(self._handed.items()):
            if fit and not handed.workers & fit:  # all that may embed it are gone
                future.cancel()
                del self._handed[future]
                self._hand_out(handed.batch, handed.tries)

    def _try(self, workers: list[str]) -> dict[str, str]:
        """Let workers embed the probes: why to leave each out, or ""."""
        try:
            answers: dict[str, Any] = self._client.run(
                vectors_by_model,
                self._embedder.name,
                self._embedder.sha256,
                PROBES,
                workers=workers,
                on_error="return",
                callback_timeout=PATIENCE,
            )
        except (OSError, TimeoutError):
            return {}  # one of them is gone: the others are asked again
        except Exception as error:
            raise _LostError(f"the workers at {self._address} fail ({error!r})") from error
        reasons = {}
        for worker, answer in answers.items():
            if isinstance(answer, OSError):
                continue
            if isinstance(answer, EmbeddingError):
                reasons[worker] = answer.message
            elif isinstance(answer, BaseException):
                reasons[worker] = f"{type(answer).__name__}: {answer}"
            else:
                reasons[worker] = unlike(answer, self._expected)
            if reasons[worker]:
                self._leave_out(worker, reasons[worker])
        return reasons

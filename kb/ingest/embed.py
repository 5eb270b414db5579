"""Give chunks their vectors, a few a transaction: an interruption costs a second of work.

A chunk is embedded by the hash of its text, so that equal texts are embedded once, and a vector
never reaches a chunk whose text another process has changed meanwhile.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from kb.errors import ModelMismatchError
from kb.formats.chunk import embedding_text
from kb.model_in_use import ModelInUse
from kb.models.embedder import BATCH_SIZE, Embedder, available_cores, quantize
from kb.store.database import Connection, Database
from kb.store.documents import vectors_of
from kb.store.ids import WHOLE_FILE
from kb.store.vectors import rebuild_all_vectors, rebuild_document_vectors, rebuild_slabs

MANY_TIMES = 20  # as many passages wait as have a vector: another model costs little then
WINDOW = 512  # chunks that are sorted by length together before they are embedded

# Called with a stage ("documents" or "embedding"), how much is done and how much there is.
Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class EmbedReport:
    """What an embedding run did, in chunks."""

    embedded: int = 0  # went through the model
    reused: int = 0  # had the same text as an embedded one
    waiting: int = 0  # left without a vector


def no_progress(stage: str, done: int, total: int) -> None:
    """The progress of a sync that nobody watches."""


def embed_pending(
    model: ModelInUse,
    *,
    progress: Progress = no_progress,
    within: tuple[int, int] = WHOLE_FILE,
    should_stop: Callable[[], bool] = lambda: False,
) -> EmbedReport:
    """Give every chunk that waits for one its vector. Resumes where an earlier run stopped.

    Args:
        within: a range of chunk ids; others wait on.
        should_stop: asked after each batch; what is left waits on.

    Raises:
        EmbeddingError: the model cannot be used; the chunks wait on.
        ModelMismatchError: another process gave the file another model meanwhile.
    """
    report = EmbedReport()
    bounds = {"first": within[0], "last": within[1]}
    with model.database.read() as connection:
        total = connection.value("count_chunks_without_vector", **bounds)
    if not total:
        return report
    _follow_language(model, total, report)

    def embed() -> None:
        embedder = model.embedder()
        run = _Run(model.database, embedder, _model_in_use(model.database, embedder), report)
        with model.database.batch():
            for done in run.embed("chunks_without_vector", within):
                progress("embedding", min(done, total), total)
                if report.embedded and should_stop():
                    break

    try:
        embed()
    except ModelMismatchError:
        # Another process gave the file its first model just now, or one that suits it better.
        # Where this is not the one asked for, `model.embedder` says so.
        embed()
    with model.database.read() as connection:
        report.waiting = connection.value("count_chunks_without_vector", **bounds)
    progress("embedding", total, total)
    return report


def reembed(
    model: ModelInUse, embedder: Embedder, *, progress: Progress = no_progress
) -> EmbedReport:
    """Embed everything with another model. Searches go on with the old vectors till the end.

    An interrupted run leaves the old model in use and its finished vectors for the next run.

    Raises:
        EmbeddingError: the model cannot be used; nothing has changed.
    """
    report = EmbedReport()
    embedder.embed(["width"])
    with model.database.write() as connection:
        model_id = _insert_model(connection, embedder)
    with model.database.read() as connection:
        total = connection.value("count_chunks")
    run = _Run(model.database, embedder, model_id, report, keeps_old=True)
    with model.database.batch():
        for done in run.embed("chunks_with_text"):
            progress("embedding", min(done, total), total)
        with model.database.write() as connection:
            run.require_model(connection)
            _switch_model(connection, model_id)
    model.keep_embedder(embedder)
    # What was stored while the model was changed.
    rest = embed_pending(model, progress=progress)
    report.embedded += rest.embedded
    report.reused += rest.reused
    report.waiting = rest.waiting
    return report


@dataclass(frozen=True, slots=True)
class _Pending:
    """A chunk that is to get the vector of its text."""

    chunk_id: int
    document_id: int
    heading_path: str
    start: int
    end: int
    text_hash: bytes


@dataclass(slots=True)
class _Run:
    """One pass over the chunks of the file with one model."""

    database: Database
    embedder: Embedder
    model_id: int
    report: EmbedReport
    keeps_old: bool = False  # the chunks keep the vectors that they have

    def embed(self, statement: str, within: tuple[int, int] = WHOLE_FILE) -> Iterator[int]:
        """Embed the chunks that a statement lists; how many are done, after each transaction."""
        after, last = within[0] - 1, within[1]
        while True:
            with self.database.read() as connection:
                rows = connection.tuples(statement, after=after, last=last, limit=WINDOW)
                if not rows:
                    return
                after = rows[-1][0]
                by_hash: dict[bytes, list[_Pending]] = {}
                for row in rows:
                    pending = _Pending(*row)
                    by_hash.setdefault(pending.text_hash, []).append(pending)
                known = vectors_of(connection, self.model_id, list(by_hash))
                missing = [chunks[0] for key, chunks in by_hash.items() if key not in known]
                texts = _texts(connection, missing)
            if known:
                with self.database.write() as connection:
                    self._use(connection, [c for key in known for c in by_hash[key]])
                self.report.reused += sum(len(by_hash[key]) for key in known)
                yield self.report.embedded + self.report.reused
            yield from self._embed_texts(texts, by_hash)

    def _embed_texts(
        self, texts: dict[bytes, str], by_hash: dict[bytes, list[_Pending]]
    ) -> Iterator[int]:
        # A batch costs what its longest text costs, so texts of like length go together.
        keys = sorted(texts, key=lambda key: len(texts[key]))
        batches = [keys[i : i + BATCH_SIZE] for i in range(0, len(keys), BATCH_SIZE)]

        def vectors_of_batch(batch: list[bytes]) -> list[bytes]:
            vectors = quantize(self.embedder.embed([texts[key] for key in batch]))
            return [vector.tobytes() for vector in vectors]

        for batch, vectors in _run_in_parallel(vectors_of_batch, batches):
            chunks = [chunk for key in batch for chunk in by_hash[key]]
            with self.database.write() as connection:
                self.require_model(connection)
                connection.run_many(
                    "insert_vector",
                    (
                        {"model_id": self.model_id, "text_hash": key, "vector": vector}
                        for key, vector in zip(batch, vectors, strict=True)
                    ),
                )
                self._use(connection, chunks)
            self.report.embedded += len(batch)
            self.report.reused += len(chunks) - len(batch)
            yield self.report.embedded + self.report.reused

    def _use(self, connection: Connection, chunks: Sequence[_Pending]) -> None:
        """Give chunks the vectors of their texts and bring the vector index in line."""
        if self.keeps_old:
            return
        self.require_model(connection)
        vector_ids = vectors_of(connection, self.model_id, [chunk.text_hash for chunk in chunks])
        connection.run_many(
            "set_chunk_vector",
            (
                {
                    "chunk_id": chunk.chunk_id,
                    "text_hash": chunk.text_hash,
                    "vector_id": vector_ids[chunk.text_hash],
                }
                for chunk in chunks
                # A sync in another process may have deleted a vector that nothing used yet.
                if chunk.text_hash in vector_ids
            ),
        )
        chunk_ids = [chunk.chunk_id for chunk in chunks]
        rebuild_slabs(connection, chunk_ids)
        # Not the documents that we read them from: meanwhile the ids may be another's.
        documents = connection.tuples("documents_of_chunks", chunk_ids=json.dumps(chunk_ids))
        rebuild_document_vectors(connection, [row[0] for row in documents])

    def require_model(self, connection: Connection) -> None:
        """Refuse to mix vectors when another process changed the file's model meanwhile.

        Raises:
            ModelMismatchError: it did.
        """
        if self.keeps_old:
            if connection.value("find_model", **_key(self.embedder)) == self.model_id:
                return
        else:
            current = connection.row("current_model")
            if current is not None and current["model_id"] == self.model_id:
                return
        raise ModelMismatchError(
            f"another process changed this file's model while {self.embedder.name} was at work: "
            "run the command again"
        )


def _texts(connection: Connection, chunks: Sequence[_Pending]) -> dict[bytes, str]:
    """The text to embed of each chunk, by its hash. Reads each document once."""
    texts: dict[bytes, str] = {}
    document_id = -1
    title = content = ""
    for chunk in sorted(chunks, key=lambda chunk: chunk.document_id):
        if chunk.document_id != document_id:
            document_id = chunk.document_id
            document = connection.rows("indexed_document", document_id=document_id)[0]
            title, content = document["title"], document["content"]
        body = content[chunk.start : chunk.end]
        texts[chunk.text_hash] = embedding_text(title, chunk.heading_path, body)
    return texts


def _run_in_parallel(
    run: Callable[[list[bytes]], list[bytes]], batches: list[list[bytes]]
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Each batch with its result, in order, on every core.

    onnxruntime releases the interpreter's lock, so threads that share one loaded model keep all
    cores busy. At most two batches a worker are under way: an interruption loses little.
    """
    workers = available_cores()
    waiting: deque[tuple[list[bytes], Future[list[bytes]]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for batch in batches:
                waiting.append((batch, pool.submit(run, batch)))
                if len(waiting) >= 2 * workers:
                    done, future = waiting.popleft()
                    yield done, future.result()
            while waiting:
                done, future = waiting.popleft()
                yield done, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def _follow_language(model: ModelInUse, waiting: int, report: EmbedReport) -> None:
    """Take the model that suits the documents, if nearly all of them are still to be embedded.

    A note in English may have been the first text of a file that now gets Japanese documents. The
    few passages that have a vector get the other model's before it is taken: they may lie outside
    of what is to be embedded now, and are searched meanwhile.
    """
    most = (waiting - 1) // MANY_TIMES
    with model.database.read() as connection:
        old = connection.row("current_model")
        if old is None or connection.value("has_more_vectors", most=most):
            return
    if not (suited := model.better_model()):
        return
    embedder = model.make_embedder(suited)
    embedder.embed(["width"])  # nothing has changed when it cannot be loaded
    with model.database.write() as connection:
        run = _Run(model.database, embedder, _insert_model(connection, embedder), report, True)
    try:
        for _ in run.embed("chunks_with_vector"):
            pass
        with model.database.write() as connection:
            run.require_model(connection)
            # Another process may have changed the model or embedded much meanwhile.
            if connection.row("current_model") == old and not connection.value(
                "has_more_vectors", most=most
            ):
                _switch_model(connection, run.model_id)
                model.keep_embedder(embedder)
    except ModelMismatchError:
        pass  # another process changed the model: who embeds next takes that one


def _key(embedder: Embedder) -> dict[str, str | int]:
    return {"name": embedder.name, "sha256": embedder.sha256, "width": embedder.width}


def _model_in_use(database: Database, embedder: Embedder) -> int:
    """The id of the embedder's row in `models`, which becomes the current one if none is.

    Raises:
        ModelMismatchError: another model is.
    """
    embedder.embed(["width"])  # a named model's width is known once it is loaded
    with database.write() as connection:
        current = connection.row("current_model")
        model_id = _insert_model(connection, embedder)
        if current is None:
            connection.run("set_current_model", model_id=model_id)
        elif current["model_id"] != model_id:
            raise ModelMismatchError(
                f"this file's vectors come from {current['name']} with {current['width']} "
                f"dimensions, not from {embedder.name} with {embedder.width}: "
                f"run `kb reembed --model {embedder.name}`",
                model=current["name"],
            )
    return model_id


def _insert_model(connection: Connection, embedder: Embedder) -> int:
    if connection.value("find_model", **_key(embedder)) is None:
        # Where somebody deleted the row of a model, its number is given again: vectors that nobody
        # knows the model of must not become those of the new one.
        connection.run("forget_vectors_without_model")
        connection.run("delete_vectors_without_model")
    connection.run(
        "insert_model",
        **_key(embedder),
        slope=embedder.calibration.slope,
        intercept=embedder.calibration.intercept,
    )
    return int(connection.value("find_model", **_key(embedder)))


def _switch_model(connection: Connection, model_id: int) -> None:
    """Make another model's vectors the ones in use, in one transaction."""
    connection.run("use_vectors_of_model", model_id=model_id)
    connection.run("unset_current_models")
    connection.run("set_current_model", model_id=model_id)
    connection.run("delete_other_models")
    connection.run("delete_unused_vectors")
    rebuild_all_vectors(connection)

"""Give chunks their vectors, a few a transaction: an interruption costs a second of work.

A chunk is embedded by the hash of its text, so that equal texts are embedded once, and a vector
never reaches a chunk whose text another process has changed meanwhile. Which machine embeds is the
engine's affair (`kb/ingest/engine.py`); what it answers is stored here, whenever it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from kb.errors import ModelMismatchError
from kb.formats.chunk import embedding_text, passage
from kb.ingest.engine import Batch, Engine, Threads, Vectors
from kb.ingest.progress import Progress, no_progress
from kb.model_in_use import ModelInUse
from kb.models.embedder import BATCH_SIZE, Embedder, are_interchangeable
from kb.store.chunks import (
    StoredChunk,
    chunks_waiting_among,
    chunks_with_text,
    chunks_with_vector,
    chunks_without_vector,
    count_chunks,
    count_waiting,
    documents_of_chunks,
    has_more_vectors,
    waiting_chunks,
)
from kb.store.connection import Connection, Row
from kb.store.contents import title_and_text
from kb.store.database import Database
from kb.store.embeddings import (
    current_model,
    find_model_id,
    insert_model,
    insert_vectors,
    set_build_of_model,
    set_chunk_vectors,
    set_current_model,
    switch_model,
    vectors_of,
)
from kb.store.ids import WHOLE_FILE, ChunkRange
from kb.store.vectors import rebuild_document_vectors, rebuild_slabs

MANY_TIMES = 20  # as many passages wait as have a vector: another model costs little then
WINDOW = 512  # chunks whose texts are read at a time
THREADS = Threads()


@dataclass(slots=True)
class EmbedReport:
    """What an embedding run did, in chunks."""

    embedded: int = 0  # went through the model
    reused: int = 0  # had the same text as an embedded one
    waiting: int = 0  # left without a vector


def embed_pending(
    model: ModelInUse,
    *,
    progress: Progress = no_progress,
    within: ChunkRange = WHOLE_FILE,
    should_stop: Callable[[], bool] = lambda: False,
    engine: Engine = THREADS,
) -> EmbedReport:
    """Give every chunk that waits for one its vector. Resumes where an earlier run stopped.

    Args:
        within: a range of chunk ids; others wait on.
        should_stop: asked after each batch once the model has embedded something, so that every
            call gets on; what is left waits on.
        engine: what runs the model.

    Raises:
        EmbeddingError: the model cannot be used; the chunks wait on.
        ModelMismatchError: another process gave the file another model meanwhile.
    """
    report = EmbedReport()
    with model.database.read() as connection:
        total = count_waiting(connection, within)
    if not total:
        return report
    _follow_language(model, total, report, engine)

    def embed() -> None:
        embedder = model.embedder()
        model_id = _model_in_use(model.database, embedder)
        run = _Run(model.database, embedder, model_id, report, engine)
        with model.database.batch(), closing(run.embed_waiting(within)) as steps:
            for done in steps:
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
        report.waiting = count_waiting(connection, within)
    progress("embedding", total, total)
    return report


def reembed(
    model: ModelInUse,
    embedder: Embedder,
    *,
    progress: Progress = no_progress,
    engine: Engine = THREADS,
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
        total = count_chunks(connection)
    run = _Run(model.database, embedder, model_id, report, engine, keeps_old=True)
    with model.database.batch():
        with closing(run.embed(chunks_with_text)) as steps:
            for done in steps:
                progress("embedding", min(done, total), total)
        with model.database.write() as connection:
            run.require_model(connection)
            switch_model(connection, model_id)
    model.keep_embedder(embedder)
    # What was stored while the model was changed.
    rest = embed_pending(model, progress=progress, engine=engine)
    report.embedded += rest.embedded
    report.reused += rest.reused
    report.waiting = rest.waiting
    return report


# Gives the next chunks behind one and up to another, at most so many, in order.
NextChunks = Callable[[Connection, int, int, int], list[StoredChunk]]


@dataclass(slots=True)
class _Run:
    """One pass over the chunks of the file with one model."""

    database: Database
    embedder: Embedder
    model_id: int
    report: EmbedReport
    engine: Engine
    keeps_old: bool = False  # the chunks keep the vectors that they have
    # The chunks of each text that the engine has, by its hash.
    under_way: dict[bytes, list[StoredChunk]] = field(default_factory=dict)

    def embed(self, chunks: NextChunks, within: ChunkRange = WHOLE_FILE) -> Generator[int]:
        """Embed chunks; how many are done, after each transaction."""

        def windows() -> Iterator[list[StoredChunk]]:
            after, last = within[0] - 1, within[1]
            while True:
                with self.database.read() as connection:
                    window = chunks(connection, after, last, WINDOW)
                if not window:
                    return
                after = window[-1].chunk_id
                yield window

        return self._embed_windows(windows())

    def embed_waiting(self, within: ChunkRange) -> Generator[int]:
        """Embed what waits for a vector, what is asked for most first.

        A search meanwhile, or after an interruption, finds each document by its beginning, and
        all of the newest ones.
        """
        with self.database.read() as connection:
            order = waiting_chunks(connection, within)

        def windows() -> Iterator[list[StoredChunk]]:
            for start in range(0, len(order), WINDOW):
                with self.database.read() as connection:
                    window = chunks_waiting_among(connection, order[start : start + WINDOW])
                yield window

        yield from self._embed_windows(windows())
        yield from self.embed(chunks_without_vector, within)  # what was stored meanwhile

    def _embed_windows(self, windows: Iterator[list[StoredChunk]]) -> Generator[int]:
        self.under_way.clear()
        batches = (batch for window in windows for batch in self._batches(window))
        with closing(self.engine.run(self.embedder, batches)) as answers:
            for vectors in answers:
                self._store(vectors)
                yield self.report.embedded + self.report.reused

    def _batches(self, window: Sequence[StoredChunk]) -> Iterator[Batch]:
        """The texts of a window that nobody has embedded or is embedding.

        Known vectors are given to their chunks at once.
        """
        by_hash: dict[bytes, list[StoredChunk]] = {}
        for chunk in window:
            same = self.under_way.get(chunk.text_hash)
            (by_hash.setdefault(chunk.text_hash, []) if same is None else same).append(chunk)
        with self.database.read() as connection:
            known = vectors_of(connection, self.model_id, list(by_hash))
            missing = [same[0] for key, same in by_hash.items() if key not in known]
            texts = _texts(connection, missing)
        if known:
            with self.database.write() as connection:
                self._use(connection, [c for key in known for c in by_hash[key]])
            self.report.reused += sum(len(by_hash[key]) for key in known)
            yield {}
        wanted = [key for key in by_hash if key in texts]
        self.under_way.update((key, by_hash[key]) for key in wanted)
        for start in range(0, len(wanted), BATCH_SIZE):
            yield {key: texts[key] for key in wanted[start : start + BATCH_SIZE]}

    def _store(self, vectors: Vectors) -> None:
        """Store what the engine answers; what it answers again changes nothing."""
        new = {key: vector for key, vector in vectors.items() if key in self.under_way}
        if not new:
            return
        chunks = [chunk for key in new for chunk in self.under_way.pop(key)]
        with self.database.write() as connection:
            self.require_model(connection)
            insert_vectors(connection, self.model_id, new.items())
            self._use(connection, chunks)
        self.report.embedded += len(new)
        self.report.reused += len(chunks) - len(new)

    def _use(self, connection: Connection, chunks: Sequence[StoredChunk]) -> None:
        """Give chunks the vectors of their texts and bring the vector index in line."""
        if self.keeps_old:
            return
        self.require_model(connection)
        vector_ids = vectors_of(connection, self.model_id, [chunk.text_hash for chunk in chunks])
        set_chunk_vectors(
            connection,
            (
                (chunk.chunk_id, chunk.text_hash, vector_ids[chunk.text_hash])
                for chunk in chunks
                # A sync in another process may have deleted a vector that nothing used yet.
                if chunk.text_hash in vector_ids
            ),
        )
        chunk_ids = [chunk.chunk_id for chunk in chunks]
        rebuild_slabs(connection, chunk_ids)
        # Not the documents that we read them from: meanwhile the ids may be another's.
        documents = set(documents_of_chunks(connection, chunk_ids).values())
        rebuild_document_vectors(connection, sorted(documents))

    def require_model(self, connection: Connection) -> None:
        """Refuse to mix vectors when another process changed the file's model meanwhile.

        Raises:
            ModelMismatchError: it did.
        """
        if self.keeps_old:
            if find_model_id(connection, *_key(self.embedder)) == self.model_id:
                return
        else:
            current = current_model(connection)
            if current is not None and current["model_id"] == self.model_id:
                return
        raise ModelMismatchError(
            f"another process changed this file's model while {self.embedder.name} was at work: "
            "run the command again"
        )


def _texts(connection: Connection, chunks: Sequence[StoredChunk]) -> dict[bytes, str]:
    """The text to embed of each chunk, by its hash. Reads each document once."""
    texts: dict[bytes, str] = {}
    document_id = -1
    title = content = ""
    for chunk in sorted(chunks, key=lambda chunk: chunk.document_id):
        if chunk.document_id != document_id:
            document_id = chunk.document_id
            title, content = title_and_text(connection, document_id) or ("", "")
        lead = chunk.lead_start, chunk.lead_end
        body = passage(content, chunk.start, chunk.end, lead)
        texts[chunk.text_hash] = embedding_text(title, chunk.heading_path, body)
    return texts


def _follow_language(model: ModelInUse, waiting: int, report: EmbedReport, engine: Engine) -> None:
    """Take the model that suits the documents, if nearly all of them are still to be embedded.

    A note in English may have been the first text of a file that now gets Japanese documents. The
    few passages that have a vector get the other model's before it is taken: they may lie outside
    of what is to be embedded now, and are searched meanwhile.
    """
    most = (waiting - 1) // MANY_TIMES
    with model.database.read() as connection:
        old = current_model(connection)
        if old is None or has_more_vectors(connection, most):
            return
    if not (suited := model.better_model()):
        return
    embedder = model.make_embedder(suited)
    embedder.embed(["width"])  # nothing has changed when it cannot be loaded
    with model.database.write() as connection:
        model_id = _insert_model(connection, embedder)
        run = _Run(model.database, embedder, model_id, report, engine, keeps_old=True)
    try:
        for _ in run.embed(chunks_with_vector):
            pass
        with model.database.write() as connection:
            run.require_model(connection)
            # Another process may have changed the model or embedded much meanwhile.
            if current_model(connection) == old and not has_more_vectors(connection, most):
                switch_model(connection, run.model_id)
                model.keep_embedder(embedder)
    except ModelMismatchError:
        pass  # another process changed the model: who embeds next takes that one


def _key(embedder: Embedder) -> tuple[str, str, int]:
    return embedder.name, embedder.sha256, embedder.width


def _model_in_use(database: Database, embedder: Embedder) -> int:
    """The id of the embedder's row in `models`, which becomes the current one if none is.

    Raises:
        ModelMismatchError: another model is.
    """
    embedder.embed(["width"])  # a named model's width is known once it is loaded
    with database.write() as connection:
        current = current_model(connection)
        if current and _is_other_build(embedder, current):
            # What is embedded from now on is of this build, and older vectors stay beside it.
            set_build_of_model(connection, current["model_id"], *_key(embedder))
            current = current_model(connection)
        if current and _is_other_build(embedder, current):
            return int(current["model_id"])  # a `reembed` with this build was interrupted
        model_id = _insert_model(connection, embedder)
        if current is None:
            set_current_model(connection, model_id)
        elif current["model_id"] != model_id:
            raise ModelMismatchError(
                f"this file's vectors come from {current['name']} with {current['width']} "
                f"dimensions, not from {embedder.name} with {embedder.width}: "
                f"run `kb reembed --model {embedder.name}`",
                model=current["name"],
            )
    return model_id


def _is_other_build(embedder: Embedder, current: Row) -> bool:
    """Whether another build of the same model is in use, with which its vectors may be mixed."""
    return (
        (current["name"], current["width"]) == (embedder.name, embedder.width)
        and current["sha256"] != embedder.sha256
        and are_interchangeable(embedder.name, current["sha256"], embedder.sha256)
    )


def _insert_model(connection: Connection, embedder: Embedder) -> int:
    calibration = embedder.calibration
    return insert_model(
        connection, *_key(embedder), slope=calibration.slope, intercept=calibration.intercept
    )

"""Give chunks their vectors, a few a transaction: an interruption costs a second of work.

A chunk is embedded by the hash of its text, so that equal texts are embedded once, and a vector
never reaches a chunk whose text another process has changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from kb.errors import ModelMismatchError
from kb.formats.chunk import embedding_text
from kb.ingest.engine import Batch, Engine, Threads, Vectors
from kb.ingest.report import Progress, no_progress
from kb.model_in_use import ModelInUse
from kb.models.choose import make_embedder, suited_model
from kb.models.embedder import BATCH_SIZE, Calibration, Embedder, are_interchangeable, is_address
from kb.store.connection import Connection, Row
from kb.store.contents import (
    WHOLE_FILE,
    ChunkRange,
    StoredChunk,
    all_document_ids,
    chunk_ids,
    chunks_to_embed,
    count_waiting,
    documents_of_chunks,
    has_more_vectors,
    passages_of_documents,
    sections_of_documents,
    texts_of,
    texts_to_embed,
    waiting_chunks,
)
from kb.store.database import Database
from kb.store.vectors import (
    chunk_vectors,
    current_model,
    delete_if_unused,
    find_model_id,
    insert_model,
    insert_vectors,
    mean_vector,
    rebuild_document_vectors,
    rebuild_slabs,
    set_build_of_model,
    set_chunk_vectors,
    set_current_model,
    switch_model,
    vectors_of,
)

MANY_TIMES = 20  # as many passages wait as have a vector: another model costs little then
WINDOW = 512  # chunks whose texts are read at a time
THREADS = Threads()
MAX_SAMPLES = 120
MIN_SAMPLES = 8
SAME_MODEL = 0.97  # cosine of two vectors of one text: machines and builds differ by less
MIN_CONTRAST = 0.02  # of cosines: a model below it tells nothing apart


@dataclass(slots=True)
class EmbedReport:
    """What an embedding run did, in chunks."""

    embedded: int = 0  # went through the model
    reused: int = 0  # had the same text as an embedded one
    waiting: int = 0  # left without a vector

    def include(self, other: EmbedReport) -> None:
        """Add what another run did."""
        self.embedded += other.embedded
        self.reused += other.reused


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
            call makes progress.
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
    progress("embedding", 0, total)  # before the model is loaded
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
        if report.embedded:
            calibrate(model.database, embedder)

    try:
        embed()
    except ModelMismatchError:
        # Another process just gave the file a model; if not this one, `model.embedder` says so.
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
    """As `Collecting.reembed`, in one file. Searches go on with the old vectors till the end.

    An interrupted run leaves the old model in use and its finished vectors for the next run.
    """
    report = EmbedReport()
    run, order = _run_beside(model, embedder, report, engine)
    with model.database.batch():
        with closing(run.embed(order)) as steps:
            for done in steps:
                progress("embedding", min(done, len(order)), len(order))
        with model.database.write() as connection:
            run.require_model(connection)
            switch_model(connection, run.model_id)
    calibrate(model.database, embedder)
    model.keep_embedder(embedder)
    # What was stored while the model was changed.
    rest = embed_pending(model, progress=progress, engine=engine)
    report.include(rest)
    report.waiting = rest.waiting
    return report


@dataclass(slots=True)
class _Run:
    database: Database
    embedder: Embedder
    model_id: int
    report: EmbedReport
    engine: Engine
    keeps_old: bool = False  # the chunks keep the vectors that they have
    # The chunks of each text that the engine has, by its hash.
    under_way: dict[bytes, list[StoredChunk]] = field(default_factory=dict)

    def embed_waiting(self, within: ChunkRange) -> Generator[int]:
        """Embed what waits, beginnings of documents and the newest first."""
        for _ in range(2):  # the second time what was stored meanwhile
            with self.database.read() as connection:
                order = waiting_chunks(connection, within)
            yield from self.embed(order)

    def embed(self, chunk_ids: Sequence[int]) -> Generator[int]:
        self.under_way.clear()
        windows = (chunk_ids[at : at + WINDOW] for at in range(0, len(chunk_ids), WINDOW))
        batches = (batch for window in windows for batch in self._batches(window))
        with closing(self.engine.run(self.embedder, batches)) as answers:
            for vectors in answers:
                self._store(vectors)
                yield self.report.embedded + self.report.reused

    def _batches(self, chunk_ids: Sequence[int]) -> Iterator[Batch]:
        """Batches of texts without a vector; chunks get existing vectors at once."""
        by_hash: dict[bytes, list[StoredChunk]] = {}
        with self.database.read() as connection:
            for chunk in chunks_to_embed(connection, chunk_ids, anew=self.keeps_old):
                same = self.under_way.get(chunk.text_hash)
                (by_hash.setdefault(chunk.text_hash, []) if same is None else same).append(chunk)
            existing = vectors_of(connection, self.model_id, list(by_hash))
            missing = [same[0] for key, same in by_hash.items() if key not in existing]
            texts = texts_to_embed(connection, missing)
        if existing:
            chunks = [chunk for key in existing for chunk in by_hash[key]]
            with self.database.write() as connection:
                self._use(connection, chunks)
            self.report.reused += len(chunks)
            yield {}
        keys = [key for key in by_hash if key in texts]
        self.under_way.update((key, by_hash[key]) for key in keys)
        for start in range(0, len(keys), BATCH_SIZE):
            yield {key: texts[key] for key in keys[start : start + BATCH_SIZE]}

    def _store(self, vectors: Vectors) -> None:
        """Store what the engine answers; repeated answers change nothing."""
        new = {key: vector for key, vector in vectors.items() if key in self.under_way}
        if not new:
            return
        chunks = [chunk for key in new for chunk in self.under_way.pop(key)]
        with self.database.write() as connection:
            self.require_model(connection)
            insert_vectors(connection, self.model_id, new.items())
            self._use(connection, chunks)
            if not self.keeps_old:  # a call may have replaced the passages meanwhile
                stored = vectors_of(connection, self.model_id, list(new))
                delete_if_unused(connection, list(stored.values()))
        self.report.embedded += len(new)
        self.report.reused += len(chunks) - len(new)

    def _use(self, connection: Connection, chunks: Sequence[StoredChunk]) -> None:
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
        """Refuse to mix vectors when another process changed the file's model meanwhile."""
        if self.keeps_old:
            model_id = find_model_id(connection, *_key(self.embedder))
        else:
            current = current_model(connection)
            model_id = current["model_id"] if current is not None else None
        if model_id != self.model_id:
            raise ModelMismatchError(
                f"another process changed this file's model while {self.embedder.name} was at "
                "work: run the command again"
            )


def _follow_language(model: ModelInUse, waiting: int, report: EmbedReport, engine: Engine) -> None:
    """Take the model that suits the documents while nearly all wait: the first may have misled."""
    most = (waiting - 1) // MANY_TIMES
    with model.database.read() as connection:
        old = current_model(connection)
        if old is None or has_more_vectors(connection, most):
            return
    if not (suited := model.better_model()):
        return
    embedder = model.make_embedder(suited)
    run, embedded = _run_beside(model, embedder, report, engine, with_vector=True)
    try:
        for _ in run.embed(embedded):
            pass
        with model.database.write() as connection:
            run.require_model(connection)
            # Another process may have changed the model or embedded much meanwhile.
            if current_model(connection) == old and not has_more_vectors(connection, most):
                switch_model(connection, run.model_id)
                model.keep_embedder(embedder)
    except ModelMismatchError:
        pass  # another process changed the model: who embeds next takes that one


def _run_beside(
    model: ModelInUse,
    embedder: Embedder,
    report: EmbedReport,
    engine: Engine,
    *,
    with_vector: bool = False,
) -> tuple[_Run, list[int]]:
    """A run with another model while the file keeps its own, and the chunks to embed."""
    embedder.embed(["width"])  # nothing has changed when it cannot be loaded
    with model.database.write() as connection:
        model_id = _insert_model(connection, embedder)
        ids = chunk_ids(connection, with_vector=with_vector)
    return _Run(model.database, embedder, model_id, report, engine, keeps_old=True), ids


def _key(embedder: Embedder) -> tuple[str, str, int]:
    return embedder.name, embedder.sha256, embedder.width


def _model_in_use(database: Database, embedder: Embedder) -> int:
    """The row id of the embedder's model, which becomes current if no model is."""
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
            return model_id
        if current["model_id"] != model_id:
            raise ModelMismatchError(
                f"this file's vectors come from {current['name']} with {current['width']} "
                f"dimensions, not from {embedder.name} with {embedder.width}: "
                f"run `kb reembed --model {embedder.name}`",
                model=current["name"],
            )
    if is_address(embedder.name):
        require_same_vectors(database, embedder)
    return model_id


def _is_other_build(embedder: Embedder, current: Row) -> bool:
    """Whether the file uses another build of the model, whose vectors may be mixed with it."""
    return (
        (current["name"], current["width"]) == (embedder.name, embedder.width)
        and current["sha256"] != embedder.sha256
        and are_interchangeable(embedder.name, current["sha256"], embedder.sha256)
    )


def _insert_model(connection: Connection, embedder: Embedder) -> int:
    return insert_model(connection, *_key(embedder), *embedder.calibration)


def calibrate(database: Database, embedder: Embedder) -> None:
    """Note how the cosines of a model nobody has judged become scores. Raises EmbeddingError.

    The packaged model, whose scores are fitted to judged collections, reads a sample of the file's
    own passages too. The new model's line is laid through two points at which both say the same: a
    heading with the passage below it, and one with passages of other documents. How near that comes
    to fitted constants: docs/decisions/0031-models-by-address.md.
    """
    if is_address(embedder.name) and (calibration := _calibrated(database, embedder)) is not None:
        embedder.calibration = calibration
        with database.write() as connection:
            _insert_model(connection, embedder)


def require_same_vectors(database: Database, embedder: Embedder) -> None:
    """Raise ModelMismatchError if a server gives a text another vector than the file has."""
    with database.read() as connection:
        first = chunk_ids(connection, with_vector=True, limit=1)
        chunks = chunks_to_embed(connection, first, anew=True)
        if not chunks:
            return
        stored = chunk_vectors(connection, chunks[0].document_id)[chunks[0].chunk_id]
        (text,) = texts_to_embed(connection, chunks).values()
    if float(embedder.embed([text])[0] @ mean_vector([stored])) < SAME_MODEL:
        raise ModelMismatchError(
            f"{embedder.name} gives other vectors than those in the file: run "
            f"`kb reembed --model {embedder.name}` if the server has another model now",
            model=embedder.name,
        )


def _calibrated(database: Database, embedder: Embedder) -> Calibration | None:
    """A model's calibration by the passages of a file; None if these are too few."""
    sample = _sample(database)
    if len(sample) < MIN_SAMPLES:
        return None
    fitted = make_embedder(suited_model([text for _, text in sample]))
    related, unrelated = _medians(fitted, sample)
    own_related, own_unrelated = _medians(embedder, sample)
    if min(related - unrelated, own_related - own_unrelated) < MIN_CONTRAST:
        return None
    line = fitted.calibration
    slope = line.slope * (related - unrelated) / (own_related - own_unrelated)
    return Calibration(slope, line.slope * unrelated + line.intercept - slope * own_unrelated)


def _sample(database: Database) -> list[tuple[str, str]]:
    """A heading of each sampled document, and the passage that begins below it."""
    with database.read() as connection:
        ids = all_document_ids(connection)
        chosen = ids[:: 1 + len(ids) // MAX_SAMPLES]
        stored = passages_of_documents(connection, chosen)
        sections = {
            (row["document_id"], row["position"]): row["heading_path"]
            for row in sections_of_documents(connection, chosen)
        }
        texts = {row["document_id"]: row for row in texts_of(connection, chosen)}
    by_document: dict[int, tuple[str, str]] = {}
    for document_id, section, _, _, start, end, _, _ in stored:
        if section is not None:
            row, path = texts[document_id], sections[document_id, section]
            text = embedding_text(row["title"], path, row["content"][start:end])
            by_document[document_id] = (path.rpartition(" > ")[2], text)  # the last one
    return list(by_document.values())


def _medians(embedder: Embedder, sample: Sequence[tuple[str, str]]) -> tuple[float, float]:
    """The median cosine of headings with their own passages, and with others."""
    import numpy as np

    queries, passages = [], []
    for at in range(0, len(sample), BATCH_SIZE):
        headings, texts = zip(*sample[at : at + BATCH_SIZE], strict=True)
        queries.append(embedder.embed_queries(headings))
        passages.append(embedder.embed(texts))
    cosines = np.concatenate(queries) @ np.concatenate(passages).T
    is_own = np.eye(len(cosines), dtype=bool)
    return float(np.median(cosines[is_own])), float(np.median(cosines[~is_own]))

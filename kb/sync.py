"""Run the write flow: sources -> parse -> chunk -> store, then embed. Skip what is unchanged.

Text first: each document is one transaction and found by keywords at once. Then the chunks that
have no vector are embedded, a few a transaction, so that an interruption costs a second of work
and the next sync goes on where this one stopped.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kb.chunk import chunk, embedding_text
from kb.database import Connection, Database, Row, utc_now
from kb.embed import BATCH_SIZE, Embedder, load_tokenizer, quantize, text_hash
from kb.errors import SourceError, UsageError
from kb.knowledge_base import KnowledgeBase
from kb.parse import parse
from kb.sources import SourceFile, SourceText, read, walk
from kb.store import NewDocument, delete_document, store_document, vectors_of
from kb.vectors import rebuild_document_vectors, rebuild_slabs

WINDOW = 512  # chunks that are sorted by length together before they are embedded

# Called with a stage ("documents" or "embedding"), how much is done and how much there is.
Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class SyncReport:
    """What a sync of one collection did, in documents, and what it could not do."""

    collection: str
    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    total: int = 0
    renamed: int = 0  # counted under `updated` too
    errors: list[dict[str, str]] = field(default_factory=list)
    notices: list[dict[str, str]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class EmbedReport:
    """What an embedding run did, in chunks."""

    embedded: int = 0  # went through the model
    reused: int = 0  # had the same text as an embedded one
    waiting: int = 0  # left without a vector


def no_progress(stage: str, done: int, total: int) -> None:
    """The progress of a sync that nobody watches."""


def sync_collection(
    kb: KnowledgeBase, collection: Row, *, force: bool = False, progress: Progress = no_progress
) -> SyncReport:
    """Bring a collection's documents in line with its folder; no embedding yet.

    Args:
        collection: a row of `collections`.
        force: read every file again even if its size and time are unchanged, and let an empty
            folder empty the collection.

    Raises:
        SourceError: the folder is missing, or empty while the collection is not.
    """
    report = SyncReport(collection["name"])
    collection_id = collection["collection_id"]
    unreadable: list[str] = []

    def note(path: str, message: str) -> None:
        report.errors.append({"path": path, "message": message})
        unreadable.append(path)

    files = list(
        walk(
            Path(collection["source"]),
            json.loads(collection["include"]),
            json.loads(collection["exclude"]),
            report=note,
        )
    )
    with kb.database.read() as connection:
        stored = {
            row["path"]: row for row in connection.rows("stored_files", collection_id=collection_id)
        }
    if stored and not files and not force:
        raise SourceError(
            f"{collection['source']} holds no matching file any more, but the collection "
            f'"{collection["name"]}" has {len(stored)} documents: nothing was changed; use --force '
            "if it shall become empty",
            path=collection["source"],
        )
    gone = {path: row for path, row in stored.items() if path not in {file.path for file in files}}
    with kb.database.batch():
        for done, file in enumerate(files):
            progress("documents", done, len(files))
            try:
                _sync_file(kb.database, collection_id, file, stored, gone, force, report)
            except SourceError as error:
                note(file.path, error.message)
            except RecursionError:
                note(file.path, "is nested too deeply to be read as a document")
        for path, row in gone.items():
            # What could not be listed may still be there: keep it.
            if any(path == bad or bad == "." or path.startswith(f"{bad}/") for bad in unreadable):
                continue
            with kb.database.write() as connection:
                delete_document(connection, row["document_id"])
            report.removed += 1
        with kb.database.write() as connection:
            if report.updated or report.removed:
                connection.run("delete_unused_vectors")
            report.total = connection.value("count_documents", collection_id=collection_id)
            connection.run(
                "finish_collection_sync", collection_id=collection_id, synced_at=utc_now()
            )
    progress("documents", len(files), len(files))
    return report


def embed_pending(kb: KnowledgeBase, *, progress: Progress = no_progress) -> EmbedReport:
    """Give every chunk that waits for one its vector. Resumes where an earlier run stopped.

    Raises:
        EmbeddingError: the model cannot be used; the chunks wait on.
    """
    report = EmbedReport()
    with kb.database.read() as connection:
        total = connection.value("count_chunks_without_vector")
        if not total:
            return report
        embedder = kb.embedder(connection)
    model_id = _current_model(kb.database, embedder)
    after = -1
    with kb.database.batch():
        while True:
            with kb.database.read() as connection:
                window = connection.tuples("chunks_without_vector", after=after, limit=WINDOW)
            if not window:
                break
            after = window[-1][0]
            for done in _embed_window(kb.database, embedder, model_id, window, report, _assign):
                progress("embedding", done, total)
    progress("embedding", total, total)
    return report


def reembed(
    kb: KnowledgeBase, embedder: Embedder, *, progress: Progress = no_progress
) -> EmbedReport:
    """Embed everything with another model. Searches go on with the old vectors till the end.

    An interrupted run leaves the old model in use and its finished vectors for the next run.
    """
    report = EmbedReport()
    model_id = _current_model(kb.database, embedder, make_current=False)
    with kb.database.read() as connection:
        total = connection.value("count_chunks")
    after = -1
    with kb.database.batch():
        while True:
            with kb.database.read() as connection:
                window = connection.tuples("chunks_with_text", after=after, limit=WINDOW)
            if not window:
                break
            after = window[-1][0]
            for done in _embed_window(kb.database, embedder, model_id, window, report, _keep):
                progress("embedding", done, total)
        with kb.database.write() as connection:
            _switch_model(connection, model_id)
    # What was stored while the model was changed.
    rest = embed_pending(kb, progress=progress)
    report.embedded += rest.embedded
    report.reused += rest.reused
    return report


def require_source(collection: Row) -> None:
    """Refuse to sync what has no source.

    Raises:
        UsageError: the collection is filled by tool calls.
    """
    if not collection["source"]:
        raise UsageError(
            f'the collection "{collection["name"]}" is filled by tool calls and has no source to '
            "sync from"
        )


def _sync_file(
    database: Database,
    collection_id: int,
    file: SourceFile,
    stored: dict[str, Row],
    gone: dict[str, Row],
    force: bool,
    report: SyncReport,
) -> None:
    """Store one file if it changed. `gone` loses the document that it turns out to be."""
    known = stored.get(file.path)
    same_stamp = known is not None and (known["file_size"], known["modified_ns"]) == (
        file.size,
        file.modified_ns,
    )
    if same_stamp and not force:
        report.unchanged += 1
        return
    source = read(file)
    if known is not None and known["content_hash"] == source.content_hash:
        if not same_stamp:
            with database.write() as connection:
                connection.run(
                    "touch_document",
                    document_id=known["document_id"],
                    file_size=file.size,
                    modified_ns=file.modified_ns,
                )
        report.unchanged += 1
        return
    if source.notice:
        report.notices.append({"path": file.path, "message": source.notice})
    new = prepare_document(file, source)
    report.notices += [{"path": file.path, "message": text} for text in new.parsed.notices]
    origin = None
    if known is None:
        # The same bytes under a new path while the old path is gone: a rename keeps the document.
        origin = next(
            (path for path, row in gone.items() if row["content_hash"] == source.content_hash), None
        )
    old = gone.pop(origin) if origin is not None else known
    with database.write() as connection:
        store_document(connection, collection_id, new, old["document_id"] if old else None)
    if old is None:
        report.added += 1
    else:
        report.updated += 1
        report.renamed += origin is not None


def prepare_document(file: SourceFile, source: SourceText) -> NewDocument:
    """Parse and chunk a file's text."""
    parsed = parse(source.text, file.path)
    return NewDocument(
        path=file.path,
        text=source.text,
        content_hash=source.content_hash,
        parsed=parsed,
        chunks=chunk(source.text, parsed, load_tokenizer()),
        encoding=source.encoding,
        file_size=file.size,
        modified_ns=file.modified_ns,
    )


# ---------------------------------------------------------------------- embedding


def _embed_window(
    database: Database,
    embedder: Embedder,
    model_id: int,
    window: list[tuple[int, str, str, str]],
    report: EmbedReport,
    use: Callable[[Connection, dict[int, int]], None],
) -> Iterator[int]:
    """Embed the distinct texts of some chunks; `use` gets the vector id of each chunk.

    Yields how many chunks are done in all, after each transaction.
    """
    texts = {
        chunk_id: embedding_text(title, heading, body) for chunk_id, title, heading, body in window
    }
    chunks_of: dict[bytes, list[int]] = {}
    text_of: dict[bytes, str] = {}
    for chunk_id, text in texts.items():
        key = text_hash(text)
        chunks_of.setdefault(key, []).append(chunk_id)
        text_of[key] = text
    with database.write() as connection:
        known = vectors_of(connection, model_id, list(chunks_of))
        use(connection, {i: vector_id for key, vector_id in known.items() for i in chunks_of[key]})
    report.reused += sum(len(chunks_of[key]) for key in known)
    yield report.embedded + report.reused
    # A batch costs what its longest text costs, so texts of like length go together.
    missing = sorted((key for key in chunks_of if key not in known), key=lambda k: len(text_of[k]))
    batches = [missing[i : i + BATCH_SIZE] for i in range(0, len(missing), BATCH_SIZE)]

    def run(keys: list[bytes]) -> list[bytes]:
        vectors = quantize(embedder.embed([text_of[key] for key in keys]))
        return [vector.tobytes() for vector in vectors]

    for keys, vectors in _run_in_parallel(run, batches):
        with database.write() as connection:
            connection.run_many(
                "insert_vector",
                (
                    {"model_id": model_id, "text_hash": key, "vector": vector}
                    for key, vector in zip(keys, vectors, strict=True)
                ),
            )
            ids = vectors_of(connection, model_id, keys)
            use(connection, {i: ids[key] for key in keys for i in chunks_of[key]})
        report.embedded += len(keys)
        report.reused += sum(len(chunks_of[key]) - 1 for key in keys)
        yield report.embedded + report.reused


def _run_in_parallel(
    run: Callable[[list[bytes]], list[bytes]], batches: list[list[bytes]]
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Each batch with its result, in order, on every core.

    onnxruntime releases the interpreter's lock, so threads that share one loaded model keep all
    cores busy. At most two batches a worker are under way: an interruption loses little.
    """
    workers = os.cpu_count() or 1
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


def _assign(connection: Connection, vector_ids: dict[int, int]) -> None:
    """Give chunks their vectors and bring the vector index in line."""
    connection.run_many(
        "set_chunk_vector",
        ({"chunk_id": chunk_id, "vector_id": vec} for chunk_id, vec in vector_ids.items()),
    )
    rebuild_slabs(connection, vector_ids)
    rows = connection.tuples("documents_of_chunks", chunk_ids=json.dumps(list(vector_ids)))
    rebuild_document_vectors(connection, [row[0] for row in rows])


def _keep(connection: Connection, vector_ids: dict[int, int]) -> None:
    """Leave the chunks as they are: their vectors are still the old model's."""


def _current_model(database: Database, embedder: Embedder, *, make_current: bool = True) -> int:
    """The id of the embedder's row in `models`, which it makes if need be."""
    embedder.embed(["width"])  # a named model's width is known once it is loaded
    with database.write() as connection:
        connection.run(
            "insert_model",
            name=embedder.name,
            width=embedder.width,
            sha256=embedder.sha256,
            slope=embedder.calibration.slope,
            intercept=embedder.calibration.intercept,
            is_current=make_current,
        )
        found = connection.value("find_model", name=embedder.name, sha256=embedder.sha256)
        return int(found)


def _switch_model(connection: Connection, model_id: int) -> None:
    """Make another model's vectors the ones in use, in one transaction."""
    connection.run("clear_chunk_vectors")
    after = -1
    while window := connection.tuples("chunks_with_text", after=after, limit=WINDOW):
        after = window[-1][0]
        keys = {
            chunk_id: text_hash(embedding_text(title, heading, body))
            for chunk_id, title, heading, body in window
        }
        known = vectors_of(connection, model_id, list(set(keys.values())))
        connection.run_many(
            "set_chunk_vector",
            (
                {"chunk_id": chunk_id, "vector_id": known[key]}
                for chunk_id, key in keys.items()
                if key in known
            ),
        )
    connection.run("unset_current_models")
    connection.run("set_current_model", model_id=model_id)
    connection.run("delete_other_models")
    connection.run("delete_unused_vectors")
    slab_ids = [row[0] for row in connection.tuples("all_slab_ids")]
    rebuild_slabs(connection, (slab_id << 10 for slab_id in slab_ids))
    rows = connection.tuples("all_document_ids")
    rebuild_document_vectors(connection, [row[0] for row in rows])

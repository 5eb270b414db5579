"""Move collections from one file to another, with their vectors.

A collection is copied in one transaction and deleted in another file's, so that at every moment
one of the two holds it. What an interruption leaves in both is recognised by the next run. Others
may go on writing while it is copied; what they did is done to the copy before the original goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kb.errors import CollectionNotFound, UsageError
from kb.formats.parse import parse
from kb.formats.research import RESEARCH
from kb.ingest.reach import take_along
from kb.ingest.report import Progress, no_progress
from kb.models.embedder import are_interchangeable
from kb.results.care import MovedCollection
from kb.settings import DEFAULT_INDEX
from kb.store.collections import (
    all_collections,
    collection_name,
    finish_sync,
    free_name,
    store_collection,
)
from kb.store.connection import Connection, Row
from kb.store.contents import collection_range, count_waiting, stored_files
from kb.store.database import Database
from kb.store.discoveries import KIND as DISCOVERIES, make_discoveries
from kb.store.documents import (
    NewDocument,
    delete_collection,
    delete_document,
    store_document,
    whole_document,
)
from kb.store.tidying import tidy
from kb.store.vectors import current_model, insert_model, insert_vectors, set_current_model
from kb.text.times import utc_now


def move_collection(
    source: Database, target: Database, row: Row, progress: Progress = no_progress
) -> MovedCollection:
    """Move one collection, a row of the source's `all_collections`, with all its documents.

    Raises:
        UsageError: it belongs to a project, or documents of its name there say something else.
        CollectionNotFound: it was removed meanwhile.
    """
    if row["project_id"] is not None:
        raise UsageError(
            f'"{row["name"]}" is the documentation of a project, which comes and goes with its '
            "activation: it cannot be moved"
        )
    since = utc_now()
    with source.read() as old, target.write() as new:
        copied = stored_files(old, row["collection_id"])
        collection_id, name = target_collection(new, row, copied)
        take_along(source, row, target.mark)
        hashes = _hashes(stored_files(new, collection_id))
        for path, content_hash in _hashes(copied).items():
            if hashes.get(path, content_hash) != content_hash:
                raise UsageError(
                    f'"{row["name"]}" was not moved, since {path} has another text in {target.path}'
                )
        ids = [file["document_id"] for file in copied if file["path"] not in hashes]
        copy_documents(old, new, collection_id, ids, progress)
        if row["synced_at"]:
            finish_sync(new, collection_id, row["version"], row["description"])
    with source.write() as old:
        if collection_name(old, row["collection_id"]) != row["name"]:
            raise CollectionNotFound(
                f'the collection "{row["name"]}" was removed while it was moved'
            )
        # What others have stored or deleted since the copy began; from here on they cannot.
        now = stored_files(old, row["collection_id"])
        with target.write() as new:
            _catch_up(old, new, collection_id, copied, now, since)
            waiting = count_waiting(new, collection_range(collection_id))
        delete_collection(old, row["collection_id"])
    tidy(target)
    tidy(source)
    return MovedCollection(collection=row["name"], name=name, documents=len(now), waiting=waiting)


def copy_documents(
    old: Connection,
    new: Connection,
    collection_id: int,
    document_ids: Sequence[int],
    progress: Progress = no_progress,
) -> None:
    """Store some documents of one file in a collection of another, inside a write there.

    Vectors go with them where both files have the same model, or the new one has none.
    """
    model_id = _shared_model(old, new)
    for done, document_id in enumerate(document_ids):
        progress("documents", done, len(document_ids))
        document, vectors = whole_document(old, document_id)
        if model_id is not None:
            insert_vectors(new, model_id, vectors.items())
        store_document(new, collection_id, _with_blocks(document))


def _catch_up(
    old: Connection,
    new: Connection,
    collection_id: int,
    copied: Sequence[Row],
    now: Sequence[Row],
    since: str,
) -> None:
    """Repeat in the copy what happened to the collection `since` copying began."""
    keys = ("document_id", "content_hash", "indexed_at")
    before, after = (
        {row["path"]: tuple(row[key] for key in keys) for row in rows} for rows in (copied, now)
    )
    # The same text may have been stored with other metadata, within one second.
    same = {path for path, state in after.items() if before.get(path) == state and state[2] < since}
    copies = {row["path"]: row["document_id"] for row in stored_files(new, collection_id)}
    for path in copies.keys() & (after.keys() - before.keys()):
        raise UsageError(f"not moved, since {path} was stored in both files meanwhile")
    for path in copies.keys() & (before.keys() - same):
        delete_document(new, copies[path])
    copy_documents(old, new, collection_id, [after[path][0] for path in after if path not in same])


def _hashes(rows: Sequence[Row]) -> dict[str, bytes]:
    return {row["path"]: row["content_hash"] for row in rows}


def target_collection(new: Connection, row: Row, files: Sequence[Row]) -> tuple[int, str]:
    if row["kind"] == DISCOVERIES:
        return make_discoveries(new), row["name"]
    rows = {other["name"]: other for other in all_collections(new)}
    if (namesake := rows.get(row["name"])) is not None:
        is_default = row["name"] == DEFAULT_INDEX and namesake["kind"] == row["kind"] == "index"
        hashes = _hashes(stored_files(new, namesake["collection_id"]))
        if is_default or (hashes and hashes == _hashes(files)):
            return namesake["collection_id"], row["name"]
    name = free_name(row["name"], rows)
    return store_collection(new, {**row, "collection_id": 0, "name": name}), name


def _shared_model(old: Connection, new: Connection) -> int | None:
    """The new file's model, if it made the old one's vectors; else None."""
    model, target = current_model(old), current_model(new)
    if model is None:
        return None
    if target is not None:
        is_same = all(target[name] == model[name] for name in ("name", "width"))
        builds = model["sha256"], target["sha256"]
        is_same = is_same and are_interchangeable(model["name"], *builds)
        return int(target["model_id"]) if is_same else None
    key = {name: model[name] for name in ("name", "sha256", "width", "slope", "intercept")}
    model_id = insert_model(new, **key)
    set_current_model(new, model_id)
    return model_id


def _with_blocks(new: NewDocument) -> NewDocument:
    """A research report with its paragraphs, by which similar ones are detected."""
    archive = new.parsed.front_matter.get("archive")
    if not isinstance(archive, dict) or archive.get("source") != RESEARCH:
        return new
    blocks = parse(new.text, new.path).blocks
    return replace(new, parsed=replace(new.parsed, blocks=blocks))

"""Move collections from one file to another, with their vectors.

A collection is copied in one transaction and deleted in another file's, so that at every moment
one of the two holds it. What an interruption leaves in both is recognised by the next run. Others
may go on writing while it is copied; what they did is done to the copy before the original goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kb.errors import CollectionNotFound, UsageError
from kb.formats.archive_kinds import RESEARCH
from kb.formats.parse import parse
from kb.ingest.progress import Progress, no_progress
from kb.models.embedder import are_interchangeable
from kb.store.chunks import count_waiting
from kb.store.collections import (
    all_collections,
    collection_name,
    finish_sync,
    free_name,
    insert_collection_like,
)
from kb.store.connection import Connection, Row
from kb.store.contents import stored_files
from kb.store.database import Database
from kb.store.discoveries import KIND as DISCOVERIES
from kb.store.discoveries import make_discoveries
from kb.store.documents import (
    NewDocument,
    delete_collection,
    delete_document,
    store_document,
)
from kb.store.embeddings import current_model, insert_model, insert_vectors, set_current_model
from kb.store.ids import collection_range
from kb.store.names import DEFAULT_INDEX
from kb.store.stored import whole_document
from kb.store.tidying import tidy
from kb.text.times import utc_now

__all__ = ["Moved", "copy_documents", "move_collection"]


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of one collection."""

    collection: str
    name: str  # in the other file, where its own may have been taken
    documents: int
    waiting: int  # passages without a vector there


def move_collection(
    source: Database, target: Database, row: Row, progress: Progress = no_progress
) -> Moved:
    """Move one collection with all its documents.

    Args:
        row: of the source's `all_collections`.

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
        known = stored_files(old, row["collection_id"])
        collection_id, name = _place(new, row, known)
        there = {one["path"]: one["content_hash"] for one in stored_files(new, collection_id)}
        ids = [one["document_id"] for one in known if one["path"] not in there]
        if wrong := [
            one["path"]
            for one in known
            if there.get(one["path"]) not in (None, one["content_hash"])
        ]:
            raise UsageError(
                f'"{row["name"]}" was not moved, since {wrong[0]} has another text in {target.path}'
            )
        copy_documents(old, new, collection_id, ids, progress)
        if row["synced_at"]:
            finish_sync(new, collection_id, row["version"], row["description"])
    with source.write() as old:
        if collection_name(old, row["collection_id"]) != row["name"]:
            raise CollectionNotFound(
                f'the collection "{row["name"]}" was removed while it was moved'
            )
        # What somebody has stored or taken out since the copy began: nobody can any more.
        now = stored_files(old, row["collection_id"])
        with target.write() as new:
            _catch_up(old, new, collection_id, known, now, since)
            waiting = count_waiting(new, collection_range(collection_id))
        delete_collection(old, row["collection_id"])
    tidy(target)
    tidy(source)
    return Moved(row["name"], name, len(now), waiting)


def copy_documents(
    old: Connection,
    new: Connection,
    collection_id: int,
    document_ids: Sequence[int],
    progress: Progress = no_progress,
) -> None:
    """Store some documents of one file in a collection of another, inside a write there.

    Vectors go with them where both files have the same model; a file without one takes the
    other's.
    """
    model_id = _model(old, new)
    for done, document_id in enumerate(document_ids):
        progress("documents", done, len(document_ids))
        stored = whole_document(old, document_id)
        if model_id is not None:
            insert_vectors(new, model_id, stored.vectors)
        store_document(new, collection_id, _with_blocks(stored.new))


def _catch_up(
    old: Connection,
    new: Connection,
    collection_id: int,
    known: Sequence[Row],
    now: Sequence[Row],
    since: str,
) -> None:
    """Do in the copy what was done to the collection since.

    Args:
        known: the documents as they were copied.
        now: as they are.
        since: when copying began.

    Raises:
        UsageError: the other file has a document of the name of a new one.
    """
    before, after = (
        {one["path"]: (one["document_id"], one["content_hash"], one["indexed_at"]) for one in rows}
        for rows in (known, now)
    )
    # The same text may have been stored with other metadata, within one second.
    same = {path for path, one in after.items() if before.get(path) == one and one[2] < since}
    copies = {one["path"]: one["document_id"] for one in stored_files(new, collection_id)}
    for path in copies.keys() & (after.keys() - before.keys()):
        raise UsageError(f"not moved, since {path} was stored in both files meanwhile")
    for path in copies.keys() & (before.keys() - same):
        delete_document(new, copies[path])
    copy_documents(old, new, collection_id, [after[path][0] for path in after if path not in same])


def _place(new: Connection, row: Row, known: Sequence[Row]) -> tuple[int, str]:
    """The collection that the documents go into, and its name."""
    if row["kind"] == DISCOVERIES:
        return make_discoveries(new), row["name"]
    rows = {one["name"]: one for one in all_collections(new)}
    if (same := rows.get(row["name"])) is not None:
        is_default = row["name"] == DEFAULT_INDEX and same["kind"] == row["kind"] == "index"
        there = {
            one["path"]: one["content_hash"] for one in stored_files(new, same["collection_id"])
        }
        is_copy = bool(there) and there == {one["path"]: one["content_hash"] for one in known}
        if is_default or is_copy:
            return same["collection_id"], row["name"]
    name = free_name(row["name"], rows)
    return insert_collection_like(new, row, name), name


def _model(old: Connection, new: Connection) -> int | None:
    """The model there that has made the vectors here; None where another one has."""
    model, there = current_model(old), current_model(new)
    if model is None:
        return None
    key = {name: model[name] for name in ("name", "sha256", "width")}
    if there is not None:
        same = all(there[name] == model[name] for name in ("name", "width"))
        same = same and are_interchangeable(model["name"], model["sha256"], there["sha256"])
        return int(there["model_id"]) if same else None
    model_id = insert_model(new, **key, slope=model["slope"], intercept=model["intercept"])
    set_current_model(new, model_id)
    return model_id


def _with_blocks(new: NewDocument) -> NewDocument:
    """A research report with its paragraphs, by which others are found that say the same."""
    archive = new.parsed.front_matter.get("archive")
    if not isinstance(archive, dict) or archive.get("source") != RESEARCH:
        return new
    blocks = parse(new.text, new.path).blocks
    return replace(new, parsed=replace(new.parsed, blocks=blocks))

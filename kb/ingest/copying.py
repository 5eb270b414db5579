"""A file is copied whole, its collections move to another file, or it is cut into shards.

A collection that moves is copied in one transaction and deleted in another file's, so that at every
moment one of the two holds it. What an interruption leaves in both is recognised by the next run.
Others may go on writing while it is copied; what they did is done to the copy before the original
goes.

Shards are files of whole documents (docs/decisions/0038-shards.md). A hash of its id says which
shard has a document. Each collection of a shard knows which remainder of the hash is its own, so a
sync of one shard needs nothing of the others.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kb.disk.read import reason
from kb.errors import CollectionNotFound, FileError, UsageError
from kb.formats.metadata import RESEARCH
from kb.ingest.forget import erase_documents, write_anew
from kb.ingest.reach import take_along
from kb.ingest.report import Progress, no_progress
from kb.models.embedder import are_interchangeable
from kb.results.care import Copied, MovedCollection, ShardFile
from kb.settings import DEFAULT_INDEX
from kb.store.access_tokens import copy_tokens
from kb.store.collections import (
    all_collections,
    collection_name,
    finish_sync,
    free_name,
    store_collection,
    update_source,
)
from kb.store.connection import Connection, Row
from kb.store.contents import collection_range, count_waiting, sizes, stored_files
from kb.store.copies import forget_paths, forget_use
from kb.store.database import Database
from kb.store.discoveries import KIND as DISCOVERIES, make_discoveries, stored_discoveries
from kb.store.documents import delete_collection, delete_document, store_document, whole_document
from kb.store.mark import Mark
from kb.store.opening import make_file
from kb.store.tidying import tidy
from kb.store.vectors import current_model, insert_model, insert_vectors, set_current_model
from kb.text.times import utc_now


def copy_file(database: Database, destination: Path, *, share: bool = False) -> Copied:
    """As `Care.copy`, to a path that is not a folder."""
    if destination.exists():
        raise FileError(f"{destination} exists already: choose another name or remove it")
    unfinished = destination.with_name(f"{destination.name}.adapted")
    with database.read() as connection:
        rows = all_collections(connection)
    try:
        unfinished.unlink(missing_ok=True)
        database.copy_to(unfinished, shown=destination)
        without_source = None
        with Database(unfinished) as copy:
            if share:
                without_source = _forget_private(copy)
            else:  # relative sources lead elsewhere from there
                before: dict[int, str] = {row["collection_id"]: row["source"] for row in rows}
                with copy.write() as connection:
                    for row in all_collections(connection):
                        source = before.get(row["collection_id"])
                        if source is not None and row["source"] != source:
                            update_source(connection, row["collection_id"], source)
        unfinished.rename(destination)
        mark = Mark(destination)  # what this user confirmed of a file holds for the copy
        if database.mark.is_own:
            mark.confirm_file()
        for row in rows:
            take_along(database, row, mark)
    except OSError as error:
        raise FileError(f"cannot write the copy {destination}: {reason(error)}") from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
    size = destination.stat().st_size
    return Copied(copy=str(destination), bytes=size, without_source=without_source)


def _forget_private(copy: Database) -> list[str]:
    with copy.write() as connection:
        discoveries = stored_discoveries(connection)
        erase_documents(connection, [row["document_id"] for row in discoveries])
        forget_use(connection)
        without_source = forget_paths(connection)
    if problem := write_anew(copy):
        raise FileError(f"the copy cannot be cleaned: {problem}")
    return without_source


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
    from kb.formats.parse import parse  # here: `kb status` needs none

    model_id = _shared_model(old, new)
    for done, document_id in enumerate(document_ids):
        progress("documents", done, len(document_ids))
        document, vectors = whole_document(old, document_id)
        if model_id is not None:
            insert_vectors(new, model_id, vectors.items())
        archive = document.parsed.front_matter.get("archive")
        if isinstance(archive, dict) and archive.get("source") == RESEARCH:
            # With its paragraphs, by which similar reports are detected.
            blocks = parse(document.text, document.path).blocks
            document = replace(document, parsed=replace(document.parsed, blocks=blocks))
        store_document(new, collection_id, document)


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
    options = json.loads(row["options"])
    is_part = options.pop("shard", None) is not None
    row = {**row, "options": json.dumps(options, ensure_ascii=False)}  # whole outside of its set
    if (namesake := rows.get(row["name"])) is not None:
        is_default = row["name"] == DEFAULT_INDEX and namesake["kind"] == row["kind"] == "index"
        is_same = bool(row["source"]) and row["source"] == namesake["source"]
        if is_same and "shard" in json.loads(namesake["options"]):
            raise UsageError(f'"{row["name"]}" was not moved: the other file is a shard of it')
        hashes = _hashes(stored_files(new, namesake["collection_id"]))
        if is_default or (is_part and is_same) or (hashes and hashes == _hashes(files)):
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


def is_of_shard(path: str, shard: Sequence[int] | None) -> bool:
    """Whether a document belongs to a shard.

    Args:
        shard: remainder and divisor, as the options of a collection have them; None: all belong.
    """
    if not shard:
        return True
    digest = hashlib.sha256(path.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % shard[1] == shard[0]


def cut_file(
    source: Database, folder: Path, count: int, progress: Progress = no_progress
) -> list[ShardFile]:
    """As `Care.cut`, into so many shards.

    The folder gets its name when all shards are whole. What tool calls fill stays together in the
    first shard, which has the tokens too. Documentation of projects comes with their activation.
    """
    if folder.exists():
        raise FileError(f"{folder} is there already: name a new folder")
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    try:
        unfinished.mkdir()
    except OSError as error:
        reason = error.strerror
        if isinstance(error, FileExistsError):
            reason = "it is there; if no other split writes it, one was stopped: remove it"
        raise FileError(f"cannot make {unfinished}: {reason}") from error
    names = [f"{source.path.stem}-{number + 1}-of-{count}.db" for number in range(count)]
    try:
        with source.read(is_long=True) as old:
            rows = [
                row
                for row in all_collections(old)
                if row["project_id"] is None and (row["source"] or row["has_documents"])
            ]
            if not any(row["source"] for row in rows):
                raise UsageError("no collection has a source, and only such are cut")
            files = [stored_files(old, row["collection_id"]) for row in rows]
            done, total = 0, sum(map(len, files))
            for number, name in enumerate(names):
                make_file(unfinished / name, source.path)
                with Database(unfinished / name) as target:
                    with target.write() as new:
                        for row, part in zip(rows, files, strict=True):

                            def show(stage: str, now: int, _: int, before: int = done) -> None:
                                progress(stage, before + now, total)

                            done += _fill(old, new, row, part, (number, count), show)
                        if not number:
                            copy_tokens(old, new)
                    tidy(target)
        with source.read() as old:
            if [stored_files(old, row["collection_id"]) for row in rows] != files:
                raise FileError("the file was written to meanwhile, so it was not cut: try again")
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    shards = []
    for path in (folder / name for name in names):
        with Database(path, create=False) as target:
            target.mark.confirm_file()  # what may be read is noted by a file's place
            for row in rows:
                take_along(source, row, target.mark)
            with target.read() as new:
                documents = sizes(new)["documents"]
        shards.append(ShardFile(file=str(path), documents=documents, bytes=path.stat().st_size))
    return shards


def _fill(
    old: Connection,
    new: Connection,
    row: Row,
    files: Sequence[Row],
    part: tuple[int, int],
    progress: Progress,
) -> int:
    """Copy a shard's part of a collection; how many documents that is."""
    number, count = part
    if row["source"]:
        options = json.loads(row["options"])
        remainder, divisor = options.get("shard", (0, 1))
        shard = options["shard"] = [remainder + divisor * number, divisor * count]
        row = {**row, "options": json.dumps(options, ensure_ascii=False)}
        files = [file for file in files if is_of_shard(file["path"], shard)]
    elif number:
        return 0
    if row["kind"] == DISCOVERIES:
        collection_id = make_discoveries(new)
    else:
        collection_id = store_collection(new, {**row, "collection_id": 0})
    copy_documents(old, new, collection_id, [file["document_id"] for file in files], progress)
    if row["synced_at"]:
        finish_sync(new, collection_id, row["version"], row["description"])
    return len(files)

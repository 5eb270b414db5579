"""Cut a file into shards, files of whole documents: docs/decisions/0038-shards.md.

A hash of its id says which shard has a document. Each collection of a shard knows which remainder
of the hash is its own, so a sync of one shard needs nothing of the others.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kb.errors import FileError, UsageError
from kb.ingest.move import copy_documents, target_collection
from kb.ingest.reach import take_along
from kb.ingest.report import Progress, no_progress
from kb.store.access_tokens import copy_tokens
from kb.store.collections import all_collections, finish_sync
from kb.store.connection import Connection, Row
from kb.store.contents import stored_files
from kb.store.database import Database
from kb.store.opening import make_file
from kb.store.tidying import tidy


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
) -> list[Path]:
    """Write a file's documents into so many shards in a new folder; the file stays as it is.

    The folder gets its name when all shards are whole. What tool calls fill stays together in the
    first shard, which has the tokens too. Documentation of projects comes with their activation.

    Raises:
        FileError: the folder is there already or cannot be written, or the file was written to.
        UsageError: no collection has a source.
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
            files = _files(old, rows)
            done, total = 0, sum(map(len, files))
            for number, name in enumerate(names):
                make_file(unfinished / name, source.path)
                with Database(unfinished / name) as target:
                    with target.write() as new:
                        for row, part in zip(rows, files, strict=True):
                            show = partial(_show, progress, done, total)
                            done += _fill(old, new, row, part, (number, count), show)
                        if not number:
                            copy_tokens(old, new)
                    tidy(target)
        with source.read() as old:
            if _files(old, rows) != files:
                raise FileError("the file was written to meanwhile, so it was not cut: try again")
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    paths = [folder / name for name in names]
    for path in paths:  # what may be read is noted by a file's place
        with Database(path, create=False) as target:
            target.mark.confirm_file()
            for row in rows:
                take_along(source, row, target.mark)
    return paths


def _files(connection: Connection, rows: Sequence[Row]) -> list[list[Row]]:
    return [stored_files(connection, row["collection_id"]) for row in rows]


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
    collection_id, _ = target_collection(new, row, ())
    copy_documents(old, new, collection_id, [file["document_id"] for file in files], progress)
    if row["synced_at"]:
        finish_sync(new, collection_id, row["version"], row["description"])
    return len(files)


def _show(progress: Progress, before: int, whole: int, stage: str, done: int, _: int) -> None:
    progress(stage, before + done, whole)

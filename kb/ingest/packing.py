"""The documents of a folder as one bundle, with the manifest that says so."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kb.errors import SourceError
from kb.ingest.prepare import files_of, glob_filter, opened
from kb.results.care import Packed
from kb.sources.bundle import pack
from kb.sources.folder import is_private_key
from kb.sources.manifest import MANIFEST_NAME
from kb.store.collections import unstored_row
from kb.text.file_names import storable


def pack_folder(
    folder: Path,
    destination: Path,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    facts: Mapping[str, str],
) -> Packed:
    """As `Care.pack`; `facts` are put in place of the manifest's, "" leaves it.

    If the folder has a manifest, only what that lists is packed, with its hashes; files that it
    names elsewhere stay there.
    """
    row = unstored_row(
        "", source=storable(folder), include=json.dumps(include), exclude=json.dumps(exclude)
    )
    left_out: list[str] = []
    with opened(row, fetch=False) as source:
        manifest = source.manifest
        if manifest.problems and not manifest.restricts:
            where, problem = manifest.problems[0]
            raise SourceError(f"nothing was packed, for {where} may leave something out: {problem}")
        files = []
        for file in files_of(
            row,
            source,
            report=lambda path, message: left_out.append(f"{path}: {message}"),
            withhold=lambda path: left_out.append(f"{path}: secret by its name"),
        ):
            if file.path == MANIFEST_NAME or file.location == destination.resolve():
                continue
            if is_private_key(file):
                left_out.append(f"{file.path}: a private key")
            else:
                files.append(file)
        if not files:
            raise SourceError(f"{folder} holds no document: nothing was packed")
        texts = {key: facts[key] or getattr(manifest, key) for key in facts}
        facts = {"name": folder.name, **{key: text for key, text in texts.items() if text}}
        hashes = {entry.path: entry.hash for entry in manifest.entries}
        listed = [_entry(file.path, "", hashes.get(file.path, "")) for file in files]
        matches = glob_filter(include, exclude)
        listed += [
            _entry(entry.path, entry.url, entry.hash)
            for entry in manifest.entries
            if entry.url and matches(entry.path)
        ]
        content = {**facts, **manifest.content, **facts, "sources": {"files": listed}}
        size = pack(files, destination, content)
    return Packed(
        bundle=str(destination),
        documents=len(files),
        bytes=size,
        left_out=[*manifest.notices, *left_out],
    )


def _entry(path: str, url: str, digest: str) -> str | dict[str, Any]:
    more = {key: value for key, value in (("url", url), ("hash", digest)) if value}
    return {"path": path, **more} if more else path

"""A file of a collection -> a document that is ready to be stored.

A text is parsed where we are, within a budget of time; another format is converted in a child
process first. Nothing is done before somebody asks for the document, since most files of a sync
are unchanged, and their hash says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from kb.disk.globs import Globs
from kb.disk.read import MAXIMUM_DOCUMENT
from kb.disk.skipped import skipped_parts
from kb.formats.archive import (
    METADATA_FILE,
    RESULT_FILE,
    ArchiveText,
    archive_facts,
    markdown_path,
    read_archive,
    walk_archive,
)
from kb.formats.archive_kinds import URL_CONTENT
from kb.formats.chunk import chunk
from kb.formats.convert.formats import ARTICLE, Format, format_of
from kb.formats.convert.process import Converter
from kb.formats.parse import MAXIMUM_CONVERTED, accepts, parse, parse_converted
from kb.ingest.budget import within_budget
from kb.models.tokens import load_tokenizer
from kb.sources.address import git_address, is_git, is_web, local
from kb.sources.bundle import unpacked
from kb.sources.captured import captured
from kb.sources.entries import checked, listed_files, with_entries
from kb.sources.folder import (
    Accepts,
    Report,
    SourceFile,
    SourceText,
    Withhold,
    read,
    read_data,
    walk,
)
from kb.sources.git import cloned
from kb.sources.opened import Opened
from kb.store.connection import Row
from kb.store.documents import NewDocument

__all__ = [
    "Preparation",
    "ReadFile",
    "files_of",
    "is_inside",
    "opened",
    "prepare_document",
    "trusted_time",
]

# File systems count time in steps of up to two seconds (FAT). A file that is younger than that
# when it is read can change once more without a change of its time, so its time is not kept.
TRUSTED_AGE_NS = 2_000_000_000


@contextlib.contextmanager
def opened(collection: Row, *, fetch: bool = True) -> Iterator[Opened]:
    """A collection's source, for as long as the block lasts.

    Args:
        fetch: False leaves out what the manifest of a folder or bundle names elsewhere.

    Raises:
        SourceError: it is a bundle that cannot be unpacked, or cannot be fetched.
    """
    source = collection["source"]
    allow_private = bool(json.loads(collection["options"]).get("allow_private"))
    wants = _wants(collection)
    if is_git(source):
        found: AbstractContextManager[Opened] = cloned(git_address(source), wants)
    elif is_web(source):
        found = captured(source, wants, allow_private=allow_private)
    else:
        found = unpacked(local(source))
    with (
        found as root,
        with_entries(root, wants, allow_private=allow_private, fetch=fetch) as whole,
    ):
        yield whole


def _wants(collection: Row) -> Accepts:
    """Which files of a source are fetched: those that the walk could take."""
    include = json.loads(collection["include"])
    globs = Globs(include, descend=False) if include else None
    beside = (METADATA_FILE, RESULT_FILE) if collection["kind"] == "archive" else ()

    def most_bytes(path: str) -> int:
        is_named = path.rpartition("/")[2] in beside or (globs is not None and globs.match(path))
        return accepts(path) or (MAXIMUM_DOCUMENT if is_named else 0)

    return most_bytes


def nothing_skipped(path: str) -> None:
    """Nobody asks which files are of other formats."""


def files_of(
    collection: Row,
    source: Opened,
    *,
    report: Report,
    withhold: Withhold,
    skip: Callable[[str], None] = nothing_skipped,
) -> list[SourceFile]:
    """The files of a source that are a collection's documents, as its kind and globs say.

    Args:
        skip: called with the path of each file that is left out for its format; never where
            globs say what is wanted.

    Raises:
        SourceError, UsageError: as `kb.sources.folder.walk`.
    """
    for path, problem in source.problems:
        report(path, problem)
    for where, problem in source.manifest.problems:
        report(where, problem)
    include, exclude = json.loads(collection["include"]), json.loads(collection["exclude"])
    named = Globs(include, descend=False) if include else None
    unwanted = Globs(exclude, descend=True)

    def is_wanted(path: str) -> bool:
        return (named is None or named.match(path)) and not unwanted.match(path)

    def most_bytes(path: str) -> int:
        most = accepts(path)
        if not most and not skipped_parts(path):
            skip(path)
        return most

    entries = {entry.path: entry for entry in source.manifest.entries}
    files = {file.path: file for file in source.fetched if is_wanted(file.path)}
    if source.manifest.entries:
        own = [one for one in entries.values() if not one.url and is_wanted(one.path)]
        for file in listed_files(source, own, report=report, withhold=withhold, accepts=accepts):
            files[file.path] = file
    if source.manifest.globs or not source.manifest.entries:
        taken = include or source.manifest.globs
        if collection["kind"] == "archive":
            walked = walk_archive(source.root, taken, exclude, report=report, withhold=withhold)
        else:
            walked = walk(
                source.root, taken, exclude, report=report, withhold=withhold, accepts=most_bytes
            )
        for file in walked:
            files.setdefault(file.path, file)
    return checked(sorted(files.values(), key=lambda file: file.path), entries, report)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file that was read."""

    content_hash: bytes
    # Raises ConversionError, and DocumentTooComplex as `prepare_document` does.
    prepare: Callable[[], NewDocument]
    notice: str = ""  # what the user should know of its reading
    source: SourceText | None = None  # None: it is converted


@dataclass(frozen=True, slots=True)
class Preparation:
    """How the files of one collection become documents."""

    converter: Converter
    options: Mapping[str, Any]  # of the collection
    is_archive: bool
    by_name: bool  # globs name the files: see `format_of`

    @classmethod
    def of(cls, collection: Row) -> Preparation:
        """How a collection's kind, globs and settings want it."""
        return cls(
            Converter(),
            json.loads(collection["options"]),
            is_archive=collection["kind"] == "archive",
            by_name=bool(json.loads(collection["include"]))
            or local(collection["source"]).is_file(),
        )

    def format_of(self, file: SourceFile) -> Format | None:
        """The format from which a file has to be converted; an archive holds text alone."""
        if self.is_archive:
            return None
        kind = format_of(file.path, by_name=self.by_name)
        return ARTICLE if file.url and kind is not None and kind.module == "page" else kind

    def read(self, file: SourceFile) -> ReadFile:
        """Read a file.

        Raises:
            SourceError: it cannot be read.
        """
        kind = self.format_of(file)
        if kind is not None:
            data = read_data(file, MAXIMUM_CONVERTED)
            content_hash = hashlib.sha256(data).digest()
            return ReadFile(content_hash, lambda: self._convert(file, kind, data, content_hash))
        source = read_archive(file) if self.is_archive else read(file)
        return ReadFile(
            source.content_hash,
            lambda: prepare_document(file, source, self.options),
            source.notice,
            source,
        )

    def _convert(
        self,
        file: SourceFile,
        kind: Format,
        data: bytes,
        content_hash: bytes,
    ) -> NewDocument:
        converted = self.converter.convert(kind, file.url or file.path.rsplit("/", 1)[-1], data)

        def prepared() -> NewDocument:
            parsed = parse_converted(converted, file.path)
            return NewDocument(
                path=file.path,
                text=converted.text,
                content_hash=content_hash,
                parsed=parsed,
                chunks=chunk(converted.text, parsed, load_tokenizer()),
                file_size=file.size,
                modified_ns=trusted_time(file),
                metadata=_origin(file),
                places=converted.places,
            )

        return within_budget(converted.text, prepared)


def prepare_document(
    file: SourceFile, source: SourceText, options: Mapping[str, Any] | None = None
) -> NewDocument:
    """Parse and chunk a file's text; `options` are its collection's.

    Raises:
        DocumentTooComplex: it takes too long, or has too many lines.
    """
    return within_budget(source.text, lambda: _prepare(file, source, options or {}))


def _prepare(file: SourceFile, source: SourceText, options: Mapping[str, Any]) -> NewDocument:
    parsed = parse(source.text, markdown_path(file.path))
    metadata = _origin(file)
    if isinstance(source, ArchiveText):
        facts = archive_facts(file, source, parsed, options)
        parsed = replace(parsed, title=facts.title or parsed.title)
        metadata = facts.as_metadata()
    return NewDocument(
        path=file.path,
        text=source.text,
        content_hash=source.content_hash,
        parsed=parsed,
        chunks=chunk(source.text, parsed, load_tokenizer()),
        encoding=source.encoding,
        file_size=file.size,
        modified_ns=trusted_time(file),
        metadata=metadata,
    )


def _origin(file: SourceFile) -> dict[str, Any]:
    """What is stored with a document that was fetched: as of a captured page in an archive."""
    if not file.url:
        return {}
    return {"archive": {"source": URL_CONTENT, "date": file.captured[:10], "urls": [file.url]}}


def trusted_time(file: SourceFile) -> int | None:
    """The file's time if a later change is sure to differ from it."""
    return file.modified_ns if time.time_ns() - file.modified_ns > TRUSTED_AGE_NS else None


def is_inside(path: str, places: Sequence[str]) -> bool:
    """Whether a path is one of these places or below one; "" and "." are the root."""
    return any(place in ("", ".", path) or path.startswith(f"{place}/") for place in places)

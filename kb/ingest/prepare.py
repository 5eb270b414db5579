"""A file of a collection -> a document that is ready to be stored.

Text is parsed here, within a budget of time; other formats are converted in a child process first.
A document is made only on request: most files of a sync are unchanged, and their hash says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kb.disk.globs import Globs
from kb.disk.read import MAXIMUM_DOCUMENT, UNKNOWN_STATE, FileState
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
from kb.formats.chunk import Chunk, chunk
from kb.formats.convert.address import saved_address
from kb.formats.convert.formats import Format, format_of
from kb.formats.convert.process import Converter
from kb.formats.metadata import URL_CONTENT, file_date
from kb.formats.outline import ParsedDocument
from kb.formats.parse import MAXIMUM_CONVERTED, accepts, parse, parse_converted, unnamed_format
from kb.ingest.budget import within_budget
from kb.models.tokens import load_tokenizer
from kb.sources.address import git_address, is_git, is_web, local
from kb.sources.bundle import unpacked
from kb.sources.captured import captured, checked, listed_files, with_entries
from kb.sources.folder import (
    Accepts,
    Opened,
    Report,
    SourceFile,
    SourceText,
    Withhold,
    read,
    read_data,
    walk,
)
from kb.sources.git import cloned
from kb.sources.includes import with_shown
from kb.sources.manifest import MANIFEST_NAME
from kb.store.connection import Row
from kb.store.documents import NewDocument

# FAT's clock has steps of two seconds: a younger file may change again unseen.
TRUSTED_AGE_NS = 2_000_000_000


@contextlib.contextmanager
def opened(collection: Row, *, fetch: bool = True) -> Iterator[Opened]:
    """A collection's source, for a block; without `fetch` not what its manifest names elsewhere.

    Raises SourceError if it is a bundle that cannot be unpacked, or cannot be fetched.
    """
    source = collection["source"]
    allow_private = bool(json.loads(collection["options"]).get("allow_private"))
    limits = _size_limits(collection)
    if is_git(source):
        opening: AbstractContextManager[Opened] = cloned(git_address(source), limits)
    elif is_web(source):
        opening = captured(source, limits, allow_private=allow_private)
    else:
        opening = unpacked(local(source))
    with (
        opening as root,
        with_entries(root, limits, allow_private=allow_private, fetch=fetch) as whole,
    ):
        yield whole


def _size_limits(collection: Row) -> Accepts:
    """The size limits for fetching files: those that the walk could take."""
    include = json.loads(collection["include"])
    globs = Globs(include, descend=False) if include else None
    beside = (METADATA_FILE, RESULT_FILE) if collection["kind"] == "archive" else ()

    def max_bytes(path: str) -> int:
        is_named = path.rpartition("/")[2] in beside or (globs is not None and globs.match(path))
        return accepts(path) or (MAXIMUM_DOCUMENT if is_named else 0)

    return max_bytes


def files_of(
    collection: Row,
    source: Opened,
    *,
    report: Report,
    withhold: Withhold,
    skip: Callable[[str], None] = lambda _: None,
) -> list[SourceFile]:
    """The files of a source that are a collection's documents, as its kind and globs say.

    Args:
        skip: called with the path of each file that is left out for its format; never where
            globs choose the files.

    Raises SourceError and UsageError as `kb.sources.folder.walk`.
    """
    for path, problem in (*source.problems, *source.manifest.problems):
        report(path, problem)
    include, exclude = json.loads(collection["include"]), json.loads(collection["exclude"])
    matches = glob_filter(include, exclude)
    entries = {entry.path: entry for entry in source.manifest.entries}
    files = {file.path: file for file in source.fetched if matches(file.path)}
    if entries:
        local_entries = [
            entry for entry in entries.values() if not entry.url and matches(entry.path)
        ]
        for file in listed_files(
            source, local_entries, report=report, withhold=withhold, accepts=accepts
        ):
            files[file.path] = file
    if source.manifest.globs or not entries:
        globs = include or source.manifest.globs

        def max_bytes(path: str) -> int:
            limit = accepts(path)
            if not (limit or globs or path == MANIFEST_NAME or skipped_parts(path)):
                skip(path)
            return limit

        take = walk_archive if collection["kind"] == "archive" else partial(walk, accepts=max_bytes)
        for file in take(source.root, globs, exclude, report=report, withhold=withhold):
            files.setdefault(file.path, file)
    if (state := source.state) is not None:
        for path, file in files.items():
            files[path] = replace(file, changed_ns=state.changed_ns, inode=state.inode)
    return checked(sorted(files.values(), key=lambda file: file.path), entries, report)


def glob_filter(include: Sequence[str], exclude: Sequence[str]) -> Callable[[str], bool]:
    """A test whether a collection's globs accept a path listed in its manifest."""
    included = Globs(include, descend=False) if include else None
    excluded = Globs(exclude, descend=True)
    return lambda path: (included is None or included.match(path)) and not excluded.match(path)


@dataclass(frozen=True, slots=True)
class ReadFile:
    content_hash: bytes
    # Raises ConversionError, and DocumentTooComplex as `prepare_document` does.
    prepare: Callable[[], NewDocument]
    notice: str = ""  # what the user should know of its reading
    source: SourceText | None = None  # None: it is converted

    def state_of(self, file: SourceFile) -> FileState:
        """The file's state, unless what it includes may change without it."""
        includes = self.source is not None and self.source.includes
        return UNKNOWN_STATE if includes else trusted_state(file)


@dataclass(frozen=True, slots=True)
class Preparation:
    """How the files of one collection become documents."""

    converter: Converter
    options: Mapping[str, Any]  # of the collection
    is_archive: bool
    by_name: bool  # globs name the files: see `format_of`
    exclude: Globs  # what no page may show either

    @classmethod
    def of(cls, collection: Row) -> Preparation:
        return cls(
            Converter(),
            json.loads(collection["options"]),
            is_archive=collection["kind"] == "archive",
            by_name=bool(json.loads(collection["include"]))
            or local(collection["source"]).is_file(),
            exclude=Globs(json.loads(collection["exclude"]), descend=True),
        )

    def format_of(self, file: SourceFile) -> Format | None:
        """The format to convert a file from; an archive holds only text."""
        return None if self.is_archive else format_of(file.path, by_name=self.by_name)

    def read(self, file: SourceFile) -> ReadFile:
        """Read a file. Raises SourceError if it cannot be read."""
        kind = self.format_of(file)
        if kind is None:
            text = (
                read_archive(file)
                if self.is_archive
                else with_shown(file, read(file), self.exclude)
            )
            kind = None if self.is_archive else unnamed_format(text.text, file.path)
            if kind is None:
                prepare = partial(prepare_document, file, text, self.options)
                return ReadFile(text.content_hash, prepare, text.notice, text)
        data = read_data(file, MAXIMUM_CONVERTED)
        content_hash = hashlib.sha256(data).digest()
        return ReadFile(content_hash, partial(self._convert, file, kind, data, content_hash))

    def _convert(
        self, file: SourceFile, kind: Format, data: bytes, content_hash: bytes
    ) -> NewDocument:
        saved = ""
        if kind.module == "page" and not file.url:
            folder = posixpath.dirname(file.path) or "."
            saved = saved_address(
                *(data, file.path),
                lambda path: os.path.isfile(file.location.parent / posixpath.relpath(path, folder)),
            )
        name = file.url or saved or file.path.rsplit("/", 1)[-1]
        converted = self.converter.convert(kind, name, data, ocr=self.options.get("ocr", ""))

        def prepared() -> NewDocument:
            parsed = parse_converted(converted, file.path)
            metadata = {"url": saved} if saved else _origin(file)
            new = _document(file, converted.text, content_hash, parsed, metadata)
            return replace(new, origins=converted.origins)

        return within_budget(converted.text, prepared)


def prepare_document(
    file: SourceFile, source: SourceText, options: Mapping[str, Any] | None = None
) -> NewDocument:
    """Parse and chunk a file's text, by its collection's options. Raises DocumentTooComplex."""

    def prepared() -> NewDocument:
        page = source.text[: source.shown[0].heading[0] - 1] if source.shown else source.text
        parsed = parse(page, markdown_path(file.path))
        metadata = _origin(file)
        if isinstance(source, ArchiveText):
            facts = archive_facts(file, source, parsed, options or {})
            parsed = replace(parsed, title=facts.title or parsed.title)
            metadata = facts.as_metadata()
        new = _document(file, page, source.content_hash, parsed, metadata)
        new = replace(new, encoding=source.encoding)
        if not source.includes:
            return new
        chunks = (*new.chunks, *_shown_chunks(source, parsed, len(new.chunks)))
        return replace(new, text=source.text, chunks=chunks, file=UNKNOWN_STATE)

    return within_budget(source.text, prepared)


def _document(
    file: SourceFile,
    text: str,
    content_hash: bytes,
    parsed: ParsedDocument,
    metadata: dict[str, Any],
) -> NewDocument:
    return NewDocument(
        path=file.path,
        text=text,
        content_hash=content_hash,
        parsed=parsed,
        chunks=chunk(text, parsed, load_tokenizer()),
        file=trusted_state(file),
        metadata=metadata,
        file_date=file_date(file.modified_ns),
    )


def _shown_chunks(source: SourceText, page: ParsedDocument, count: int) -> Iterator[Chunk]:
    """Passages of what a page includes, at the line that includes it, with the path as lead."""
    for shown in source.shown:
        around = [
            section
            for section in page.sections
            if section.start_line <= shown.line <= section.end_line
        ]
        section, path = (around[-1].position, around[-1].heading_path) if around else (None, "")
        text, heading = source.text[slice(*shown.body)], source.text[slice(*shown.heading)]
        parsed = parse(text, shown.path)
        # It is cut at its own blocks, with room for all that stands in front of each passage.
        of_sections = ("heading", "definition", "front_matter")
        blocks = [
            replace(block, kind="paragraph" if block.kind in of_sections else block.kind)
            for block in parsed.blocks
        ]
        title = f"{page.title} {path} {heading}"
        parsed = replace(parsed, title=title, sections=(), blocks=tuple(blocks))
        for part in chunk(text, parsed, load_tokenizer()):
            count += 1
            start, end = (shown.body[0] + at for at in (part.start_character, part.end_character))
            lines = shown.line, shown.line
            yield Chunk(count, section, path, *lines, start, end, shown.heading)


def _origin(file: SourceFile) -> dict[str, Any]:
    """The metadata of a fetched document, like that of a captured page."""
    if not file.url:
        return {}
    return {"archive": {"source": URL_CONTENT, "date": file.captured[:10], "urls": [file.url]}}


def trusted_state(file: SourceFile) -> FileState:
    """The file's state, without times so young that a change might not show."""
    oldest = time.time_ns() - TRUSTED_AGE_NS
    state = file.state
    if state.changed_ns is not None and state.changed_ns >= oldest:
        state = state._replace(changed_ns=None, inode=None)
    return state if file.modified_ns < oldest else state._replace(modified_ns=None)


def is_inside(path: str, folders: Sequence[str]) -> bool:
    """Whether a path is one of these or below one; "" and "." are the root."""
    return any(folder in ("", ".", path) or path.startswith(f"{folder}/") for folder in folders)

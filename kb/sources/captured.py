"""What an http address names: a manifest, a bundle, a list of pages or a page."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, urljoin

from kb.disk.read import MAXIMUM_DOCUMENT, reason, too_large
from kb.disk.secret import is_secret
from kb.errors import SourceError
from kb.sources.bundle import is_packed, unpacked_bundle
from kb.sources.folder import LEADS_OUT, Accepts, Opened, Report, SourceFile, Withhold, read_data
from kb.sources.manifest import MANIFEST_NAME, Entry, Manifest, parse_manifest
from kb.sources.member import Target
from kb.sources.pages import Pages, document_path, pages_of, predicted_path
from kb.sources.web import Fetched, Web
from kb.text.file_names import on_disk

MOST_BYTES = 200_000_000  # of an address's first response


@contextlib.contextmanager
def captured(url: str, accepts: Accepts, *, allow_private: bool) -> Iterator[Opened]:
    """What an address names, deleted after the block. Raises SourceError if that fails."""
    with (
        TemporaryDirectory(prefix="kb-captured-") as folder,
        Web(allow_private=allow_private) as web,
    ):
        target = Target(Path(folder), url)
        got = web.get(url, MOST_BYTES)
        if (manifest := parse_manifest(got.data)) is not None:
            yield _of_manifest(web, got, manifest, target, accepts)
        elif (pages := pages_of(web, got)) is not None:
            yield _of_pages(web, pages, target, accepts)
        elif path := document_path(url, got.media_type, accepts):
            yield Opened(_nothing(target), fetched=(write_fetched(target, path, got, url),))
        elif is_packed(got.data):
            bundle = Path(folder, "bundle")
            bundle.write_bytes(got.data)
            at = datetime.fromisoformat(got.captured).timestamp()
            os.utime(bundle, (at, at))
            with unpacked_bundle(bundle, url) as opened:
                yield opened
        else:
            raise SourceError(
                f"{url} is neither a page nor a document, list of pages, manifest or bundle that "
                f"kb knows: its type is {got.media_type or 'not said'}",
                path=url,
            )


def _of_pages(web: Web, pages: Pages, target: Target, accepts: Accepts) -> Opened:
    def document_name(entry: Entry, got: Fetched) -> str:
        path = document_path(entry.url, got.media_type, accepts)
        if not path:
            raise SourceError(f"{entry.url} is not a document ({got.media_type or 'of no type'})")
        return path

    entries = [Entry(predicted_path(url, accepts), url) for url in pages.urls]
    files, failed = fetched_files(web, entries, target, accepts, document_name, pages.pause)
    return Opened(
        _nothing(target),
        fetched=tuple(files),
        problems=tuple(failed),
        notices=tuple(pages.notices),
    )


def _nothing(target: Target) -> Path:
    """An empty folder, for a source whose files are all fetched."""
    folder = target.folder / ".none"
    folder.mkdir()
    return folder


def _of_manifest(
    web: Web, got: Fetched, manifest: Manifest, target: Target, accepts: Accepts
) -> Opened:
    """The files that a manifest lists, fetched relative to it or to its base address."""
    base = manifest.base_url or got.url
    entries = [
        entry if entry.url else replace(entry, url=urljoin(base, quote(entry.path)))
        for entry in manifest.entries
    ]
    problems = list(manifest.problems)
    if manifest.globs:
        why = "its globs are not used, since a server does not list its files: name them in files"
        problems.append((MANIFEST_NAME, why))
    files, failed = fetched_files(web, entries, target, accepts)
    return Opened(
        target.folder,
        replace(manifest, globs=(), entries=tuple(entries), problems=tuple(problems)),
        fetched=tuple(files),
        problems=tuple(failed),
    )


MOST_SECONDS_OF_ALL = 1_800.0  # of all that a source fetches
MOST_FETCHED = 10_000


def listed_files(
    source: Opened,
    entries: Sequence[Entry],
    *,
    report: Report,
    withhold: Withhold,
    accepts: Accepts,
) -> list[SourceFile]:
    """The entries that lie below a source's folder; the others are reported."""
    root = os.path.realpath(source.root)
    files = []
    for entry in entries:
        if is_secret(entry.path):
            withhold(entry.path)
            continue
        try:
            place = os.path.realpath(os.path.join(root, on_disk(entry.path)), strict=True)
            status = os.stat(place)
        except (OSError, ValueError) as error:
            report(entry.path, f"the manifest lists it, but {reason(error)}")
            continue
        inner = Path(os.path.relpath(place, root)).as_posix()
        maximum = accepts(entry.path) or MAXIMUM_DOCUMENT
        if not Path(place).is_relative_to(root):
            report(entry.path, LEADS_OUT)
        elif is_secret(inner):
            withhold(entry.path)
        elif not stat.S_ISREG(status.st_mode):
            report(entry.path, "skipped: not a regular file")
        elif status.st_size > maximum:
            report(entry.path, f"skipped: {too_large(status.st_size, maximum)}")
        else:
            files.append(SourceFile.of(entry.path, Path(place), status))
    return files


def checked(
    files: Sequence[SourceFile], entries: Mapping[str, Entry], report: Report
) -> list[SourceFile]:
    """The files without those whose hash differs from the listed one; these are reported."""
    kept = []
    for file in files:
        entry = entries.get(file.path)
        try:
            if entry is not None and entry.hash:
                entry.require(read_data(file, max(file.size, 1)))
        except SourceError as error:
            report(file.path, error.message)
        else:
            kept.append(file)
    return kept


@contextlib.contextmanager
def with_entries(
    source: Opened, accepts: Accepts, *, allow_private: bool, fetch: bool = True
) -> Iterator[Opened]:
    """A source with the files that its manifest names by address; without `fetch` unchanged."""
    done = {file.path for file in source.fetched} | {path for path, _ in source.problems}
    entries = [entry for entry in source.manifest.entries if entry.url and entry.path not in done]
    if not entries or not fetch:
        yield source
        return
    with (
        TemporaryDirectory(prefix="kb-fetched-") as folder,
        Web(allow_private=allow_private) as web,
    ):
        files, problems = fetched_files(web, entries, Target(Path(folder), "the manifest"), accepts)
        fetched, problems = [*source.fetched, *files], [*source.problems, *problems]
        yield replace(source, fetched=tuple(fetched), problems=tuple(problems))


def fetched_files(
    web: Web,
    entries: Sequence[Entry],
    target: Target,
    accepts: Accepts,
    document_name: Callable[[Entry, Fetched], str] = lambda entry, _: entry.path,
    pause: float = 0.0,
) -> tuple[list[SourceFile], list[tuple[str, str]]]:
    """Fetch entries one after the other, `pause` seconds apart; returns the files, and (path,
    reason) of each failure. `document_name` gives the path once the type is known."""
    files: list[SourceFile] = []
    problems: list[tuple[str, str]] = []
    until = time.monotonic() + MOST_SECONDS_OF_ALL
    for number, entry in enumerate(entries):
        if is_secret(entry.path):
            problems.append((entry.path, "never stored, by its name"))
        elif number >= MOST_FETCHED:
            problems.append((entry.path, f"not fetched: only {MOST_FETCHED:,} files are"))
        elif time.monotonic() > until:
            why = f"not fetched: all together took more than {MOST_SECONDS_OF_ALL / 60:.0f} minutes"
            problems.append((entry.path, why))
        else:
            if number and pause:
                time.sleep(pause)  # as the site asks for
            try:
                got = web.get(entry.url, accepts(entry.path) or MAXIMUM_DOCUMENT)
                entry.require(got.data)
                files.append(write_fetched(target, document_name(entry, got), got, entry.url))
            except SourceError as error:
                problems.append((entry.path, error.message))
            except OSError as error:  # the name is too long, or a file is where a folder must be
                problems.append((entry.path, reason(error)))
    return files, problems


def write_fetched(target: Target, path: str, got: Fetched, url: str) -> SourceFile:
    """Write what was fetched, timed by its bytes. Raises SourceError as `Target.write`, or
    OSError."""
    seconds = int(datetime.fromisoformat(got.captured).timestamp())
    part = int(hashlib.sha256(got.data).hexdigest()[:7], 16) % 1_000_000_000
    time_ns = seconds * 1_000_000_000 + part
    name = on_disk(path)
    target.write(name, io.BytesIO(got.data), time_ns)
    location, captured = target.folder / name, got.captured
    return SourceFile(path, location, len(got.data), time_ns, url=url, captured=captured)

"""The files that a manifest lists one by one: found below its folder, or fetched."""

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

from kb.disk.read import MAXIMUM_DOCUMENT, reason, too_large
from kb.disk.secret import is_secret
from kb.errors import SourceError
from kb.sources.folder import LEADS_OUT, Accepts, Report, SourceFile, Withhold, read_data
from kb.sources.manifest import Entry
from kb.sources.member import Target
from kb.sources.opened import Opened
from kb.sources.web import Fetched, Web
from kb.text.file_names import on_disk

__all__ = ["checked", "fetched_files", "listed_files", "with_entries", "write_fetched"]

MOST_SECONDS = 1_800.0  # of all that one source fetches
MOST_FETCHED = 10_000


def listed_files(
    source: Opened,
    entries: Sequence[Entry],
    *,
    report: Report,
    withhold: Withhold,
    accepts: Accepts,
) -> list[SourceFile]:
    """The entries that lie below a source's folder; those that do not are reported."""
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
        inner = os.path.relpath(place, root).replace(os.sep, "/")
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
            files.append(SourceFile(entry.path, Path(place), status.st_size, status.st_mtime_ns))
    return files


def checked(
    files: Sequence[SourceFile], entries: Mapping[str, Entry], report: Report
) -> list[SourceFile]:
    """The files without those whose hash is not the one that is listed; these are reported."""
    kept = []
    for file in files:
        entry = entries.get(file.path)
        problem = ""
        if entry is not None and entry.hash:
            try:
                problem = entry.problem(read_data(file, max(file.size, 1)))
            except SourceError as error:
                problem = error.message
        if problem:
            report(file.path, problem)
        else:
            kept.append(file)
    return kept


@contextlib.contextmanager
def with_entries(
    source: Opened, accepts: Accepts, *, allow_private: bool, fetch: bool = True
) -> Iterator[Opened]:
    """A source with the files that its manifest names by their addresses, for a while.

    Args:
        fetch: False takes none of them; none is a problem then.
    """
    done = {file.path for file in source.fetched} | {path for path, _ in source.problems}
    entries = [one for one in source.manifest.entries if one.url and one.path not in done]
    if not entries or not fetch:
        yield source
        return
    with (
        TemporaryDirectory(prefix="kb-fetched-") as folder,
        Web(allow_private=allow_private) as web,
    ):
        files, problems = fetched_files(web, entries, Target(Path(folder), "the manifest"), accepts)
        yield replace(
            source,
            fetched=(*source.fetched, *files),
            problems=(*source.problems, *problems),
        )


def fetched_files(
    web: Web,
    entries: Sequence[Entry],
    target: Target,
    accepts: Accepts,
    named: Callable[[Entry, Fetched], str] = lambda entry, _: entry.path,
    pause: float = 0.0,
) -> tuple[list[SourceFile], list[tuple[str, str]]]:
    """Fetch what is listed, one after the other; what cannot be had comes back with the reason.

    Args:
        named: the document's path, once its type is known.
        pause: seconds between two of them.
    """
    files: list[SourceFile] = []
    problems: list[tuple[str, str]] = []
    until = time.monotonic() + MOST_SECONDS
    for number, entry in enumerate(entries):
        if is_secret(entry.path):
            problems.append((entry.path, "never stored, by its name"))
        elif number >= MOST_FETCHED:
            problems.append((entry.path, f"not fetched: only {MOST_FETCHED:,} files are"))
        elif time.monotonic() > until:
            why = f"not fetched: all together took more than {MOST_SECONDS / 60:.0f} minutes"
            problems.append((entry.path, why))
        else:
            if number and pause:
                time.sleep(pause)  # as the site asks for
            try:
                got = web.get(entry.url, accepts(entry.path) or MAXIMUM_DOCUMENT)
                if problem := entry.problem(got.data):
                    raise SourceError(problem)
                files.append(write_fetched(target, named(entry, got), got, entry.url))
            except SourceError as error:
                problems.append((entry.path, error.message))
            except OSError as error:  # a name that is too long, or a file where a folder must be
                problems.append((entry.path, reason(error)))
    return files, problems


def write_fetched(target: Target, path: str, got: Fetched, url: str) -> SourceFile:
    """Write what was fetched, with a time that changes whenever its bytes do.

    Raises:
        SourceError: as `Target.write`.
        OSError: it cannot be written.
    """
    seconds = int(datetime.fromisoformat(got.captured).timestamp())
    part = int(hashlib.sha256(got.data).hexdigest()[:7], 16) % 1_000_000_000
    modified_ns = seconds * 1_000_000_000 + part
    target.write(on_disk(path), io.BytesIO(got.data), modified_ns)
    return SourceFile(
        path,
        target.folder / on_disk(path),
        len(got.data),
        modified_ns,
        url=url,
        captured=got.captured,
    )

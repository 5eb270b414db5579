"""What an http address names: a manifest, a bundle, a list of pages, or a page."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, urljoin

from kb.errors import SourceError
from kb.sources.bundle import unpacked
from kb.sources.entries import fetched_files, write_fetched
from kb.sources.folder import Accepts
from kb.sources.manifest import MANIFEST_NAME, Entry, Manifest, parse_manifest
from kb.sources.member import Target
from kb.sources.opened import Opened
from kb.sources.pages import Pages, document_path, pages_of, predicted_path
from kb.sources.web import Fetched, Web

__all__ = ["captured"]

MOST_BYTES = 200_000_000  # of what an address gives first
_TAR, _ZIP = b"\x1f\x8b", b"PK\x03\x04"


@contextlib.contextmanager
def captured(url: str, accepts: Accepts, *, allow_private: bool) -> Iterator[Opened]:
    """What an address names, for as long as the block lasts.

    Raises:
        SourceError: it cannot be fetched, or is nothing that has documents.
    """
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
        elif got.data.startswith((_TAR, _ZIP)):
            suffix = ".zip" if got.data.startswith(_ZIP) else ".tar.gz"
            bundle = Path(folder, f"bundle{suffix}")
            bundle.write_bytes(got.data)
            at = datetime.fromisoformat(got.captured).timestamp()
            os.utime(bundle, (at, at))
            with unpacked(bundle, called=url) as opened:
                yield opened
        else:
            raise SourceError(
                f"{url} is neither a page nor a document, list of pages, manifest or bundle that "
                f"kb knows: its type is {got.media_type or 'not said'}",
                path=url,
            )


def _of_pages(web: Web, pages: Pages, target: Target, accepts: Accepts) -> Opened:
    """The pages of a list."""

    def named(entry: Entry, got: Fetched) -> str:
        path = document_path(entry.url, got.media_type, accepts)
        if not path:
            raise SourceError(f"{entry.url} is no document ({got.media_type or 'of no type'})")
        return path

    entries = [Entry(predicted_path(url, accepts), url) for url in pages.urls]
    files, failed = fetched_files(web, entries, target, accepts, named, pages.pause)
    return Opened(
        _nothing(target),
        fetched=tuple(files),
        problems=tuple(failed),
        notices=tuple(pages.notices),
    )


def _nothing(target: Target) -> Path:
    """A folder without files, for a source whose files are all fetched."""
    folder = target.folder / ".none"
    folder.mkdir()
    return folder


def _of_manifest(
    web: Web, got: Fetched, manifest: Manifest, target: Target, accepts: Accepts
) -> Opened:
    """The files that a manifest lists, fetched from where it lies or its base address."""
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

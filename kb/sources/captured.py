"""What an http address names: a manifest, a bundle, a list of pages, a page; and how documents from
there are named."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import re
import stat
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, unquote, urljoin, urlsplit
from urllib.robotparser import RobotFileParser
from xml.etree import ElementTree

from kb.disk.read import MAXIMUM_DOCUMENT, reason, too_large
from kb.disk.secret import is_secret
from kb.errors import SourceError, UsageError
from kb.sources.address import web_address
from kb.sources.bundle import Target, is_packed, unpacked_bundle
from kb.sources.folder import LEADS_OUT, Accepts, Opened, Report, SourceFile, Withhold, read_data
from kb.sources.manifest import MANIFEST_NAME, Entry, Manifest, parse_manifest
from kb.sources.web import AGENT, Fetched, Web
from kb.text.assets import asset
from kb.text.counted import counted
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

    # The name of the document, if its type fits its name; else a page's name.
    paths = map(_plain_path, pages.urls)
    entries = [
        Entry(path if accepts(path) else f"{path}.html", url)
        for path, url in zip(paths, pages.urls, strict=True)
    ]
    files, failed = fetched_files(web, entries, target, accepts, document_name, pages.pause)
    return Opened(
        _nothing(target), fetched=tuple(files), problems=tuple(failed), notices=tuple(pages.notices)
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


MOST_PAGES = 1_000
MOST_LISTED = 10_000  # addresses that are checked, each against all of robots.txt
MOST_SITEMAPS = 50
MOST_SITEMAP_BYTES = 50_000_000
MOST_ROBOTS_BYTES = 500_000
MOST_PAUSE = 5.0  # seconds between pages, whatever robots.txt asks for
LONGEST_NAME = 120  # characters of a part of a path
LLMS = "llms.txt"

HTML_TYPES = ("text/html", "application/xhtml+xml")
_LINK = re.compile(r"\]\(\s*<?([^\s<>()]+)")
_XML = ("application/xml", "text/xml")


@dataclass(slots=True)
class Pages:
    """The pages that a sitemap or an `llms.txt` lists, and notices of those left out."""

    urls: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    pause: float = 0.0  # seconds between requests, as the site asks for


def document_path(url: str, media_type: str, accepts: Accepts) -> str:
    """The name of the document at an address; "" if its type is not a document's."""
    path = _plain_path(url)
    if media_type in HTML_TYPES:
        return path if path.lower().endswith((".html", ".htm", ".xhtml")) else f"{path}.html"
    if accepts(path):
        return path
    suffix = asset("texts")["media_types"].get(media_type, "")
    return f"{path}{suffix}" if suffix and accepts(f"{path}{suffix}") else ""


def _plain_path(url: str) -> str:
    parts = urlsplit(url)
    steps = unquote(parts.path).split("/")
    names = []
    for name in steps:
        if name not in ("", ".", ".."):
            plain = re.sub(r'[\x00-\x1f\x7f\\:*?"<>|\ud800-\udfff]', "-", name)
            if len(plain) > LONGEST_NAME:
                digest = hashlib.sha256(name.encode()).hexdigest()[:8]
                plain = f"{plain[: LONGEST_NAME - 9]}-{digest}"
            names.append(plain)
    if not names or parts.path.endswith("/"):
        names.append("index")
    if parts.query:
        digest = hashlib.sha256(parts.query.encode()).hexdigest()[:6]
        words = re.sub(r"[^\w.=-]+", "-", unquote(parts.query))[:60].strip("-.")
        stem, dot, suffix = names[-1].rpartition(".")
        names[-1] = f"{stem or suffix}-{words}-{digest}{dot if stem else ''}{suffix * bool(stem)}"
    return "/".join(names)


def pages_of(web: Web, got: Fetched) -> Pages | None:
    """The pages that this lists; None if it is a page itself."""
    tag = ""
    if got.media_type in _XML or _last_name(got.url).endswith((".xml", ".xml.gz")):
        with contextlib.suppress(SourceError):
            tag = _root_of(got.data).tag.rpartition("}")[2]
    if tag in ("urlset", "sitemapindex"):
        listed = _of_sitemap(web, got)
    elif _last_name(got.url) == LLMS:
        text = got.data.decode("utf-8", "replace")
        listed = [got.url, *_joined(got.url, _LINK.findall(text))]
    else:
        return None
    return _allowed(web, got.url, listed)


def _joined(url: str, links: Iterable[str]) -> Iterator[str]:
    """Absolute addresses of links, without malformed ones."""
    for link in links:
        with contextlib.suppress(ValueError):
            yield urljoin(url, link)


def _last_name(url: str) -> str:
    return urlsplit(url).path.rpartition("/")[2].lower()


def _of_sitemap(web: Web, got: Fetched) -> list[str]:
    urls: list[str] = []
    waiting, seen = [got], {got.url}
    while waiting:
        root = _root_of(waiting.pop(0).data)
        locations = [
            (child.text or "").strip()
            for entry in root
            for child in entry
            if child.tag.rpartition("}")[2] == "loc"
        ]
        if root.tag.rpartition("}")[2] != "sitemapindex":
            urls += locations
            continue
        for location in locations:
            if location in seen or len(seen) > MOST_SITEMAPS or len(urls) > MOST_PAGES:
                continue
            seen.add(location)
            try:
                url = web_address(location)
            except UsageError:
                urls.append(location)  # counted with the pages whose addresses are malformed
                continue
            if _host(url) == _host(got.url):
                waiting.append(web.get(url, MOST_SITEMAP_BYTES))
    return urls


def _root_of(data: bytes) -> ElementTree.Element:
    """A sitemap's root. Raises SourceError if it is not XML, too large or defines entities."""
    try:
        if data.startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
                data = packed.read(MOST_SITEMAP_BYTES + 1)
        if len(data) > MOST_SITEMAP_BYTES or b"<!DOCTYPE" in data[:10_000] or b"<!ENTITY" in data:
            raise SourceError("its sitemap is too large, or defines entities")
        return ElementTree.fromstring(data)
    except (ElementTree.ParseError, OSError, EOFError, ValueError, zlib.error) as error:
        raise SourceError(f"its sitemap is not XML: {error}") from error


def _allowed(web: Web, origin: str, listed: Iterable[str]) -> Pages:
    """The listed pages of the same host that its robots.txt permits."""
    pages = Pages()
    robots = _robots(web, origin)
    left_out: Counter[str] = Counter()
    urls: dict[str, None] = {}  # in order
    distinct = dict.fromkeys(listed)
    for address in islice(distinct, MOST_LISTED):
        try:
            url = web_address(address)
        except UsageError:
            left_out["whose addresses are malformed"] += 1
            continue
        if url in urls:
            continue
        if _host(url) != _host(origin):
            left_out["of other hosts"] += 1
        elif not robots.can_fetch(AGENT, url):
            left_out["that robots.txt closes"] += 1
        else:
            urls[url] = None
            if len(urls) > MOST_PAGES:
                break
    pages.urls = list(urls)[:MOST_PAGES]
    if len(urls) > MOST_PAGES:
        pages.notices.append(f"only the first {MOST_PAGES:,} pages are taken")
    elif len(distinct) > MOST_LISTED:
        pages.notices.append(f"only the first {MOST_LISTED:,} addresses are looked at")
    for why in ("of other hosts", "that robots.txt closes", "whose addresses are malformed"):
        if left_out[why]:
            pages.notices.append(f"left out: {counted(left_out[why], 'page')} {why}")
    with contextlib.suppress(ValueError):
        pages.pause = min(float(robots.crawl_delay(AGENT) or 0), MOST_PAUSE)
    return pages


def _robots(web: Web, origin: str) -> RobotFileParser:
    robots = RobotFileParser()
    try:
        got = web.get(urljoin(origin, "/robots.txt"), MOST_ROBOTS_BYTES)
        robots.parse(got.data.decode("utf-8", "replace").splitlines())
    except SourceError as error:
        # A site without one is open; one whose server fails is left alone.
        status = error.details.get("status", 500)
        robots.parse([] if 400 <= status < 500 else ["User-agent: *", "Disallow: /"])
    return robots


def _host(url: str) -> str:
    return (urlsplit(url).netloc or "").lower()

"""Which pages an address stands for, and their names as documents."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from urllib.parse import unquote, urljoin, urlsplit
from urllib.robotparser import RobotFileParser
from xml.etree import ElementTree

from kb.errors import SourceError, UsageError
from kb.sources.address import web_address
from kb.sources.folder import Accepts
from kb.sources.web import AGENT, Fetched, Web
from kb.text.assets import asset
from kb.text.counted import counted

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


def predicted_path(url: str, accepts: Accepts) -> str:
    """The name of the document at an address, if its type fits its name; else a page's name."""
    path = _plain_path(url)
    return path if accepts(path) else f"{path}.html"


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
    names = [_plain_name(name) for name in steps if name not in ("", ".", "..")]
    if not names or parts.path.endswith("/"):
        names.append("index")
    if parts.query:
        digest = hashlib.sha256(parts.query.encode()).hexdigest()[:6]
        words = re.sub(r"[^\w.=-]+", "-", unquote(parts.query))[:60].strip("-.")
        stem, dot, suffix = names[-1].rpartition(".")
        names[-1] = f"{stem or suffix}-{words}-{digest}{dot if stem else ''}{suffix * bool(stem)}"
    return "/".join(names)


def _plain_name(name: str) -> str:
    plain = re.sub(r'[\x00-\x1f\x7f\\:*?"<>|\ud800-\udfff]', "-", name)
    if len(plain) <= LONGEST_NAME:
        return plain
    return plain[: LONGEST_NAME - 9] + "-" + hashlib.sha256(name.encode()).hexdigest()[:8]


def is_sitemap(got: Fetched) -> bool:
    """Whether this is a sitemap, plain or gzipped, or an index of sitemaps."""
    if got.media_type not in _XML and not _last_name(got.url).endswith((".xml", ".xml.gz")):
        return False
    try:
        return _root_of(got.data).tag.rpartition("}")[2] in ("urlset", "sitemapindex")
    except SourceError:
        return False


def pages_of(web: Web, got: Fetched) -> Pages | None:
    """The pages that this lists; None if it is a page itself."""
    if is_sitemap(got):
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

"""Fetches what an http address names: bounded, and only what changed since the last time.

The user's cache folder keeps what was fetched with the server's validators, so that the next
request asks only for a newer edition.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kb.disk.write import replace_file
from kb.errors import SourceError, UsageError
from kb.settings import VERSION, user_cache
from kb.sources.address import web_address
from kb.text.times import utc_now

if TYPE_CHECKING:
    import httpx2

AGENT = "kbfile"
MOST_SECONDS = 120.0  # of a request with all its redirects
STEP_SECONDS = 20.0  # without a byte arriving
MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_REASONS = {
    401: "it needs a login",
    403: "its server does not allow it",
    404: "there is no such page",
    410: "it is gone for good",
    429: "its server asks to come later",
}


@dataclass(frozen=True, slots=True)
class Fetched:
    """What an address gave."""

    url: str  # where the redirects ended
    data: bytes
    media_type: str  # "text/html"; "" if the server does not say
    captured: str  # when these bytes first came, as UTC text


@dataclass(frozen=True, slots=True)
class _Kept:
    requested: str
    url: str
    media_type: str
    captured: str
    digest: str
    etag: str
    last_modified: str


class Web:
    """A client that fetches; a context manager. With `allow_private` it may also ask addresses of
    this machine and of private networks."""

    def __init__(self, *, allow_private: bool = False) -> None:
        import httpx2

        from kb.sources.transport import Deadline, Transport, environment_proxies

        self._deadline = Deadline()
        context = httpx2.create_ssl_context()
        direct = Transport(context, self._deadline, allow_private=allow_private)
        self._ways = environment_proxies(direct, context)
        self._client = httpx2.Client(
            transport=self._ways,
            trust_env=False,
            timeout=STEP_SECONDS,
            # A single coding, which expands a thousandfold at most: see `_body`.
            headers={"User-Agent": f"{AGENT}/{VERSION}", "Accept-Encoding": "gzip"},
        )
        self._allow_private = allow_private
        self._cache = cache_folder("web")

    def __enter__(self) -> Web:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, url: str, max_bytes: int) -> Fetched:
        """What an address gives, from the cache if the server says it is unchanged. Raises
        SourceError, which says why, if it cannot be fetched or is too large."""
        import httpx2

        self._deadline.at = time.monotonic() + MOST_SECONDS
        place = self._cache / hashlib.sha256(url.encode()).hexdigest()[:40]
        try:
            return self._follow(url, place, max_bytes)
        except (SourceError, UsageError) as error:  # UsageError: of a redirect's target
            details = {**error.details, "path": url}
            raise SourceError(f"{url} cannot be fetched: {error.message}", **details) from error
        except httpx2.TimeoutException as error:
            raise SourceError(f"{url} cannot be fetched: it took too long", path=url) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            text = str(error) or type(error).__name__
            raise SourceError(f"{url} cannot be fetched: {text}", path=url) from error

    def _follow(self, url: str, place: Path, max_bytes: int) -> Fetched:
        kept = _read_kept(place, url)
        headers: dict[str, str] = {}
        if kept is not None:
            headers |= {"If-None-Match": kept[0].etag} if kept[0].etag else {}
            headers |= {"If-Modified-Since": kept[0].last_modified} if kept[0].last_modified else {}
        at = url
        for _ in range(MAX_REDIRECTS + 1):
            self._check_proxied(at)
            with self._client.stream("GET", at, headers=headers) as response:
                status = response.status_code
                if status in _REDIRECTS and "location" in response.headers:
                    to = web_address(str(response.url.join(response.headers["location"])))
                    if at.startswith("https:") and to.startswith("http:"):
                        raise SourceError(f"it leads to {to}, which is not encrypted")
                    at = to
                    continue
                if status == 304 and kept is not None:
                    for suffix in (".json", ".body"):
                        with contextlib.suppress(OSError):
                            os.utime(place.with_suffix(suffix))
                    about, data = kept
                    return Fetched(about.url, data, about.media_type, about.captured)
                if status != 200:
                    why = _REASONS.get(status, "its server fails")
                    raise SourceError(f"{why} ({status})", status=status)
                data = _body(response, max_bytes)
                return _keep(place, url, at, response.headers, data, kept)
        raise SourceError(f"it leads from page to page, more than {MAX_REDIRECTS} times")

    def _check_proxied(self, url: str) -> None:
        """Refuse a private address even if a proxy makes the connection."""
        import httpcore2
        import httpx2

        from kb.sources.transport import addresses

        if not self._allow_private and self._ways.way(httpx2.URL(url)) is not self._ways.direct:
            parts = urlsplit(url)
            with contextlib.suppress(httpcore2.ConnectError):  # the proxy may know the name
                addresses(parts.hostname or "", parts.port or 443, allow_private=False)


def _body(response: httpx2.Response, max_bytes: int) -> bytes:
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "gzip", ""):
        raise SourceError(f'its server sends it as "{coding}", which was not asked for')
    data = bytearray()
    for part in response.iter_bytes(65_536):
        data += part
        if len(data) > max_bytes:
            raise SourceError(f"it has more than {max_bytes / 1e6:,.0f} MB")
    return bytes(data)


def _keep(
    place: Path,
    requested: str,
    url: str,
    headers: Mapping[str, str],
    data: bytes,
    kept: tuple[_Kept, bytes] | None,
) -> Fetched:
    """Cache a response; bytes that came before keep their date."""
    digest = hashlib.sha256(data).hexdigest()
    captured = kept[0].captured if kept is not None and kept[0].digest == digest else utc_now()
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    etag, last_modified = headers.get("etag", "")[:1_000], headers.get("last-modified", "")[:100]
    about = _Kept(requested, url, media_type, captured, digest, etag, last_modified)
    with contextlib.suppress(OSError):  # a full disk only costs the next sync some time
        replace_file(place.with_suffix(".body"), data)
        replace_file(place.with_suffix(".json"), json.dumps(asdict(about)).encode())
    return Fetched(url, data, media_type, captured)


def _read_kept(place: Path, url: str) -> tuple[_Kept, bytes] | None:
    """What the cache has of an address, if it is whole and unchanged."""
    try:
        about = _Kept(**json.loads(place.with_suffix(".json").read_bytes()))
        data = place.with_suffix(".body").read_bytes()
    except (OSError, ValueError, TypeError):
        return None
    is_whole = about.requested == url and about.digest == hashlib.sha256(data).hexdigest()
    return (about, data) if is_whole else None


KEPT_SECONDS = 90 * 86_400  # since the last use


def cache_folder(kind: str) -> Path:
    """The folder of one kind of source, private to the user, without entries older than
    `KEPT_SECONDS`. One that cannot be made is returned all the same: then nothing is kept."""
    folder = user_cache() / kind
    oldest = time.time() - KEPT_SECONDS
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):
                if entry.stat().st_mtime < oldest:
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return folder

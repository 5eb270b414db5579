"""`manifest.json`: what a collection says of itself, and which files are its documents.

    {"name": "handbook", "version": "1.2", "description": "How we work",
     "baseUrl": "https://example.com/handbook/",
     "sources": {"glob": ["guide/**/*.md"],
                 "files": ["a.md", {"path": "b.md", "hash": "sha256:..."},
                           {"url": "https://example.com/c.md"}]},
     "metadata": {"team": "docs"}}

Other programs have files of this name too: ours names its `sources`, or has only these keys. Paths
and globs are relative to the collection's folder. What cannot be used is reported and left out.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kb.disk.globs import Globs, unusable
from kb.disk.inside import as_listed
from kb.disk.read import read_bytes, reason
from kb.errors import SourceError, UsageError
from kb.sources.address import inner_path, web_address
from kb.text.file_names import on_disk, printable, storable, without_bytes
from kb.text.json_text import JsonError, parse_json

MANIFEST_NAME = "manifest.json"
MOST_BYTES = 10_000_000
MOST_ENTRIES = 100_000
MOST_TEXT = 2_000  # characters of a name, a version, a description
_KEYS = {"name", "version", "description", "baseUrl", "sources", "metadata", "$schema"}
_LENGTHS = {64: "sha256", 96: "sha384", 128: "sha512"}
_HASH = re.compile(r"(?:(sha256|sha384|sha512)[:-])?([0-9A-Za-z+/=_-]+)")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that a manifest lists."""

    path: str  # the document's id
    url: str = ""  # where to fetch it; "": it lies at the path
    hash: str = ""  # as written; "": any content is accepted

    def require(self, data: bytes) -> None:
        """Check bytes against the listed hash. Raises SourceError if it differs."""
        if not self.hash:
            return
        form = _HASH.fullmatch(self.hash)
        name = form and (form[1] or _LENGTHS.get(len(form[2])))
        if form is None or not name:
            raise SourceError(f'its hash "{self.hash[:40]}" is none of sha256, sha384 and sha512')
        try:
            listed = bytes.fromhex(form[2])
        except ValueError:
            try:
                listed = base64.b64decode(form[2], validate=True)
            except binascii.Error:
                listed = b""
        if not hmac.compare_digest(hashlib.new(name, data).digest(), listed):
            raise SourceError(
                f"its {name} is not the one that the manifest says: nothing of it is taken"
            )


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest says; any of it may be missing."""

    name: str | None = None
    version: str | None = None
    description: str | None = None
    base_url: str | None = None  # ends with "/"
    globs: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[tuple[str, str], ...] = ()  # where, and what
    notices: tuple[str, ...] = ()  # why it seems to be another program's
    content: Mapping[str, Any] = field(default_factory=dict)  # as written

    @property
    def restricts(self) -> bool:
        return bool(self.globs or self.entries)

    def is_named(self) -> Callable[[str], bool]:
        """A test whether a path is a document, made once: there may be 100,000 of both."""
        paths = {entry.path for entry in self.entries if not entry.url}
        globs = Globs(self.globs, descend=False) if self.globs else None
        return lambda path: path in paths or (globs is not None and globs.match(path))


def read_manifest(file: Path) -> Manifest:
    """The manifest in a file, its entries by their names on the disk; an empty one if there is
    none, or another program's."""
    try:
        content = parse_json(read_bytes(file, MOST_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return Manifest()
    except OSError as error:
        return _unusable(reason(error))
    except JsonError as error:
        return _unusable(f"it is not JSON ({error})")
    if _lists_sources(content):
        manifest = _manifest(content)
        entries = (_listed(entry, file.parent) for entry in manifest.entries)
        return replace(manifest, entries=tuple(entries))
    if isinstance(content, dict) and content and not content.keys() - _KEYS:
        if "sources" not in content:
            return _manifest(content)
        return _unusable('its "sources" have neither "glob" nor "files"')
    return Manifest(
        notices=(
            f'{MANIFEST_NAME} is not used: it has no "sources" with "glob" or "files", so it seems '
            "to be another program's",
        )
    )


def _listed(entry: Entry, folder: Path) -> Entry:
    if entry.url:
        return entry
    try:
        return replace(entry, path=storable(as_listed(str(folder), on_disk(entry.path))))
    except (OSError, ValueError):
        return entry  # whoever reads it says so


def parse_manifest(data: bytes) -> Manifest | None:
    """The manifest in these bytes; None if they are not one that lists its sources."""
    try:
        content = parse_json(data)
    except JsonError:
        return None
    return _manifest(content) if _lists_sources(content) else None


def _unusable(why: str) -> Manifest:
    return Manifest(problems=((MANIFEST_NAME, f"nothing of it is used: {why}"),))


def _lists_sources(content: Any) -> bool:
    return (
        isinstance(content, dict) and bool(parts := _parts(content)) and all(map(_is_ours, parts))
    )


def _parts(content: Mapping[str, Any]) -> list[Any]:
    sources = content.get("sources", [])
    return sources if isinstance(sources, list) else [sources]


def _manifest(content: Mapping[str, Any]) -> Manifest:
    problems: list[tuple[str, str]] = []
    globs: list[str] = []
    entries: dict[str, Entry] = {}
    base_url = _base_url(content.get("baseUrl"), problems)
    for part in _parts(content):
        part = {"glob": part} if isinstance(part, str) else part
        globs += _globs(part.get("glob", []), problems)
        for entry in _entries(part.get("files", []), base_url, problems):
            entries[entry.path] = entry
    metadata = content.get("metadata")
    return Manifest(
        _text(content.get("name")),
        _text(content.get("version")),
        _text(content.get("description")),
        base_url,
        tuple(globs),
        tuple(entries.values()),
        metadata if isinstance(metadata, dict) else {},
        tuple(problems),
        content=content,
    )


def _is_ours(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, dict) and ("glob" in part or "files" in part))


def _text(value: Any) -> str | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)  # a version without quotes
    text = " ".join(printable(value).split())[:MOST_TEXT] if isinstance(value, str) else ""
    return text or None


def _base_url(value: Any, problems: list[tuple[str, str]]) -> str | None:
    if value is None:
        return None
    try:
        if not isinstance(value, str):
            raise UsageError("it is not text")
        url = web_address(value).partition("?")[0]
    except UsageError as error:
        problems.append((MANIFEST_NAME, f"baseUrl is not used: {error.message}"))
        return None
    return url if url.endswith("/") else f"{url}/"


def _globs(value: Any, problems: list[tuple[str, str]]) -> Iterator[str]:
    globs = value if isinstance(value, list) else [value]
    why = unusable([glob for glob in globs if isinstance(glob, str)])
    if None in why:
        problems.append((MANIFEST_NAME, f"its globs are not used: {why[None]}"))
        return
    for glob in globs:
        if not isinstance(glob, str) or not glob.strip():
            problem = f"{glob!r:.100} is not a glob"
        elif glob in why:
            problem = why[glob]
        else:
            yield glob
            continue
        problems.append((MANIFEST_NAME, f"a glob is not used: {problem}"))


def _entries(value: Any, base_url: str | None, problems: list[tuple[str, str]]) -> Iterator[Entry]:
    listed = value if isinstance(value, list) else [value]
    if len(listed) > MOST_ENTRIES:
        problems.append((MANIFEST_NAME, f"only its first {MOST_ENTRIES:,} files are used"))
    for item in listed[:MOST_ENTRIES]:
        try:
            yield _entry({"path": item} if isinstance(item, str) else item, base_url)
        except (ValueError, UsageError) as error:
            text = error.message if isinstance(error, UsageError) else str(error)
            problems.append((MANIFEST_NAME, f"{printable(repr(item))[:100]} is not used: {text}"))


def _entry(item: Any, base_url: str | None) -> Entry:
    if not isinstance(item, dict):
        raise ValueError("a file is a path or an object")
    path, url, digest = (item.get(key, "") for key in ("path", "url", "hash"))
    if not all(isinstance(value, str) for value in (path, url, digest)):
        raise ValueError("path, url and hash are texts")
    if not (path or url):
        raise ValueError("it has neither path nor url")
    url = web_address(url) if url else ""
    if not path:
        parts = urlsplit(url)
        inside = base_url is not None and url.startswith(base_url)
        path = url[len(base_url or "") :] if inside else f"{parts.hostname}{parts.path}"
        path = unquote(path.partition("?")[0]).strip("/") or "index.html"
    inner = inner_path(path)
    is_absolute = path.startswith("/") or ":" in inner.partition("/")[0]
    if is_absolute or not inner or re.search(r"[\\\x00-\x1f\x7f]", without_bytes(path)):
        raise ValueError(
            "its path must be relative and hold neither backslashes nor control characters"
        )
    return Entry(printable(inner), url, digest)

"""The web address of a saved page, against which its relative links are resolved.

A page of a tree keeps relative links to the files beside it. So a page counts as saved by itself
unless one of its links leads to a file.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from html import unescape
from urllib.parse import unquote, urlsplit

_MOST_BYTES = 4_000_000  # searched for an address: styles may come first
_MOST_LINKS = 200  # that are looked up
# Internet Explorer and Chrome: "saved from url=(0022)https://..."; SingleFile: "url: https://...".
_SAVED_FROM = re.compile(
    rb"<!--\s*(?:saved from url=\(\d+\)|Page saved with SingleFile\s+url:\s*)(https?://[^\s<>\"]+)"
)
_TAG = re.compile(rb"<(?:link|meta)\b([^<>]*)>", re.IGNORECASE)
_ATTRIBUTE = re.compile(rb"""([\w:-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_LINK = re.compile(rb"""<a\s[^<>]*?\bhref\s*=\s*["']?([^"'\s<>#?:\\]+)""", re.IGNORECASE)


def saved_address(data: bytes, path: str, is_file: Callable[[str], bool]) -> str:
    """The address of a page that was saved by itself; "" if it has none or belongs to a tree.
    `path` and the arguments of `is_file` are paths in the collection."""
    head = data[:_MOST_BYTES]
    if saved := _SAVED_FROM.search(head):
        return _text(saved[1])
    address = next(_declared(head), "")
    return "" if not address or any(map(is_file, _linked_paths(head, path))) else address


def _declared(head: bytes) -> Iterator[str]:
    social: list[str] = []
    for tag in _TAG.finditer(head):
        values = {name.lower(): b"".join(value) for name, *value in _ATTRIBUTE.findall(tag[1])}
        if b"canonical" in values.get(b"rel", b"").lower().split():
            yield from _web(values.get(b"href", b""))
        elif values.get(b"property", values.get(b"name", b"")).lower() == b"og:url":
            social += _web(values.get(b"content", b""))
    yield from social


def _web(value: bytes) -> Iterator[str]:
    address = _text(value)
    try:
        parts = urlsplit(address)
    except ValueError:  # malformed brackets
        return
    if parts.scheme in ("http", "https") and parts.hostname:
        yield address


def _text(value: bytes) -> str:
    return unescape(value.decode("utf-8", "replace")).strip()


def _linked_paths(head: bytes, path: str) -> Iterator[str]:
    """The paths in the collection that a page's relative links lead to, except its own."""
    links = dict.fromkeys(link[1] for link in _LINK.finditer(head))
    for link in list(links)[:_MOST_LINKS]:
        place = posixpath.join("/", posixpath.dirname(path), unquote(_text(link)))
        joined = posixpath.normpath(place).lstrip("/")
        if joined not in ("", path):
            yield joined

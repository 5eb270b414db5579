"""What a link points to and what a document answers to, as keys that are equal when they meet.

`path:<collection>/guide/wind.md`, `page:radio link`, `url:example.com/page`. A document answers
to several keys; each has a rank, 0 for the most literal one. Its tags (`tag:boats/sails`) and its
date (`date:2026-01-31`, of a file with its time) are keys too: no link has such a one, but searches
look them up. To a link that leads to no document a sync may give a key that says where it leads
instead: `file:`, `external:` or `elsewhere:`.
"""

from __future__ import annotations

import datetime
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from kb.formats.tags import normal_tag, tags_of
from kb.text.headings import TERM_MARK
from kb.text.suffixes import PAGE_SUFFIX

if TYPE_CHECKING:
    from kb.formats.outline import Link

FOLDER_PAGES = {"readme": 2, "index": 3}
_TRACKING = re.compile(
    r"utm_\w+|fbclid|gclid|dclid|gbraid|wbraid|msclkid|yclid|twclid|igshid|mc_[ce]id|_hs(?:enc|mi)"
    r"|ref_src|ref_url|mkt_tok|vero_id|oly_(?:anon|enc)_id|_ga",
    re.IGNORECASE,
)
_COLLECTION = re.compile(r"\A((?:path|label|file|external|elsewhere):)\d+/")
_SPACES = re.compile(r"[\s_-]+")


def link_key(link: Link, path: str, collection_id: int) -> str:
    """The key of a link's target, seen from the document at `path`; "" when it has none."""
    if link.key:  # found in another collection, or another file
        return _COLLECTION.sub(rf"\g<1>{collection_id}/", link.key)
    if link.kind in ("ref", "term"):
        return label_key(link.url, collection_id, link.kind)
    if link.url.startswith("#"):
        return path_key(path, "", collection_id)
    if link.kind == "wiki":
        page = link.url.partition("#")[0]
        if not page.startswith(("./", "../")):
            return page_key(page)
        return path_key(PAGE_SUFFIX.sub("", page), posixpath.dirname(path), collection_id)
    if link.kind in ("doc", "toctree") and link.url.startswith("/"):
        return page_key(link.url)  # from the top of the Sphinx project, wherever that lies
    if re.match(r"(?:https?:)?//", link.url, re.IGNORECASE):
        return url_key(link.url)
    # The fragment goes first: a "%23" in a file's name is not one.
    name = unquote(link.url.partition("#")[0].partition("?")[0])
    return path_key(name, posixpath.dirname(path), collection_id) if name else ""


def path_key(name: str, folder: str, collection_id: int) -> str:
    """The key of a path relative to a folder of a collection; "/" begins at its root."""
    joined = name.lstrip("/") if name.startswith("/") else posixpath.join(folder, name)
    normal = posixpath.normpath(joined)
    return f"path:{collection_id}/" + unicodedata.normalize("NFC", "" if normal == "." else normal)


def label_key(label: str, collection_id: int, kind: str = "ref") -> str:
    """The key of a label, or of a glossary's term, that is known in a whole collection."""
    mark = TERM_MARK if kind == "term" else ""
    return f"label:{collection_id}/{mark}" + " ".join(label.split()).casefold()


def page_key(name: str) -> str:
    """The key of a wiki page: no suffix, no difference of case, blanks, hyphens, underscores."""
    bare = PAGE_SUFFIX.sub("", name.strip().lstrip("/"))
    normal = unicodedata.normalize("NFKC", bare).casefold()
    return "page:" + _SPACES.sub(" ", normal).strip()


def url_key(url: str) -> str:
    """The key of a web page.

    Without scheme, `www.`, the host's case, user, default port, trailing slash, fragment and
    tracking parameters; percent-encoding is made uniform and parameters are sorted.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:  # brackets or a port that are none
        return "url:" + url.strip()
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            host = host.casefold()
    host = host.removeprefix("www.")
    if port and port not in (80, 443):
        host += f":{port}"
    path = quote(unquote(parts.path), safe="/:@!$&'()*+,;=~").rstrip("/")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query = urlencode(sorted(pair for pair in pairs if not _TRACKING.fullmatch(pair[0])))
    return f"url:{host}{path}" + (f"?{query}" if query else "")


def document_keys(
    path: str,
    title: str,
    metadata: Mapping[str, Any],
    collection_id: int,
    published: Iterable[tuple[str, str]] = (),
    labels: Iterable[str] = (),
    tags: Iterable[str] = (),
    date: str = "",
) -> dict[str, int]:
    """Every key that a document answers to, with its rank.

    Args:
        metadata: what is stored with it; its captured URL is in `archive`, or it is the front
            matter's `url` or `source`.
        tags: those in its text, beside those of its metadata.
        published: pairs of a web address and the folder of the collection that is seen there.
    """
    bare = PAGE_SUFFIX.sub("", path)
    folder, stem = posixpath.split(bare)
    keys: dict[str, int] = {}

    def add(key: str, rank: int) -> None:
        if not key.endswith(":"):
            keys[key] = min(rank, keys.get(key, rank))

    add(path_key(path, "", collection_id), 0)
    add(path_key(bare, "", collection_id), 1)
    add(path_key(f"{bare}.html", "", collection_id), 4)  # what site generators make of it
    if stem.casefold() in FOLDER_PAGES:
        add(path_key(folder or ".", "", collection_id), FOLDER_PAGES[stem.casefold()])
    parts = bare.split("/")
    for start in range(len(parts)):
        add(page_key("/".join(parts[start:])), 0)
    add(page_key(title), 1)
    for label in labels:
        add(label_key(label, collection_id), 0)
    for name, rank in _other_names(bare, metadata):
        add(page_key(name), rank)
    for tag in (*tags_of(metadata), *tags):
        add(f"tag:{normal_tag(tag)}", 0)
    add(f"date:{date}", 0)
    for rank, urls in enumerate(_urls(metadata)):
        for url in urls:
            add(url_key(url), rank)
    for address, below in published:
        if not below or path.startswith(f"{below}/"):
            name = bare[len(below) + 1 :] if below else bare
            suffix = path[len(bare) :]
            for ending in (suffix, "", ".html"):
                add(url_key(f"{address.rstrip('/')}/{quote(name)}{ending}"), 1)
    return keys


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ZETTEL_ID = re.compile(r"\d{8,17}(?!\d)")
_JOURNAL = re.compile(r"(?:.*/)?journals/(?P<date>\d{4}[_-]\d{2}[_-]\d{2})\Z")


def _other_names(bare: str, metadata: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """What notes are called besides their file and title: aliases, ids, names of journals."""
    for key in ("aliases", "alias", "id", "uid", "zettel-id"):
        value = metadata.get(key)
        if isinstance(value, str) and key == "alias":
            value = [part.strip().strip("[]") for part in value.split(",")]
        for name in value if isinstance(value, list) else [value]:
            if isinstance(name, str | int) and not isinstance(name, bool):
                yield str(name), 2
    stem = posixpath.basename(bare)
    if zettel := _ZETTEL_ID.match(stem):
        yield zettel[0], 2
    if "___" in stem or "%2F" in stem:  # a namespace of Logseq
        yield stem.replace("___", "/").replace("%2F", "/"), 1
    if journal := _JOURNAL.match(bare):
        try:
            day = datetime.date.fromisoformat(journal["date"].replace("_", "-"))
        except ValueError:
            return
        ending = "th" if 10 < day.day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
        yield f"{_MONTHS[day.month - 1]} {day.day}{ending}, {day.year}", 1
        yield day.isoformat(), 1


def _urls(metadata: Mapping[str, Any]) -> list[list[str]]:
    archive = metadata.get("archive")
    captured = archive.get("urls", []) if isinstance(archive, dict) else []
    addresses = [[url for url in captured if isinstance(url, str)]]
    for key in ("url", "source"):
        value = metadata.get(key)
        is_url = isinstance(value, str) and value.startswith(("http://", "https://"))
        addresses.append([str(value).strip()] if is_url else [])
    return addresses

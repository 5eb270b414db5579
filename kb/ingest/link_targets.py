"""Where links lead whose key no document answers, decided once a sync knows the whole tree.

A site's configuration says at which address a page is read, a vault finds any file by its name, and
other files than documents can be targets too. The answer becomes the key of the link:
`path:` of a document, `file:`, `external:`, or `elsewhere:` for what the tree cannot hold.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from kb.disk.read import read_bytes
from kb.disk.ripgrep import list_files
from kb.disk.skipped import NOISY_FOLDERS
from kb.formats.outline import Link
from kb.formats.sites import HOOKS, Settings, Site, generators, literal_address
from kb.store.citations import (
    documents_for_links,
    labels_of_collection,
    link_key,
    path_key,
    set_citation_keys,
    unresolved_links,
)
from kb.store.collections import all_collections, update_options
from kb.store.connection import Connection, Row
from kb.store.database import Database
from kb.text.file_names import storable
from kb.text.suffixes import PAGE_SUFFIX, text_format

MOST_BYTES = 1_000_000  # of a configuration
# Pages of GitHub about a repository, seen from a file that it shows.
_OF_GITHUB = re.compile(
    r"(?:\.\./)+(?:issues|pulls?|wiki|releases|discussions|actions|commits?|tree|blob|compare|tags"
    r"|security|projects|stargazers|labels|milestones?)\b"
)
_REDIRECT = re.compile(r"^(/[^\s:*]+)\s+\S", re.MULTILINE)
_OF_SPHINX = ("ref", "term", "doc", "toctree")
_CODE_NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
_PROJECT = re.compile(r"(?P<project>[\w.+-]+):\S")


def look_again(database: Database, collection_id: int, root: Path, *, has_changed: bool) -> None:
    """Find where the unresolved links of a collection lead, in the tree that it was read from.

    If documents have changed, resolved links may lead elsewhere too.
    """
    with database.read() as connection:
        tree = _Tree(connection, collection_id, root)
        is_moved = has_changed and bool(tree.sites)
        rows = unresolved_links(connection, collection_id, with_resolved=is_moved)
        changes = list(tree.changes(rows))
        by_id = {row["collection_id"]: row["options"] for row in all_collections(connection)}
    options = json.loads(by_id.get(collection_id, "{}"))
    names = options.get("generators", [])
    if has_changed:
        names = sorted({name for site in tree.sites for name in (site.name, site.anchors)})
        names += [HOOKS] if any(site.settings.has("hooks") for site in tree.sites) else []
    if changes or names != options.get("generators", []):
        text = json.dumps({**options, "generators": names}, ensure_ascii=False)
        with database.write() as connection:
            set_citation_keys(connection, changes)
            update_options(connection, collection_id, text)


class _Tree:
    """All that a collection's folder holds: documents, other files, sites."""

    def __init__(self, connection: Connection, collection_id: int, root: Path) -> None:
        self._connection = connection
        self._id = collection_id
        self._root = root if root.is_dir() else root.parent
        self._is_folder = root.is_dir()

    @cached_property
    def _documents(self) -> dict[str, dict[str, Any]]:
        """Row id and metadata of each document, by path."""
        rows = documents_for_links(self._connection, self._id)
        return {row["path"]: {**row, "metadata": json.loads(row["metadata"])} for row in rows}

    @cached_property
    def _bare(self) -> dict[str, str]:
        """Documents by path without suffix, and first pages by their folder."""
        names: dict[str, str] = {}
        for path in self._documents:
            bare = PAGE_SUFFIX.sub("", path)
            names.setdefault(bare, path)
            if posixpath.basename(bare).casefold() in ("index", "readme", "_index"):
                names.setdefault(posixpath.dirname(bare), path)
        return names

    @cached_property
    def _files(self) -> set[str]:
        if not self._is_folder:
            return set()
        listing = list_files(self._root, hidden=True, skipped=sorted(NOISY_FOLDERS))
        return set(map(storable, listing.files))

    @cached_property
    def _names(self) -> dict[str, list[str]]:
        paths: dict[str, list[str]] = {}
        for path in sorted(self._files):
            paths.setdefault(posixpath.basename(path).casefold(), []).append(path)
        return paths

    @cached_property
    def _other_projects(self) -> set[str]:
        """Names of projects that Sphinx knows the labels of."""
        of_sites = (site.settings.within("intersphinx_mapping") for site in self.sites)
        return {name for mappings in of_sites for mapping in mappings for name in mapping}

    @cached_property
    def _is_vault(self) -> bool:
        return any(path.startswith(".obsidian/") for path in self._files)

    @cached_property
    def _labels(self) -> dict[str, str]:
        return labels_of_collection(self._connection, self._id)

    @cached_property
    def sites(self) -> list[Site]:
        """The sites configured in the tree, deepest first."""
        sites = []
        for path in sorted(self._files, key=lambda path: (-path.count("/"), path)):
            for name, generator in generators().items():
                match = re.search(rf"(?:^|/)(?:{generator.config})\Z", path)
                if match is not None:
                    site = Site(name, path[: match.start()], Settings(self._text(path)))
                    hook = re.compile(rf"(?:{re.escape(site.root)}/)?{generator.hook}")
                    site.has_hook = any(map(hook.fullmatch, self._files))
                    sites.append(site)
        for site in sites:
            for path in sorted(self._documents, key=lambda path: ("readme" in path.lower(), path)):
                site.add(path, self._metadata(path, site))
            redirects = [path for path in self._files if posixpath.basename(path) == "_redirects"]
            for path in redirects if site.generator.pages else ():
                site.redirected |= set(map(site.normal, _REDIRECT.findall(self._text(path))))
            for path in sorted(self._files - self._documents.keys()):
                if path.endswith((".html", ".tsx", ".jsx", ".js", ".astro", ".vue")):
                    site.add(path, {})
        return sites

    @cached_property
    def _is_exact(self) -> bool:
        return any(site.generator.is_exact or site.is_strict for site in self.sites)

    def _is_strict(self, link: Link, url: str, path: str) -> bool:
        """Whether a link leads to what a site serves, and not to a page by its path."""
        if link.kind not in ("inline", "reference", "html", "metadata") or PAGE_SUFFIX.search(url):
            return False
        strict = (site for site in self.sites if site.is_strict)
        return any(site.routes_of(path, self._metadata(path, site)) for site in strict)

    def _metadata(self, path: str, site: Site) -> dict[str, Any]:
        """A page's metadata; HTML is stored without its front matter."""
        values: dict[str, Any] = self._documents[path]["metadata"]
        if site.generator.by_name and path.endswith(".html"):
            match = re.search(r"^permalink:\s*(\S+)", self._text(path)[:2_000], re.MULTILINE)
            return {**values, "permalink": match[1]} if match else values
        return values

    def _text(self, path: str) -> str:
        try:
            return read_bytes(self._root / path, MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    def changes(self, rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
        """New keys and targets of links that lead elsewhere than stored."""
        for row in rows:
            link = Link(row["target_url"], row["kind"], 0, "")
            own_key = link_key(link, row["path"], self._id)
            is_literal = row["target_document_id"] is not None and own_key == row["target_key"]
            if is_literal and not ((self.sites and link.url.startswith("/")) or self._is_exact):
                continue
            path, key = self._look(link, row["path"])
            if is_literal and not (path or key.startswith("path:")):
                continue
            target = self._documents[path]["document_id"] if path else None
            key = path_key(path, "", self._id) if path else key or own_key
            if (key, target) != (row["target_key"], row["target_document_id"]):
                yield {
                    "citation_id": row["citation_id"],
                    "target_key": key,
                    "target_document_id": target,
                }

    def _look(self, link: Link, path: str) -> tuple[str, str]:
        """The document that a link leads to, or another target's key; ("", "") if it is broken."""
        url = link.url.partition("#")[0] if link.kind != "ref" else link.url
        is_name = False
        if "{" in url or "<%" in url or "%s" in url:
            literal = literal_address(link.url)
            if literal is None:
                return "", self._scoped("elsewhere", link.url)
            url, is_name = literal[0].partition("#")[0], literal[1]
        if link.kind in _OF_SPHINX and (scope := self._scope_of_project(link, url)):
            return "", self._scoped(scope, link.url)
        label = " ".join(url.split()).casefold()
        if link.kind not in ("wiki", *_OF_SPHINX) and label in self._labels:
            return self._labels[label], ""
        if not url:
            return (path if is_name else ""), ""  # `{{< ref "#part" >}}`
        looks = [self._at_path, self._on_sites]
        for look in reversed(looks) if url.startswith("/") else looks:
            if place := look(link, url, path, is_name=is_name):
                if self._is_exact and self._is_rejected(link, url, path, place):
                    return "", self._scoped("path", f"{url}/")  # no document's key ends so
                return self._target_at(place)
        if link.kind in ("wiki", "attachment") or self._is_vault:
            name = unquote(url).strip().lstrip("/").casefold()
            for place in self._names.get(posixpath.basename(name), ()):
                if f"/{place.casefold()}".endswith(f"/{name}"):
                    return self._target_at(place)
        if self._is_made(url, path):
            return "", self._scoped("elsewhere", link.url)
        if _OF_GITHUB.match(url):
            return "", self._scoped("external", link.url)
        if not is_name and self._is_strict(link, url, path):
            return "", self._scoped("path", f"{url}/")
        for place in self._places(url, path):
            with contextlib.suppress(OSError, ValueError):
                if (self._root / place).exists():
                    return "", self._scoped("file", place)
        return "", ""

    def _at_path(self, link: Link, url: str, path: str, *, is_name: bool) -> str:
        """The document or file at a path that an address may mean; "" for none."""
        is_strict = not is_name and self._is_strict(link, url, path)
        for place in self._places(url, path) if not (is_strict and url.startswith("/")) else ():
            bare = re.sub(r"\.html?$", "", place)
            if place in self._documents or place in self._files:
                return place
            page = self._bare.get(place) or self._bare.get(bare)
            if page and not is_strict:
                return page
        return ""

    def _on_sites(self, link: Link, url: str, path: str, *, is_name: bool) -> str:
        """The page or file that a site serves at an address; "" for none."""
        is_strict = self._is_strict(link, url, path)
        for site in self.sites:
            if not site.holds(path):
                continue
            for route in self._routes(site, url, path, is_based=not link.url.startswith(url)):
                page = site.routes.get(route, "")
                page = page if site.serves(url, page) else ""
                if link.kind in ("doc", "toctree"):
                    page = page or site.ids.get(route, "")
                page = page or next((p for p in site.copied(route) if p in self._files), "")
                if page:
                    return page
            is_bare = is_name or ("/" not in url and not is_strict)
            if is_bare and site.generator.by_name:
                name = PAGE_SUFFIX.sub("", posixpath.basename(url.rstrip("/"))).casefold()
                for bare, page in self._bare.items():
                    if posixpath.basename(bare).casefold() == name:
                        return page
        return ""

    def _is_rejected(self, link: Link, url: str, path: str, place: str) -> bool:
        """Whether the site of the page at `path` never serves the document at this address."""
        if link.kind == "wiki" or f"{PAGE_SUFFIX.sub('', place)}/index" in self._bare:
            return False
        return place in self._documents and any(
            site.rejects(url, place) for site in self.sites if site.holds(path)
        )

    def _is_made(self, url: str, path: str) -> bool:
        """Whether a generator makes an address's target, or it lies outside the tree."""
        if url.startswith("~") or (text_format(path) == "org" and url.startswith("/")):
            return True  # from the top of the machine
        for site in self.sites:
            if site.holds(path):
                if site.makes(self._routes(site, url, path, is_based=True)):
                    return True
                if "/" not in url and site.has_hook:
                    return True
        return False

    def _routes(self, site: Site, url: str, path: str, *, is_based: bool) -> Iterator[str]:
        alias = site.generator.alias
        address = f"/{url[len(alias) :]}" if alias and url.startswith(alias) else url
        routes = site.routes_of(path, self._metadata(path, site))
        return site.candidates(address, routes, is_based=is_based)

    def _target_at(self, path: str) -> tuple[str, str]:
        return (path, "") if path in self._documents else ("", self._scoped("file", path))

    def _scope_of_project(self, link: Link, url: str) -> str:
        """The scope of Sphinx's own targets: other projects' names, labels made by autodoc."""
        others = self._other_projects
        project = _PROJECT.match(url)
        if project and (project["project"] in others or not others):
            return "external"
        return "elsewhere" if link.kind == "ref" and _CODE_NAME.fullmatch(url) else ""

    def _scoped(self, scope: str, place: str) -> str:
        """The key of a target that is not a document."""
        return f"{scope}:{self._id}/{place}"

    def _places(self, url: str, path: str) -> Iterator[str]:
        """The paths that an address in a document may mean, most likely first."""
        name = unquote(url.partition("?")[0])
        folder = posixpath.dirname(path)
        if not name:
            return
        if not name.startswith("/"):
            for site in self.sites:
                if (alias := site.generator.alias) and name.startswith(alias):
                    yield _joined(site.root, name[len(alias) :])
            yield _joined(folder, name)
        for site in self.sites if not name.startswith(".") else ():
            if site.holds(path):
                for root in (site.root, *site.folders, *site.literal_folders):
                    yield _joined(root, name.lstrip("/"))
        while name.startswith("/"):
            yield _joined(folder, name.lstrip("/"))
            if not folder:
                return
            folder = posixpath.dirname(folder)


def _joined(folder: str, name: str) -> str:
    path = posixpath.normpath(posixpath.join(folder, name))
    return "" if path == "." else path

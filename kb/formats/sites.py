"""What generators of documentation sites make of a tree: which address each page is read at.

`kb/assets/sites.toml` describes the generators, `Site` applies a row of it to a tree. A
configuration, which may be a program, is read for its literals and never run.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any
from urllib.parse import unquote, urlsplit

from kb.text.assets import asset
from kb.text.suffixes import PAGE_SUFFIX

# What front matter says of a page's route: from where its folder is read, or from the site's root.
_BELOW_FOLDER, _BELOW_ROOT = ("slug", "id"), ("url", "permalink", "aliases", "redirect_from")
Values = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Pages:
    """A folder of pages and the route that it is read at, from the site's root.

    `{setting|default}` stands for a literal of the configuration.
    """

    folder: str
    route: str = ""
    within: str = ""  # the object of the configuration that holds the settings


@dataclass(frozen=True, slots=True)
class Generator:
    """How one generator makes addresses: a row of the table, which explains its fields."""

    config: str
    pages: tuple[Pages, ...]
    files: Sequence[str] = ()
    more: Sequence[tuple[str, str]] = ()
    base: str = ""
    alias: str = ""
    dropped: str = r"(?!)"
    is_lower: bool = False
    by_name: bool = False
    falls_back: bool = False
    hook: str = r"(?!)"
    elsewhere: str = r"(?!)"


@cache
def generators() -> dict[str, Generator]:
    """The rows of the table, by name."""
    shared = asset("sites")["shared"]
    rows = {}
    for name, row in asset("sites")["generators"].items():
        elsewhere = "|".join(shared.get(part, part) for part in row.get("elsewhere", ("(?!)",)))
        pages = tuple(Pages(*pages) for pages in row["pages"])
        rows[name] = Generator(**{**row, "pages": pages, "elsewhere": elsewhere})
    return rows


class Settings:
    """The literals of a configuration: by object, each setting with all its values."""

    _TOKEN = re.compile(
        r"""(?<![:\w"'])//[^\n]*|/\*(?:[^*]|\*(?!/))*|(?:^|(?<=\s))\#[^\n]*
          | (?P<close>\}) | (?P<open>\{)
          | (?:(?P<quoted>"[^"\n]*"|'[^'\n]*')|(?P<key>[A-Za-z_][\w.-]*))[ \t]*[:=](?![:=>])
            [ \t]*(?P<value>"[^"\n]*"|'[^'\n]*'|`[^`\n]*`|[^\s,{}\[\]()\#;"'`]+)?
            (?P<inner>\s*\{)?
          | "[^"\n]*" | '[^'\n]*'""",
        re.VERBOSE | re.DOTALL | re.MULTILINE,
    )

    def __init__(self, text: str) -> None:
        self.objects: list[tuple[str, dict[str, list[str]]]] = [("", {})]
        open_ones = [self.objects[0]]
        for token in self._TOKEN.finditer(text):
            key = (token["quoted"] or token["key"] or "").strip("\"'")
            if key:
                values = open_ones[-1][1].setdefault(key, [])
                if token["value"]:
                    values.append(token["value"].strip("\"'`"))
            if token["open"] or token["inner"]:
                self.objects.append((key, {}))
                open_ones.append(self.objects[-1])
            elif token["close"] and len(open_ones) > 1:
                open_ones.pop()

    def within(self, name: str) -> list[Values]:
        return [values for called, values in self.objects if called == name]

    def has(self, key: str) -> bool:
        return any(key in values for _, values in self.objects)

    def all_values(self, key: str) -> list[str]:
        """The values of a setting, whatever object holds it."""
        return [value for _, values in self.objects for value in values.get(key, ())]

    def fill(self, template: str, values: Values | None = None) -> list[str]:
        """A template with each value of its setting in `values`, by default all, or its default."""
        parts = re.split(r"\{(\w+)(?:\|([^}]*))?\}", template)
        if len(parts) == 1:
            return [template]
        before, key, default, after = parts
        chosen = self.all_values(key) if values is None else list(values.get(key, ()))
        chosen = chosen or ([] if default is None else [default])
        return [f"{before}{value}{after}" for value in chosen]


@dataclass(slots=True)
class Site:
    name: str  # of its generator
    root: str  # its folder in the tree, "" for the top
    settings: Settings
    pages: list[tuple[re.Pattern[str], str]] = field(default_factory=list)  # folders and routes
    folders: list[str] = field(default_factory=list)  # of files
    literal_folders: list[str] = field(default_factory=list)  # of pages
    routes: dict[str, str] = field(default_factory=dict)  # -> paths of documents and page files
    ids: dict[str, str] = field(default_factory=dict)  # routes below the folder of pages
    sections: set[str] = field(default_factory=set)  # routes that pages lie below
    redirected: set[str] = field(default_factory=set)  # routes that its server sends on
    base: str = ""

    @property
    def generator(self) -> Generator:
        return generators()[self.name]

    def __post_init__(self) -> None:
        first = ""
        for pages in self.generator.pages:
            objects: Sequence[Values | None] = [None]
            if pages.within:
                objects = self.settings.within(pages.within) or [{}]
            elif "{" in pages.route:  # any object that has both
                objects = [values for _, values in self.settings.objects]
            for values in objects:
                folders = self.settings.fill(pages.folder, values)
                for folder, route in product(folders, self.settings.fill(pages.route, values)):
                    self._mount(re.escape(self._at(folder)), route)
                    self.literal_folders.append(self._at(folder))
                    first = first or self.pages[0][1]
        prefix = re.escape(self.root) + "/" if self.root else ""
        for template, route in self.generator.more:
            for expression in self.settings.fill(template):
                self._mount(prefix + expression, route.replace("{0}", first))
        self.pages.sort(key=lambda pages: -len(pages[0].pattern))
        for template in self.generator.files:
            self.folders += map(self._at, self.settings.fill(template))
        base = self.settings.all_values(self.generator.base)
        self.base = urlsplit(base[0]).path.strip("/") if base else ""

    def _at(self, folder: str) -> str:
        path = posixpath.normpath(posixpath.join(self.root, folder.strip().lstrip("/")))
        return "" if path == "." else path

    def _mount(self, expression: str, route: str) -> None:
        pattern = re.compile(f"(?:{expression})/" if expression else "")
        self.pages.append((pattern, route.strip("/")))

    def add(self, path: str, metadata: Mapping[str, Any]) -> None:
        """Take in a page of the tree; the first of a route keeps it."""
        for place, (route, id_) in enumerate(self._routes_of(path, metadata)):
            self.routes.setdefault(self.normal(route), path)
            self.ids.setdefault(self.normal(id_), path)
            above = posixpath.dirname(self.normal(route))
            while above and not place:
                self.sections.add(above)
                above = posixpath.dirname(above)

    def routes_of(self, path: str, metadata: Mapping[str, Any]) -> list[str]:
        return [route for route, _ in self._routes_of(path, metadata)]

    def _routes_of(self, path: str, metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for pattern, prefix in self.pages:
            match = pattern.match(path)
            if match is None:
                continue
            route = match.expand(prefix) if match.re.groups else prefix
            parts = PAGE_SUFFIX.sub("", path[match.end() :]).split("/")
            parts = [re.sub(rf"^(?:{self.generator.dropped})", "", part) for part in parts]
            parts[-1] = re.sub(r"\.(?:html?|[jt]sx?|astro|vue)$", "", parts[-1])
            folder = "/".join(parts[:-1])
            if parts[-1].casefold() in ("index", "readme", "_index") or parts[-2:-1] == parts[-1:]:
                parts.pop()
            post = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)-(.+)", parts[-1] if parts else "")
            ids = [posixpath.join(folder, *post.groups())] if post else []
            for key in (*_BELOW_FOLDER, *_BELOW_ROOT):
                value = metadata.get(key)
                for name in value if isinstance(value, list) else [value]:
                    if not isinstance(name, str) or not name or "://" in name:
                        continue
                    id_ = posixpath.join(f"/{folder}", name)
                    ids.append(id_)
                    if key in _BELOW_ROOT:
                        yield id_, id_
            for id_ in (*ids, "/".join(parts)):
                yield posixpath.join("/", route, id_.lstrip("/")), id_

    def holds(self, path: str) -> bool:
        """Whether a document is a page or lies in the site's folder."""
        is_below = not self.root or path.startswith(f"{self.root}/")
        return is_below or any(pattern.match(path) for pattern, _ in self.pages)

    def copied(self, route: str) -> Iterator[str]:
        """Where a file that is copied to this route may come from."""
        return (posixpath.join(folder, route) for folder in self.folders)

    def normal(self, route: str) -> str:
        route = normal_route(route)
        return route.casefold() if self.generator.is_lower else route

    def candidates(self, address: str, routes: Iterable[str]) -> Iterator[str]:
        """The routes that an address may mean on a page with these routes."""
        if not address.startswith("/"):
            for route in routes:
                yield self.normal(posixpath.join(route, address))
                yield self.normal(posixpath.join(posixpath.dirname(route.rstrip("/")), address))
            if not self.generator.by_name:
                return
        plain = self.normal(address)
        yield plain
        if self.base and plain.startswith(self.normal(self.base)):
            yield plain[len(self.base) :].lstrip("/")
        for route in routes:
            parts = self.normal(route).split("/")
            # Of the page's language or version, or where that lacks it, of the first language.
            yield from (posixpath.join(*parts[:count], plain) for count in (1, 2))
            if self.generator.falls_back and plain.startswith(f"{parts[0]}/"):
                yield plain[len(parts[0]) + 1 :]
        if dated := re.search(r"\d{4}/\d\d/\d\d/.+", plain):
            yield dated[0]

    def makes(self, routes: Iterable[str]) -> bool:
        """Whether the generator makes a page of one of these routes itself."""
        is_listed = self.generator.by_name  # Hugo and Jekyll list what lies in a section
        return any(
            re.match(self.generator.elsewhere, route)
            or route in self.redirected
            or (is_listed and route in self.sections)
            for route in routes
        )


def normal_route(route: str) -> str:
    """A route for comparison, without a page's suffix and the slashes around it."""
    path = posixpath.normpath("/" + unquote(route.partition("#")[0].partition("?")[0]))
    path = re.sub(r"\.html?$|/index(?:\.html?)?$", "", path).strip("/")
    return unicodedata.normalize("NFC", re.sub(r"(?:^|/)index$", "", path))


_REFERENCE = re.compile(
    r"""\{\{[<%]\s*(?:rel)?ref\s+["'`]?([^"'`\s]+)|\{%-?\s*(?:link|post_url)\s+(\S+)"""
)
_FILTERED = re.compile(r"""\{\{-?\s*["']([^"']*)["']\s*\|[^}]*\}\}(.*)""", re.DOTALL)
_BASE = re.compile(r"\{\{-?\s*(?:site|page)\.(?:base_?)?url\s*-?\}\}|\{\{<\s*(?:base)?url\s*>\}\}")


def literal_address(url: str) -> tuple[str, bool] | None:
    """What a link with a template leads to, and whether that is a page's name; None: who knows."""
    if match := _REFERENCE.search(url):
        return (match[1] or match[2]), True
    if match := _FILTERED.fullmatch(url):
        return "/" + match[1].lstrip("/") + match[2], False
    rest = _BASE.sub("", url)
    return None if re.search(r"\{[{%<]|[{%>]\}|\$\{|<%|%s", rest) else (rest, False)

"""What generators of documentation sites make of a tree: which address each page is read at, and
the names under which its places are linked, written ones and made ones.

`kb/assets/sites.toml` describes the generators, `Site` applies a row of it to a tree. A
configuration, which may be a program, is read for its literals and never run. GitHub and Docusaurus
make `fonts`, `fonts-1`, ... of equal headings, MkDocs `fonts`, `fonts_1`; Sphinx and docutils turn
everything but ASCII letters and digits into hyphens.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, product
from typing import Any
from urllib.parse import unquote, urlsplit

from kb.text.assets import asset
from kb.text.suffixes import PAGE_SUFFIX
from kb.text.terms import words

# What front matter says of a page's route: from where its folder is read, or from the site's root.
_FROM_ROOT = dict.fromkeys(("url", "permalink", "aliases", "redirect_from"), "/")
_ROUTE_KEYS = {"slug": "", "id": "", **_FROM_ROOT}
_PLACEHOLDER = re.compile(
    r":(title|slug|filename|basename|name|path|(?:slugor)?(?:contentbasename|filename)"
    r"|year|month|day|categories|sections?|collection|output_ext)\b"
)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_MOST_TEMPLATES = 50  # of routes; each page's route is made by each
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
    moves: Mapping[str, str] = field(default_factory=dict)
    is_lower: bool = False
    in_folders: bool = False
    by_folder: bool = False
    by_name: bool = False
    falls_back: bool = False
    is_exact: bool = False
    is_strict: bool = False
    loose: str = r"(?!)"
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
          | (?:(?P<quoted>"[^"\n]*"|'[^'\n]*')|(?<![\w.-])(?P<key>[A-Za-z_][\w.-]*))
            [ \t]*[:=](?![:=>])[ \t]*(?P<value>"[^"\n]*"|'[^'\n]*'|`[^`\n]*`|[^\s,{}\[\]()\#;"'`]+)?
            (?P<inner>\s*\{)?
          | "[^"\n]*" | '[^'\n]*'""",
        re.VERBOSE | re.DOTALL | re.MULTILINE,
    )

    def __init__(self, text: str) -> None:
        self.text = text
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
        """The values of a setting, whatever object holds it; Hugo looks past capitals."""
        settings = ((name, listed) for _, values in self.objects for name, listed in values.items())
        return [
            value for name, listed in settings if name.lower() == key.lower() for value in listed
        ]

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
    written: set[str] = field(default_factory=set)  # routes as front matter has them
    locales: set[str] = field(default_factory=set)
    templates: list[str] = field(default_factory=list)  # of routes: `/:year/:title/`
    base: str = ""
    has_hook: bool = False  # templates of its own make its links
    has_known_routes: bool = False

    @property
    def generator(self) -> Generator:
        return generators()[self.name]

    @property
    def is_strict(self) -> bool:
        """Whether an address leads to the routes alone."""
        return self.has_known_routes and not self.has_hook

    @property
    def anchors(self) -> str:
        """Whose rule makes names of headings: Jekyll's is GitHub's, unless it says otherwise."""
        is_kramdown = self.name == "Jekyll" and "kramdown" in self.settings.all_values("input")
        return "kramdown" if is_kramdown else self.name

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
        self.locales = {name for values in self.settings.within("locales") for name in values}
        lists = (listed for _, settings in self.settings.objects for listed in settings.values())
        texts = [text for listed in lists for text in listed if _PLACEHOLDER.search(text)]
        templates = (text for text in texts if ":" not in _PLACEHOLDER.sub("", text))
        self.templates = [*islice(templates, _MOST_TEMPLATES)]
        is_loose = re.search(self.generator.loose, self.settings.text, re.MULTILINE | re.IGNORECASE)
        self.has_known_routes = self.generator.is_strict and not is_loose

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
            parts = [_ROUTE_NAMES.get(self.name, str)(part) for part in parts]
            folder = "/".join(parts[:-1])
            is_named_so = parts[-2:-1] == parts[-1:] and self.generator.by_folder
            is_bundle = parts[-1] == "index" and self.generator.by_name and len(parts) > 1
            if parts[-1].casefold() in ("index", "readme", "_index") or is_named_so:
                parts.pop()
            post = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)-(.+)", parts[-1] if parts else "")
            ids = [posixpath.join(folder, *post.groups())] if post else []
            ids += self._made_ids(folder, post[4] if post else "".join(parts[-1:]), post, metadata)
            is_moved = False
            for key, base in {**_ROUTE_KEYS, **self.generator.moves}.items():
                value = metadata.get(key)
                for name in value if isinstance(value, list) else [value]:
                    if not isinstance(name, str) or not name or "://" in name:
                        continue
                    if key == "slug":
                        name = _ROUTE_NAMES.get(self.name, str)(name) if not base else name
                    above = posixpath.dirname(folder) if is_bundle else folder
                    id_ = posixpath.join("/", "" if base else above, name)
                    ids.append(id_)
                    is_moved |= key in self.generator.moves and ":" not in name
                    self.written.add(id_)
                    if base:
                        yield id_, id_
            for id_ in ids if is_moved else (*ids, "/".join(parts)):
                yield posixpath.join("/", route, id_.lstrip("/")), id_

    def _made_ids(
        self, folder: str, name: str, post: re.Match[str] | None, metadata: Mapping[str, Any]
    ) -> Iterator[str]:
        """Routes made of a page's date and title, by the templates of the configuration."""
        templates = ["/:year/:month/:day/:title"] * bool(post) + self.templates
        if not templates:
            return
        date = _DATE.match(str(metadata.get("date", ""))) or post
        listed = metadata.get("categories", metadata.get("category", ()))
        categories = listed if isinstance(listed, list) else [listed] if listed else []
        section = folder.partition("/")[0]
        values = {"categories": "/".join(map(str, categories)).lower(), "output_ext": ""}
        values |= {"section": section, "sections": folder, "collection": section}
        values |= zip(("year", "month", "day"), date.groups()[:3], strict=False) if date else ()
        names = {name.replace(" ", "-"), *map(slug, (str(metadata.get("title", "")), name))}
        names.add(str(metadata.get("slug", "")))
        for template, title in product(templates, sorted(names - {""})):
            values["path"] = posixpath.join(folder, title)
            parts = _PLACEHOLDER.split(template)
            parts[1::2] = [values.get(part, title) for part in parts[1::2]]
            yield posixpath.normpath(f"/{''.join(parts).strip('/')}")

    def holds(self, path: str) -> bool:
        """Whether a document is a page or lies in the site's folder."""
        is_below = not self.root or path.startswith(f"{self.root}/")
        return is_below or any(pattern.match(path) for pattern, _ in self.pages)

    def rejects(self, address: str, page: str) -> bool:
        """Whether the generator tells a page from its folder's by the address's last slash."""
        if not self.generator.is_exact or self.settings.has("rewrites"):
            return False
        first_pages = ("index", "readme")
        end, name = (
            PAGE_SUFFIX.sub("", posixpath.basename(path)).casefold()
            for path in (address.partition("?")[0], page)
        )
        return (end in ("", *first_pages)) != (name in first_pages)

    def serves(self, address: str, page: str) -> bool:
        """Whether a page is read at an address with this suffix."""
        path = address.partition("?")[0]
        is_file = re.search(r"(?<!/index)\.html$", path) and not page.endswith((".html", ".astro"))
        if not (is_file and self.is_strict and self.generator.in_folders):
            return True
        return any(path.endswith(route) for route in self.written if route.endswith(".html"))

    def copied(self, route: str) -> Iterator[str]:
        """Where a file that is copied to this route may come from."""
        for folder in self.folders:
            path = posixpath.join(folder, route)
            yield from (path, f"{path}.html", posixpath.join(path, "index.html"))

    def normal(self, route: str) -> str:
        """A route for comparison, without a page's suffix and the slashes around it."""
        path = posixpath.normpath("/" + unquote(route.partition("#")[0].partition("?")[0]))
        path = re.sub(r"\.html?$|/index(?:\.html?)?$", "", path).strip("/")
        plain = unicodedata.normalize("NFC", re.sub(r"(?:^|/)index$", "", path))
        return plain.casefold() if self.generator.is_lower else plain

    def candidates(
        self, address: str, routes: Sequence[str], *, is_based: bool = False
    ) -> Iterator[str]:
        """The routes that an address may mean on a page with these routes.

        `is_based`: a template has written the base.
        """
        is_strict = self.is_strict and bool(routes)
        if not address.startswith("/"):
            for route in routes:
                yield self.normal(posixpath.join(route, address))
                if not (is_strict and self.generator.in_folders):
                    above = posixpath.dirname(route.rstrip("/"))
                    yield self.normal(posixpath.join(above, address))
            if is_strict or not self.generator.by_name:
                return
        plain, base = self.normal(address), self.normal(self.base)
        has_base = is_based or not base or f"{plain}/".startswith(f"{base}/")
        if is_strict and not has_base:
            return
        yield plain
        if self.base and has_base:
            plain = plain.removeprefix(base).lstrip("/")
            yield plain
        for route in routes:
            parts = self.normal(route).split("/")
            # Of the page's language or version, or where that lacks it, of the first language.
            if not is_strict:
                yield from (posixpath.join(*parts[:count], plain) for count in (1, 2))
            first, _, rest = plain.partition("/")
            if self.generator.falls_back and first in (parts[0], *self.locales):
                yield rest
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


_REFERENCE = re.compile(
    r"""\{\{[<%]\s*(?:rel)?ref\s+(?:path\s*=\s*)?["'`]?([^"'`\s]*)|\{%-?\s*(?:link|post_url)\s+(\S+)"""
)
_FILTERED = re.compile(r"""\{\{-?\s*["']([^"']*)["']\s*\|[^}]*\}\}(.*)""", re.DOTALL)
_BASE = re.compile(r"\{\{-?\s*(?:site|page)\.(?:base_?)?url\s*-?\}\}|\{\{<\s*(?:base)?url\s*>\}\}")


def literal_address(url: str) -> tuple[str, bool] | None:
    """What a link with a template leads to, and whether that is a page's name; None: who knows."""
    if match := _REFERENCE.search(url):
        return match[1] or match[2] or "", True
    if match := _FILTERED.fullmatch(url):
        return "/" + match[1].lstrip("/") + match[2], False
    rest = _BASE.sub("", url)
    return None if re.search(r"\{[{%<]|[{%>]\}|\$\{|<%|%s", rest) else (rest, False)


_DROPPED = re.compile(r"[^\w\- ]")
_WRITTEN = re.compile(
    r"""
      (?<!\{)\{(?![<%]):?[^{}\n]*?(?:\#|\bid=["']?)(?P<attribute>[^\s{}*/"']+)  # {#id}, {: #id}
    | <[a-z][^<>]*?\s(?:id|name)\s*=\s*["'{]+(?P<html>[^"'<>]+)["']
    | ^[ \t]*(?:[-*+][ \t]+)*\.\.\s+_`?(?P<label>[^`:]+)`?:\s*$           # reStructuredText
    | _`(?P<inline>[^`]+)`
    | ^[ \t]*:name:\s*(?P<name>\S.*)$
    | ^[ \t]*\((?P<myst>[^()\s]+)\)=\s*$
    | ^[ \t]*[:`]{3,}\{figure-md\}[ \t]+(?P<figure>\S+)
    | \[\[(?P<asciidoc>[\w:.-]+)(?:,[^\]]*)?\]\]                      # AsciiDoc
    | \[(?:[\w-]*\#|id=["']?)(?P<short>[\w:.-]+)[^\]\n]*\]
    | \banchor:(?P<macro>[\w:.-]+)\[
    | ^[ \t]*:(?:CUSTOM_)?ID:\s*(?P<org>\S+)                          # Org
    | <<(?P<target>[^<>\n]+)>>
    | ^[ \t]*\#\+name:\s*(?P<named>\S.*)$
    | (?:^|[\s\]])(?P<block>\^[\w-]+)\s*$                               # a block of Obsidian
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
# The formats whose readers keep what anchors are made of, and which of these mean something there.
WITH_ANCHORS = {
    "markdown": {"attribute", "html", "myst", "figure", "name", "block"},
    "restructured text": {"html", "label", "inline", "name"},
    "asciidoc": {"html", "asciidoc", "short", "macro"},
    "org": {"html", "org", "target", "named"},
}
_BROWSED = frozenset(("Docusaurus", "Hugo", "Jekyll", "Astro Starlight", "VitePress", "MkDocs"))
HOOKS = "hooks"  # among generators: programs of the site's own change its pages
_LINES_ABOVE = 4
_LINES_BELOW = 6  # of a drawer of Org
# Headings that open no section: in lists and quotes, and of HTML.
_INNER = re.compile(
    r"^[ \t>*+\d.-]*\#{1,6}[ \t]+(?P<text>[^\n]+?)[ \t#]*$"
    r"|<h[1-6]\b[^<>]*>(?P<html>.{0,300}?)</h[1-6]>",
    re.MULTILINE | re.DOTALL,
)
_TAG = re.compile(r"<[^<>]*>")
# A page that includes others, or documents source: it may have sections that its text lacks.
_PARTIAL = re.compile(
    r"""^[ \t]*(?:--8<--|\.\.\s+(?:include|auto\w+|click|argparse|program-output|toctree-filt)::
        |include::|[:`]{3,}\{(?:include|auto\w+|eval-rst|click:\w+)\}|<!--\s*@?include|:::\s+[\w.-]+$)
      |\{%-?\s*(?:include|import|for)|\{!\s*\S+
      |\{\{[%<]?\s*(?:[%<](?!\s*(?:(?:rel)?ref|figure|gist|highlight|param|youtube)\b)|\#?include|readfile)
      |^import\s.*?\sfrom\s+["'][^"']+\.mdx?["']""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
# Fragments that every page has or that no heading makes.
_ALWAYS = re.compile(
    r"(?:_?top|:~:.*|fn.*|user-content-fn.*|L\d+.*|[!/].*|page=.*)?\Z", re.IGNORECASE
)

# What makes an anchor, what stands before the number of an equal one, and its first number.
_Scheme = tuple[Callable[[str], str], str, int]


@dataclass(frozen=True, slots=True)
class PageAnchors:
    """All the names under which places of one page can be linked."""

    names: frozenset[str]  # casefolded, unless capitals count
    headings: frozenset[str]  # as they compare where a link repeats a heading's words
    by_words: bool  # every link into it may do so
    is_partial: bool  # it takes in text that does not stand in it
    is_hooked: bool  # a program of its site changes it, or names objects of code
    has_case: bool  # capitals count, as in a browser; GitHub looks past them

    @classmethod
    def of(
        cls, text: str, headings: Sequence[str], markup: str, generators: Collection[str] = ()
    ) -> PageAnchors:
        """Those of a page, with its headings as plain text; `markup` is one of `WITH_ANCHORS`.

        Without `generators`, those of the sites in its tree, it is read as GitHub shows it.
        """
        schemes = [_SCHEMES[name] for name in (markup, *generators) if name in _SCHEMES]
        names = {name for names in made_anchors(headings, schemes) for name in names}
        inner = [match["text"] or match["html"] for match in _INNER.finditer(text)]
        shown = [_TAG.sub("", heading) for heading in inner]
        names |= {name for names in made_anchors(shown, schemes) for name in names}
        groups = WITH_ANCHORS[markup]
        matches = _WRITTEN.finditer(text)
        written = [
            match[match.lastgroup or ""].strip() for match in matches if match.lastgroup in groups
        ]
        if markup == "restructured text":
            names |= set(map(_docutils_id, written))
        has_case = not _BROWSED.isdisjoint(generators)
        return cls(
            frozenset(name if has_case else name.casefold() for name in (*names, *written)),
            frozenset(map(_words, (*headings, *shown))),
            by_words=markup in ("org", "asciidoc"),
            is_partial=_PARTIAL.search(text) is not None,
            is_hooked=HOOKS in generators or "Sphinx" in generators,
            has_case=has_case,
        )

    def has(self, fragment: str, kind: str) -> bool:
        """Whether the page has what a link of this kind names after its `#`."""
        name = unquote(fragment).strip()
        if _ALWAYS.match(name) or (name if self.has_case else name.casefold()) in self.names:
            return True
        # In a vault a link of Markdown repeats the heading too, with its blanks.
        if not (self.by_words or kind == "wiki" or " " in name) or name.startswith("^"):
            return False
        return _words(name.rpartition("#")[2]) in self.headings

    def may_have(self, fragment: str) -> bool:
        """Whether the page may have such an anchor although its text does not show it."""
        return self.is_partial or (self.is_hooked and re.search(r"[^\w-]", fragment) is not None)


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading's text."""
    return _DROPPED.sub("", heading.strip().lower()).replace(" ", "-")


def made_anchors(
    headings: Sequence[str], schemes: Iterable[_Scheme] | None = None
) -> list[set[str]]:
    """For each heading of a page the anchors that renderers give it, by default the common ones."""
    anchors: list[set[str]] = [set() for _ in headings]
    for make, separator, first in schemes or _SCHEMES.values():
        taken: set[str] = set()
        counts: dict[str, int] = {}
        for names, heading in zip(anchors, headings, strict=True):
            plain = anchor = make(heading)
            while anchor in taken or not anchor:
                counts[plain] = counts.get(plain, first - 1) + 1
                anchor = f"{plain}{separator}{counts[plain]}"
            taken.add(anchor)
            names.add(anchor)
    return anchors


def written_anchors(lines: Sequence[str], start_line: int) -> Iterator[str]:
    """The anchors written for the heading in this line: in it, above it, or in a drawer below."""
    row = start_line - 1
    yield from _written(lines[row])
    for line in reversed(lines[max(0, row - _LINES_ABOVE) : row]):
        above = list(_written(line))
        if line.strip() and not above:
            break
        yield from above
    if row + 1 < len(lines) and lines[row + 1].strip().upper() == ":PROPERTIES:":
        for line in lines[row + 2 : row + 2 + _LINES_BELOW]:
            if line.strip().upper() == ":END:":
                break
            yield from _written(line)


def block_line(lines: Sequence[str], name: str) -> int:
    """The line (from 1) that ends with `^name`, the mark of a block in Obsidian; 0 for none."""
    mark = re.compile(rf"(?:^|\s)\^{re.escape(name)}\s*\Z")
    return next((number for number, line in enumerate(lines, 1) if mark.search(line)), 0)


def _written(text: str) -> Iterator[str]:
    for match in _WRITTEN.finditer(text):
        yield next(filter(None, match.groups()), "").strip()


def _words(heading: str) -> str:
    return " ".join(words(unicodedata.normalize("NFKC", heading).casefold()))


def _unicode_slug(heading: str) -> str:
    """GitLab's, and Python-Markdown's when it keeps letters of all scripts."""
    text = re.sub(r"[^\w\s-]", "", unicodedata.normalize("NFKC", heading)).strip().lower()
    return re.sub(r"[-\s]+", "-", text)


def _docutils_id(heading: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", _ascii(heading.lower())).strip("-")


def _vitepress_slug(heading: str) -> str:
    text = "".join(
        c for c in unicodedata.normalize("NFKD", heading) if not unicodedata.combining(c)
    )
    text = re.sub(r"[\s~`!@#$%^&*()\-_+=[\]{}|\\;:\"'“”‘’<>,.?/]+", "-", text).strip("-").lower()
    return f"_{text}" if text[:1].isdecimal() else text


def _kramdown_slug(heading: str) -> str:
    text = re.sub(r"^[^A-Za-z]+", "", heading)
    return re.sub(r"[^A-Za-z0-9 -]", "", text).replace(" ", "-").lower() or "section"


def _asciidoctor_id(heading: str) -> str:
    text = re.sub(r"[^\w\s.-]", "", heading.lower())
    return "_" + re.sub(r"[\s.-]+", "_", text).strip("_")


def _ascii(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def _hugo_name(name: str) -> str:
    return re.sub(r"[^\w.@#+~%-]", "", re.sub(r" +", "-", name))


# What generators make of a file's name in a route.
_ROUTE_NAMES: dict[str, Callable[[str], str]] = {"Astro Starlight": slug, "Hugo": _hugo_name}

# By format and by generator.
_SCHEMES: dict[str, _Scheme] = {
    "markdown": (slug, "-", 1),
    "MkDocs": (lambda heading: _unicode_slug(_ascii(heading)), "_", 1),
    "restructured text": (_docutils_id, "-", 1),
    "GitLab": (_unicode_slug, "-", 1),
    "VitePress": (_vitepress_slug, "-", 1),
    "kramdown": (_kramdown_slug, "-", 1),
    "asciidoc": (_asciidoctor_id, "_", 2),
    "org": (slug, "-", 1),
}

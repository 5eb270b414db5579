"""The content of a page, and how many words are left out, and why.

Navigation is removed if its element or role says so, if its name does and it is short or consists
of links, or if it lies around the content and consists of links. Prose stays wherever it is.
Libraries that guess the article (readability, trafilatura, resiliparse) lose whole sections of
documentation, as 130 saved pages and 343 of eight Debian packages show (decision 10).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from selectolax.lexbor import LexborHTMLParser, LexborNode

from kb.formats.convert.completeness import words
from kb.formats.convert.markup import HEADING_TAGS, HEADINGS
from kb.text.assets import asset

_NEVER = "script, style, link, meta, template, noscript"
_INVISIBLE = (
    "iframe, object, canvas, dialog, [hidden], [aria-hidden=true], "
    "[style*='display:none'], [style*='display: none']"
)
_NAMED = "[class], [id], [role], nav, header, footer, aside, form"
_MAIN = ("main", "[role=main]")
_ARTICLE = ("article", "#content", "#main-content", ".document")
_INLINE = frozenset("a abbr b cite code em i small span strong sub sup time".split())
_OWN_PARTS = ("article", "main", "section", "blockquote", "figure")  # have headers and footers
_TITLED = (*HEADING_TAGS, "summary", "dt")  # what a click unfolds
_LINKS = "a, button, select"

NAVIGATION, COOKIES, CONTROLS = "navigation", "cookie notice", "forms"
HIDDEN, AROUND, COMMENTS = "hidden text", "page header and footer", "comments"

_LITTLE, _LITTLE_SHARE = 200, 0.1  # letters; a page with less is links, and taken whole
_HIDDEN_PROSE = 200  # a tab that is not shown at first is part of its page
_LARGE = 0.5  # of a page's prose: a block with more is not navigation, whatever its name
_IMPRINT = 250  # of a block without a heading outside the content
_SLOGAN = 60  # of what may come before a title
_MENU = 0.6  # of a block's letters that are links
_MENU_IN_TEXT = 0.8  # of a paragraph's
_LIST_OF_LINKS = 0.15  # of a page's letters that are prose: with less it only leads to others
_ALL = 0.9  # of the prose that lies in the content
_MOST_LEVELS = 60  # that are searched for the content


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a block's name says of it, and when to believe it: a row of the table."""

    reason: str
    least_links: float
    short: int
    condition: str


_ROWS = asset("page-parts")["kinds"]
_BY_NAME, _BY_ELEMENT = (
    {
        name: _Kind(row["reason"], row["links"], row["short"], row.get("condition", ""))
        for row in _ROWS
        for name in row.get(key, "").split()
    }
    for key in ("names", "elements")
)
# Names of what is not part of an article if it lies outside it.
_BESIDE = frozenset((*_BY_NAME, *asset("page-parts")["beside"].split()))
_PART = re.compile(r"[a-z]+|[A-Z]+[a-z]*")
_LONGEST_LANGUAGE = 25  # letters of a language's name
_FOOTER_LEVEL = 4  # elements from the root: a footer further down belongs to a part of the page

_USES_COOKIES = re.compile(
    r"\b(?:site|we|page|wir|nous)\b.{0,40}\b(?:use|uses|using|verwenden|nutzen|utilisons)\b"
    r".{0,40}\bcookies?\b|\bcookies?\b.{0,200}\b(?:accept|agree|akzeptieren|zustimmen|accepter)\b",
    re.IGNORECASE | re.DOTALL,
)
_MOST_ABOUT_COOKIES = 500


@dataclass(slots=True)
class Content:
    """A page's content, in a tree without what was left out."""

    node: LexborNode | None
    left_out: Counter[str] = field(default_factory=Counter)  # words by the reason


def content_of(tree: LexborHTMLParser) -> Content:
    body = tree.body
    if body is None:
        return Content(None)
    for node in tree.css(_NEVER):
        node.decompose()
    whole = body.clone()
    page = _Page(body)
    page.leave_out()
    if _length(body) < min(_LITTLE, _LITTLE_SHARE * _length(whole)):
        return Content(whole)
    return Content(body, page.left_out)


class _Page:
    """A page from whose tree parts are removed."""

    def __init__(self, body: LexborNode) -> None:
        self._body = body
        self._prose, self._titles, self._title = 0, 0, "h1"
        self.left_out: Counter[str] = Counter()

    def leave_out(self) -> None:
        # A page that hides its content until a script runs still has it.
        self._each(_INVISIBLE, lambda node: HIDDEN if _length(node) < _HIDDEN_PROSE else "")
        self._prose, self._titles = _prose(self._body), len(self._body.css("h1"))
        self._title = "h1" if self._titles else "h2"
        self._each(_NAMED, self._why_named)
        self._each("button, select", lambda node: "" if _lies_in(node, _TITLED) else CONTROLS)
        content, is_marked = self._content()
        if is_marked or _prose(self._body) >= _LIST_OF_LINKS * _length(self._body):
            self._leave_out_edges(content)
            # Links and slogans around the content; everything if the content is marked.
            node, prose = content, _prose(content)
            while node.mem_id != self._body.mem_id and (above := node.parent) is not None:
                for part in list(above.iter()):
                    if part.mem_id != node.mem_id:
                        reason = self._why_around(part, prose)
                        if reason or is_marked:
                            self._remove(part, reason or AROUND)
                node = above

    def _each(self, selector: str, why: Callable[[LexborNode], str]) -> None:
        gone: set[int] = set()
        for node in self._body.css(selector):
            if node.mem_id not in gone and (reason := why(node)):
                gone.update(inner.mem_id for inner in node.css(selector))
                self._remove(node, reason)

    def _remove(self, node: LexborNode, reason: str) -> None:
        if count := len(words(node.text(deep=True, separator=" "))):
            self.left_out[reason] += count
        node.decompose()

    def _why_named(self, node: LexborNode) -> str:
        kinds = list(_kinds(node))
        if not kinds:
            return ""
        length, links, titles = _length(node), _links(node), node.css("h1")
        # Titles of the page, which are not links to the site's first page.
        has_titles = len(titles) >= self._titles and any(map(_prose, titles))
        if length - links > _LARGE * self._prose or has_titles:
            return ""
        return next((k.reason for k in kinds if _is_believed(k, node, length, links)), "")

    def _content(self) -> tuple[LexborNode, bool]:
        """The element with title and prose, and whether the page marks it as its content."""
        most = _prose(self._body)
        for selector in (*_MAIN, *_ARTICLE):
            largest = max(self._body.css(selector), key=_prose, default=None)
            if largest is not None and _prose(largest) >= _LARGE * most:
                return self._with_title(largest), selector in _MAIN
        content = self._body
        for _ in range(_MOST_LEVELS):
            inside = [(_prose(node), node) for node in content.iter()]
            most = sum(prose for prose, node in inside if not _is_beside(node, most))
            largest = next((node for prose, node in inside if prose >= _ALL * most > 0), None)
            if largest is None:
                break
            content = largest
        return self._with_title(content), False

    def _with_title(self, node: LexborNode) -> LexborNode:
        return next((part for part in (node, *_above(node)) if part.css_first(self._title)), node)

    def _leave_out_edges(self, content: LexborNode) -> None:
        above: set[str | None] = set()
        for node in list(content.iter()):
            if _is_about_cookies(node):
                self._remove(node, COOKIES)
            elif node.tag in HEADING_TAGS or node.css_first(HEADINGS) or _prose(node) > _SLOGAN:
                break
            elif _is_menu(node):
                above |= _targets(node)
                self._remove(node, NAVIGATION)
        for node in reversed(list(content.iter())):
            if _is_about_cookies(node):
                self._remove(node, COOKIES)
            elif _is_menu(node) and _targets(node) <= above:
                self._remove(node, NAVIGATION)
            else:
                break

    def _why_around(self, node: LexborNode, most: int) -> str:
        if _is_about_cookies(node):
            return COOKIES
        if _is_menu(node):
            return NAVIGATION
        if _is_beside(node, most):
            return next((_BY_NAME[n].reason for n in _names(node) if n in _BY_NAME), COMMENTS)
        is_short = _length(node) <= _IMPRINT and node.css_first(HEADINGS) is None
        return AROUND if is_short and self.left_out else ""


def _is_about_cookies(node: LexborNode) -> bool:
    text = node.text(deep=True, separator=" ")
    is_notice = len(text) <= _MOST_ABOUT_COOKIES and _USES_COOKIES.search(text)
    return bool(is_notice) and node.css_first(HEADINGS) is None


def _is_beside(node: LexborNode, most: int) -> bool:
    """Whether a block's name sets it apart from its surroundings, and it is the smaller part."""
    return not _BESIDE.isdisjoint(_names(node)) and _prose(node) < _LARGE * most


def _is_believed(kind: _Kind, node: LexborNode, length: int, links: int) -> bool:
    if length > kind.short and links < kind.least_links * length:
        return False
    if kind.condition == "contents":  # of this page
        targets = [(target or "").partition("#") for target in _targets(node)]
        return all(mark for _, mark, _ in targets) and len({page for page, _, _ in targets}) == 1
    if kind.condition == "languages":
        return all(_length(link) <= _LONGEST_LANGUAGE for link in node.css("a"))
    if kind.condition == "cookies":
        return node.css_first("a, button, input") is not None
    return kind.condition != "footer" or len(list(_above(node))) <= _FOOTER_LEVEL


def _kinds(node: LexborNode) -> Iterator[_Kind]:
    if node.tag in ("body", "main", "article", *HEADING_TAGS):
        return
    for key in (node.tag, node.attributes.get("role")):
        kind = _BY_ELEMENT.get(key or "")
        is_part = key in ("header", "footer") and _lies_in(node, _OWN_PARTS)
        if kind is not None and not is_part:
            yield kind
    for name in _names(node):
        kind = _BY_NAME.get(name)
        if kind is not None and (node.tag not in _INLINE or kind.condition == "mark"):
            yield kind


def _names(node: LexborNode) -> tuple[str, ...]:
    """A block's class names and id, in parts and whole."""
    attributes = node.attributes
    id_ = attributes.get("id") or ""
    if id_ and (heading := node.css_first(HEADINGS)) is not None:
        # A section's id repeats its heading, whatever that is about.
        id_ = "" if set(words(id_)) <= set(words(heading.text())) else id_
    return _parts(f"{attributes.get('class') or ''} {id_}")


@lru_cache(2000)
def _parts(names: str) -> tuple[str, ...]:
    parts = [part for name in names.split() for part in (*_PART.findall(name), name)]
    return tuple(dict.fromkeys("".join(filter(str.isalpha, part)).lower() for part in parts))


def _above(node: LexborNode) -> Iterator[LexborNode]:
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


def _lies_in(node: LexborNode, tags: Sequence[str]) -> bool:
    return any(above.tag in tags for above in _above(node))


def _is_menu(node: LexborNode) -> bool:
    count = len(node.css("a"))
    least, share = (3, _MENU_IN_TEXT) if node.tag == "p" else (2, _MENU)
    links = _links(node) if count >= least else 0
    return links > 0 and links >= share * _length(node)


def _targets(node: LexborNode) -> set[str | None]:
    return {link.attributes.get("href") for link in node.css("a")}


def _length(node: LexborNode) -> int:
    return len(node.text(deep=True, separator="", strip=True))


def _links(node: LexborNode) -> int:
    return sum(map(_length, node.css(_LINKS)))


def _prose(node: LexborNode) -> int:
    return _length(node) - _links(node)

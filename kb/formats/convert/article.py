"""A web page that was fetched: what it says, without what its site puts around it.

Pages that mark their content (`<main>`, `<article>`) are read as saved pages are. On others
readability-lxml finds the article; what it gives itself lacks tables and titles, so it only says
where the article is: the smallest part of the page that holds its paragraphs is taken, with the
sections beside it and the title above it.
"""

from __future__ import annotations

import contextlib
import re
from urllib.parse import urljoin

from selectolax.lexbor import LexborNode

from kb.formats.convert.markup import content_of, html_title, markdown_of, parse_html
from kb.formats.convert.page import html_text, page_title
from kb.formats.convert.result import Converted

__all__ = ["convert"]

# Of the article's paragraphs this share has to be in the part that is taken.
_SHARE = 0.9
_LEAST_PARAGRAPH = 30  # characters of a paragraph that is looked for
_LEAST_PARAGRAPHS = 3
_MOST_PARAGRAPHS = 50  # that are looked for, evenly taken
# A part that is larger than the article by no more than this is taken for the title in it.
_WITH_TITLE = 1.3
_LINKS = (("a", "href"), ("img", "src"))
_NAME_ENDS = re.compile(r"[\s_-]+")
_LEAVING = "a[href]:not([href*='#'])"  # not those of its own table of contents
_MOST_LINKS = 0.3  # of the letters beside an article that are its sections
_SECTION_HEADINGS = "h1, h2, h3, h4"
# Words of the names of what is no section: "post-comments", "cookie_banner", "site-footer".
_AROUND = {
    *("ad", "ads", "advert", "banner", "breadcrumb", "breadcrumbs", "comment", "comments"),
    *("cookie", "cookies", "disqus", "footer", "masthead", "menu", "modal", "nav", "navbar"),
    *("navigation", "newsletter", "popup", "promo", "related", "respond", "share", "sharing"),
    *("sidebar", "social", "sponsor", "subscribe", "widget"),
}


def convert(data: bytes, name: str) -> Converted:
    """The article of a page; `name` is the page's address, from which its links are resolved."""
    text = html_text(data)
    tree = parse_html(text)
    title = html_title(tree)
    base = tree.css_first("base[href]")
    address = name
    if base is not None:
        with contextlib.suppress(ValueError):  # brackets that are no address
            address = urljoin(name, base.attributes.get("href") or "")
    content = content_of(tree)
    if content is not None and content.tag == "body":
        content = _article(text, content) or content
    if content is None:
        return Converted("", title=title)
    title = page_title(title, content)
    for tag, attribute in _LINKS:
        for node in content.css(f"{tag}[{attribute}]"):
            _make_absolute(node, attribute, address)
    return Converted(markdown_of(content), title=title)


def _make_absolute(node: LexborNode, attribute: str, address: str) -> None:
    link = (node.attributes.get(attribute) or "").strip()
    if link and not link.startswith(("#", "data:")):
        try:
            node.attrs[attribute] = urljoin(address, link)
        except ValueError:  # brackets that are no address
            return


def _article(text: str, body: LexborNode) -> LexborNode | None:
    """The part of a page that holds its article; None when none stands out."""
    from readability import Document
    from readability.readability import Unparseable

    try:
        found = parse_html(Document(text).summary(html_partial=True))
    except (Unparseable, ValueError, TypeError):  # a page of no text, or of odd characters
        return None
    found_words = (
        words
        for node in found.css("p, li, pre, h2, h3, blockquote")
        if len(words := _words(node)) >= _LEAST_PARAGRAPH
    )
    paragraphs = list(dict.fromkeys(found_words))
    if len(paragraphs) < _LEAST_PARAGRAPHS:
        return None
    wanted = set(paragraphs[:: 1 + len(paragraphs) // _MOST_PARAGRAPHS])
    part, inner = body, _holding(body, wanted)
    while inner is not None:
        part, inner = inner, _holding(inner, wanted)
    part = _with_title(_with_sections(part))
    return None if part.tag == "body" else part


def _holding(node: LexborNode, wanted: set[str]) -> LexborNode | None:
    """The child that holds the paragraphs that are wanted."""
    for child in node.iter():
        text = _words(child)
        if sum(words in text for words in wanted) >= _SHARE * len(wanted):
            return child
    return None


def _with_sections(part: LexborNode) -> LexborNode:
    """The part with the sections beside it, where what it lies in adds headings and prose alone.

    readability scores paragraphs: of a chapter whose sections are elements of their own, it takes
    the longest. What a site puts around its articles is mostly links, or named for what it is.
    """
    taken = part
    while (above := part.parent) is not None and above.tag not in ("html", "-undef"):
        added = [node for node in above.iter() if node.mem_id != part.mem_id]
        words = sum(len(_words(node)) for node in added)
        links = sum(len(_words(link)) for node in added for link in node.css(_LEAVING))
        if links > _MOST_LINKS * words or any(map(_is_around, added)):
            break
        if any(node.css_first(_SECTION_HEADINGS) is not None for node in added):
            taken = above
        part = above
    return taken


def _with_title(part: LexborNode) -> LexborNode:
    """The part with what it lies in, where that adds the title and hardly anything else.

    Links and names do not matter here: a title often stands among a menu and buttons to share it.
    """
    above = part.parent
    if above is None or part.css_first("h1") is not None or above.css_first("h1") is None:
        return part
    return above if len(_words(above)) <= _WITH_TITLE * len(_words(part)) else part


def _is_around(node: LexborNode) -> bool:
    return any(
        not _AROUND.isdisjoint(_NAME_ENDS.split((one.attributes.get(name) or "").casefold()))
        for one in node.css("[class], [id]")
        for name in ("class", "id")
    )


def _words(node: LexborNode) -> str:
    return " ".join(node.text(deep=True, separator=" ").split())

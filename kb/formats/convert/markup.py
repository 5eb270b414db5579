"""HTML -> Markdown: the content of a page without what surrounds it.

selectolax (Lexbor) reads the page as a browser does, html-to-markdown writes it. Between the two
the page is made ready: navigation goes, a heading keeps the name under which it can be linked, and
text that would look like Markdown is protected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import html_to_markdown
from selectolax.lexbor import LexborHTMLParser, LexborNode

from kb.formats.anchors import slug
from kb.formats.convert.nesting import shallow

__all__ = ["content_of", "html_title", "markdown_of", "parse_html"]

_OPTIONS = html_to_markdown.ConversionOptions(
    extract_metadata=False,
    preprocessing=html_to_markdown.PreprocessingOptions(enabled=False),
    skip_images=False,
    compact_tables=True,
    newline_style="backslash",
    highlight_style="none",
    max_depth=400,
)

_NEVER = "script, style, template, noscript, iframe, object, svg, canvas, dialog, link, meta"
_AROUND = (
    "nav, [role=navigation], [role=search], [role=banner], [role=contentinfo], [hidden], "
    "[aria-hidden=true], body > header, body > footer, form, button, select, .toc, #toc, "
    ".table-of-contents, .sidebar, .sphinxsidebar, .related, .breadcrumbs, .breadcrumb, .docnav, "
    ".navheader, .navfooter, .nav-panel, .navbar, .site-header, .site-footer, .skip-link"
)
_PERMALINKS = "a.headerlink, a.anchor, a.permalink, a.anchorjs-link, a.hash-link, a.header-anchor"
_MAIN = ("main", "[role=main]", "article", "#content", "#main-content", ".document", "body")
_HEADING_TAGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_HEADINGS = ", ".join(_HEADING_TAGS)
_AS_IT_STANDS = ("pre", "code", "kbd", "samp", "textarea")

# A page whose content is shorter than this is taken as a whole: a list of links is all that a
# table of contents holds.
_LITTLE_TEXT = 200


def parse_html(text: str) -> LexborHTMLParser:
    """The page as a tree."""
    return LexborHTMLParser(shallow(text))


def html_title(tree: LexborHTMLParser) -> str:
    """What the page calls itself in its head; "" when it does not."""
    node = tree.css_first("head > title") or tree.css_first("title")
    return " ".join(node.text().split()) if node is not None else ""


def content_of(tree: LexborHTMLParser) -> LexborNode | None:
    """The part of a page that holds what it says."""
    body = tree.body
    if body is None:
        return None
    for node in tree.css(_NEVER):
        node.decompose()
    whole = body.clone()
    for node in tree.css(_AROUND):
        # A page that hides its content until a script runs still has it.
        if node.tag not in ("body", "main", "article"):
            node.decompose()
    titles = len(body.css("h1"))
    for selector in _MAIN:
        found = [node for node in tree.css(selector) if _length(node) > _LITTLE_TEXT]
        if found:
            largest = max(found, key=_length)
            # A name alone proves little: the title may stand above what is called the content.
            is_sure = selector in ("main", "body", "[role=main]")
            is_most = _length(largest) * 2 > _length(body) and len(largest.css("h1")) == titles
            if is_sure or is_most:
                return largest
    return whole


def markdown_of(node: LexborNode) -> str:
    """A part of a page as Markdown; changes the part."""
    for link in node.css(_PERMALINKS):
        link.decompose()
    for image in node.css("img"):
        if (image.attributes.get("src") or "").startswith("data:"):
            image.replace_with(image.attributes.get("alt") or "")
    for heading in node.css(_HEADINGS):
        _prepare_heading(heading)
    for text, in_heading in list(_texts(node)):
        _protect(text, in_heading=in_heading)
    markdown = html_to_markdown.convert(node.html or "", _OPTIONS).content or ""
    markdown = markdown.replace(_ESCAPE, "\\")
    return markdown.strip("\n") + "\n" if markdown.strip() else ""


def _length(node: LexborNode) -> int:
    return len(node.text(deep=True, strip=True))


def _prepare_heading(heading: LexborNode) -> None:
    for link in heading.css("a"):
        if (link.attributes.get("href") or "#").startswith("#"):
            name = link.attributes.get("id") or link.attributes.get("name")
            if name and not heading.attributes.get("id"):
                heading.attrs["id"] = name
            link.unwrap()
    name = _name_of(heading)
    text = " ".join(heading.text().split())
    if name and not re.search(r"[\s{}]", name) and name != slug(text):
        heading.insert_child(f" {{#{name}}}")


def _name_of(heading: LexborNode) -> str:
    """The name under which a link finds the heading: its own, or its section's."""
    own = heading.attributes.get("id")
    if own:
        return own
    section = heading.parent
    if section is not None and section.tag in ("section", "div"):
        first = next((n for n in section.iter() if n.tag == heading.tag), None)
        if first is not None and first.mem_id == heading.mem_id:
            return section.attributes.get("id") or ""
    return ""


def _texts(node: LexborNode) -> Iterator[tuple[LexborNode, bool]]:
    """Each text that is not shown as it stands, and whether it is inside a heading."""
    waiting = [(node, False)]
    while waiting:
        above, in_heading = waiting.pop()
        for one in above.iter(include_text=True):
            if one.is_text_node:
                yield one, in_heading
            elif one.tag not in _AS_IT_STANDS:
                waiting.append((one, in_heading or one.tag in _HEADING_TAGS))


# What begins a block at the beginning of a line; html-to-markdown protects the first line alone.
_BLOCK_MARK = re.compile(
    r"\s*\n\s*(?=(?:#{1,6}|[-+*]|\d{1,9}[.)]|>)\s|```|~~~|\||[-=_*](?:\s*[-=_*])*\s*(?:\n|\Z))"
)
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_INLINE_MARK = re.compile(r"(?=[\\`*_\[\]&])")
# Stands for a backslash until the page is written: html-to-markdown would protect that again.
_ESCAPE = "\ufdd0"


def _protect(node: Any, *, in_heading: bool) -> None:
    """Keep a text from being read as Markdown."""
    text = node.text_content
    if not text or text.isspace():
        return
    changed = text.replace(_ESCAPE, "")
    changed = _BLOCK_MARK.sub(" ", changed) if "\n" in changed else changed
    if in_heading:
        anchor = re.search(r" \{#[^\s{}]+\}\Z", changed)
        end = anchor.start() if anchor else len(changed)
        changed = _INLINE_MARK.sub(_ESCAPE, changed[:end]) + changed[end:]
    if "<" in changed:
        changed = _TAG.sub(f"{_ESCAPE}<", changed)
    if changed != text:
        node.replace_with(changed)

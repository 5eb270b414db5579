"""HTML -> Markdown.

selectolax (Lexbor) reads the page as a browser does, html-to-markdown writes it. In between,
headings keep the names that links use, and text that looks like Markdown is protected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import html_to_markdown
from selectolax.lexbor import LexborHTMLParser, LexborNode

from kb.formats.convert.definition_list import mark_definitions, write_definitions
from kb.formats.convert.nesting import shallow
from kb.formats.convert.plain import superscript
from kb.formats.sites import slug

_OPTIONS = html_to_markdown.ConversionOptions(
    extract_metadata=False,
    preprocessing=html_to_markdown.PreprocessingOptions(enabled=False),
    compact_tables=True,
    newline_style="backslash",
    highlight_style="none",
    hidden_content="reachable",
    inline_data_media="alt_text_only",
)

_PERMALINKS = "a.headerlink, a.anchor, a.permalink, a.anchorjs-link, a.hash-link, a.header-anchor"
HEADING_TAGS = ("h1", "h2", "h3", "h4", "h5", "h6")
HEADINGS = ", ".join(HEADING_TAGS)
# What sites put behind a heading: link marks, "[edit | edit source]", attributes left by renderers.
_HEADING_MARKS = " \t\n\r\f\xa0¶🔗"
_EDIT_LINKS = re.compile(r"\[(?:[\s|/·]|edit)*\]", re.IGNORECASE)
_WRITTEN_NAME = re.compile(r"\{:?\s*#([^\s{}]+)[^{}]*\}")
_IN_LAYOUT = "td h1, td h2, td h3, td h4, td h5, td h6"
_SECTION_IN_LIST = "li h1, li h2, li h3, li h4"  # as in Javadoc's pages
_BLOCK = LexborHTMLParser("<div></div>").css("div")[0]
_MOST_MARKS = 4  # behind one heading
_LOOKS = ("b", "em", "font", "i", "small", "span", "strong", "u")
_AS_IT_STANDS = ("pre", "code", "kbd", "samp", "textarea")


def parse_html(text: str) -> LexborHTMLParser:
    """The page as a tree, with formulas as text."""
    tree = LexborHTMLParser(shallow(text))
    write_formulas(tree)
    return tree


def html_title(tree: LexborHTMLParser) -> str:
    """The title in the page's head; "" without one."""
    node = tree.css_first("head > title") or tree.css_first("title")
    return " ".join(node.text().split()) if node is not None else ""


def markdown_of(node: LexborNode) -> str:
    """A part of a page as Markdown; changes the part."""
    for link in node.css(_PERMALINKS):
        link.decompose()
    for raised in reversed(node.css("sup")):  # the inner ones first
        if not raised.css_first("a, img"):
            raised.replace_with(superscript(_text_before(raised), raised.text()))
    for heading in node.css(HEADINGS):
        _prepare_heading(heading)
    for numbers in node.css("td.linenos, td.gutter"):
        numbers.decompose()
    for table in reversed(list(filter(_is_layout, node.css("table")))):  # the inner ones first
        _unwrap_table(table)
    for points in reversed(node.css("ul")):
        if points.css_first(_SECTION_IN_LIST):
            _make_blocks((points,), ("li",))
            points.unwrap()
    for picture in reversed(node.css("svg")):  # a drawing leaves its text
        for unseen in reversed(picture.css("symbol, defs")):
            unseen.decompose()
        labels = (label.text(separator=" ") for label in picture.css("text, foreignObject"))
        picture.replace_with(f" {' '.join(labels)} ")
    for link in node.css("code a"):
        _free_link(link)
    for link in node.css("a[title]"):
        if _is_repeated(link):
            del link.attrs["title"]
    for text, in_heading in list(_texts(node)):
        _protect(text, in_heading=in_heading)
    mark_definitions(node)
    markdown = write_definitions(html_to_markdown.convert(node.html or "", _OPTIONS).content or "")
    markdown = markdown.replace(_ESCAPE, "\\").replace(BACKSLASH, "\\")
    return markdown.strip("\n") + "\n" if markdown.strip() else ""


def _text_before(node: LexborNode) -> str:
    while node.prev is None and node.parent is not None and node.parent.tag in _LOOKS:
        node = node.parent
    before = node.prev
    return "" if before is None else before.text_content or before.text() or ""


def _prepare_heading(heading: LexborNode) -> None:
    """Reduce a heading to its words and its link name."""
    for link in heading.css("a"):
        target = link.attributes.get("href") or "#"
        name = link.attributes.get("id") or link.attributes.get("name")
        if name and not heading.attributes.get("id"):
            heading.attrs["id"] = name
        is_mark = not any(map(str.isalnum, link.text()))
        if (is_mark and not link.css_first("img")) or "edit" in target.casefold():
            link.decompose()
        elif target.startswith("#"):
            link.unwrap()
    text = heading.text()
    title, named = _without_marks(text)
    if not title:
        return
    _shorten(heading, len(text) - len(title))
    name = _name_of(heading) or named
    if name and not re.search(r"[\s{}]", name) and name != slug(" ".join(title.split())):
        heading.insert_child(f" {{#{name}}}")


def _without_marks(text: str) -> tuple[str, str]:
    """A heading without what its site added, and the link name in that."""
    name = ""
    for _ in range(_MOST_MARKS):
        text = text.rstrip(_HEADING_MARKS)
        if _EDIT_LINKS.fullmatch(end := text[text.rfind("[") :]):
            text = text.removesuffix(end)
        elif named := _WRITTEN_NAME.fullmatch(end := text[text.rfind("{") :]):
            text, name = text.removesuffix(end), named[1]
        else:
            break
    return text, name


def _shorten(node: LexborNode, surplus: int) -> None:
    texts = [part for part in node.traverse(include_text=True) if part.is_text_node]
    while surplus and texts:
        text = texts.pop()
        content = text.text_content or ""
        text.replace_with(content[: max(0, len(content) - surplus)])
        surplus -= min(surplus, len(content))


def _free_link(link: LexborNode) -> None:
    """Unwrap code around a link: html-to-markdown would make two pieces of it."""
    code = link.parent
    while code is not None and code.tag not in ("code", "pre"):
        code = code.parent
    if code is None or code.tag == "pre" or code.text().strip() == link.text().strip():
        return
    if code.parent is None or code.parent.tag != "pre":
        code.unwrap()


def _is_repeated(link: LexborNode) -> bool:
    """Whether a link's title only repeats its text or target."""
    attributes = link.attributes
    title = " ".join((attributes["title"] or "").casefold().split())
    target = unquote(attributes.get("href") or "").replace("_", " ").casefold()
    return title in target or title in " ".join(link.text().casefold().split())


def _unwrap_table(table: LexborNode) -> None:
    bodies = [part for part in table.iter() if part.tag in ("thead", "tbody", "tfoot")]
    rows = [row for part in (table, *bodies) for row in part.iter() if row.tag == "tr"]
    _make_blocks((table, *rows), ("td", "th", "caption"))
    for part in (*rows, *bodies, table):
        part.unwrap()


def _make_blocks(above: Iterable[LexborNode], tags: Sequence[str]) -> None:
    for part in [part for element in above for part in element.iter() if part.tag in tags]:
        part.insert_before(_BLOCK)
        block = part.prev
        assert block is not None
        for inner in list(part.iter(include_text=True)):
            block.insert_child(inner, move=True)
        part.decompose()


def _is_layout(table: LexborNode) -> bool:
    has_tables = len(table.css("table")) > 1  # it is one of them
    if (
        has_tables
        or table.attributes.get("role") in ("presentation", "none")
        or table.css_first(_IN_LAYOUT) is not None
        or any("\n" in code.text().strip() for code in table.css("td pre"))
    ):
        return True
    rows = table.css("tr")
    if any(len(row.css("td, th")) > 1 for row in rows):
        return len(rows) == 1 and table.css_first("pre, p, ul, ol, div") is not None
    return table.css_first("th") is None


def _name_of(heading: LexborNode) -> str:
    """The name that links to a heading: its own or its section's."""
    name, section = heading.attributes.get("id"), heading.parent
    if name or section is None:
        return name or ""
    # Other blocks have names of the layout: "wrap", "content".
    is_div = section.tag == "div" and "sect" in (section.attributes.get("class") or "")
    first = next((n for n in section.iter() if n.tag == heading.tag), None)
    is_first = first is not None and first.mem_id == heading.mem_id
    is_section = is_div or section.tag == "section"
    return (section.attributes.get("id") or "") if is_section and is_first else ""


def _texts(node: LexborNode) -> Iterator[tuple[LexborNode, bool]]:
    """Each text that is not verbatim, and whether it is in a heading."""
    waiting = [(node, False)]
    while waiting:
        above, in_heading = waiting.pop()
        for part in above.iter(include_text=True):
            if part.is_text_node:
                yield part, in_heading
            elif part.tag not in _AS_IT_STANDS:
                waiting.append((part, in_heading or part.tag in HEADING_TAGS))


# What begins a block at the start of a line; html-to-markdown protects only the first line.
_BLOCK_MARK = re.compile(
    r"\s*\n\s*(?=(?:#{1,6}|[-+*]|\d{1,9}[.)]|>)\s|```|~~~|\||[-=_*](?:\s*[-=_*])*\s*(?:\n|\Z))"
)
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_INLINE_MARK = re.compile(r"(?=[\\`*_\[\]&])")
_ESCAPE = "\ufdd0"  # stands for a backslash, which html-to-markdown would escape again


def _protect(node: Any, *, in_heading: bool) -> None:
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


BACKSLASH = "\ufdd1"  # of a formula; html-to-markdown would escape it

_WHOLE = ".mwe-math-element, .katex-display, .katex, mjx-container"  # a formula in all its forms
_FORMS = "math, img[class*='mwe-math'], img.tex, img.latex, img.mathtex"
_SCRIPTS = "script[type^='math/tex']"
_BESIDE_SCRIPTS = ".MathJax_Preview, .MathJax_Display, .MathJax, .MathJax_SVG, .MathJax_CHTML"
_TEX = "annotation[encoding='application/x-tex'], annotation[encoding='TeX']"
_STYLED = re.compile(r"\{\\(?:display|text)style\s+(.*)\}", re.DOTALL)


def write_formulas(tree: LexborHTMLParser) -> None:
    """Replace each formula's pictures by its LaTeX, once, if the page has it."""
    for whole in reversed(tree.css(_WHOLE)):  # what lies in another one first
        form = whole.css_first(_FORMS)
        if form is not None and (latex := _latex(form)):
            whole.replace_with(latex)
    for form in tree.css(_FORMS):
        if latex := _latex(form):
            form.replace_with(latex)
    if scripts := tree.css(_SCRIPTS):
        for picture in reversed(tree.css(_BESIDE_SCRIPTS)):
            picture.decompose()
        for script in scripts:
            script.replace_with(_latex(script))


def _latex(form: LexborNode) -> str:
    """A formula's LaTeX between dollar signs; "" if the page has none."""
    attributes = form.attributes
    is_display = attributes.get("display") == "block"
    if form.tag == "script":
        text = form.text()
        is_display = "mode=display" in (attributes.get("type") or "")
    elif (note := form.css_first(_TEX)) is not None:
        text = note.text()
    else:
        text = attributes.get("alttext" if form.tag == "math" else "alt") or ""
    text = " ".join(text.split())
    styled = _STYLED.fullmatch(text)
    text = (styled[1] if styled else text).strip()
    mark = "$$" if is_display else "$"
    text = _TAG.sub(r"\\lt ", text).replace("\\", BACKSLASH)
    return f"{mark}{text}{mark}" if text else ""

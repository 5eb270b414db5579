"""The links that a Markdown document makes, found with the parser's own inline tokens.

Inline and reference links, autolinks (`<https://...>` and, as GitHub does, a bare `https://...`
in the text), wiki links (`[[Page]]`, `[[Page#part|text]]`), roles of MyST, links inside or behind
footnotes, and the `url`, `source` and buttons of the front matter; and in HTML `<a href>` and
`<img src>`, and `href` or `to` of a component (`<LinkCard href="/x/" />`).
Never from code, comments (Obsidian's too), math or templates. A picture of Markdown's own is no
citation, and neither is a link to a mail address.

A template may stand where a link leads, and holds blanks, brackets and quotes, at which the address
of a link would end: they are written otherwise while links are looked for. Lengths and lines stay.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import unescape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.rules_inline import StateInline, autolink, html_inline, link
from markdown_it.token import Token

from kb.formats.outline import Link
from kb.text.sentences import context_of
from kb.text.suffixes import MARKDOWN_SUFFIXES

# A text, its first line from 0, and the label of the footnote that all of it belongs to, if any.
LinkText = tuple[str, int, str | None]

_BLOCK_MARKS = ("%%", "$$")  # they may stand paragraphs apart
_SHORT_CODE_SPAN = re.compile(r"(`+)(?!`).{0,300}?(?<!`)\1(?!`)", re.DOTALL)
# As in Pandoc: no blank inside the signs, no digit behind them. A link may name a heading with it.
_MATH = re.compile(
    r"(?P<link>\[\[[^\]\n#]{0,500}\#[^\]\n]{0,500}\]\])"
    r"|(?<![\\$\w])\$(?=[^\s$])(?:(?!\]\()[^$\n]){0,500}(?<![\s\\])\$(?![\d$])"
)
_BRACKET_MATH = re.compile(
    r"\\(?:\[(?:(?!\]\().){0,300}?\\\]|\((?:(?!\]\().){0,300}?\\\))", re.DOTALL
)
_TEMPLATE = re.compile(r"\{\{.{0,200}?\}\}|\{%.{0,200}?%\}")
_IN_ADDRESSES = " \t()<>\"'`[]\\"
_WRITTEN_OTHERWISE = {ord(sign): 0xE0A0 + place for place, sign in enumerate(_IN_ADDRESSES)}
_BACK = {place: sign for sign, place in _WRITTEN_OTHERWISE.items()}


def may_hold_link(content: str) -> bool:
    """Whether a block's text can hold a link, the mark of a footnote, or the end of a comment."""
    has_brackets = "[" in content and "]" in content
    return has_brackets or any(mark in content for mark in ("://", "<", "((", "}`", *_BLOCK_MARKS))


def visible(texts: Sequence[LinkText]) -> Iterator[LinkText]:
    """The texts with blanks in place of what is hidden."""
    texts = [(_without_marks_in_code(text), line, note) for text, line, note in texts]
    left = [sum(text.count(mark) for text, *_ in texts) for mark in _BLOCK_MARKS]
    is_inside = [False] * len(_BLOCK_MARKS)
    for text, line, note in texts:
        for number, mark in enumerate(_BLOCK_MARKS):
            if not (is_inside[number] or left[number] > 1):
                continue
            parts = text.split(mark)
            shown = []
            for index, part in enumerate(parts):
                if index:
                    left[number] -= 1
                    is_inside[number] = not is_inside[number] and left[number] > 0
                    shown.append("  ")
                shown.append(_blank(part) if is_inside[number] else part)
            text = "".join(shown)
        if "$" in text:
            text = _MATH.sub(lambda match: match["link"] or _blank(match[0]), text)
        if "\\[" in text or "\\(" in text:
            text = _BRACKET_MATH.sub(_blanked, text)
        if "{{" in text or "{%" in text:
            text = _TEMPLATE.sub(lambda match: match[0].translate(_WRITTEN_OTHERWISE), text)
        yield text, line, note


def _without_marks_in_code(text: str) -> str:
    if "`" not in text or not ("%%" in text or "$" in text):
        return text
    return _SHORT_CODE_SPAN.sub(lambda span: span[0].translate({36: " ", 37: " "}), text)


def _blanked(match: re.Match[str]) -> str:
    return _blank(match[0])


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


# Inline parsing can be quadratic: longer paragraphs are read in pieces, cut at line ends.
MAXIMUM_INLINE = 8_000


class KeepingLinks(MarkdownIt):
    """A parser that leaves destinations as they are written, without percent-encoding."""

    def normalizeLink(self, url: str) -> str:  # noqa: N802 - markdown-it's name
        return url


def find_links(
    texts: Sequence[LinkText],
    references: Mapping[str, Any],
    front_matter: Mapping[str, Any],
    lines: Sequence[str],
    first_line: int,
) -> tuple[Link, ...]:
    """All links of a document, in order.

    Lines of `texts` (see `LinkText`) count from 0 behind the front matter, which has `first_line`
    of the file's `lines`. `references` is the environment of the block rules, with definitions.
    """
    links = list(_front_matter_links(front_matter, lines[:first_line]))
    footnotes: dict[str, Link] = {}
    # A reference link needs no more than a bracket, anything else one of these.
    marks: tuple[str, ...] = ("[",) if references.get("references") else ("](", "[[")
    marks += ("<a", "<A", "<img", "<IMG", "href=", " to=", "://", "((", "}`")
    for (content, line, note), (shown, *_) in zip(texts, visible(texts), strict=True):
        if not any(mark in shown for mark in marks):
            continue
        for piece, shown_piece, offset in _pieces(content, shown):
            place = line + offset + first_line + 1
            for made, label in _links_of(piece, shown_piece, place, references, note):
                if label is None:
                    links.append(made)
                elif label not in footnotes:
                    footnotes[label] = made
    links += _with_sentences(footnotes, texts)
    return tuple(sorted(links, key=lambda made: made.line))


def _pieces(content: str, shown: str) -> Iterator[tuple[str, str, int]]:
    """A block's text, a very long one in pieces, each with the number of lines before it."""
    offset = start = 0
    while len(content) - start > MAXIMUM_INLINE:
        end = content.rfind("\n", start, start + MAXIMUM_INLINE) + 1 or start + MAXIMUM_INLINE
        yield content[start:end], shown[start:end], offset
        offset += content.count("\n", start, end)
        start = end
    yield content[start:], shown[start:], offset


# Inline rules: those that matter for links, with positions. markdown-it keeps none.


def _positioned(rule: Callable[[StateInline, bool], bool]) -> Callable[[StateInline, bool], bool]:
    def positioned(state: StateInline, silent: bool) -> bool:
        start, count = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        if not silent:
            for token in state.tokens[count:]:
                if token.type == "link_open":
                    token.meta = {"start": start, "end": state.pos}
                    break
        return True

    return positioned


# Where a generator puts the table of contents (GitLab, Azure, VitePress); "toc" may be a page too.
_CONTENTS = ("_toc_", "_tosp_")
_WIKI = re.compile(r"\[\[(?P<page>[^\[\]\n|]+)(?:\|[^\[\]\n]*)?\]\]")

_ADDRESS = re.compile(r"[ \t]*[(（]https?:")  # behind what is text: `[[all]] (https://...)`


def _wiki_link(state: StateInline, silent: bool) -> bool:
    if not state.src.startswith("[[", state.pos):
        return False
    match = _WIKI.match(state.src, state.pos, state.posMax)
    # A list in code begins with a quote: `[['a', 'b']]`.
    if match is None or not any(map(str.isalnum, match["page"])) or match["page"][0] in "\"'":
        return False
    # `[[1]](url)`, `[[1]][label]` and a defined `[[label]]` are links with a bracket in their text.
    references = state.env.get("references", {})
    if state.src.startswith(("(", "["), match.end()) or _ADDRESS.match(state.src, match.end()):
        return False
    if normalizeReference(match[0][2:-2]) in references:
        return False
    line_start = state.src.rfind("\n", 0, state.pos) + 1
    is_alone = match[0] == state.src[line_start:].partition("\n")[0].strip()
    if match["page"].lower() in (*_CONTENTS, *(("toc",) if is_alone else ())):
        return False
    if not silent and not state.linkLevel:
        page = match["page"].removesuffix("\\").strip()  # `\|` in a table
        _push_link(state, page, "wiki", match.start(), match.end())
    state.pos = match.end()
    return True


_SCHEME = re.compile(r"(?<![A-Za-z0-9+.-])https?\Z", re.IGNORECASE)
# What ends a bare URL, besides white space: quotes, brackets and full-width punctuation.
_BARE_URL = re.compile(r"://[^\s<>\"`\\^{}|\[\]（）。，、；：「」『』【】《》“”]+")


def _bare_url(state: StateInline, silent: bool) -> bool:
    if silent or state.linkLevel or not state.src.startswith("://", state.pos):
        return False
    scheme = _SCHEME.search(state.pending[-10:])
    match = _BARE_URL.match(state.src, state.pos, state.posMax)
    if scheme is None or match is None:
        return False
    rest = without_trailing_punctuation(match[0])
    if len(rest) < 4 or not rest[3].isalnum():
        return False
    length = len(scheme[0])
    state.pending = state.pending[:-length]
    end = state.pos + len(rest)
    _push_link(state, scheme[0] + rest, "autolink", state.pos - length, end)
    state.pos = end
    return True


_TITLED = re.compile(r"<([^<>]+)>\s*\Z")
_MADE_LABELS = frozenset({"genindex", "modindex", "py-modindex", "search"})
_ROLES = {"doc": "doc", "ref": "ref", "numref": "ref", "term": "term"}


def role_target(role: str, content: str) -> tuple[str, str]:
    """Where a Sphinx role leads and the kind of link; ("", "") if it is none."""
    kind = _ROLES.get(role.rpartition(":")[2], "")
    titled = _TITLED.search(content)
    place = " ".join((titled[1] if titled else content).split())
    is_made = kind == "ref" and (place in _MADE_LABELS or "%s" in place)
    return ("", "") if not kind or is_made or place.startswith("!") else (place, kind)


def without_trailing_punctuation(url: str) -> str:
    """GitHub's rule: a sentence's punctuation and a closing bracket too many are not the URL's."""
    end, surplus = len(url), url.count(")") - url.count("(")
    while end:
        if url[end - 1] == ")" and surplus > 0:
            surplus -= 1
        elif url[end - 1] not in "?!.,:;*_~'":
            break
        end -= 1
    return url[:end]


_HTML_LINK = re.compile(
    r"""<(?:(?i:a|img)\s(?:[^<>]*\s)?(?i:href|src)
          |[A-Z][\w.]*\s(?:[^<>]*\s)?(?:href|to)(?=\s*=\s*["']))  # a component
        \s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""",
    re.VERBOSE,
)


def _html(state: StateInline, silent: bool) -> bool:
    start = state.pos
    if not html_inline(state, silent):
        return False
    match = _HTML_LINK.match(state.src, start, state.pos)
    if match is not None and not silent:
        url = next(filter(None, match.groups()), "")
        _push_link(state, unescape(url), "html", start, state.pos)
    return True


_BLOCK_REFERENCE = re.compile(
    r"\(\((?P<id>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\)\)"
)


_CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)


def _block_references(content: str, line: int) -> Iterator[Link]:
    """Logseq's `((id))`: a block of some page."""
    shown = (
        _CODE_SPAN.sub(lambda match: " " * len(match[0]), content) if "`" in content else content
    )
    for match in _BLOCK_REFERENCE.finditer(shown):
        context = context_of(content, match.start(), match.end(), 0, len(content))
        yield Link(match["id"], "ref", line + content.count("\n", 0, match.start()), context)


def _push_link(state: StateInline, url: str, kind: str, start: int, end: int) -> None:
    token = state.push("link_open", "a", 1)
    token.attrs = {"href": url}
    token.meta = {"start": start, "end": end}
    token.info = kind
    state.push("link_close", "a", -1)


# A role of MyST; what it leads to is as in Sphinx.
_ROLE = re.compile(r"\{(?P<role>[A-Za-z:]+)\}`(?P<content>[^`\n]+)`")


def _role(state: StateInline, silent: bool) -> bool:
    match = _ROLE.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    url, kind = role_target(match["role"], match["content"])
    if url and not (silent or state.linkLevel):
        _push_link(state, url, kind, match.start(), match.end())
    state.pos = match.end()
    return True


_OWN_KINDS = ("wiki", "autolink", "ref", "doc", "term")
_INLINE_RULES = "text role escape bare_url backticks wiki link image autolink html_inline".split()


def _make_parser() -> MarkdownIt:
    parser = KeepingLinks("commonmark")
    rules = parser.inline.ruler
    rules.at("link", _positioned(link))
    rules.at("autolink", _positioned(autolink))
    rules.at("html_inline", _html)
    rules.before("link", "wiki", _wiki_link)
    rules.after("text", "role", _role)
    rules.after("escape", "bare_url", _bare_url)
    rules.enableOnly(_INLINE_RULES)
    parser.inline.ruler2.enableOnly([])
    # Emphasis and the like are of no interest: fewer stops, measured a third faster.
    parser.inline.terminator_re = re.compile(r"[\[\]\\`!<:{]")
    return parser


_PARSER = _make_parser()

_FOOTNOTE = re.compile(r"^\[\^(?P<label>[^\]\s]+)\]:", re.MULTILINE)
_FOOTNOTE_MARK = re.compile(r"\[\^(?P<label>[^\[\]\n]+)\](?!:)")  # in the text, no definition
OTHER_SCHEME = re.compile(r"(?!https?:)[A-Za-z][A-Za-z0-9+.-]*:", re.IGNORECASE)


def _links_of(
    content: str, shown: str, line: int, references: Mapping[str, Any], note: str | None
) -> Iterator[tuple[Link, str | None]]:
    """The links of one block with the labels of their footnotes; `shown` comes from `visible`."""
    tokens: list[Token] = []
    _PARSER.inline.parse(shown, _PARSER, dict(references), tokens)
    opened = [token for token in tokens if token.type == "link_open" and token.meta]
    if "((" in shown:
        yield from ((made, None) for made in _block_references(content, line))
    if not opened:
        return
    definitions = list(_FOOTNOTE.finditer(content)) if "[^" in content else []
    for token in opened:
        url = str(token.attrs["href"]).translate(_BACK).strip()
        start, end = token.meta["start"], token.meta["end"]
        # With MyST's mark the browser gets the address as it is.
        if url in ("", "#") or OTHER_SCHEME.match(url) or content.startswith("{.external}", end):
            continue
        # The part of the block around the link that belongs together, and its footnote's label.
        following = bisect_right(definitions, start, key=lambda match: match.start())
        before = definitions[following - 1] if following else None
        low, label = (before.end(), before["label"]) if before else (0, None)
        high = definitions[following].start() if following < len(definitions) else len(content)
        label = label if label is not None else note
        kind = token.info if token.info in _OWN_KINDS else ""
        if not kind and token.markup == "autolink":
            kind = "autolink"
        elif not kind:
            kind = "inline" if content[end - 1] in ")>" else "reference"
        written = content[start:end]
        if label is None and written.startswith("[^"):
            # `[^1]: https://...` on a line of its own is a link definition to the parser.
            if not _looks_like_place(url):
                continue
            label = written[2:-1]
        made = Link(
            url,
            "footnote" if label is not None else kind,
            line + content.count("\n", 0, start),
            context_of(content, start, end, low, high),
        )
        yield made, label if label is None else f"{label}\n{url}"


def _with_sentences(footnotes: Mapping[str, Link], texts: Sequence[LinkText]) -> Iterator[Link]:
    """Footnotes' links, each with the first sentence that refers to its footnote."""
    marks: dict[str, tuple[str, int, int]] = {}
    for content, *_ in texts if footnotes else ():
        if "[^" in content:
            for match in _FOOTNOTE_MARK.finditer(content):
                marks.setdefault(match["label"], (content, *match.span()))
    for key, footnote in footnotes.items():
        place = marks.get(key.partition("\n")[0])
        if place is None:
            yield footnote
        else:
            content, start, end = place
            yield replace(footnote, context=context_of(content, start, end, 0, len(content)))


# Front matter


# Of a first page of Starlight or VitePress: `hero: {actions: [{link: /guide/}]}`.
_BUTTON = re.compile(r"""[ \t]+(?:-[ \t]+)?link:[ \t]*["']?(\.{0,2}/[^\s"']*)["']?\s*\Z""")


def _front_matter_links(values: Mapping[str, Any], lines: Sequence[str]) -> Iterator[Link]:
    for key in ("url", "source"):
        value = values.get(key)
        for url in value if isinstance(value, list) else [value]:
            if isinstance(url, str) and _looks_like_place(url.strip()):
                line = next((i for i, text in enumerate(lines, 1) if url.strip() in text), 1)
                yield Link(url.strip(), "metadata", line, f"{key}: {url.strip()}")
    for number, text in enumerate(lines, 1):
        if button := _BUTTON.match(text):
            yield Link(button[1], "metadata", number, text.strip(" -"))


def _looks_like_place(text: str) -> bool:
    if text.startswith(("http://", "https://")):
        return not any(map(str.isspace, text))
    return text.lower().endswith(MARKDOWN_SUFFIXES)

"""The names under which places of a page are linked: written ones, and those that renderers make.

GitHub and Docusaurus make `fonts`, `fonts-1`, ... of equal headings, MkDocs `fonts`, `fonts_1`;
Sphinx and docutils turn everything but ASCII letters and digits into hyphens.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from kb.text.terms import words

_DROPPED = re.compile(r"[^\w\- ]")
_WRITTEN = re.compile(
    r"""
      \{:?[^{}\n]*?(?:\#|\bid=["']?)(?P<attribute>[^\s{}*/"']+)  # {#id}, {: #id .class}
    | <[a-z][^<>]*?\s(?:id|name)\s*=\s*["'{]+(?P<html>[^"'<>]+)["']
    | ^[ \t]*(?:[-*+][ \t]+)*\.\.\s+_`?(?P<label>[^`:]+)`?:\s*$           # reStructuredText
    | _`(?P<inline>[^`]+)`
    | ^[ \t]*:name:\s*(?P<name>\S.*)$
    | ^[ \t]*\((?P<myst>[^()\s]+)\)=\s*$
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
    "markdown": {"attribute", "html", "myst", "name", "block"},
    "restructured text": {"html", "label", "inline", "name"},
    "asciidoc": {"html", "asciidoc", "short", "macro"},
    "org": {"html", "org", "target", "named"},
}
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
      |\{%-?\s*(?:include|import|for)|\{\{[%<]?\s*(?:[%<]|\#?include|readfile)|\{!\s*\S+
      |^import\s.*?\sfrom\s+["'][^"']+\.mdx?["']""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
# Fragments that every page has or that no heading makes.
_ALWAYS = re.compile(
    r"(?:top|:~:.*|fn.*|user-content-fn.*|L\d+.*|[!/].*|page=.*)?\Z", re.IGNORECASE
)

# What makes an anchor, what stands before the number of an equal one, and its first number.
_Scheme = tuple[Callable[[str], str], str, int]


@dataclass(frozen=True, slots=True)
class PageAnchors:
    """All the names under which places of one page can be linked."""

    names: frozenset[str]  # casefolded
    headings: frozenset[str]  # as they compare where a link repeats a heading's words
    by_words: bool  # every link into it may do so
    is_partial: bool  # it takes in text that does not stand in it
    is_hooked: bool  # a program of its site changes it, or names objects of code

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
        return cls(
            frozenset(name.casefold() for name in (*names, *written)),
            frozenset(map(_words, (*headings, *shown))),
            by_words=markup in ("org", "asciidoc"),
            is_partial=_PARTIAL.search(text) is not None,
            is_hooked=HOOKS in generators or "Sphinx" in generators,
        )

    def has(self, fragment: str, kind: str) -> bool:
        """Whether the page has what a link of this kind names after its `#`."""
        name = unquote(fragment).strip()
        if _ALWAYS.match(name) or name.casefold() in self.names:
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


def _ascii_slug(heading: str) -> str:
    """Python-Markdown's, and so that of MkDocs."""
    return _unicode_slug(_ascii(heading))


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


# By format and by generator.
_SCHEMES: dict[str, _Scheme] = {
    "markdown": (slug, "-", 1),
    "MkDocs": (_ascii_slug, "_", 1),
    "restructured text": (_docutils_id, "-", 1),
    "GitLab": (_unicode_slug, "-", 1),
    "VitePress": (_vitepress_slug, "-", 1),
    "Jekyll": (_kramdown_slug, "-", 1),
    "asciidoc": (_asciidoctor_id, "_", 2),
    "org": (slug, "-", 1),
}

"""The links of a reStructuredText file, those of docutils and those that Sphinx adds.

`text <address>`_, references to hyperlink targets, bare addresses; :doc:, :ref:, toctree and
include. A label is known in the whole collection, as Sphinx has it, so a file also tells which ones
it sets. Nothing in a literal, in code or in a comment is a link.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kb.formats.links import role_target, without_trailing_punctuation
from kb.formats.outline import Link
from kb.text.assets import asset
from kb.text.headings import TERM_MARK
from kb.text.sentences import context_of

# Directives whose content is no text, and those whose argument is none.
_CODE, _NO_ARGUMENT = (
    frozenset(asset("texts")["restructured_text"][key].split()) for key in ("code", "no_argument")
)

# Explicit markup; it may begin an item, as labels in the cells of a list table do.
_EXPLICIT = re.compile(r"(?P<indent>\s*(?:[-*+]\s+)*)\.\.\s+(?P<rest>\S.*)\Z")
_TARGET = re.compile(r"_(?:`(?P<quoted>[^`]+)`|(?P<name>(?:\\.|[^:\\`])+)):(?:\s+(?P<place>.*))?\Z")
_ANONYMOUS = re.compile(r"__:(?:\s+(?P<place>.*))?\Z")
_SHORT_ANONYMOUS = re.compile(r"\s*__\s+(?P<place>\S.*)\Z")
_SUBSTITUTION = re.compile(r"\|(?P<name>[^|]+)\|\s+(?P<directive>[\w-]+)::\s*(?P<text>.*)\Z")
_DIRECTIVE = re.compile(r"(?P<name>[\w:.+-]+?)::(?:\s+(?P<argument>.*))?\Z")
_FOOTNOTE = re.compile(r"\[[^\]]+\]\s+(?P<text>.*)\Z")
LIST_MARK = r"(?:[-*+•]|\(?(?:\d+|[A-Za-z]|#)[.)])"
_ITEM = re.compile(rf"\s*{LIST_MARK}\s+")
_OPTION = re.compile(r"\s*:[\w-]+:")
_ENTRY = re.compile(r"(?:.*<(?P<titled>[^<>]+)>|(?P<bare>\S+))\s*\Z")

_LITERAL = re.compile(r"``.+?``", re.DOTALL)
# Bounded where a name may begin inside another: `:a:a:a` would take quadratic time.
_INLINE = re.compile(
    r"""
      :(?P<role>[A-Za-z][\w:+.-]{0,80}):`(?P<content>[^`]+)`
    | `(?P<text>[^`<>]*)<(?P<embedded>[^`<>]+)>`(?P<marks>__?)
    | `(?P<phrase>[^`]+)`(?P<anonymous>__?)(?![\w`])
    | \|(?P<substituted>[^|\n]+)\|__?(?!\w)
    | (?P<address>https?://[^\s<>"`|\\]+)
    | (?<![\w`:/.\\-])(?P<word>[A-Za-z0-9](?:[\w.+-]{0,200}[A-Za-z0-9])?)(?P<ending>__?)(?!\w)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class References:
    """What a file refers to, and what it can be referred to by."""

    links: list[Link] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)  # in their normal form
    substitutions: dict[str, str] = field(default_factory=dict)  # texts by name


def find_references(lines: Sequence[str]) -> References:
    """All links and labels of a file, in order."""
    scan = _Scan(lines)
    scan.run()
    references = References([], scan.labels, scan.substitutions)
    anonymous = iter(scan.anonymous)
    for first, text in scan.texts:
        references.links += _links_of(first, text, scan.targets, anonymous)
    references.links += scan.links
    references.links.sort(key=lambda link: link.line)
    return references


def toctree_links(lines: Sequence[str], first: int, end: int) -> Iterator[Link]:
    """The entries of a toctree between two lines (from 0); a pattern names no single document."""
    for number in range(first, end):
        line = lines[number].strip()
        entry = _ENTRY.match(line)
        if not line or _OPTION.match(line) or entry is None or "*" in line:
            continue
        place = (entry["titled"] or entry["bare"]).strip()
        if place != "self":
            kind = "autolink" if re.match(r"https?://", place) else "toctree"
            yield Link(place, kind, number + 1, " ".join(line.split()))


def glossary_terms(lines: Sequence[str]) -> Iterator[str]:
    """The terms of a glossary, each as a label that `:term:` refers to."""
    texts = [line for line in lines if line.strip() and not _OPTION.match(line)]
    margin = min((len(line) - len(line.lstrip()) for line in texts), default=0)
    for line in texts:
        term = line[margin:]
        if not term.startswith((" ", "\t", ":", "..")):
            yield TERM_MARK + normal_name(term.partition(" : ")[0])


def normal_name(name: str) -> str:
    """A reference name for comparison, without regard to case and blanks."""
    return " ".join(name.replace("\\", "").split()).casefold()


class _Scan:
    """One pass over the lines: pieces of text, targets and what directives name."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self.texts: list[tuple[int, str]] = []  # first line (from 1) and text
        self.targets: dict[str, str] = {}  # places by normal name
        self.anonymous: list[str] = []
        self.labels: list[str] = []
        self.links: list[Link] = []
        self.substitutions: dict[str, str] = {}
        self._paragraph: list[str] = []
        self._start = 0

    def run(self) -> None:
        index = 0
        while index < len(self._lines):
            line = self._lines[index].expandtabs(8).rstrip()
            if not line:
                index = self._end_paragraph(index + 1)
            elif (explicit := _EXPLICIT.match(line)) and (
                not self._paragraph or explicit["indent"].strip()
            ):
                self._end_paragraph(index)
                index = self._explicit(index, len(explicit["indent"]), explicit["rest"])
            elif anonymous := _SHORT_ANONYMOUS.match(line):
                self.anonymous.append(anonymous["place"])
                index += 1
            elif line.lstrip().startswith(">>>"):
                index = self._skip(index, -1, over_blanks=False)
            else:
                self._start = self._start if self._paragraph else index
                self._paragraph.append(line)
                index += 1
        self._end_paragraph(index)

    def _end_paragraph(self, following: int) -> int:
        """Close the paragraph and skip the literal block after `::`; where to go on."""
        if not self._paragraph:
            return following
        paragraph, self._paragraph = self._paragraph, []
        self.texts.append((self._start + 1, "\n".join(paragraph)))
        if not paragraph[-1].endswith("::"):
            return following
        first = paragraph[0]
        item = _ITEM.match(first)
        indent = len(item[0]) if item else len(first) - len(first.lstrip())
        return self._skip(following, indent)

    def _skip(self, index: int, indent: int, *, over_blanks: bool = True) -> int:
        """The first later line that is not indented further, or blank if blank lines count."""
        while index < len(self._lines):
            line = self._lines[index].expandtabs(8)
            if not line.strip():
                if not over_blanks:
                    return index
            elif len(line) - len(line.lstrip()) <= indent:
                return index
            index += 1
        return index

    def _explicit(self, index: int, indent: int, rest: str) -> int:
        if anonymous := _ANONYMOUS.match(rest):
            self.anonymous.append(anonymous["place"] or "")
            return index + 1
        if target := _TARGET.match(rest):
            name = normal_name(target["quoted"] or target["name"])
            end = self._skip(index + 1, indent, over_blanks=False)
            more = "".join(line.strip() for line in self._lines[index + 1 : end])
            if place := (target["place"] or "").strip() + more:
                self.targets[name] = place
            else:
                self.labels.append(name)
            return end
        if substitution := _SUBSTITUTION.match(rest):
            if substitution["directive"] == "replace":
                self.substitutions[normal_name(substitution["name"])] = substitution["text"]
                self.texts.append((index + 1, substitution["text"]))
            return self._skip(index + 1, indent)
        if directive := _DIRECTIVE.match(rest):
            return self._directive(index, indent, directive["name"], directive["argument"] or "")
        if footnote := _FOOTNOTE.match(rest):
            self._start = index
            self._paragraph = [footnote["text"]]
            return index + 1
        return self._skip(index + 1, indent)  # a comment

    def _directive(self, index: int, indent: int, name: str, argument: str) -> int:
        name = name.rpartition(":")[2]
        end = self._skip(index + 1, indent)
        if name == "toctree":
            self.links += toctree_links(self._lines, index + 1, end)
            return end
        if name == "glossary":
            self.labels += glossary_terms(self._lines[index + 1 : end])
        if name == "include" and argument and not argument.startswith("<"):
            context = " ".join(self._lines[index].split())
            self.links.append(Link(argument, "include", index + 1, context))
            return end
        if name in _CODE:
            return end
        if argument and name not in _NO_ARGUMENT:
            self.texts.append((index + 1, argument))
        return index + 1


def _links_of(
    first: int, text: str, targets: dict[str, str], anonymous: Iterator[str]
) -> Iterator[Link]:
    shown = _LITERAL.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    line, counted = first, 0
    for match in _INLINE.finditer(shown):
        line += shown.count("\n", counted, match.start())
        counted = match.start()
        place, kind = _place(match, targets, anonymous)
        if place and place != "#" and not place.startswith("mailto:"):
            context = context_of(text, match.start(), match.end(), 0, len(text))
            yield Link(place, kind, line, context)


def _place(
    match: re.Match[str], targets: dict[str, str], anonymous: Iterator[str]
) -> tuple[str, str]:
    """Where a match leads and the kind of link; ("", "") if it is none."""
    if match["role"]:
        return role_target(match["role"], match["content"].replace("\\ ", ""))
    if match["address"]:
        return without_trailing_punctuation(match["address"]), "autolink"
    if match["embedded"]:
        place = " ".join(match["embedded"].split())
        if place.endswith("_") and not place.endswith("\\_"):
            return _of_name(place[:-1].strip("`"), targets)
        return (place.replace(" ", "") if "://" in place else place), "inline"
    if "__" in (match["anonymous"], match["ending"]):
        return next(anonymous, ""), "reference"
    return _of_name(match["phrase"] or match["substituted"] or match["word"], targets)


def _of_name(name: str, targets: dict[str, str]) -> tuple[str, str]:
    """The target of a name, followed through names that are targets."""
    for _ in range(10):
        place = targets.get(normal_name(name), "")
        if not place.endswith("_") or "://" in place:
            break
        name = place[:-1].strip("`")
    return place, "reference"

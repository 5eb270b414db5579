"""Which lines of a PDF are headings, and what its title is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from kb.formats.convert.pdf_lines import Line
from kb.formats.outline import one_line

MOST_LEVELS = 6
LONGEST_HEADING = 200  # characters
MOST_LINES = 4  # of one heading
LARGER = 1.15  # than the body: a heading; in bold type from BOLD_LARGER on
BOLD_LARGER = 1.04
TRUSTED_SHARE = 0.5  # of the bookmarks must name lines, else none is used
MOST_OF_TEXT = 0.2  # of a document: larger type with more of it is not for headings

# What programs write if nobody gave a title, and names of files.
_NO_TITLE = re.compile(
    r"microsoft \w+ - .*|(?:\S*/){2,}\S*|\S*\\\S*|[\w-]+_[\w-]*"
    r"|.*\.(?:docx?|docm|dotx?|odt|ott|tex|texi|lyx|dvi|ps|eps|indd|qxd|fm|wpd|pages|pub|pptx?|odp"
    r"|xlsx?|ods|rtf|html?|xml|sgml|txt|md|pdf|ai|cdr|vsdx?|dwg)"
    r"|untitled.*|(?:table of )?contents|\(?(?:anonymous|unspecified|unknown|none)\)?|title|model"
    r"|layout\d*|slide \d+"
    r"|powerpoint presentation|(?:document|print|book|sheet|drawing)\s?\d*|\W*",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?:(?:chapter|appendix|part)\s+)?(?P<parts>\d+(?:\.\d+)*|[A-Z](?:\.\d+)+)\.?\s+\S",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Bookmark:
    """An entry of a PDF's own outline."""

    title: str
    level: int  # from 1
    page: int  # from 1


def title_of(pages: Sequence[Sequence[Line]], stated: str) -> str:
    """The title that the file states if it makes sense, else the first page's largest line."""
    if stated and not _NO_TITLE.fullmatch(stated):
        return stated
    first = next((page for page in pages if page), ())
    body = _body_size(pages)
    size = max((line.size for line in first if _has_words(line.text)), default=0)
    if not size or size < LARGER * body:
        return ""
    start = next(i for i, line in enumerate(first) if line.size == size and _has_words(line.text))
    lines = takewhile(lambda line: line.size == size, first[start : start + MOST_LINES])
    title = one_line(" ".join(line.text for line in lines))
    # If other headings are as large, it is one of them.
    again = any(
        line.size >= size and _has_words(line.text)
        for page in pages
        for line in page
        if page is not first
    )
    return title if len(title) <= LONGEST_HEADING and not again else ""


def headings_of(
    pages: Sequence[Sequence[Line]], bookmarks: Sequence[Bookmark], title: str
) -> dict[int, int]:
    """The level of each heading by the identity of its first line; negative for its other lines."""
    levels: dict[int, int] = {}
    entries = _by_bookmarks(pages, bookmarks)
    if len(entries) < max(2, TRUSTED_SHARE * len(bookmarks)):
        entries = list(_by_type(pages))
    is_titled = bool(entries) and _key(_text(entries[0][0])) == _key(title)
    has_root = bool(entries) and sum(level == 1 for _, level in entries) == 1 and entries[0][1] == 1
    shift = 0 if is_titled and has_root else 1
    in_headings = {id(line) for lines, _ in entries for line in lines}
    if title and not is_titled:
        heading = _find(next((p for p in pages if p), ()), title, in_headings)
        if heading:
            entries.insert(0, (heading, 1 - shift))
        else:
            shift = 0
    elif not title:
        shift = 0
    for number, (lines, level) in enumerate(entries):
        real = 1 if is_titled and number == 0 else min(level + shift, MOST_LEVELS)
        levels[id(lines[0])] = real
        levels.update((id(line), -real) for line in lines[1:])
    return levels


def _by_bookmarks(
    pages: Sequence[Sequence[Line]], bookmarks: Sequence[Bookmark]
) -> list[tuple[list[Line], int]]:
    used: set[int] = set()
    headings: list[tuple[list[Line], int]] = []
    for bookmark in bookmarks:
        # A bookmark to the end of a page often means the next page's heading.
        for number in (bookmark.page, bookmark.page + 1, bookmark.page - 1):
            if 1 <= number <= len(pages):
                lines = _find(pages[number - 1], bookmark.title, used)
                if lines:
                    used.update(map(id, lines))
                    headings.append((lines, bookmark.level))
                    break
    order = {id(line): (n, i) for n, page in enumerate(pages) for i, line in enumerate(page)}
    return sorted(headings, key=lambda entry: order[id(entry[0][0])])


def _find(page: Sequence[Line], title: str, used: set[int]) -> list[Line]:
    """The lines of a page with this title; the most prominent of several."""
    key_of_title = _key(title)
    best: list[Line] = []
    if not key_of_title:
        return best
    for start, line in enumerate(page):
        if id(line) in used:
            continue
        text = ""
        for end in range(start, min(start + MOST_LINES, len(page))):
            text += page[end].text + " "
            key = _key(text)
            if len(key) > len(key_of_title) + 16:
                break
            if key == key_of_title or _key(_LEADING_NUMBER.sub("", text, count=1)) == key_of_title:
                if not best or (line.size, line.is_bold) > (best[0].size, best[0].is_bold):
                    best = list(page[start : end + 1])
                break
    return best


def _key(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


_LEADING_NUMBER = re.compile(
    r"\s*(?:(?:chapter|appendix|part|section|§)\s*)?(?:\d+(?:\.\d+)*|[A-Z](?:\.\d+)*)[.:)]?\s+",
    re.IGNORECASE,
)


def _by_type(pages: Sequence[Sequence[Line]]) -> Iterator[tuple[list[Line], int]]:
    body = _body_size(pages)
    candidates = _without_authors([g for page in pages for g in _groups(page, body)])
    total = sum(len(line.text) for page in pages for line in page) or 1
    sizes = Counter(group[0].size for group in candidates)
    by_size: dict[float, int] = {}
    for size in sorted(sizes, reverse=True):
        length = sum(len(_text(g)) for g in candidates if g[0].size == size)
        if length <= MOST_OF_TEXT * total or len(candidates) < 3:
            by_size[size] = len(by_size) + 1
    numbers = [_NUMBER.match(_text(group)) for group in candidates]
    is_numbered = sum(map(bool, numbers)) > 0.6 * len(candidates)
    for group, number in zip(candidates, numbers, strict=True):
        level = by_size.get(group[0].size)
        if level is None:
            continue
        if is_numbered and number:
            level = number["parts"].count(".") + 1
        yield group, min(level, MOST_LEVELS)


def _without_authors(candidates: Sequence[list[Line]]) -> list[list[Line]]:
    """Without the lines under a title that name people and dates in a type of their own."""
    if not candidates:
        return []
    first = candidates[0][0].page
    elsewhere = {group[0].size for group in candidates if group[0].page != first}
    largest = max(group[0].size for group in candidates)
    others = [
        group
        for group in candidates
        if group[0].page != first or group[0].size in elsewhere or group[0].size == largest
    ]
    return others if elsewhere else list(candidates)


def _groups(page: Sequence[Line], body: float) -> Iterator[list[Line]]:
    group: list[Line] = []
    for line in page:
        follows = bool(group) and (
            line.size == group[-1].size
            and line.is_bold == group[-1].is_bold
            and 0 < group[-1].top - line.top < 2 * line.size
            and len(group) < MOST_LINES
            and not _NUMBER.match(line.text)
        )
        if follows:
            group.append(line)
            continue
        if _is_heading(group):
            yield group
        is_large = line.size >= (BOLD_LARGER if line.is_bold else LARGER) * body
        group = [line] if is_large else []
    if _is_heading(group):
        yield group


def _is_heading(group: Sequence[Line]) -> bool:
    text = _text(group)
    return bool(group) and _has_words(text) and len(text) <= LONGEST_HEADING


def _body_size(pages: Sequence[Sequence[Line]]) -> float:
    sizes: Counter[float] = Counter()
    for page in pages:
        for line in page:
            sizes[line.size] += len(line.text)
    return sizes.most_common(1)[0][0] if sizes else 0


def _text(group: Sequence[Line]) -> str:
    return one_line(" ".join(line.text for line in group))


def _has_words(text: str) -> bool:
    return sum(map(str.isalpha, text)) >= 2

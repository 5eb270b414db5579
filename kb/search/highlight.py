"""Where a query's words occur in a text, excerpts around them, and `<mark>` tags.

Words match as in the search: whole words by stem, phrases and prefixes exactly, misspelt words by
their likely forms, and runs of unspaced script inside sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kb.search.query import Operand, Query
from kb.search.words import Pattern, Words, find, pattern, split, split_for, unspaced_runs
from kb.store.connection import Connection
from kb.text.terms import bigrams, identifier_parts, is_unspaced, words

EXCERPT_CHARACTERS = 160
ELLIPSIS = "..."
MAX_SPANS = 1000  # among which excerpts are chosen
LONG_TEXT = 100_000  # characters; a longer text is searched in parts: 3 MB took 14 s
BEGINNING = 20_000  # characters of a long text that are always searched
BEFORE, AFTER = 400, 1_200  # characters around a possible match
MAX_PLACES = 4  # of an operand
MAX_OPERANDS = 50  # searched in a long text
MIN_LETTERS = 4  # that a word keeps whatever its ending


class Span(NamedTuple):
    """A stretch of whole words that matches one of a query's operands."""

    start: int
    end: int
    operand: int  # number of the operand, musts first


def spans(
    connection: Connection,
    text: str,
    query: Query,
    *,
    variants: Mapping[str, Iterable[str]] | None = None,
    case: bool = False,
) -> list[Span]:
    """The stretches that match an operand, in order; of a long text some for each. `variants`:
    further words that count for an operand's text; `case`: upper and lower case must agree."""
    if len(text) > LONG_TEXT:
        return sorted(
            span._replace(start=span.start + start, end=span.end + start)
            for start, end in _stretches(text, query, variants or {})
            for span in spans(connection, text[start:end], query, variants=variants, case=case)
        )
    text_words = _Text(connection, text)
    matches: set[Span] = set()
    for number, operand in enumerate((*query.must, *query.terms)):
        sought = pattern(connection, operand, case=case)
        places = text_words.places(sought)
        if not (places or operand.is_phrase):
            places = text_words.parts(sought)
        for word in (variants or {}).get(operand.text, ()):
            places += text_words.places(pattern(connection, Operand(word), case=case))
        matches.update(Span(start, end, number) for start, end in places)
    return sorted(matches)


def marked(text: str, matches: Sequence[Span]) -> str:
    """A text with `<mark>` around each span and everything else escaped for HTML."""
    from html import escape  # here: it loads every name of a character

    parts: list[str] = []
    done = 0
    for start, end in merged(matches):
        parts += [escape(text[done:start], quote=False), "<mark>"]
        parts += [escape(text[start:end], quote=False), "</mark>"]
        done = end
    return "".join(parts) + escape(text[done:], quote=False)


def excerpts(
    text: str,
    matches: Sequence[Span],
    *,
    most: int = 3,
    width: int = EXCERPT_CHARACTERS,
    mark: bool = True,
) -> list[str]:
    """Up to `most` one-line pieces of about `width` characters around different operands, in order.
    The piece with the most operands is chosen first, then each that adds one. Cuts lie between
    words and show as "...". `mark`: tag the matched words and escape the rest for HTML."""
    chosen: list[tuple[int, int]] = []
    seen: set[int] = set()
    windows = _windows(matches, width)
    while windows and len(chosen) < most:
        best = max(windows, key=lambda w: (len(w[2] - seen), len(w[2]), -w[0]))
        if chosen and not best[2] - seen:
            break
        seen |= best[2]
        start, end = _word_bounds(text, best[0], best[1], width)
        chosen.append((start, end))
        windows = [w for w in windows if w[1] <= start or w[0] >= end]
    return [_piece(text, start, end, matches, mark=mark) for start, end in sorted(chosen)]


def merged(matches: Iterable[Span]) -> list[tuple[int, int]]:
    """The spans as ranges that neither overlap nor touch."""
    ranges: list[tuple[int, int]] = []
    for span in sorted(matches):
        if ranges and span.start <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], span.end))
        else:
            ranges.append((span.start, span.end))
    return ranges


def _stretches(
    text: str, query: Query, variants: Mapping[str, Iterable[str]]
) -> list[tuple[int, int]]:
    """The separate parts of a long text that may match operands, in order."""
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text  # a letter that becomes two in lower case would shift places
    ranges = [(0, BEGINNING)]
    for operand in (*query.must, *query.terms)[:MAX_OPERANDS]:
        texts = [operand.text, *variants.get(operand.text, ())]
        texts += [word[: max(MIN_LETTERS, len(word) - 2)] for text in texts for word in words(text)]
        ranges += _around(lowered, [text.lower() for text in texts])
    return merged(
        Span(_at_space(text, start, -1), _at_space(text, end, 1), 0) for start, end in ranges
    )


def _around(lowered: str, texts: Iterable[str]) -> list[tuple[int, int]]:
    """Ranges around the first occurrences of texts, the first text's first."""
    ranges: list[tuple[int, int]] = []
    for text in filter(None, texts):
        place = -1
        while len(ranges) < MAX_PLACES and (place := lowered.find(text, place + 1)) >= 0:
            ranges.append((max(place - BEFORE, 0), min(place + AFTER, len(lowered))))
            place += AFTER
    return ranges


def _at_space(text: str, place: int, step: int) -> int:
    """The nearest place between words, if any is near."""
    for near in range(place, place + step * EXCERPT_CHARACTERS, step):
        if not 0 < near < len(text) or text[near - 1].isspace():
            return near
    return place


class _Text:
    """A text's words in the forms that patterns need, each made once."""

    def __init__(self, connection: Connection, text: str) -> None:
        self._connection = connection
        self._text = text
        self._forms: dict[tuple[bool, bool, bool], Words] = {}

    def words(self, sought: Pattern) -> Words:
        key = (sought.is_stem, sought.case, sought.has_pictographs)
        if key not in self._forms:
            self._forms[key] = split_for(self._connection, self._text, sought)
        return self._forms[key]

    def places(self, sought: Pattern) -> list[tuple[int, int]]:
        words = self.words(sought)
        places = [(words.starts[i], words.ends[j - 1]) for i, j in find(words, sought)]
        if len(sought.words) == 1 and not sought.case and not places:
            places = self._identifiers(sought)
        return places

    def parts(self, sought: Pattern) -> list[tuple[int, int]]:
        """The places of an operand's single words, if it does not occur as a whole."""
        runs, others = unspaced_runs(sought)
        pieces: list[tuple[str, ...]]
        pieces = [(word,) for word in others] if runs or len(others) > 1 else []
        pieces += [tuple(pair) for run in runs if len(run) > 2 for pair in bigrams(run)]
        places: list[tuple[int, int]] = []
        for piece in pieces:
            glued = (False, *(True for _ in piece[1:]))
            if sought.is_stem:
                piece = tuple(split(self._connection, " ".join(piece), stem=True).words)
            part = sought._replace(words=piece, folded=piece, glued=glued, is_prefix=False)
            places += self.places(part)
        return places

    def _identifiers(self, sought: Pattern) -> list[tuple[int, int]]:
        """Identifiers with the word as a part: `exception` in `HTTPException`."""
        word = sought.words[0]
        if is_unspaced(word):
            return []
        words = self.words(sought)
        places: list[tuple[int, int]] = []
        for start, end in zip(words.starts, words.ends, strict=True):
            raw = self._text[start:end]
            if raw.islower() or word not in raw.lower():
                continue
            parts = " ".join(identifier_parts(raw))
            terms = [term for _, _, term in self._connection.tokenize(parts, stem=sought.is_stem)]
            if any(t.startswith(word) if sought.is_prefix else t == word for t in terms):
                places.append((start, end))
        return places


def _windows(matches: Sequence[Span], width: int) -> list[tuple[int, int, set[int]]]:
    """For each span, the stretch from it with as many more as fit, and their operands."""
    ordered = sorted(matches)[:MAX_SPANS]
    windows: list[tuple[int, int, set[int]]] = []
    for number, span in enumerate(ordered):
        end, operands = span.end, {span.operand}
        for other in ordered[number + 1 :]:
            if other.end - span.start > width:
                break
            end = max(end, other.end)
            operands.add(other.operand)
        windows.append((span.start, end, operands))
    return windows


def _word_bounds(text: str, start: int, end: int, width: int) -> tuple[int, int]:
    """A window widened to about `width`, its ends between words."""
    room = max(width - (end - start), 0)
    before = min(room // 2, start)
    first, last = start - before, min(end + room - before, len(text))
    if first > 0:
        while first < start and not text[first - 1].isspace() and _in_word(text, first):
            first += 1
    if last < len(text):
        while last > end and _in_word(text, last):
            last -= 1
    return first, last


def _in_word(text: str, place: int) -> bool:
    """Whether a cut there splits a word; unspaced script may be cut anywhere."""
    around = text[place - 1 : place + 1]
    return not any(character.isspace() for character in around) and not is_unspaced(around)


def _piece(text: str, start: int, end: int, matches: Sequence[Span], *, mark: bool) -> str:
    inside = [
        span._replace(start=max(span.start, start) - start, end=min(span.end, end) - start)
        for span in matches
        if span.start < end and span.end > start
    ]
    piece = text[start:end]
    shown = " ".join((marked(piece, inside) if mark else piece).split())
    before = ELLIPSIS if text[:start].strip() else ""
    after = ELLIPSIS if text[end:].strip() else ""
    return f"{before}{shown}{after}"

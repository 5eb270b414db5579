"""The words of a text in order, with their places: what operators and highlights compare.

Words are cut and folded (case, accents) by the keyword index's own tokenizer, so that a check
against the text and the index agree. Beyond it, as in kb/text/terms.py: compatibility forms are
normalised, and of scripts without spaces every character is a word of its own, glued to the one
before it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kb.search.query import Operand
from kb.store.connection import Connection
from kb.text.terms import identifier_parts, is_unspaced, pictograph_places, runs

_ASCII_LETTER = re.compile("[0-9A-Za-z]")


class Words:
    """Parallel lists, one entry a word. Places count characters of the text."""

    __slots__ = ("ends", "starts", "words")

    def __init__(
        self, words: Sequence[str] = (), starts: Sequence[int] = (), ends: Sequence[int] = ()
    ) -> None:
        self.words = list(words)
        self.starts = list(starts)
        self.ends = list(ends)

    def add(self, word: str, start: int, end: int) -> None:
        self.words.append(word)
        self.starts.append(start)
        self.ends.append(end)

    def is_glued(self, number: int) -> bool:
        """Whether no character stands between a word and the one before it."""
        # Several normal characters of one raw character share its place.
        before = number - 1
        return number > 0 and self.starts[number] in (self.ends[before], self.starts[before])


class Pattern(NamedTuple):
    """What one operand of a query means as words in a row."""

    words: tuple[str, ...]  # as they are compared: stems if `is_stem`
    glued: tuple[bool, ...]
    folded: tuple[str, ...]  # as they are looked up in the keyword index, which stems them itself
    is_prefix: bool = False  # the last word may go on
    is_stem: bool = False  # words are compared by their stems
    has_pictographs: bool = False
    case: bool = False  # words are compared in upper and lower case as written

    @property
    def is_plain_word(self) -> bool:
        """One whole word, compared by its stem: exactly what the keyword index looks up."""
        return len(self.words) == 1 and self.is_stem and not self.case


def pattern(connection: Connection, operand: Operand, *, case: bool = False) -> Pattern:
    """An operand's words: stems of a bare operand, exact words of a phrase or prefix."""
    has_pictographs = bool(pictograph_places(operand.text))
    stem = not (operand.is_phrase or operand.is_prefix or case)
    found = split(connection, operand.text, stem=stem, case=case, pictographs=has_pictographs)
    folded = (
        found
        if not (stem or case)
        else split(connection, operand.text, pictographs=has_pictographs)
    )
    return Pattern(
        tuple(found.words),
        tuple(map(found.is_glued, range(len(found.words)))),
        tuple(folded.words),
        is_prefix=operand.is_prefix,
        is_stem=stem,
        has_pictographs=has_pictographs,
        case=case,
    )


def split_for(connection: Connection, text: str, wanted: Pattern) -> Words:
    """A text's words in the form in which a pattern's words are given."""
    return split(
        connection,
        text,
        stem=wanted.is_stem,
        case=wanted.case,
        pictographs=wanted.has_pictographs,
    )


def split(
    connection: Connection,
    text: str,
    *,
    stem: bool = False,
    case: bool = False,
    pictographs: bool = False,
) -> Words:
    """The words of a text.

    Args:
        stem: English endings taken off, as the keyword index does.
        case: keep upper and lower case.
        pictographs: emoji count as words.
    """
    found = Words()
    terms = connection.tokenize(text, stem=stem)
    if text.isascii():
        found.words = [text[start:end] if case else term for start, end, term in terms]
        found.starts = [start for start, _, _ in terms]
        found.ends = [end for _, end, _ in terms]
        return found
    emoji = iter(pictograph_places(text) if pictographs else ())
    following = next(emoji, None)
    for start, end, term in terms:
        while following and following[1] <= start:
            found.add(following[0], following[1], following[1] + 1)
            following = next(emoji, None)
        raw = text[start:end]
        if raw.isascii():
            found.add(raw if case else term, start, end)
        else:
            _add_other(connection, found, raw, term, start, stem=stem, case=case)
    while following:
        found.add(following[0], following[1], following[1] + 1)
        following = next(emoji, None)
    return found


def find(text: Words, wanted: Pattern) -> list[tuple[int, int]]:
    """Where a pattern occurs: the first word's number and the one behind the last's."""
    if not wanted.words:
        return []
    words, size = text.words, len(wanted.words)
    # Characters of an unspaced run are looked for as one run.
    bonds = [i for i in range(1, size) if wanted.glued[i] and is_unspaced(wanted.words[i])]
    exact = list(wanted.words[:-1] if wanted.is_prefix else wanted.words)
    last = wanted.words[-1]
    places: list[tuple[int, int]] = []
    at = -1
    while True:
        if exact:
            try:
                at = words.index(exact[0], at + 1)
            except ValueError:
                return places
        else:
            at += 1
        end = at + size
        if end > len(words):
            return places
        if (
            words[at : at + len(exact)] == exact
            and (not wanted.is_prefix or words[end - 1].startswith(last))
            and all(text.is_glued(at + i) for i in bonds)
        ):
            places.append((at, end))


def holds(connection: Connection, text: str, wanted: Pattern) -> bool:
    """Whether a pattern occurs in a text."""
    if scan := _ascii_scan(wanted):
        # Eight times as fast; what it finds is there, and in ASCII text so is what it misses.
        if scan.search(text):
            return True
        if text.isascii():
            return False
    return bool(find(split_for(connection, text, wanted), wanted))


def starts_with(connection: Connection, text: str, wanted: Pattern) -> bool:
    """Whether a text begins with a pattern's words."""
    if text.isascii() and (scan := _ascii_scan(wanted)):  # as in `holds`
        begin = _ASCII_LETTER.search(text)
        return begin is not None and scan.match(text, begin.start()) is not None
    size = len(wanted.words)
    cut = text[: 200 + 40 * size]
    words = split_for(connection, cut, wanted)
    if len(words.words) <= size and len(cut) < len(text):  # the last one may be cut in two
        words = split_for(connection, text, wanted)
    first = Words(words.words[:size], words.starts[:size], words.ends[:size])
    return bool(find(first, wanted))


def without_first(wanted: Pattern, count: int) -> Pattern:
    """A pattern without its first words."""
    return wanted._replace(
        words=wanted.words[count:],
        folded=wanted.folded[count:],
        glued=(False, *wanted.glued[count + 1 :]),
    )


def first_words(wanted: Pattern, count: int) -> Pattern:
    """A pattern's first words; the whole pattern if it has no more."""
    if len(wanted.words) <= count:
        return wanted
    return wanted._replace(
        words=wanted.words[:count],
        folded=wanted.folded[:count],
        glued=wanted.glued[:count],
        is_prefix=False,
    )


def holds_prefix(connection: Connection, text: str, wanted: Pattern) -> bool:
    """Whether a text has a word, or an identifier a part, that begins with a one-word prefix."""
    if find(split_for(connection, text, wanted), wanted):
        return True
    if len(wanted.words) > 1 or wanted.case:
        return False
    return any(part.lower().startswith(wanted.words[0]) for part in identifier_parts(text))


def unspaced_runs(wanted: Pattern) -> tuple[list[str], list[str]]:
    """A pattern's runs of unspaced script, and its other words, as they are looked up."""
    found: list[str] = []
    others: list[str] = []
    for number, word in enumerate(wanted.folded):
        if not is_unspaced(word):
            others.append(word)
        elif number and wanted.glued[number] and is_unspaced(wanted.folded[number - 1]):
            found[-1] += word
        else:
            found.append(word)
    return found, others


@lru_cache(maxsize=64)
def _ascii_scan(wanted: Pattern) -> re.Pattern[str] | None:
    """An expression for exact ASCII words between ASCII separators."""
    if wanted.is_stem or wanted.is_prefix or not all(map(str.isascii, wanted.words)):
        return None
    if wanted.has_pictographs:
        return None
    in_a_row = "[^0-9A-Za-z\\x80-\U0010ffff]+".join(wanted.words)
    word_character = "[0-9A-Za-z\\x80-\U0010ffff]"
    flags = 0 if wanted.case else re.IGNORECASE | re.ASCII
    return re.compile(f"(?<!{word_character}){in_a_row}(?!{word_character})", flags)


def _add_other(
    connection: Connection,
    found: Words,
    raw: str,
    term: str,
    start: int,
    *,
    stem: bool,
    case: bool,
) -> None:
    """Add a word that holds more than ASCII."""
    normal = unicodedata.normalize("NFKC", raw)
    unspaced = is_unspaced(normal)
    if not unspaced and normal == unicodedata.normalize("NFC", raw):
        found.add(_without_accents(raw) if case else term, start, start + len(raw))
        return
    places = _places(raw, normal)
    offset = 0
    for run in runs(normal) if unspaced else [normal]:
        if is_unspaced(run):
            pieces = [(i, i + 1, character) for i, character in enumerate(run)]
        else:
            pieces = connection.tokenize(run, stem=stem)
            if case:
                pieces = [(i, j, _without_accents(run[i:j])) for i, j, _ in pieces]
        for first, last, word in pieces:
            found.add(
                word,
                start + places[offset + first][0],
                start + places[offset + last - 1][1],
            )
        offset += len(run)


def _places(raw: str, normal: str) -> list[tuple[int, int]]:
    """For each character of a word's normal form, its place in the raw one."""
    if len(raw) == len(normal):
        return [(i, i + 1) for i in range(len(raw))]
    import regex  # here: it takes 8 ms to load

    places: list[tuple[int, int]] = []
    for match in regex.finditer(r"\X", raw):
        places += [match.span()] * len(unicodedata.normalize("NFKC", match.group()))
    return places if len(places) == len(normal) else [(0, len(raw))] * len(normal)


def _without_accents(word: str) -> str:
    parts = unicodedata.normalize("NFKD", word)
    return "".join(c for c in parts if unicodedata.category(c) != "Mn") or word

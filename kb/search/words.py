"""The words of a text in order, with their places: what operators and highlights compare.

The keyword index's own tokenizer cuts and folds them (case, accents), so that text and index agree.
In addition, as in kb/text/terms.py, compatibility forms are normalised, and in scripts without
spaces every character is a word, glued to the one before it.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from kb.search.query import Operand
from kb.store.connection import Connection
from kb.text.terms import identifier_parts, is_unspaced, pictograph_places, runs

_SEPARATOR = r"[\x00-/:-@\[-`{-\x7f]"  # compiles in .2 ms; every non-alphanumeric takes 10


class Words:
    """Parallel lists, one entry a word. Places count characters of the text."""

    __slots__ = ("ends", "starts", "words")

    def __init__(self) -> None:
        self.words: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, word: str, start: int, end: int) -> None:
        self.words.append(word)
        self.starts.append(start)
        self.ends.append(end)

    def is_glued(self, number: int) -> bool:
        """Whether a word directly follows the one before it."""
        before = number - 1  # may come from the same raw character
        return number > 0 and self.starts[number] in (self.ends[before], self.starts[before])


class Pattern(NamedTuple):
    """An operand of a query as adjacent words."""

    words: tuple[str, ...]  # as compared: stems if `is_stem`
    glued: tuple[bool, ...]  # whether each follows the one before without a gap
    folded: tuple[str, ...]  # as looked up in the keyword index, which stems them itself
    is_prefix: bool = False  # the last word may continue
    is_stem: bool = False
    has_pictographs: bool = False
    case: bool = False  # upper and lower case must agree

    @property
    def is_plain_word(self) -> bool:
        """One whole word, compared by its stem: exactly what the keyword index looks up."""
        return len(self.words) == 1 and self.is_stem and not self.case


def pattern(connection: Connection, operand: Operand, *, case: bool = False) -> Pattern:
    """An operand's words: stems of a bare operand, exact words of a phrase or prefix."""
    has_pictographs = bool(pictograph_places(operand.text))
    stem = not (operand.is_phrase or operand.is_prefix or case)
    words = split(connection, operand.text, stem=stem, case=case, pictographs=has_pictographs)
    folded = words
    if stem or case:
        folded = split(connection, operand.text, pictographs=has_pictographs)
    return Pattern(
        tuple(words.words),
        tuple(map(words.is_glued, range(len(words.words)))),
        tuple(folded.words),
        is_prefix=operand.is_prefix,
        is_stem=stem,
        has_pictographs=has_pictographs,
        case=case,
    )


def split_for(connection: Connection, text: str, sought: Pattern) -> Words:
    """A text's words in the form of a pattern's words."""
    return split(
        connection, text, stem=sought.is_stem, case=sought.case, pictographs=sought.has_pictographs
    )


def split(
    connection: Connection,
    text: str,
    *,
    stem: bool = False,
    case: bool = False,
    pictographs: bool = False,
) -> Words:
    """The words of a text; `stem` takes off English endings as the keyword index does, `case` keeps
    upper and lower case, and with `pictographs` emoji count as words."""
    result = Words()
    terms = connection.tokenize(text, stem=stem)
    if text.isascii():
        result.words = [text[start:end] if case else term for start, end, term in terms]
        result.starts = [start for start, _, _ in terms]
        result.ends = [end for _, end, _ in terms]
        return result
    emoji = iter(pictograph_places(text) if pictographs else ())
    following = next(emoji, None)
    for start, end, term in terms:
        while following and following[1] <= start:
            result.add(following[0], following[1], following[1] + 1)
            following = next(emoji, None)
        raw = text[start:end]
        if raw.isascii():
            result.add(raw if case else term, start, end)
        else:
            _add_other(connection, result, raw, term, start, stem=stem, case=case)
    while following:
        result.add(following[0], following[1], following[1] + 1)
        following = next(emoji, None)
    return result


def find(text: Words, sought: Pattern) -> list[tuple[int, int]]:
    """Where a pattern occurs: the first word's number and the one after the last's."""
    if not sought.words:
        return []
    words, size = text.words, len(sought.words)
    # Characters of an unspaced run must be adjacent.
    bonds = [i for i in range(1, size) if sought.glued[i] and is_unspaced(sought.words[i])]
    exact = list(sought.words[:-1] if sought.is_prefix else sought.words)
    last = sought.words[-1]
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
            and (not sought.is_prefix or words[end - 1].startswith(last))
            and all(text.is_glued(at + i) for i in bonds)
        ):
            places.append((at, end))


def holds(connection: Connection, text: str, sought: Pattern) -> bool:
    if scan := _ascii_scan(sought):
        # Eight times as fast; a hit is always right, and in ASCII text so is a miss.
        if scan.search(text):
            return True
        if text.isascii():
            return False
    return bool(find(split_for(connection, text, sought), sought))


def places(connection: Connection, text: str, sought: Pattern) -> list[tuple[int, int]]:
    """Where a pattern occurs in a text, in characters."""
    if text.isascii() and (scan := _ascii_scan(sought)):  # as in `holds`
        return [match.span() for match in scan.finditer(text)]
    words = split_for(connection, text, sought)
    return [(words.starts[i], words.ends[j - 1]) for i, j in find(words, sought)]


def without_first(sought: Pattern, count: int) -> Pattern:
    return sought._replace(
        words=sought.words[count:],
        folded=sought.folded[count:],
        glued=(False, *sought.glued[count + 1 :]),
    )


def first_words(sought: Pattern, count: int) -> Pattern:
    """A pattern's first words; the whole pattern if it has no more."""
    if len(sought.words) <= count:
        return sought
    return sought._replace(
        words=sought.words[:count],
        folded=sought.folded[:count],
        glued=sought.glued[:count],
        is_prefix=False,
    )


def holds_prefix(connection: Connection, text: str, sought: Pattern) -> bool:
    """Whether a word of a text, or a part of an identifier, begins with a one-word prefix."""
    if holds(connection, text, sought):
        return True
    if len(sought.words) > 1 or sought.case:
        return False
    return any(part.lower().startswith(sought.words[0]) for part in identifier_parts(text))


def is_word_prefix(sought: Pattern) -> bool:
    """Whether a pattern is the beginning of one word, in a script with spaces."""
    return sought.is_prefix and len(sought.words) == 1 and not is_unspaced(sought.words[0])


def unspaced_runs(sought: Pattern) -> tuple[list[str], list[str]]:
    """A pattern's runs of unspaced script, and its other words, as they are looked up."""
    unspaced: list[str] = []
    others: list[str] = []
    for number, word in enumerate(sought.folded):
        if not is_unspaced(word):
            others.append(word)
        elif number and sought.glued[number] and is_unspaced(sought.folded[number - 1]):
            unspaced[-1] += word
        else:
            unspaced.append(word)
    return unspaced, others


@lru_cache(maxsize=64)
def _ascii_scan(sought: Pattern) -> re.Pattern[str] | None:
    """An expression for exact ASCII words between ASCII separators."""
    if sought.is_stem or sought.has_pictographs or not all(map(str.isascii, sought.words)):
        return None
    word_character = _SEPARATOR.replace("[", "[^", 1)
    end = "" if sought.is_prefix else f"(?!{word_character})"
    phrase = f"{_SEPARATOR}+".join(sought.words)
    flags = "-i" if sought.case else "i"
    return re.compile(f"(?<!{word_character})(?{flags}:{phrase}){end}", re.ASCII)


def _add_other(
    connection: Connection, into: Words, raw: str, term: str, start: int, *, stem: bool, case: bool
) -> None:
    """Add a word that is not all ASCII."""
    normal = unicodedata.normalize("NFKC", raw)
    unspaced = is_unspaced(normal)
    if not unspaced and normal == unicodedata.normalize("NFC", raw):
        into.add(_without_accents(raw) if case else term, start, start + len(raw))
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
            end = start + places[offset + last - 1][1]
            into.add(word, start + places[offset + first][0], end)
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

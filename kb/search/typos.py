"""Typos and prefixes: from words that a user typed to words in the file.

The tables `vocabulary` and `word_endings` have every word as written, forwards and backwards; the
keyword index's stems are too far from a misspelt word. A word one edit away shares the typed
word's beginning or end. For two edits rapidfuzz compares words of similar length.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from kb.models.tokens import english_number
from kb.search.query import MAX_CORRECTED, Operand, Query
from kb.store.connection import Connection
from kb.store.vocabulary import may_be_misspelt, stem_of
from kb.text.terms import is_unspaced, words as words_of

ONE_EDIT_FROM = 4  # letters of the typed word
TWO_EDITS_FROM = 8
MAX_VARIANTS = 20
AMBIGUOUS_BELOW = 6  # letters; a shorter word has neighbours by chance
MAX_LIKELY_WORDS = 3  # for an unknown word of a query
FOREIGN_FROM = 3  # unknown words; if most of a query's are, it is in another language


class Variant(NamedTuple):
    """A word of the file similar to a typed one."""

    word: str
    stem: str  # the keyword index's term; look up the word, which the index stems itself
    edits: int


def variants(connection: Connection, words: Iterable[str]) -> dict[str, list[Variant]]:
    """Words of the file that typed words may be misspellings of, nearest first: one insertion,
    deletion, replacement or swap of neighbours from 4 letters on, two from 8 on. Words of the same
    stem are left out, and numbers have no variants."""
    words = dict.fromkeys(words)
    cached: dict[str, list[Variant]] = connection.cached("variants of words")
    if unknown := [word for word in words if word not in cached]:
        folded = {word: _folded(connection, word) for word in unknown}
        near = _near(connection, {*filter(None, folded.values())})
        others = sorted({other for similar in near.values() for other in similar})
        stems = stems_of_words(connection, others) if others else {}
        for word, typed in folded.items():
            cached[word] = _in_order(connection, typed, near[typed], stems) if typed else []
    return {word: cached[word] for word in words}


def stems_of_words(connection: Connection, words: Iterable[str]) -> dict[str, str]:
    """The stems of the words that occur in the file as written."""
    return dict(connection.tuples("stems_of_words", words=json.dumps([*words])))


def prefixed(connection: Connection, prefixes: Iterable[str]) -> dict[str, dict[str, str]]:
    """For each prefix (folded, one word), its words in order, and their stems."""
    prefixes = dict.fromkeys(prefixes)
    cached: dict[str, dict[str, str]] = connection.cached("words with prefixes")
    if new := [prefix for prefix in prefixes if prefix not in cached]:
        cached |= {prefix: {} for prefix in new}
        for prefix, word, stem in connection.tuples("words_with_prefix", prefixes=json.dumps(new)):
            cached[prefix][word] = stem
    return {prefix: cached[prefix] for prefix in prefixes}


def prefix_bounds(prefix: str) -> dict[str, str]:
    """The range of words with a prefix, as parameters of a statement."""
    return {"prefix": prefix, "after": prefix + "\U0010ffff"}


def correct(
    connection: Connection, query: Query, existing: Container[str], *, even_foreign: bool = False
) -> tuple[Query, str]:
    """A query with likely words beside those that no file has, and a sentence about them. By
    default a query of mostly unknown words has none: "Wie lade ich eine Datei hoch?" does not ask
    English documents for a "date"; its meaning has to find them."""
    operands = (*query.terms, *query.must)
    if len(operands) > MAX_CORRECTED:
        return query, ""
    if not even_foreign:
        foreign = sum(
            not (term.is_prefix or term.is_stop_word or term.text in existing)
            for term in query.terms
        )
        if foreign >= FOREIGN_FROM and 2 * foreign > len(query.terms):
            return query, ""
    unknown = [
        operand
        for operand in operands
        if not (operand.is_phrase or operand.is_prefix or operand.text in existing)
        and _may_be_typo(operand.text)
    ]
    variants_of = variants(connection, [operand.text for operand in unknown]) if unknown else {}
    likely = {
        operand: nearest
        for operand in unknown
        if (nearest := _likely(operand.text, variants_of[operand.text]))
    }
    if not likely:
        return query, ""
    text = query.text
    terms: list[Operand] = []
    notices: list[str] = []
    for operand in query.terms:
        terms.append(operand)
        if words := likely.get(operand):
            terms += map(Operand, words)
            text = text.replace(operand.text, words[0], 1)
            listed = _listed(words)
            notices.append(f'No document has "{operand.text}": searched for {listed} too.')
    notices += [
        f'No document has "{operand.text}": did you mean {_listed(words)}?'
        for operand in query.must
        if (words := likely.get(operand))
    ]
    typed = (operand for operand in query.terms if operand in likely)
    guesses = tuple((operand.text, tuple(likely[operand])) for operand in typed)
    corrected = query._replace(text=text, terms=tuple(dict.fromkeys(terms)), guesses=guesses)
    return corrected, " ".join(notices)


def _may_be_typo(word: str) -> bool:
    """Whether an unknown word may be misspelt: English words and acronyms are not."""
    if word.isupper() and len(word) < AMBIGUOUS_BELOW:
        return False
    return all(english_number(part) is None for part in words_of(word.casefold()))


def _likely(typed: str, near: Sequence[Variant]) -> list[str]:
    """The nearest words; for a short word only one, for two edits with the same first letter."""
    words = [
        variant.word
        for variant in near
        if variant.edits == near[0].edits
        and (variant.edits == 1 or variant.word[0] == typed[0].casefold())
    ]
    return words[:MAX_LIKELY_WORDS] if len(typed) >= AMBIGUOUS_BELOW or len(words) == 1 else []


def _listed(words: Sequence[str]) -> str:
    return " or ".join(f'"{word}"' for word in words)


def _folded(connection: Connection, text: str) -> str:
    """The folded word if typos are looked for; else ""."""
    terms = connection.tokenize(text)
    if len(terms) != 1:
        return ""
    word = terms[0][2]
    is_right = len(word) >= ONE_EDIT_FROM and may_be_misspelt(word) and not is_unspaced(word)
    return word if is_right else ""


def _in_order(
    connection: Connection, typed: str, near: Iterable[str], stems: Mapping[str, str]
) -> list[Variant]:
    from rapidfuzz.distance import OSA

    same = stem_of(connection, typed)
    ordered = [
        Variant(other, stems[other], OSA.distance(typed, other))
        for other in near
        if stems.get(other, same) != same
    ]
    # At equal distance, a word with the same first letter is likelier.
    ordered.sort(key=lambda near: (near.edits, near.word[0] != typed[0], near.word))
    return ordered[:MAX_VARIANTS]


def _near(connection: Connection, words: set[str]) -> dict[str, list[str]]:
    """For each word, those few enough edits away."""
    long = {word for word in words if len(word) >= TWO_EDITS_FROM}
    candidates = _one_edit_away(connection, sorted(words - long))
    near = {word: _within(word, sorted(alike), 1) for word, alike in candidates.items()}
    if long:
        lengths = {"shortest": min(map(len, long)) - 2, "longest": max(map(len, long)) + 2}
        joined = connection.value("words_of_length", **lengths)
        others = joined.split("\n") if joined else []
        near |= {word: _within(word, others, 2) for word in long}
    return near


def _one_edit_away(connection: Connection, words: Sequence[str]) -> dict[str, set[str]]:
    """For each word, those possibly one edit away. An edit touches one letter or two neighbours: in
    the first half it leaves the typed word's end unchanged, else its beginning."""
    alike: dict[str, set[str]] = {word: set() for word in words}
    if not alike:
        return alike
    halves = {word: (len(word) - 1) // 2 for word in words}
    ends = {word: (word[:half], word[:half:-1]) for word, half in halves.items()}
    for typed, other, is_reversed in connection.tuples("words_alike", words=json.dumps(ends)):
        word = other[::-1] if is_reversed else other
        if may_be_misspelt(word):
            alike[typed].add(word)
    return alike


def _within(typed: str, words: Sequence[str], most: int) -> list[str]:
    """The words at most `most` edits away."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    near = process.extract(typed, words, scorer=OSA.distance, score_cutoff=most, limit=None)
    return [word for word, _, _ in near]

"""Typos and prefixes: from a word that a user typed to words that the file holds.

The tables `vocabulary` and `word_endings` hold every word as it is written (the keyword index
holds stems, too far from a misspelt word), forwards and backwards. A word one edit away has the
typed word's beginning or its end, so it is among the words that begin or end so. Two edits
compare the words of like length by rapidfuzz.
"""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from typing import NamedTuple

from kb.search.query import Operand, Query
from kb.store.connection import Connection
from kb.store.vocabulary import beginning_of_words, may_be_misspelt, stem_of
from kb.text.terms import is_unspaced

ONE_EDIT_FROM = 4  # letters of the typed word
TWO_EDITS_FROM = 8
LONGEST_CORRECTED = 12  # words; a longer query finds its documents by the others
MOST_LIKELY_WORDS = 3  # that an unknown word of a query is taken for
FOREIGN_FROM = 3  # unknown words; a query of mostly such is in another language


class Variant(NamedTuple):
    """A word of the file that is near a typed one."""

    word: str
    stem: str  # the keyword index's term; look up the word, which the index stems by itself
    edits: int


def variants(connection: Connection, word: str, limit: int = 20) -> list[Variant]:
    """Words of the file that a typed word may be a misspelling of, nearest first.

    One insertion, deletion, replacement or swap of neighbours from 4 letters on, two from 8 on.
    The word itself and words of its own stem are left out, and so is everything for numbers.
    """
    folded = _one_word(connection, word)
    if folded is None:
        return []
    typed, own_stem = folded
    from rapidfuzz.distance import OSA

    most = 2 if len(typed) >= TWO_EDITS_FROM else 1
    near = _two_edits_away(connection, typed) if most == 2 else _one_edit_away(connection, typed)
    stems = dict(connection.tuples("stems_of_words", words=json.dumps(near)))
    found = [
        Variant(other, stem, OSA.distance(typed, other))
        for other, stem in stems.items()
        if stem != own_stem
    ]
    # Of equal distance, a word with the same first letter is the likelier one.
    found.sort(key=lambda one: (one.edits, one.word[0] != typed[0], one.word))
    return found[:limit]


def prefixed(connection: Connection, prefix: str) -> dict[str, str]:
    """Words of the file that begin with a prefix (folded, one word), and their stems."""
    return dict(connection.tuples("words_with_prefix", **prefix_bounds(prefix)))


def prefix_bounds(prefix: str) -> dict[str, str]:
    """The range of words that begin with a prefix, as parameters of a statement."""
    return {"prefix": prefix, "after": prefix + "\U0010ffff"}


def correct(
    connection: Connection,
    query: Query,
    *,
    even_foreign: bool = False,
    known: Container[str] | None = None,
) -> tuple[Query, str]:
    """A query with the likely words beside those that the file has not, and a sentence about them.

    Words that the file knows stay as they are, and so do operators, which mean what they say.

    Args:
        even_foreign: also where most words are unknown. "Wie lade ich eine Datei hoch?" asks
            English documents for no "date": its meaning has to find them.
        known: the words that some files know which are searched as one; by default this file's.
    """
    terms: list[Operand] = []
    said: list[str] = []
    guesses: list[tuple[str, tuple[str, ...]]] = []
    text = query.text
    if len(query.terms) + len(query.must) > LONGEST_CORRECTED:
        return query, ""
    if known is None:
        known = known_words(connection, query)
    if not even_foreign and _is_foreign(query, known):
        return query, ""
    for operand in query.terms:
        terms.append(operand)
        likely = _likely_words(connection, operand, known)
        if likely:
            terms += [Operand(word) for word in likely]
            guesses.append((operand.text, tuple(likely)))
            text = text.replace(operand.text, likely[0], 1)
            said.append(f'No document has "{operand.text}": searched for {_listed(likely)} too.')
    said += [
        f'No document has "{operand.text}": did you mean {_listed(likely)}?'
        for operand in query.must
        if (likely := _likely_words(connection, operand, known))
    ]
    if not said:
        return query, ""
    found = query._replace(text=text, terms=tuple(dict.fromkeys(terms)), guesses=tuple(guesses))
    return found, " ".join(said)


def is_known(connection: Connection, word: str) -> bool:
    """Whether the file holds, or once held, a word with the same stem."""
    terms = connection.tokenize(word, stem=True)
    return all(
        connection.value("stem_is_known", stem=term, **prefix_bounds(beginning_of_words(term)))
        for _, _, term in terms
    )


def known_words(connection: Connection, query: Query) -> set[str]:
    """The bare words of a query that the file knows."""
    operands = (*query.terms, *query.must)
    if len(operands) > LONGEST_CORRECTED:
        return set()
    return {
        one.text
        for one in operands
        if not (one.is_phrase or one.is_prefix) and is_known(connection, one.text)
    }


def _is_foreign(query: Query, known: Container[str]) -> bool:
    unknown = sum(
        not (term.is_prefix or term.is_stop_word or term.text in known) for term in query.terms
    )
    return unknown >= FOREIGN_FROM and 2 * unknown > len(query.terms)


def _likely_words(connection: Connection, operand: Operand, known: Container[str]) -> list[str]:
    """What a single unknown word probably stands for: the nearest words, three at most."""
    if operand.is_phrase or operand.is_prefix or operand.text in known:
        return []
    near = variants(connection, operand.text)
    return [one.word for one in near if one.edits == near[0].edits][:MOST_LIKELY_WORDS]


def _listed(words: list[str]) -> str:
    return " or ".join(f'"{word}"' for word in words)


def _one_word(connection: Connection, text: str) -> tuple[str, str] | None:
    """The folded word and its stem, if it is one for which typos are looked for."""
    terms = connection.tokenize(text)
    if len(terms) != 1:
        return None
    word = terms[0][2]
    if len(word) < ONE_EDIT_FROM or not may_be_misspelt(word) or is_unspaced(word):
        return None
    return word, stem_of(connection, word)


def _one_edit_away(connection: Connection, typed: str) -> list[str]:
    """The words at most one edit away.

    An edit touches one letter or two neighbours. If it lies in the first half, the word ends as the
    typed one does behind those two; else it begins as the typed one does.
    """
    half = (len(typed) - 1) // 2
    lengths = {"shortest": len(typed) - 1, "longest": len(typed) + 1}
    beginning = prefix_bounds(typed[:half])
    ending = prefix_bounds(typed[:half:-1])
    alike = {word for (word,) in connection.tuples("words_between", **beginning, **lengths)}
    alike |= {word[::-1] for (word,) in connection.tuples("endings_between", **ending, **lengths)}
    return _within(typed, sorted(filter(may_be_misspelt, alike)), 1)


def _two_edits_away(connection: Connection, typed: str) -> list[str]:
    joined = connection.value("words_of_length", shortest=len(typed) - 2, longest=len(typed) + 2)
    return _within(typed, joined.split("\n"), 2) if joined else []


def _within(typed: str, words: Sequence[str], most: int) -> list[str]:
    """Those of some words that are at most so many edits away."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    found = process.extract(typed, words, scorer=OSA.distance, score_cutoff=most, limit=None)
    return [word for word, _, _ in found]

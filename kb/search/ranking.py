"""How evidence becomes a score, and scores an order.

    words    = t (0.65 p ** 0.73 + 0.61 d ** 0.73 + 0.2 l)
                                                  bm25 of the passage (p) and of its document (d),
                                                  each as a share of the greatest possible; l is 1
                                                  for words in a row; with their signs they add more
    meaning  = cosine(passage), with feedback (`feedback.py`)
               + 0.87 cosine(mean of its document's vectors)
    support  = words + r (meaning - 0.32 background) + (1 - r) 1.75 words + bonuses
    probable = 1 / (1 + exp(-(3.3 (support - 1.39) + 0.847)))
    typed    = 0.7, where the passage holds the query's words as they were typed and they are rare
    evident  = 1 - (1 - probable) (1 - typed), less 1.65 (h - 0.5) in log odds
    score    = the greater of `evident` and `typed`, at most 0.99

h is the most of the query's information that any passage holds, times t, 0.5 at the least: where
some passage has all of its words, more is asked of each; a question in other words than the
documents' has little support at its best.

Bonuses are for the question's script and where it is the document's title.
t is 1, or less where nearly every passage holds the words, and least for stop words alone.
r is the share of the query's letters that the model can read. What it cannot read, and what has no
vector yet, is taken to mean as much as its words say. The background is the meaning of the eleventh
nearest document: where many are near, as in the handbook of one product, being near tells less.

All of it is absolute: nothing is divided by the best row of a reply, so that 0.7 means the same
for every query. Rows are ordered by the score alone. Figures and what was tried and dropped:
docs/decisions/0009-evidence.md, 0020-languages-together-and-names.md,
0023-feedback-and-common-words.md, 0025-what-a-query-lets-expect.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from kb.text.terms import scripts


class Weights(NamedTuple):
    """The constants of the function, fitted by `scripts/fit`."""

    passage_words: float = 0.65
    document_words: float = 0.61
    # Of a share of bm25: the first words of a question that are found tell more than the last ones.
    # No passage holds all words of a long question: straight shares make its words too light.
    share_power: float = 0.73
    document_cosine: float = 0.87
    # What meaning is taken for where it is not known, as a multiple of what the words say.
    words_for_meaning: float = 1.75
    script: float = 0.1
    literal: float = 0.2  # for the query's words in a row
    typed: float = 3.0  # for its very characters: `use_debug` is not "use debug"
    title: float = 0.2  # where they are the document's title, and all of it
    opening: float = 0.2  # for the beginning of a page that is titled so: it says what it is about
    named: float = 15.0  # where the query is its document's path: before all that mention it
    slope: float = 3.3
    threshold: float = 1.39  # the support that has a score of 0.7 where no passage holds much
    expected: float = 0.5  # more support that is asked for where some passage holds all
    background: float = 0.32


WEIGHTS = Weights()
BACKGROUND_DOCUMENT = 10  # counted from 0 in the order of nearness
USUAL_BACKGROUND = 0.5  # where there are fewer documents
LEAST_EXPECTED = 0.5  # of a query's information; with less, what is noise would rise
RELEVANT = 0.7
_MIDDLE = math.log(RELEVANT / (1 - RELEVANT))
GREATEST_SCORE = 0.99
SCORE_DIGITS = 4

# Words as they were typed are evidence by themselves where a passage holds this much of the
# query's information; below `ALMOST_HELD` they are none.
HELD = 0.8
ALMOST_HELD = 0.6
# Information as a multiple of that of a word which one passage alone holds: this much is rare.
RARE = 0.4

# bm25: k1 (a word adds at most (k1 + 1) times its idf) and b of named indexes, at the values of the
# literature, which FTS5 has too; FTS5's least idf; the weights of the keyword index's columns.
SATURATION = 1.2
LENGTH_WEIGHT = 0.75
LEAST_IDF = 1e-6  # for words in more than half of the rows
COLUMN_WEIGHTS = {"title": 3.0, "heading": 1.5, "body": 1.0, "extra": 1.0}

# What a passage holds of the query, as a share: of a name whose words stand apart, and of a word
# that stands for a misspelt one. Both below what counts as held.
APART = 0.6
NEAR = 0.75
COMMON = 0.5  # of the idf of the commonest words that are counted: about what commoner ones have

# Of archives. What only meaning finds has to be this near: otherwise any query would find all.
LEAST_SCORE_WITHOUT_WORDS = 0.7
FUZZY_SCORE = 0.6  # of a document that holds nothing but a near word for each of the query's

# How a cosine of the packaged English model is called.
NEARNESS = ((0.6, "very near"), (0.45, "near"), (0.25, "somewhat near"), (-1.01, "far"))

PROMINENT_SCRIPT = 0.1  # share of letters: a page that names π is not in Greek
LAST_LATIN_LETTER = "\u024f"


class Evidence(NamedTuple):
    """Everything that is known of how one passage fits a query.

    A tuple, since every search makes some two hundred: a frozen dataclass takes four times as long.

    Attributes:
        words, document_words: bm25 scores as a share of the greatest that the query can have.
        held: the share of the query's information that the passage holds.
        rarity: the query's information as a multiple of that of a word which stands in one passage.
        telling: 1, or less where nearly every passage holds the query's words.
        cosine, document_cosine: None while there is no vector.
        script: how well the document's script fits the query's, -1 to 1.
        is_titled: the title or a heading holds all of a short query.
        is_literal: the query's words stand in a row; `is_typed`: so do its very characters.
        is_title: the query is the document's title.
        is_opening: it is the first of its document, and `is_titled`.
        is_named: it is the first of the document whose path the query is.
        distance: the true cosine distance, for who reads the row; nothing is judged by it.
    """

    chunk_id: int
    document_id: int
    words: float
    document_words: float
    held: float = 0.0
    rarity: float = 0.0
    telling: float = 1.0
    cosine: float | None = None
    document_cosine: float | None = None
    script: float = 0.0
    is_titled: bool = False
    is_literal: bool = False
    is_typed: bool = False
    is_title: bool = False
    is_opening: bool = False
    is_named: bool = False
    distance: float | None = None


class Expected(NamedTuple):
    """What all candidates of a query together let expect of each.

    Attributes:
        background: how near the query is to documents that are not the ones it asks for.
        held: the most of its information that any passage holds, less where that tells little.
    """

    background: float = USUAL_BACKGROUND
    held: float = 0.0


class Ranked(NamedTuple):
    """One passage with its score."""

    evidence: Evidence
    score: float


def rank(
    candidates: Iterable[Evidence],
    readable: float,
    weights: Weights = WEIGHTS,
    usual: Expected | None = None,
    limit: int | None = None,
) -> list[Ranked]:
    """The candidates with their scores, best first; ties by id.

    Args:
        readable: the share of the query that the model can read (see `readable_share`).
        usual: what may be expected; by default what the candidates themselves say.
        limit: how many to return at most.
    """
    known = list(candidates)
    usual = usual or expected([known], weights)
    # What is asked for above the threshold, as a factor of the odds.
    more = weights.slope * weights.expected * max(usual.held - LEAST_EXPECTED, 0.0)
    odds = math.exp(-more)
    scored: list[tuple[float, float, int, int, Evidence]] = []
    for one in known:
        typed = typed_evidence(one) if one.held > ALMOST_HELD else 0.0
        logit = weights.slope * (
            support(one, readable, usual.background, weights) - weights.threshold
        )
        doubt = (1 - typed) / (1 + math.exp(logit + _MIDDLE))
        # What is missing to a score of 1: unlike the score it tells apart what is nearly sure.
        missing = min(doubt / (doubt + (1 - doubt) * odds), 1 - typed)
        scored.append((missing, doubt, one.document_id, one.chunk_id, one))
    scored.sort()
    return [Ranked(one, shown(1 - missing)) for missing, _, _, _, one in scored[:limit]]


def shown(score: float) -> float:
    """A score as clients see it."""
    return round(min(score, GREATEST_SCORE), SCORE_DIGITS)


def meaning(one: Evidence, weights: Weights = WEIGHTS) -> float:
    """How near a passage and its document are; 0 while there is no vector."""
    return (one.cosine or 0.0) + weights.document_cosine * (one.document_cosine or 0.0)


def expected(files: Iterable[Iterable[Evidence]], weights: Weights = WEIGHTS) -> Expected:
    """What the candidates of some files together let expect.

    The background is the nearness of the eleventh nearest document, each at its nearest passage.
    """
    nearest: list[float] = []
    held = 0.0
    for candidates in files:  # of each file by itself: its ids may be another's too
        near: dict[int, float] = {}
        for one in candidates:
            held = max(held, one.held * one.telling)
            if one.cosine is not None:
                found = meaning(one, weights)
                if found > near.get(one.document_id, -2.0):
                    near[one.document_id] = found
        nearest += near.values()
    if len(nearest) <= BACKGROUND_DOCUMENT:
        return Expected(held=held)
    return Expected(sorted(nearest, reverse=True)[BACKGROUND_DOCUMENT], held)


def support(
    one: Evidence, readable: float, usual: float = USUAL_BACKGROUND, weights: Weights = WEIGHTS
) -> float:
    """What words and meaning say together, absolute; about 0.2 for unrelated text.

    Args:
        usual: the background of meaning.
    """
    words = 0.0
    if one.words:
        words = weights.passage_words * min(one.words, 1.0) ** weights.share_power
    if one.document_words:
        words += weights.document_words * min(one.document_words, 1.0) ** weights.share_power
    if one.is_literal:
        words += weights.literal
    words *= one.telling
    if one.is_typed:
        words += weights.typed
    found = words + weights.script * one.script
    if one.cosine is None:
        readable = 0.0
    elif readable:
        found += readable * (meaning(one, weights) - weights.background * usual)
    if readable < 1:
        found += (1 - readable) * weights.words_for_meaning * words
    if one.is_title:
        found += weights.title
    if one.is_opening:
        found += weights.opening
    if one.is_named:
        found += weights.named
    return found


def typed_evidence(one: Evidence) -> float:
    """How sure the typed words alone make it that a passage is meant, 0 to 0.7."""
    enough = min(max((one.held - ALMOST_HELD) / (HELD - ALMOST_HELD), 0.0), 1.0) ** 2
    rare = 1.0 if one.is_titled else min(one.rarity * one.held / RARE, 1.0)
    if not one.is_title:
        rare *= one.telling
    return RELEVANT * enough * rare


def explained(one: Evidence | None) -> str:
    """Why a passage is found, in words."""
    if one is None:
        return "near in meaning"
    parts: list[str] = []
    if one.is_named:
        parts.append("begins the document of this name")
    if one.is_typed:
        parts.append("holds the query as it was typed")
    elif one.is_literal:
        parts.append("holds the query's words in a row")
    elif one.held:
        parts.append(f"holds {one.held:.0%} of what the query's words tell")
        if one.telling < 1:
            parts.append("which is little, as very many passages hold them")
    if one.is_title:
        parts.append("is of the document with this title")
    elif one.is_titled:
        parts.append("so does its title or heading")
    if one.document_words:
        parts.append(f"its document has {one.document_words:.0%} of the greatest word score")
    if one.cosine is None:
        parts.append("has no vector: judged by words alone")
    else:
        parts.append(f"its meaning is {_nearness(one.cosine)} ({one.cosine:.2f})")
        parts.append(f"its document's {_nearness(one.document_cosine or 0.0)}")
    if one.script == 1:
        parts.append("in the question's script")
    return ", ".join(parts)


def _nearness(cosine: float) -> str:
    return next(word for least, word in NEARNESS if cosine >= least)


def readable_share(text: str) -> float:
    """The share of a text's letters that an English model can read; without any, whether it can.

    Cosines of other scripts are noise to it: with Japanese questions a fusion at full weight
    found less than keywords alone. So are those of emoji; numbers it knows.
    """
    letters = [character for character in text if character.isalpha()]
    if not letters:
        return float(any(map(str.isdigit, text)))
    return sum(character <= LAST_LATIN_LETTER for character in letters) / len(letters)


def script_fit(asked: frozenset[str] | None, beginning: str) -> float:
    """How well a document's script fits the question's (see `scripts_asked`), -1 to 1.

    Names in Latin letters are the same in every language: of translations, those in another script
    than the one they are asked in stand behind, at -1.

    Args:
        beginning: some text of the document.
    """
    written = scripts(beginning, PROMINENT_SCRIPT)
    if asked is None:
        return -1.0 if written else 0.0
    together = asked | written
    return len(asked & written) / len(together) if together else 1.0

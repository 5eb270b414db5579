"""How evidence becomes a score, and scores an order.

    words    = t (0.65 p ** 0.73 + 0.61 d ** 0.73 + 0.2 l)
                                                  bm25 of the passage (p) and of its document (d),
                                                  each as a share of the greatest possible; l is 1
                                                  for words in a row; with their signs they add more
    meaning  = cosine(passage), with feedback (`evidence.py`)
               + 0.87 cosine(mean of its document's vectors)
    support  = words + r (meaning - 0.32 background) + (1 - r) 1.75 words + bonuses
    probable = 1 / (1 + exp(-(3.3 (support - 1.39) + 0.847)))
    typed    = 0.7, where the passage has the query's words as typed and they are rare
    evident  = 1 - (1 - probable) (1 - typed), less 1.65 (h - 0.5 + 2 a**2) in log odds
    score    = the greater of `evident` and `typed`, at most 0.99; below 0.7 where a >= 0.4;
               from 0.985 on by the logarithm of what is missing to 1

h is the most of the query's information that any passage has, times t, at least 0.5. If some
passage has all of its words, more is asked of each; a question in other words than the documents'
has little support at its best. a is the part of its information in words that occur nowhere.

Bonuses are for the question's script and for being the document's title.
t is 1; less where nearly every passage has the words, least for stop words alone.
r is the share of the query's letters that the model can read. What it cannot read, and what has no
vector yet, counts as if it meant as much as its words say; beside passages with a vector that is
once the words, not 1.75 times. The background is the meaning of the eleventh nearest document:
where many are near, as in the handbook of one product, nearness says less.

All of it is absolute: nothing is divided by the best row of a reply, so that 0.7 means the same for
every query. The score alone orders rows. Figures and failed trials:
docs/decisions/0009-evidence.md, 0020-languages-together-and-names.md,
0023-feedback-and-common-words.md, 0025-what-a-query-lets-expect.md, 0032-answers.md.
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
    # Of a share of bm25. A question's first matching words say more than its last, and no passage
    # has all words of a long one, so plain shares would make its words too light.
    share_power: float = 0.73
    document_cosine: float = 0.87
    words_for_meaning: float = 1.75  # unknown meaning, as a multiple of what the words say
    words_beside_meaning: float = 1.0  # the same beside known meaning, else it would lose
    script: float = 0.1
    literal: float = 0.2  # for the query's words next to each other
    typed: float = 3.0  # for its exact characters: `use_debug` is not "use debug"
    title: float = 0.2  # if the query is the document's whole title
    opening: float = 0.2  # for the beginning of a page of that title: it says what it is about
    named: float = 15.0  # if the query is the document's path: before all that mention it
    slope: float = 3.3
    threshold: float = 1.39  # the support that scores 0.7 if no passage has much of the query
    expected: float = 0.5  # further support required if some passage has all of it
    background: float = 0.32


WEIGHTS = Weights()
BACKGROUND_DOCUMENT = 10  # from 0, in order of nearness
USUAL_BACKGROUND = 0.5  # if there are fewer documents
MIN_EXPECTED = 0.5  # of a query's information; with less, noise would rise
MOST_ABSENT = 0.4  # of it: with more in absent words, no row is likely an answer
UNLIKELY = 0.69
RELEVANT = 0.7
_MIDDLE = math.log(RELEVANT / (1 - RELEVANT))
GREATEST_SCORE = 0.99
# Missing to 1: below it each power of ten adds the same to the score, fifty steps of the fourth
# digit for all. To two digits all of these are 0.99.
NEARLY_SURE = 0.015
MAGNITUDES = 5
SCORE_DIGITS = 4

# Words as typed are evidence by themselves if a passage has this share of the query's information;
# below `ALMOST_HELD` they are none.
HELD = 0.8
ALMOST_HELD = 0.6
RARE = 0.4  # information as a multiple of that of a word in one passage

# bm25's k1 (a word adds at most (k1 + 1) times its idf) and b, with the usual values, as in FTS5;
# FTS5's least idf; the weights of the keyword index's columns.
SATURATION = 1.2
LENGTH_WEIGHT = 0.75
MIN_IDF = 1e-6  # for words in more than half of the rows
MAX_FREQUENCY_SHARE = 2.1  # of bm25 without its idf, whose limit is 2.2
COLUMN_WEIGHTS = {"title": 3.0, "heading": 1.5, "body": 1.0, "extra": 1.0}

# The share of a term that counts if a name's words are apart, or a likely word replaces a misspelt
# one. Both are below `HELD`.
APART = 0.6
NEAR = 0.75
ADDRESS = 0.5  # of a word that occurs only in the address of a link, as of its bm25
COMMON = 0.5  # of the idf of the commonest counted words: about that of commoner ones

MIN_SCORE_WITHOUT_WORDS = 0.7  # in archives; otherwise any query would find all
FUZZY_SCORE = 0.6  # of a document with only a similar word for each of the query's

# Words for cosines of the packaged English model.
NEARNESS = ((0.6, "very near"), (0.45, "near"), (0.25, "somewhat near"), (-1.01, "far"))

PROMINENT_SCRIPT = 0.1  # share of letters: a page that names π is not in Greek
LAST_LATIN_LETTER = "\u024f"


class Evidence(NamedTuple):
    """How one passage fits a query. A tuple: a frozen dataclass takes four times as long to
    make."""

    chunk_id: int
    document_id: int
    words: float  # the bm25 score as a share of the query's maximum
    document_words: float  # as `words`, of its document
    held: float = 0.0  # the share of the query's information in the passage
    rarity: float = 0.0  # the query's information as a multiple of that of a word in one passage
    telling: float = 1.0  # less if nearly every passage has the query's words
    cosine: float | None = None  # None without a vector
    document_cosine: float | None = None
    script: float = 0.0  # how well the document's script fits the query's, -1 to 1
    is_titled: bool = False  # the title or a heading has all of a short query
    is_literal: bool = False  # the passage has the query as a phrase
    is_typed: bool = False  # with its exact characters
    is_title: bool = False  # the query is the document's title
    is_opening: bool = False  # the passage is its document's first, and `is_titled`
    is_named: bool = False  # it is the first of a document whose path is the query
    distance: float | None = None  # the true cosine distance, only shown


class Expected(NamedTuple):
    """What the candidates of a query together let one expect of each."""

    background: float = USUAL_BACKGROUND  # the query's nearness to unrelated documents
    held: float = 0.0  # the most of its information in any passage, times `telling`
    absent: float = 0.0  # the share of its information in words that no passage has
    has_meaning: bool = False  # some candidates have a vector


NOTHING_ELSE = Expected()


class Ranked(NamedTuple):
    evidence: Evidence
    score: float


def rank(
    candidates: Iterable[Evidence],
    readable: float,
    weights: Weights = WEIGHTS,
    usual: Expected | None = None,
    limit: int | None = None,
) -> list[Ranked]:
    """The candidates with their scores, best first; ties by id. `readable`: as `readable_share`;
    `usual`: what to expect, by default what the candidates say."""
    candidates = list(candidates)
    usual = usual or expected([candidates], weights)
    # What is required above the threshold, as a factor of the odds.
    more = max(usual.held - MIN_EXPECTED, 0.0) + 2 * usual.absent**2
    odds = math.exp(-weights.slope * weights.expected * more)
    most = UNLIKELY if usual.absent >= MOST_ABSENT else GREATEST_SCORE
    scored: list[tuple[float, float, int, int, Evidence]] = []
    for evidence in candidates:
        typed = typed_evidence(evidence) if evidence.held > ALMOST_HELD else 0.0
        logit = weights.slope * (support(evidence, readable, usual, weights) - weights.threshold)
        doubt = (1 - typed) / (1 + math.exp(logit + _MIDDLE))
        # The distance to a score of 1, which tells near certainties apart.
        missing = min(doubt / (doubt + (1 - doubt) * odds), 1 - typed)
        scored.append((missing, doubt, evidence.document_id, evidence.chunk_id, evidence))
    scored.sort()
    return [
        Ranked(evidence, shown(min(spread_at_top(missing), most)))
        for missing, _, _, _, evidence in scored[:limit]
    ]


def fts5_idf(df: int, total: int) -> float:
    """The weight of a term in FTS5's bm25."""
    ratio = (total - df + 0.5) / (df + 0.5)
    return max(math.log(ratio), MIN_IDF) if ratio > 0 else MIN_IDF


def spread_at_top(missing: float) -> float:
    """The score for what is missing to 1; near certainties are ranked by its magnitude."""
    if missing >= NEARLY_SURE:
        return 1 - missing
    magnitude = math.log10(NEARLY_SURE / max(missing, 1e-9)) / MAGNITUDES
    return 1 - NEARLY_SURE + (GREATEST_SCORE - 1 + NEARLY_SURE) * min(magnitude, 1.0)


def frequency_of(share: float) -> float:
    """How often a passage has a term, from its bm25 without the idf."""
    share = min(share, MAX_FREQUENCY_SHARE)
    return SATURATION * share / (SATURATION + 1 - share)


def shown(score: float) -> float:
    """A score as clients see it."""
    return round(min(score, GREATEST_SCORE), SCORE_DIGITS)


def meaning(evidence: Evidence, weights: Weights = WEIGHTS) -> float:
    """How near a passage and its document are; 0 without a vector."""
    return (evidence.cosine or 0.0) + weights.document_cosine * (evidence.document_cosine or 0.0)


def expected(files: Iterable[Iterable[Evidence]], weights: Weights = WEIGHTS) -> Expected:
    """What to expect, from the candidates of all files together. The background is the nearness of
    the eleventh nearest document, each at its nearest passage."""
    nearest: list[float] = []
    held = 0.0
    for candidates in files:  # one by one: files share ids
        near: dict[int, float] = {}
        for evidence in candidates:
            held = max(held, evidence.held * evidence.telling)
            if evidence.cosine is not None:
                nearness = meaning(evidence, weights)
                if nearness > near.get(evidence.document_id, -2.0):
                    near[evidence.document_id] = nearness
        nearest += near.values()
    if len(nearest) <= BACKGROUND_DOCUMENT:
        return Expected(held=held, has_meaning=bool(nearest))
    return Expected(sorted(nearest, reverse=True)[BACKGROUND_DOCUMENT], held, has_meaning=True)


def support(
    evidence: Evidence, readable: float, usual: Expected = NOTHING_ELSE, weights: Weights = WEIGHTS
) -> float:
    """What words and meaning say together, absolute; about 0.2 for unrelated text."""
    words = 0.0
    if evidence.words:
        words = weights.passage_words * min(evidence.words, 1.0) ** weights.share_power
    if evidence.document_words:
        words += weights.document_words * min(evidence.document_words, 1.0) ** weights.share_power
    if evidence.is_literal:
        words += weights.literal
    words *= evidence.telling
    if evidence.is_typed:
        words += weights.typed
    total = words + weights.script * evidence.script
    if evidence.cosine is None:
        if usual.has_meaning:
            total += readable * weights.words_beside_meaning * words
        else:
            readable = 0.0
    elif readable:
        total += readable * (meaning(evidence, weights) - weights.background * usual.background)
    if readable < 1:
        total += (1 - readable) * weights.words_for_meaning * words
    if evidence.is_title:
        total += weights.title
    if evidence.is_opening:
        total += weights.opening
    if evidence.is_named:
        total += weights.named
    return total


def typed_evidence(evidence: Evidence) -> float:
    """How surely the typed words alone mean a passage, 0 to 0.7."""
    enough = min(max((evidence.held - ALMOST_HELD) / (HELD - ALMOST_HELD), 0.0), 1.0) ** 2
    rare = 1.0 if evidence.is_titled else min(evidence.rarity * evidence.held / RARE, 1.0)
    if not evidence.is_title:
        rare *= evidence.telling
    return RELEVANT * enough * rare


def explained(evidence: Evidence | None, *, by_words: bool = False) -> str:
    """Why a passage is an answer, in words; `by_words`: only these are judged."""
    if evidence is None:
        return "near in meaning"
    parts: list[str] = []
    if evidence.is_named:
        parts.append("begins the document of this name")
    if evidence.is_typed:
        parts.append("holds the query as it was typed")
    elif evidence.is_literal:
        parts.append("holds the query's words in a row")
    elif evidence.held:
        parts.append(f"holds {evidence.held:.0%} of what the query's words tell")
        if evidence.telling < 1:
            parts.append("which is little, as very many passages hold them")
    if evidence.is_title:
        parts.append("is of the document with this title")
    elif evidence.is_titled:
        parts.append("its title or heading holds all of the query")
    if evidence.document_words:
        parts.append(f"its document has {evidence.document_words:.0%} of the greatest word score")
    if by_words:
        parts.append("judged by words alone")
    elif evidence.cosine is None:
        parts.append("has no vector yet: judged by words alone")
    else:
        parts.append(f"its meaning is {_nearness(evidence.cosine)} ({evidence.cosine:.2f})")
        parts.append(f"its document's {_nearness(evidence.document_cosine or 0.0)}")
    if evidence.script == 1:
        parts.append("in the question's script")
    return ", ".join(parts)


def _nearness(cosine: float) -> str:
    return next(word for least, word in NEARNESS if cosine >= least)


def readable_share(text: str) -> float:
    """The share of a text's letters that an English model can read; without letters 1.0 if it has
    digits. Cosines of other scripts are noise: they made Japanese searches worse than keywords."""
    letters = [character for character in text if character.isalpha()]
    if not letters:
        return float(any(map(str.isdigit, text)))
    return sum(character <= LAST_LATIN_LETTER for character in letters) / len(letters)


def script_fit(of_query: frozenset[str] | None, beginning: str) -> float:
    """How well a document's script, by some of its text, fits the question's, -1 to 1. A Latin name
    does not show the question's language: documents in other scripts rank behind, at -1."""
    written = scripts(beginning, PROMINENT_SCRIPT)
    if of_query is None:
        return -1.0 if written else 0.0
    together = of_query | written
    return len(of_query & written) / len(together) if together else 1.0

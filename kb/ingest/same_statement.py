"""Whether two short texts say the same: in other forms, another order, or with a word less.

Similarity of meaning cannot tell: "tests before lint" and "lint before tests" have a cosine of
0.99. So a text is read as phrases whose words keep their order, while the phrases may change
theirs: "on each write the cache is invalidated" and "the cache is invalidated on every write" are
both {invalidate cache, on write}. English is read so; a text in another language is one phrase.

- Words are compared by their stems; irregular forms, abbreviations and small numbers stand in a
  list.
- The passive is turned round: "orders are stored by X" is "X stores orders".
- "The handler of the socket" is also "the socket handler".
- Words that turn a statement (not, may, or, some, unless, ...) must be the same in both, and "all",
  "every" and "each" carry nothing unless such a word stands with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

__all__ = ["Statement", "Stem", "may_say_the_same", "read_statement", "says_the_same"]

Stem = Callable[[str], str]
Phrase = tuple[str, ...]

MOST_WAYS = 8  # a text with many "of" is not read in every way
LONGEST_COMPOUND = 3  # words that may stand before a noun: "failed job retries"

_TOKEN = re.compile(
    r"""(?<!\S)[-+]?\d+(?:[.,:]\d+)*
      | [^\W_]+(?:[._'+]*[^\W_]+)*(?:\+\+|\#)?
      | [<>]=? | % | [,;.!?\n]""",
    re.VERBOSE,
)


def _table(text: str) -> dict[str, str]:
    return {form: word for word, *forms in map(str.split, text.split(",")) for form in forms}


def _list(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SAME = _table(
    """
    all every each, not cannot, without no, if when, 1 one, 2 two, 3 three, 4 four, 5 five, 6
    six, 7 seven, 8 eight, 9 nine, 10 ten, 11 eleven, 12 twelve, percent %, authentication auth,
    configuration config, repository repo, environment env, database db, documentation docs,
    application app, administrator admin, development dev, production prod, parameter param,
    argument arg, specification spec, directory dir
    """
)
_IRREGULAR = _table(
    """
    keep kept, choose chose chosen, run ran, write wrote written, send sent, build built, hold
    held, make made, give gave given, take took taken, find found, show shown, know known, break
    broke broken, go went gone, come came, hide hid hidden, throw threw thrown, begin began
    begun
    """
)
_PARTICIPLES = _list(
    "kept chosen run written sent built held made given taken found shown known read broken hidden "
    "thrown begun put set cut"
)
# Words that carry no statement of their own.
_FILLERS = _list(
    "a an the is are was were be been being it its their our your we you they i has have had do "
    "does did done and that which this these those so also always must get gets got per store "
    "stored stores storing pattern rule convention requirement decision issue bug fixed"
)
_TURNS = _list(
    "not never without none neither nor except unless until avoid stop instead only or if may "
    "might can could should some few most sometimes usually often rarely optionally than"
)
_PREPOSITIONS = _list(
    "about above after against among around as at before behind below beneath beside between "
    "beyond by during for from in inside into near of on onto out outside over per since "
    "through throughout to toward towards under until up upon via with within without than "
    "unless if"
)
_SUBJECTS = _list("the a an we you they it i this that these those all our your its their")
_AUXILIARIES = _list("is are was were be been being get gets got")
_BETWEEN = _list("not never always must may might can could should also only")
_TIMES = _list("second minute hour day night week month quarter year morning evening time run")
_BINDING = _list("not only")  # they turn the preposition that follows
_STOPS = frozenset(";.!?\n")


@dataclass(frozen=True, slots=True)
class Statement:
    """What a text says."""

    said: Phrase  # the words that carry it, in their order
    words: Phrase  # their stems
    turns: Phrase  # those of them that turn it, sorted
    length: int  # words without prepositions
    readings: tuple[tuple[Phrase, ...], ...]  # each a way to take it apart into phrases, sorted


def read_statement(text: str, stem: Stem) -> Statement:
    """Take a text apart.

    Args:
        stem: gives the stem of a word.
    """
    tokens = _tokens(text)
    stems = {token: _stemmed(token, stem) for token in set(tokens)}
    turned = any(token in _TURNS for token in tokens)

    def said(words: Sequence[str]) -> Phrase:
        kept = [w for w in words if w not in _FILLERS and w not in _STOPS and w != ","]
        return tuple(stems[w] for w in kept if turned or w != "all")

    readings = dict.fromkeys(
        tuple(sorted(filter(None, map(said, phrases))))
        for way in _ways(tokens)
        for phrases in _readings(way)
    )
    words = said(tokens)
    spoken = tuple(w for w in tokens if w not in _FILLERS and w not in _STOPS and w != ",")
    length = sum(word not in _PREPOSITIONS for word in spoken)
    turns = tuple(sorted(word for word in words if word in _TURNS or word == "all"))
    return Statement(spoken, words, turns, length, tuple(readings))


def may_say_the_same(one: str, other: str) -> bool:
    """A quick look at how words begin, which lets few pairs through that say something else."""
    first, second = _beginnings(one), _beginnings(other)
    return 2 * len(first & second) >= min(len(first), len(second))


def says_the_same(one: Statement, other: Statement) -> bool:
    """Whether the one with fewer words says nothing that the other does not say too."""
    shorter, longer = sorted((one, other), key=lambda statement: len(statement.words))
    if not shorter.words or shorter.turns != longer.turns:
        return False
    return _comes_in(shorter.words, longer.words) or any(
        _covers(few, many) for few in shorter.readings for many in longer.readings
    )


@lru_cache(maxsize=1 << 12)
def _beginnings(text: str) -> frozenset[str]:
    return frozenset(token[:3] for token in _tokens(text) if token not in _FILLERS)


def _tokens(text: str) -> list[str]:
    plain = re.sub(r"n['’]t\b", " not", text.casefold())
    return [_SAME.get(token, token) for token in _TOKEN.findall(plain)]


def _stemmed(word: str, stem: Stem) -> str:
    if word in _TURNS or not word.isalpha():
        return word
    short = stem(_IRREGULAR.get(word, word))
    return stem(short)  # Porter gives "deploy" for deployment, and "deploi" for deploy


def _ways(tokens: list[str]) -> Iterator[list[str]]:
    """A text as it stands, and with "X of Y" and "X for Y" as "Y X"."""
    ways = [tokens]
    for place in reversed([i for i, token in enumerate(tokens) if token in ("of", "for")]):
        for way in list(ways):
            for length in range(1, LONGEST_COMPOUND + 1):
                ways += _compound(way, place, length)
        if len(ways) >= MOST_WAYS:
            break
    yield from ways[:MOST_WAYS]


def _compound(way: list[str], place: int, length: int) -> list[list[str]]:
    end = place + 1
    while end < len(way) and way[end] in _SUBJECTS:
        end += 1
    first = way[end : end + length]
    if not place or len(first) < length or not all(word[0].isalnum() for word in first):
        return []
    return [[*way[: place - 1], *first, way[place - 1], *way[end + length :]]]


def _readings(tokens: list[str]) -> Iterator[list[list[str]]]:
    """The phrases of a text, each beginning with its preposition, the passive turned round.

    What follows "by" may have done it or be the means; what follows "for" may be what does it:
    "return 422 for invalid input" is "invalid input returns 422".
    """
    clauses = [list(clause) for stop, clause in groupby(tokens, _STOPS.__contains__) if not stop]
    cut = [_cut(clause) for clause in clauses]
    for by_agent in (True, False):
        phrases = [phrase for clause in cut for phrase in _active(clause, by_agent)]
        yield phrases
        for one in [phrase for phrase in phrases if phrase[0] == "for"]:
            rest = [phrase for phrase in phrases if phrase is not one]
            if rest:
                yield [one[1:] + rest[0], *rest[1:]]


def _cut(clause: list[str]) -> list[list[str]]:
    """A clause cut before each preposition, and where a phrase that has one gives way."""
    phrases: list[list[str]] = [[]]
    for place, word in enumerate(clause):
        now = phrases[-1]
        following = clause[place + 1] if place + 1 < len(clause) else ""
        if word == ",":
            if now and now[0] in _PREPOSITIONS:
                phrases.append([])
            continue
        if word in ("a", "an", "all") and following.rstrip("s") in _TIMES and now:
            phrases.append(["per"])
            continue
        has_noun = any(w not in _SUBJECTS and w not in _TURNS for w in now[1:])
        begins = word in _PREPOSITIONS or (word in _BINDING and following in _PREPOSITIONS)
        gives_way = now and now[0] in (_PREPOSITIONS | _BINDING) and has_noun and word in _SUBJECTS
        if (begins and not (len(now) == 1 and now[0] in _BINDING)) or gives_way:
            phrases.append([])
        phrases[-1].append(word)
    return [phrase for phrase in phrases if phrase]


def _active(phrases: list[list[str]], by_agent: bool) -> list[list[str]]:
    """ "P is done [by A]" as "[A] do P"; the first passive of a clause is enough."""
    for number, phrase in enumerate(phrases):
        found = _passive(phrase)
        if found is None or phrase[0] in _PREPOSITIONS:
            continue
        subject, between, verb, rest = found
        after = phrases[number + 1 :]
        agent = next((p for p in after if by_agent and p[0] == "by"), None)
        own = [*(agent[1:] if agent else []), *between, verb, *subject, *rest]
        return [*phrases[:number], own, *(p for p in after if p is not agent)]
    return phrases


def _passive(phrase: list[str]) -> tuple[list[str], list[str], str, list[str]] | None:
    """A phrase as subject, words that go to the verb, participle and the rest."""
    for place, word in enumerate(phrase):
        if word in _AUXILIARIES and place:
            end = place + 1
            while end < len(phrase) and phrase[end] in (_BETWEEN | _AUXILIARIES):
                end += 1
            if end == len(phrase):
                return None
            verb = phrase[end]
            if not (verb.endswith("ed") or verb in _PARTICIPLES):
                return None
            start = place
            while start and phrase[start - 1] in _BETWEEN:
                start -= 1
            between = [w for w in phrase[start:end] if w not in _AUXILIARIES]
            return phrase[:start], between, verb, phrase[end + 1 :]
    return None


def _covers(few: Sequence[Phrase], many: Sequence[Phrase]) -> bool:
    """Whether each phrase of one comes in a phrase of its own of the other."""
    left = list(many)
    for phrase in sorted(few, key=len, reverse=True):
        found = next((other for other in sorted(left, key=len) if _matches(phrase, other)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _matches(phrase: Phrase, other: Phrase) -> bool:
    turns = [[word for word in one if word in _TURNS] for one in (phrase, other)]
    return turns[0] == turns[1] and _comes_in(phrase, other)


def _comes_in(few: Phrase, many: Phrase) -> bool:
    rest = iter(many)
    return all(word in rest for word in few)

"""The stored discovery that a new one repeats: equal stems, equal negations, near in meaning.

Meaning alone cannot tell: "tests before lint" and "lint before tests" have a cosine of 0.99. So a
text is cut before each word that gives the others a direction (before, from, by, ...), and its
parts are compared as circles of stems. The measurement is in
docs/decisions/0006-projects-and-context.md.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from kb.store.connection import Connection, Row
from kb.store.contents import chunks_of_documents
from kb.store.discoveries import stored_discoveries
from kb.store.vectors import chunk_distances
from kb.text.assets import asset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# Cosine distances. Equal stems may mean different things: "author" and "authorization" have 0.3.
# A text that the other contains among more must be closer.
SAME_DISTANCE = 0.2
PART_DISTANCE = 0.1
IN_ANY_CASE = float("inf")

Candidate = tuple[Row, float]  # with the distance up to which it is the same

_WORD = re.compile(r"(?<!\S)[-+]?\d+(?:[.,:]\d+)*|[^\W_]+(?:[._'+]*[^\W_]+)*(?:\+\+|\#)?|[<>]=?|%")
_WORDS = asset("statement-words")
_ALIASES = {form: word for word, forms in _WORDS["aliases"].items() for form in forms}
_FILLERS, _PREPOSITIONS, _NEGATIONS, _DIRECTIONS = (
    frozenset(_WORDS[kind]) for kind in ("fillers", "prepositions", "negations", "directions")
)


def candidates(connection: Connection, text: str, type_: str, module: str) -> list[Candidate]:
    """Discoveries of a type and module that seem to say the same as a text, or part of it."""
    stems: dict[str, str] = {}

    def stem(word: str) -> str:
        if word not in stems:
            stems[word] = "".join(term for _, _, term in connection.tokenize(word, stem=True))
        return stems[word] or word

    new = _read_statement(text, stem)
    rows: list[Candidate] = []
    for row in stored_discoveries(connection):
        metadata = json.loads(row["metadata"])
        if (metadata["type"], metadata.get("module", "").casefold()) != (type_, module.casefold()):
            continue
        old = _read_statement(row["content"], stem)
        if new.words == old.words:
            rows.append((row, IN_ANY_CASE))
        elif new.repeats(old):
            is_whole = len(new.stems) == len(old.stems)
            rows.append((row, SAME_DISTANCE if is_whole else PART_DISTANCE))
    return rows


def nearest_repetition(
    connection: Connection, rows: list[Candidate], vector: NDArray[np.float32] | None
) -> Row | None:
    """The candidate that says the same; without the text's vector, one in the same words."""
    near: list[tuple[float, int, Row]] = []
    for row, limit in rows:
        if limit == IN_ANY_CASE:
            return row
        if vector is not None:
            ids = chunks_of_documents(connection, [row["document_id"]])
            distances = chunk_distances(connection, vector, [*ids])
            if (distance := min(distances.values(), default=IN_ANY_CASE)) <= limit:
                near.append((distance, row["document_id"], row))
    return min(near, key=lambda entry: entry[:2])[2] if near else None


@dataclass(frozen=True, slots=True)
class _Statement:
    """A text as words without fillers, and their stems in parts."""

    words: tuple[str, ...]
    negations: Counter[str]
    parts: list[list[str]]  # each behind the word that it begins with, "" for the first

    @property
    def stems(self) -> list[str]:
        return [stem for part in self.parts for stem in part[1:]]

    def repeats(self, other: _Statement) -> bool:
        """Whether one of the two says nothing that the other does not."""
        few, many = sorted((self, other), key=lambda statement: len(statement.stems))
        if not few.stems or few.negations != many.negations:
            return False
        if _comes_in(few.stems, many.stems):
            return True
        # "The order service calls the billing service": a repeated word ties others to itself.
        if len(set(few.stems)) < len(few.stems):
            return False
        # "Commit no files" is "files are not committed", but "A feeds B" is not "B feeds A".
        return _fits(few.parts, many.parts) or _fits(_joined(few.parts), _joined(many.parts))


def _fits(few: list[list[str]], many: list[list[str]]) -> bool:
    """Whether each part fits in another with the same first word, read round from any word."""
    rest = list(many)
    for lead, *part in few:
        for match in rest:
            turns = (match[at:] + match[1:at] for at in range(1, max(len(match), 2)))
            if match[0] == lead and any(_comes_in(part, turn) for turn in turns):
                rest.remove(match)
                break
        else:
            return False
    return True


def _joined(parts: list[list[str]]) -> list[list[str]]:
    """The parts between words of direction alone, for "on macOS the watcher fails"."""
    wide = [[""]]
    for lead, *part in parts:
        if lead in _DIRECTIONS:
            wide.append([lead])
        wide[-1] += part
    return wide


def _comes_in(few: list[str], many: list[str]) -> bool:
    rest = iter(many)
    return all(stem in rest for stem in few)


def _read_statement(text: str, stem: Callable[[str], str]) -> _Statement:
    words = _words(text)
    negations = Counter(word for word in words if word in _NEGATIONS)
    if negations:  # "not all" and "all ... not" differ; elsewhere "all" says nothing
        negations += Counter(word for word in words if word == "all")
    parts = [[""]]
    for word in words:
        if word in _DIRECTIONS or word in _PREPOSITIONS:
            parts.append([word])
        if word == "all" or word in _NEGATIONS:
            continue
        # Porter gives "deploy" for deployment, and "deploi" for deploy: so twice.
        root = stem(stem(word)) if word.isalpha() else word
        if root not in _FILLERS and word not in _PREPOSITIONS and word != "of":
            parts[-1].append(root)
    return _Statement(words, negations, parts)


@lru_cache(maxsize=1 << 12)
def _words(text: str) -> tuple[str, ...]:
    plain = re.sub(r"n['’]t\b", " not", text.casefold())
    words = (_ALIASES.get(word, word) for word in _WORD.findall(plain))
    return tuple(word for word in words if word not in _FILLERS)

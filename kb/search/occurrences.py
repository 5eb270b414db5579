"""Where an operand of a query occurs, exactly: the keyword index proposes, the text decides.

The index's terms are stems, so a phrase or prefix is looked up as widely as needed and then
compared with the words of the text:

- A bare word matches by its stem, as in the index, and needs no check.
- A bare operand of several words (`+state-of-the-art`) is those stems next to each other.
- A phrase is exactly those words next to each other, in a title, a heading or the text. It may
  continue from one chunk into the next.
- A prefix is the beginning of a word as written: `relatio*` must find `relational`, whose stem is
  `relat`.

docs/decisions/0004-operators-typos-indexes.md gives the cost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import TypeVar

from kb.search.files import MAX_CHUNKS, Snapshot, bodies, matching, max_ranking_df, slices
from kb.search.query import Operand, quote
from kb.search.typos import prefix_bounds, prefixed
from kb.search.words import (
    Pattern,
    first_words,
    holds,
    holds_prefix,
    is_word_prefix,
    pattern,
    places,
    split_for,
    unspaced_runs,
    without_first,
)
from kb.store.connection import Connection
from kb.store.contents import Ranges, documents_of_chunks, indexed_texts, texts_of
from kb.store.vocabulary import beginning_of_words
from kb.text.headings import PATH_SEPARATOR
from kb.text.terms import bigrams, is_unspaced, version_pattern

T = TypeVar("T")

MAX_WORDS = 500  # alternatives of one MATCH expression
SEPARATORS = "".join(sign for sign in map(chr, range(128)) if not sign.isalnum())  # of ASCII words
MAX_DOCUMENTS = 50  # whose texts are held in memory
MAX_BORDERS = 5_000  # of chunks, searched for a phrase of very common words
BORDER_CHARACTERS = 100, 40  # searched on each side of a border, and more for each word
BORDER_WIDTH = 40  # characters on each side, in which the word next to a border mostly is
MIN_HALVED = 4  # words of a phrase
# A pasted page is a phrase of hundreds of words, which may be cut at each of them.
MAX_REST_WORDS = 12  # that are looked up; the text decides about the others
MAX_CHUNK_WORDS = 1000  # four per token of its budget; no chunk begins with a longer rest


def documents_holding(
    connection: Connection, operand: Operand, ranges: Ranges, *, case: bool = False
) -> set[int]:
    """The documents that contain an operand in their title or text. With `case`, upper and lower
    case must agree, and words are not stemmed."""
    chunk_ids = chunks_holding(connection, operand, ranges, case=case)
    return set(documents_of_chunks(connection, chunk_ids).values())


def chunks_holding(
    connection: Connection, operand: Operand, ranges: Ranges, *, case: bool = False
) -> set[int]:
    """The chunks that contain an operand; `case` as in `documents_holding`."""
    sought = pattern(connection, operand, case=case)
    if not sought.words:
        return set()
    if is_word_prefix(sought):
        sure, doubtful = _words_with_prefix(connection, sought)
        chunk_ids = matching_any(connection, sure, ranges)
        rest = matching_any(connection, doubtful, ranges) - chunk_ids
        return chunk_ids | _checked(connection, rest, sought, operand.text)
    chunk_ids = proposed(connection, [sought], ranges)
    if not sought.is_plain_word:
        chunk_ids = _checked(connection, chunk_ids, sought, operand.text)
    return chunk_ids | (across_borders(connection, sought, ranges) or set())


def passing(
    connection: Connection,
    chunk_ids: Iterable[int],
    must: Sequence[Operand],
    must_not: Sequence[Operand],
) -> set[int]:
    """Of some chunks, those whose texts contain all of `must` and none of `must_not`."""
    sought = {operand: pattern(connection, operand) for operand in (*must, *must_not)}
    passed: set[int] = set()
    for ids in slices(sorted(chunk_ids), MAX_CHUNKS):
        texts = _Texts(connection)
        left = set(ids)
        for operand, words in sought.items():
            held = texts.holding(words, operand.text, left)
            held |= _across_borders_of(connection, left - held, words)
            left = left & held if operand in must else left - held
        passed |= left
    return passed


def proposed(
    connection: Connection, patterns: Sequence[Pattern], ranges: Ranges, limit: int = -1
) -> set[int]:
    """The chunks that may contain all patterns; `limit` of them if there are more."""
    phrases = [phrase for phrase in patterns if _is_phrase(phrase)]
    others = [match_of(connection, other) for other in patterns if other not in phrases]
    chunk_ids = matching(connection, _all([*others, *map(_match_phrase, phrases)]), ranges, limit)
    words = [word for phrase in phrases for word in words_of(phrase)]
    if words and len(chunk_ids) != limit and _has_rarer(connection, [*others, *words]):
        match = _all([*others, *words, f"extra : ({' OR '.join(words)})"])
        folded = [word for phrase in phrases for word in phrase.folded]
        chunk_ids |= with_words_apart(connection, match, folded, ranges)
    return chunk_ids


def documents_matching(
    connection: Connection, matches: Sequence[str], ranges: Ranges
) -> dict[str, set[int]]:
    """For each expression, the documents with a chunk in the ranges that matches it."""
    documents: dict[str, set[int]] = {match: set() for match in matches}
    listed = {"matches": json.dumps([*documents]), "ranges": json.dumps(ranges)}
    for match, document_id in connection.tuples("matching_document_ids", **listed):
        documents[match].add(document_id)
    return documents


def match_of_word(connection: Connection, operand: Operand) -> str:
    """The expression that exactly the chunks with a plain word match; "" for another operand."""
    sought = pattern(connection, operand)
    return match_of(connection, sought) if sought.is_plain_word else ""


def matching_any(connection: Connection, words: Sequence[str], ranges: Ranges) -> set[int]:
    """The chunks of some ranges with any of some words."""
    chunk_ids: set[int] = set()
    for some in slices(words, MAX_WORDS):
        chunk_ids |= matching(connection, " OR ".join(map(quote, some)), ranges)
    return chunk_ids


def match_of(connection: Connection, sought: Pattern) -> str:
    """A MATCH expression that every chunk with a pattern's words satisfies, except chunks
    `with_words_apart`; "" for a prefix of so many words that it says nothing."""
    if is_word_prefix(sought):
        (prefix,) = sought.folded
        if Snapshot(connection).is_common_prefix(prefix):
            return ""
        of_stems = {stem: word for word, stem in prefixed(connection, [prefix])[prefix].items()}
        either = " OR ".join(map(quote, of_stems.values() or [prefix]))
        return either if len(of_stems) <= MAX_WORDS else ""
    return _match_phrase(sought) if _is_phrase(sought) else " AND ".join(words_of(sought))


def _is_phrase(sought: Pattern) -> bool:
    """Whether the keyword index has a pattern as several adjacent words."""
    is_plain = not (sought.has_pictographs or any(map(is_unspaced, sought.folded)))
    return is_plain and len(sought.folded) > 1


def _match_phrase(sought: Pattern) -> str:
    return quote(" ".join(sought.folded)) + ("*" if sought.is_prefix else "")


def _all(matches: Iterable[str]) -> str:
    return " AND ".join(f"({match})" for match in matches if match)


def _words_with_prefix(connection: Connection, sought: Pattern) -> tuple[list[str], list[str]]:
    """A word for each stem of words with a prefix: first those whose stem no other word has, then
    those whose matches must be checked."""
    prefix = sought.folded[0]
    word_of = {stem: word for word, stem in prefixed(connection, [prefix])[prefix].items()}
    if sought.case:
        return [], list(word_of.values())
    # If a stem begins with the prefix, so do all its words.
    beginnings = {
        stem: beginning
        for stem in word_of
        if not (beginning := beginning_of_words(stem)).startswith(prefix)
    }
    stems = json.dumps(beginnings)
    rows = connection.tuples("stems_of_other_words", stems=stems, **prefix_bounds(prefix))
    shared = {row[0] for row in rows}
    return (
        [word for stem, word in word_of.items() if stem not in shared],
        [word for stem, word in word_of.items() if stem in shared],
    )


def _checked(
    connection: Connection, chunk_ids: Iterable[int], sought: Pattern, text: str
) -> set[int]:
    """Of some chunks, those that contain a pattern, which was made of `text`."""
    parts = slices(sorted(chunk_ids), MAX_CHUNKS)
    return set().union(*(_Texts(connection).holding(sought, text, ids) for ids in parts))


class _Texts:
    """The texts of some chunks, read when a pattern first needs them; each later pattern is looked
    for among the same ones or fewer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read: list[tuple[int, int, str, str, str, str, str]] | None = None
        self._stemmed: dict[int, set[str]] | None = None

    def holding(self, sought: Pattern, text: str, among: Collection[int]) -> set[int]:
        """Of some chunks, those that contain a pattern, made of `text`, in any of their texts."""
        if sought.is_plain_word and not is_unspaced(sought.words[0]):
            (stem,) = sought.words
            return {chunk_id for chunk_id in among if stem in self._stems(among).get(chunk_id, ())}
        if version := version_pattern(text):
            versions = (row[0] for row in self._bodies(among) if any(map(version.search, row[2:])))
            return set(versions).intersection(among)

        def occurs_in(text: str) -> bool:
            if sought.is_prefix and len(sought.words) == 1:
                return holds_prefix(self._connection, text, sought)
            return holds(self._connection, text, sought)

        is_in_name = cache(occurs_in)  # titles, names, headings and leads repeat
        return {
            chunk_id
            for chunk_id, _, title, heading, lead, names, body in self._bodies(among)
            if chunk_id in among
            and (
                is_in_name(title)
                or is_in_name(lead)
                or any(map(is_in_name, names.splitlines()))
                or any(map(is_in_name, heading.split(PATH_SEPARATOR)))
                or occurs_in(body)
            )
        }

    def _bodies(self, among: Collection[int]) -> list[tuple[int, int, str, str, str, str, str]]:
        if self._read is None:
            self._read = list(bodies(self._connection, among))
        return self._read

    def _stems(self, among: Collection[int]) -> dict[int, set[str]]:
        """What the keyword index has of each chunk."""
        if self._stemmed is None:
            stems = self._connection.stems
            rows = indexed_texts(self._connection, sorted(among))
            self._stemmed = {chunk_id: {*stems("\n".join(texts))} for chunk_id, *texts in rows}
        return self._stemmed


def across_borders(
    connection: Connection, sought: Pattern, ranges: Ranges, most: int | None = None
) -> set[int] | None:
    """The chunks with parts of a phrase that begins in one and ends in another; None if the borders
    of more than `most` would have to be compared."""
    if len(sought.words) < 2:
        return set()
    if rarest := _rarest_word(connection, sought):
        return _across_borders_of(connection, matching(connection, rarest, ranges), sought)
    limit = -1 if most is None else most + 1
    size = len(sought.words)
    chunk_ids: set[int] = set()
    if is_halved := size >= MIN_HALVED and _is_phrase(sought):
        middle = size // 2  # wherever the border lies, one half of the phrase is on one side
        for half in (first_words(sought, middle), without_first(sought, middle)):
            chunk_ids |= proposed(connection, [half], ranges, limit)
    else:
        # The last chunk begins with the rest of the phrase ("^" in the keyword index).
        for first in range(max(1, size - MAX_CHUNK_WORDS), size):
            rest = first_words(without_first(sought, first), MAX_REST_WORDS)
            chunk_ids |= _beginning_with(connection, rest, ranges, limit)
    if most is not None and len(chunk_ids) > most:
        return None
    return _across_borders_of(connection, chunk_ids, sought, in_front=not is_halved)


def _across_borders_of(
    connection: Connection, chunk_ids: Collection[int], sought: Pattern, *, in_front: bool = False
) -> set[int]:
    """The chunks with parts of a phrase across a border of some chunks, or one `in_front`."""
    if len(sought.words) < 2 or not chunk_ids:
        return set()
    borders: dict[int, set[int]] = {}
    for document_id, start, end in connection.tuples("chunk_borders", chunk_ids=[*chunk_ids]):
        borders.setdefault(document_id, set()).update((start,) if in_front else (start, end))
    least, each = BORDER_CHARACTERS
    width = least + each * len(sought.words)
    may_cross = _crossing(connection, sought)
    overlapped: set[int] = set()
    for ids in slices([*borders], MAX_DOCUMENTS):
        for row in texts_of(connection, ids):
            crossed = (at for at in borders[row["document_id"]] if may_cross(row["content"], at))
            for border in crossed:
                begin = max(border - width, 0)
                stretch = row["content"][begin : border + width]
                for start, end in places(connection, stretch, sought):
                    if start < border - begin < end:
                        overlapped.update(
                            connection.column(
                                "chunks_overlapping",
                                document_id=row["document_id"],
                                start=begin + start,
                                end=begin + end,
                            )
                        )
    return overlapped


def _crossing(connection: Connection, sought: Pattern) -> Callable[[str, int], bool]:
    """Tells of a text and a border whether the words next to it may be adjacent ones of a phrase.
    Hardly any are, and to compare all words around takes up to a hundred times as long."""
    pairs = set(pairwise(sought.words))
    width = BORDER_WIDTH + 2 * max(map(len, sought.words))

    def may_cross(text: str, border: int) -> bool:
        before, behind = text[max(border - width, 0) : border], text[border : border + width]
        if before[-1:].isalnum() and behind[:1].isalnum():
            return True  # the border is in a word
        if before.isascii() and behind.isascii() and not (sought.is_stem or sought.case):
            before, behind = before.rstrip(SEPARATORS).lower(), behind.lstrip(SEPARATORS).lower()
            is_pair = any(
                before.endswith(left) and behind.startswith(right) for left, right in pairs
            )
            return is_pair or not (before and behind)
        left, right = (split_for(connection, part, sought).words for part in (before, behind))
        is_cut = len(left) < 2 or len(right) < 2
        return is_cut or (left[-1], right[0]) in pairs or sought.is_prefix

    return may_cross


def _beginning_with(
    connection: Connection, sought: Pattern, ranges: Ranges, limit: int
) -> set[int]:
    """Chunks that include all that begin with a pattern; `limit` of them if there are more."""
    if sought.has_pictographs or any(map(is_unspaced, sought.folded)):
        return matching(connection, " AND ".join(words_of(sought)), ranges, limit)
    begin = matching(connection, f"body : ^ {_match_phrase(sought)}", ranges, limit)
    if len(begin) == limit:
        return begin
    words = [*map(quote, sought.folded)]
    if not _has_rarer(connection, words):
        return begin
    match = f"extra : ({' OR '.join(words)})"
    return begin | with_words_apart(connection, match, sought.folded, ranges)


def _has_rarer(connection: Connection, matches: Iterable[str]) -> bool:
    """Whether any of some expressions is not in very many chunks. Where none is, words in another
    compatibility form are not looked for: the index would have to read all their places."""
    snapshot = Snapshot(connection)
    most = max_ranking_df(snapshot.sizes.passages)
    estimates = snapshot.estimated_df(filter(None, matches), most).values()
    return min(estimates, default=0) < most


def with_words_apart(
    connection: Connection, match: str, words: Sequence[str], ranges: Ranges
) -> set[int]:
    """Matching chunks with one of these words apart, in their extra terms, as is a word with
    another compatibility form: `ｆｕｌｌ`."""
    return set(
        connection.column("chunks_with_words_apart", match=match, words=[*words], ranges=[*ranges])
    )


def words_of(sought: Pattern) -> list[str]:
    """MATCH expressions, each of which every chunk with a pattern matches."""
    unspaced, others = unspaced_runs(sought)
    words = [*map(quote, others)]
    if sought.is_prefix and others and sought.folded[-1] == others[-1]:
        words[-1] += "*"
    return words + [
        quote(run) + "*" if len(run) == 1 else quote(" ".join(bigrams(run))) for run in unspaced
    ]


def _rarest_word(connection: Connection, sought: Pattern) -> str:
    """The rarest whole word of a phrase; "" if very many chunks contain even that."""
    words = [quote(word) for word in unspaced_runs(sought)[1]]
    if sought.is_prefix and words and not is_unspaced(sought.words[-1]):
        words.pop()
    counts = Snapshot(connection).df(words, MAX_BORDERS)
    rarest = min(words, key=counts.__getitem__, default="")
    return rarest if counts.get(rarest, MAX_BORDERS) < MAX_BORDERS else ""

"""In how many passages words stand: exactly for what few hold, about for what very many do.

Counting goes through the passages that hold a word, .035 us each; of eight words of a question
among a million passages that were 11 ms.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from kb.store.connection import Connection
from kb.store.ids import ChunkRange

MOST_HOLDING = 2_000  # rows: a word in more of them, and in more than this share, is passed over
MOST_HOLDING_SHARE = 0.02
# Passages: a word in more of them and in more than this share does not rank where another does. On
# SciFact the share alone costs .0003 nDCG@10, a share of 0.05 .006; among 91,000 passages it takes
# the keyword list from 14 to 7 ms.
MOST_RANKED = 5_000
MOST_RANKED_SHARE = 0.1
# Passages on a page of the keyword index: 610 to 870 of the common words of a million passages.
PASSAGES_A_PAGE = 740
PAGES_TELL = 200_000  # passages of a file; in a smaller one counting takes no longer
FEWEST = 20_000  # passages: fewer fill too few pages to tell
LOOKED_AT = 4_096  # passages that tell whose the pages are
SIZES = "passages and documents"
COUNTS = "passages that hold expressions"
ABOUT = "passages that about hold expressions"
PARTS = "passages of ranges"
WITHIN = "passages of ranges that hold expressions"
MIDDLE = "the middle of the longest collection"
LARGE = 100_000  # passages of a file
SMALL_SHARE = 0.03  # of them
MOST_RANGES = 4
MOST_KEPT = 10_000  # expressions whose count is known


def most_holding(total: int) -> int:
    """In how many of all rows a word tells so little that it is passed over."""
    return max(MOST_HOLDING, int(total * MOST_HOLDING_SHARE))


def most_ranked(total: int) -> int:
    """In how many of all rows a word does not rank where another does."""
    return max(MOST_RANKED, int(total * MOST_RANKED_SHARE))


def count_holding(connection: Connection, matches: Iterable[str], most: int) -> dict[str, int]:
    """In how many passages each expression is, counted to `most`; once until the file changes."""
    known: dict[str, tuple[int, int]] = _kept(connection, COUNTS)
    wanted = list(dict.fromkeys(matches))
    counted = {match: known.get(match, (0, 0)) for match in wanted}
    unknown = [match for match, (count, to) in counted.items() if count >= to < most]
    if unknown:
        rows = connection.tuples("count_holding", matches=json.dumps(unknown), limit=most)
        known |= {match: (count, most) for match, count in rows}
    return {match: min(known[match][0], most) for match in wanted}


def about_holding(connection: Connection, matches: Iterable[str], most: int) -> dict[str, int]:
    """As `count_holding`; of words that are passed over it tells about how many, within a fourth.

    These are told by the pages of the keyword index that they fill, however many they are.
    """
    about = _filling_pages(connection, list(dict.fromkeys(matches)))
    counts = {match: count for match, count in about.items() if count}
    return counts | count_holding(connection, about.keys() - counts.keys(), most)


def count_within(
    connection: Connection, matches: Iterable[str], ranges: Sequence[ChunkRange]
) -> dict[str, int]:
    """In how many passages of some ranges each expression is."""
    known: dict[tuple[ChunkRange, str], int] = _kept(connection, WITHIN)
    wanted = list(dict.fromkeys(matches))
    for place in ranges:
        unknown = [match for match in wanted if (place, match) not in known]
        if unknown:
            first, last = place
            within = {"matches": json.dumps(unknown), "first": first, "last": last, "limit": -1}
            rows = connection.tuples("count_holding_between", **within)
            known |= {(place, match): count for match, count in rows}
    return {match: sum(known[place, match] for place in ranges) for match in wanted}


def is_small_part(connection: Connection, ranges: Sequence[ChunkRange]) -> bool:
    """Whether ranges hold so few of a large file's passages that the rest of it should not cost."""
    total, _ = file_sizes(connection)
    if total < LARGE or len(ranges) > MOST_RANGES:
        return False
    most = int(SMALL_SHARE * total)
    known: dict[ChunkRange, int] = _kept(connection, PARTS)
    for place in ranges:
        if place not in known:
            first, last = place
            within = {"first": first, "last": last, "limit": most}
            known[place] = connection.value("count_chunks_between", **within)
    return sum(known[place] for place in ranges) < most


def file_sizes(connection: Connection) -> tuple[int, int]:
    """How many passages and documents the file holds: at a million 5 ms, once until it changes."""
    if (kept := connection.kept(SIZES)) is None:
        kept = connection.value("count_all_chunks"), connection.value("count_all_documents")
        connection.keep(SIZES, kept)
    sizes: tuple[int, int] = kept
    return sizes


def _filling_pages(connection: Connection, matches: Iterable[str]) -> dict[str, int]:
    """About in how many passages words are that are passed over; 0 where pages tell no such thing.

    Pages between that of a term and the next on which one begins are its own or its neighbour's.
    So they are believed where a stretch in the middle of the file holds the word often as well.
    """
    total, _ = file_sizes(connection)
    known: dict[str, int] = _kept(connection, ABOUT)
    terms = {match: _only_term(connection, match) for match in matches if match not in known}
    known |= dict.fromkeys(terms, 0)
    least = max(FEWEST, most_holding(total))
    if terms and total >= PAGES_TELL:
        listed = json.dumps([*{term for term in terms.values() if term}])
        pages = dict(connection.tuples("pages_behind_terms", terms=listed))
        about = {
            match: min(PASSAGES_A_PAGE * pages[term], total)
            for match, term in terms.items()
            if term
        }
        often = LOOKED_AT * least // total // 2
        believed = _in_the_middle(
            connection, [match for match, count in about.items() if count >= least], often
        )
        known |= {match: about[match] for match, count in believed.items() if count >= often}
    return {match: known[match] for match in matches}


def _in_the_middle(connection: Connection, matches: list[str], most: int) -> dict[str, int]:
    """In how many passages of a stretch in the middle of the file expressions are, up to `most`.

    In that of the longest collection, where hardly a passage is newer than most of the index.
    """
    if not matches:
        return {}
    if (first := connection.kept(MIDDLE)) is None:
        first = connection.value("middle_of_longest_collection")
        connection.keep(MIDDLE, first)
    rows = connection.tuples(
        "count_holding_between",
        matches=json.dumps(matches),
        first=first,
        last=first + LOOKED_AT - 1,
        limit=most,
    )
    return dict(rows)


def is_one_word(connection: Connection, match: str) -> bool:
    """Whether an expression looks for one term of the index alone."""
    return bool(_only_term(connection, match))


def _only_term(connection: Connection, match: str) -> str:
    """The term of the index that an expression looks for; "" if it is more than one word."""
    if not (match.startswith('"') and match.endswith('"') and match.count('"') == 2):
        return ""
    terms = connection.stems(match[1:-1])
    return terms[0] if len(terms) == 1 else ""


def _kept(connection: Connection, name: str) -> dict[Any, Any]:
    """What is known until the file changes; for its caller to add to."""
    known: dict[Any, Any] | None = connection.kept(name)
    if known is None or len(known) > MOST_KEPT:
        known = {}
        connection.keep(name, known)
    return known

"""What candidates' texts say of words that the keyword index finds in them.

To the index `lfs` and `LF` are one stem, and `1.5` is a 1 followed by a 5, as in `1.1.5`. Its
tokenizer must be one that a plain `sqlite3` knows, so the texts decide. It indexes the address of a
link as text, so that its words are found; but a passage with `[x](calibrate-rain-gauge.md)` is not
about a rain gauge.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from kb.models.tokens import english_number
from kb.search.occurrences import bodies
from kb.search.query import quote
from kb.search.ranking import ADDRESS, frequency_of, fts5_idf
from kb.search.typos import stems_of_words
from kb.search.words import version_pattern
from kb.store.connection import Connection

if TYPE_CHECKING:
    from kb.search.candidates import TermMatches
    from kb.search.keywords import WordLists
    from kb.search.snapshot import Snapshot

MIN_ACRONYM, MAX_ACRONYM = 3, 4  # letters; a longer unknown word in s is usually a plural
MAX_PLURAL = 20_000  # of the English vocabulary's words: `aw` and `io` come later
MAX_READ = 20  # passages, best by words: reading and comparing one takes .03 ms
_ASKED = re.compile(r"\w[./]\w")  # the query names an address or a file

_ADDRESSES = tuple(  # one by one, each is searched by its first signs: four times as fast
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"\]\((?:<[^<>\n]*>|[^\s()]*(?:\([^\s()]*\)[^\s()]*)*)",  # [text](address)
        r"\]:[ \t]+\S+$",  # [name]: address
        r"\[\[[^\[\]|\n]+(?:\||\]\[)",  # [[address|text]], of Org [[address][text]]
        r"<[^<>\n]+>`_",  # `text <address>`_
        r"href=(?:\"[^\"\n]*\"|'[^'\n]*')",
    )
)
_WORDS = re.compile(r'"([^"]+)"(\*?)')  # an expression of adjacent words


def without_other_words(
    snapshot: Snapshot, lists: WordLists, matches: TermMatches, document_of: Mapping[int, int]
) -> tuple[WordLists, TermMatches]:
    """Both without passages that lack a word's exact form, if any passage has it."""
    match_of = {term.match.strip('"'): term.match for term in matches.terms}
    chunks = {word: matches.postings[match].chunks for word, match in match_of.items()}
    for word, right in _chunks_as_typed(snapshot.connection, chunks).items():
        wrong = chunks[word] - right
        if not (right and wrong):
            continue
        match = match_of[word]
        scores, frequencies = matches.scores.get(match, {}), matches.frequencies.get(match, {})
        documents = {document_of[key] for key in wrong} - {document_of[key] for key in right}
        left = {
            key: score - scores.get(key, 0.0) * (key in wrong)
            for key, score in lists.scores.items()
        }
        lists = lists._replace(
            scores=dict(sorted(left.items(), key=lambda row: -row[1])),
            literal=[key for key in lists.literal if key not in wrong],
        )
        postings = matches.postings[match]._replace(chunks=frozenset(right))
        of_match = {key: scores[key] for key in scores.keys() - wrong}
        often = {key: frequencies[key] for key in frequencies.keys() - documents}
        matches = matches._replace(
            postings={**matches.postings, match: postings},
            scores={**matches.scores, match: of_match},
            frequencies={**matches.frequencies, match: often},
            titled={*matches.titled} - wrong,
        )
    return lists, matches


def weigh_addresses(
    snapshot: Snapshot,
    text: str,
    lists: WordLists,
    matches: TermMatches,
    document_of: Mapping[int, int],
) -> tuple[WordLists, TermMatches]:
    """Both with less weight for what occurs only in addresses of links."""
    if _ASKED.search(text):
        return lists, matches
    phrase = quote(unicodedata.normalize("NFKC", text))
    holding = {phrase: frozenset(lists.literal)}
    holding |= {match: postings.chunks for match, postings in matches.postings.items()}
    best = [*islice((key for key in lists.scores if key in document_of), MAX_READ)]
    by_address = _chunks_by_address(snapshot.connection, holding, best)
    if not by_address:
        return lists, matches
    left, frequencies = {**lists.scores}, {**matches.frequencies}
    for match in by_address.keys() & matches.scores.keys():
        idf = fts5_idf(matches.postings[match].df, matches.sizes.passages)
        of_match = frequencies[match] = {**frequencies[match]}
        for chunk_id in by_address[match] & matches.scores[match].keys():
            score, document_id = matches.scores[match][chunk_id], document_of[chunk_id]
            if chunk_id in left:
                left[chunk_id] -= (1 - ADDRESS) * score
            if document_id in of_match:
                less = frequency_of(score / idf) - frequency_of(ADDRESS * score / idf)
                of_match[document_id] = max(of_match[document_id] - less, 0.0)
    in_address = by_address.get(phrase, ())
    return lists._replace(
        scores=dict(sorted(left.items(), key=lambda row: -row[1])),
        literal=[key for key in lists.literal if key not in in_address],
        typed=lists.typed.difference(in_address),
    ), matches._replace(frequencies=frequencies, by_address=by_address)


def _chunks_as_typed(
    connection: Connection, chunks: Mapping[str, Collection[int]]
) -> dict[str, set[int]]:
    """For each word whose form matters, those of its chunks that contain it as typed."""
    patterns = {word: version for word in chunks if (version := version_pattern(word))}
    plurals = {word: word.lower() for word in chunks if _is_no_plural(word)}
    forms = [form for word in plurals.values() for form in (word, word[:-1])]
    held = stems_of_words(connection, forms) if forms else {}
    patterns |= {
        word: re.compile(rf"(?<![^\W_]){re.escape(word)}(?![^\W_])", re.IGNORECASE)
        for word, folded in plurals.items()
        if {folded, folded[:-1]} <= held.keys()
    }
    return {
        word: {
            chunk_id
            for chunk_id, _, *texts in bodies(connection, chunks[word])
            if any(map(pattern.search, texts))
        }
        for word, pattern in patterns.items()
    }


def _is_no_plural(word: str) -> bool:
    """Whether a final s belongs to the word: `lfs`, `AWS`, `iis`, `status`."""
    stem = word[:-1].lower()
    if word[-1:] not in "sS" or len(word) < MIN_ACRONYM or not word.isascii() or not word.isalnum():
        return False
    if word.isupper() or not stem.isalpha():
        return True
    place = english_number(stem)
    is_word = place is not None and place < MAX_PLURAL
    return not is_word and (len(word) <= MAX_ACRONYM or stem[-1] in "siu")


def _chunks_by_address(
    connection: Connection, holding: Mapping[str, frozenset[int]], among: Collection[int]
) -> dict[str, set[int]]:
    """For each expression, those of its chunks that contain it only in addresses of links."""
    sought: dict[str, str] = {}  # by expression, its stems between blanks
    for match, chunk_ids in holding.items():
        if (words := _WORDS.fullmatch(match)) and not chunk_ids.isdisjoint(among):
            stems = " ".join(connection.stems(words[1]))
            sought[match] = f" {stems}" if words[2] else f" {stems} "
    by_address: dict[str, set[int]] = {}
    for chunk_id, *texts in connection.tuples("texts_with_links", chunk_ids=[*among]):
        text = whole = "\n".join(texts)
        for pattern in _ADDRESSES:
            text = pattern.sub(" | ", text)
        row = "" if text == whole else f" {' '.join(connection.stems(text))} "
        for match, stems in sought.items():
            if row and chunk_id in holding[match] and stems not in row:
                by_address.setdefault(match, set()).add(chunk_id)
    return by_address

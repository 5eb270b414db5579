"""Words whose form as it was typed counts, though the keyword index has less of it.

To the index `lfs` and `LF` are one stem, and `1.5` is a one beside a five, as in `1.1.5`. Its
tokenizer has to be one that a plain `sqlite3` knows, so the texts decide.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from kb.models.tokens import english_number
from kb.search.occurrences import bodies
from kb.search.typos import stems_of_words
from kb.search.words import version_pattern
from kb.store.connection import Connection

MIN_ACRONYM, MAX_ACRONYM = 3, 4  # letters; a longer unknown word in s is a plural as a rule
MAX_PLURAL = 20_000  # of the English vocabulary's words: `aw` and `io` come behind


def chunks_as_typed(
    connection: Connection, chunks: Mapping[str, Collection[int]]
) -> dict[str, set[int]]:
    """For each word whose form counts, those of its chunks that hold it as it was typed.

    Args:
        chunks: for each word of a query, the chunks that hold it to the index.
    """
    patterns = {word: version for word in chunks if (version := version_pattern(word))}
    plurals = {word: word.lower() for word in chunks if _is_no_plural(word)}
    held: set[str] = set()
    if plurals:
        forms = [form for word in plurals.values() for form in (word, word[:-1])]
        held = {*stems_of_words(connection, forms)}
    patterns |= {
        word: re.compile(rf"(?<![^\W_]){re.escape(word)}(?![^\W_])", re.IGNORECASE)
        for word, folded in plurals.items()
        if {folded, folded[:-1]} <= held
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
    """Whether a word that ends in an s is one with it: `lfs`, `AWS`, `iis`, `status`."""
    stem = word[:-1].lower()
    if word[-1:] not in "sS" or len(word) < MIN_ACRONYM or not word.isascii() or not word.isalnum():
        return False
    if word.isupper() or not stem.isalpha():
        return True
    place = english_number(stem)
    is_word = place is not None and place < MAX_PLURAL
    return not is_word and (len(word) <= MAX_ACRONYM or stem[-1] in "siu")

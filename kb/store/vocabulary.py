"""The words of the file as they are written, found by how they begin and by how they end.

The tables `vocabulary` and `word_endings`; `kb/search/typos.py` looks misspelt words up in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kb.store.connection import Connection
from kb.text.terms import is_unspaced, pictographs

# ASCII's spaces and signs as blanks. The index cuts what they separate alike wherever it stands; a
# document repeats most of its words, and bytes are cut in half the time of text.
_SIGNS_AS_BLANKS = bytes(
    code if code > 0x7F or chr(code).isalnum() else ord(" ") for code in range(256)
)
# Characters of words looked up together; 20 MB of different words at once took 600 MB of memory.
AT_ONCE = 1_000_000
TOGETHER = 100_000  # characters of texts that are read as one
# Runs that the file is known to have; of 9 MB of documents they are 85,000 and take 9 MB.
MOST_ADDED = 100_000
LONGEST_WORD = 40  # longer ones are data: their typos are not looked for


def add_words(connection: Connection, texts: Iterable[str]) -> None:
    """Add the words of some texts to the vocabulary, in the transaction that stores them."""
    added = connection.added_runs()
    runs: set[bytes] = set()
    size = 0
    for text in _joined(texts):
        terms = set(text.encode("utf-8", "surrogatepass").translate(_SIGNS_AS_BLANKS).split())
        terms = {run for run in terms.difference(runs) if run not in added}
        runs |= terms
        size += sum(map(len, terms))
        if size > AT_ONCE:
            _add_runs(connection, runs)
            runs, size = set(), 0
    _add_runs(connection, runs)
    if len(added) + len(runs) > MOST_ADDED:
        added.clear()
    added |= runs


def _joined(texts: Iterable[str]) -> Iterator[str]:
    waiting: list[str] = []
    size = 0
    for text in texts:
        waiting.append(text)
        size += len(text)
        if size > TOGETHER:
            yield " ".join(waiting)
            waiting, size = [], 0
    yield " ".join(waiting)


def _add_runs(connection: Connection, runs: set[bytes]) -> None:
    """Where all words are known, as in most large files, this costs one look-up a word."""
    if not runs:
        return
    written = b" ".join(runs).decode("utf-8", "surrogatepass")
    words = {term for _, _, term in connection.tokenize(written)}.difference(pictographs(written))
    plain = [word for word in words if not is_unspaced(word)]
    new = sorted(connection.column("unknown_words", words=plain))
    if not new:
        return
    connection.run_many(
        "insert_word", ({"word": word, "stem": stem_of(connection, word)} for word in new)
    )
    _add_endings(connection, new)


def forget_words(connection: Connection, words: Iterable[str]) -> None:
    """Take out these words, and all whose stem no passage has."""
    connection.added_runs().clear()
    unused = connection.column("words_without_passages")
    gone = [{"word": word, "ending": word[::-1]} for word in sorted({*unused, *words})]
    for statement in ("delete_ending", "delete_word"):
        connection.run_many(statement, gone)


def may_be_misspelt(word: str) -> bool:
    """Whether to look for typos of a word."""
    # 1.0.21 is no misspelling of 1.0.20, nor one commit of another.
    return 3 <= len(word) <= LONGEST_WORD and not any(map(str.isdigit, word))


def stem_of(connection: Connection, word: str) -> str:
    terms = connection.tokenize(word, stem=True)
    return terms[0][2] if terms else word


def beginning_of_words(stem: str) -> str:
    """What every word with this stem begins with: porter cuts the ending, and may change the last
    letter of the rest (`happi` of `happy`, `file` of `filing`)."""
    return stem[:-1] or stem


def count_wrong_endings(connection: Connection) -> int:
    """How many words lack their ending, and endings their word."""
    words = {word for word in connection.column("all_words") if may_be_misspelt(word)}
    endings = {ending[::-1] for ending in connection.column("all_endings")}
    return len(words ^ endings)


def rebuild_endings(connection: Connection) -> None:
    endings = [{"ending": ending} for ending in connection.column("all_endings")]
    connection.run_many("delete_ending", endings)
    _add_endings(connection, connection.column("all_words"))


def _add_endings(connection: Connection, words: Iterable[str]) -> None:
    connection.run_many(
        "insert_ending", ({"ending": word[::-1]} for word in words if may_be_misspelt(word))
    )

"""The files of a search: reads of them, and what is known of each until it changes.

Several are searched as one: large ones in parallel, and without any that fails. A search's steps
are functions that take the file, a read of it and more (`kb/search/run.py`); a file on another
machine runs them there.

Counting takes .035 us for each passage that contains a word: 11 ms for the eight words of a
question among a million passages. So a document frequency is counted once, and estimated for words
in very many passages.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kb.errors import FileError, KbError
from kb.formats.metadata import names_of
from kb.model_in_use import ModelInUse
from kb.models.embedder import BUNDLED_CALIBRATION, Calibration, available_cores, is_english_model
from kb.store.collections import Names
from kb.store.connection import Connection, translated
from kb.store.contents import ChunkRange, Ranges
from kb.store.vectors import current_model
from kb.store.vocabulary import beginning_of_words

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


T = TypeVar("T")

# Total bytes from which reading in parallel pays (docs/decisions/0022-search-at-size.md).
SIDE_BY_SIDE = 500_000_000


class LostReadError(Exception):
    """A read of a remote file broke off; the search can be started again."""


class SearchedFile:
    """An open file as a search sees it; `label` is its name for people."""

    is_far = False  # on another machine
    # Begins a step with its arguments; returns a function that gives its result.
    begin: Callable[..., Callable[[], Any]] = partial

    def __init__(self, model: ModelInUse, names: Names, label: str = "The file") -> None:
        self.model = model
        self.database = model.database
        self.names = names
        self.label = label
        # Raises FileError if the file cannot be read.
        self.read: Callable[[], AbstractContextManager[Any]] = model.database.read


class Together:
    """The files of a search; one that cannot be read is left out, and the reader is told."""

    def __init__(self, files: Sequence[SearchedFile]) -> None:
        self.files = list(files)  # those that answer
        self.lost: list[str] = []  # why each of the others does not
        self._reads: dict[SearchedFile, Any] = {}

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        """A read of every file, for `each`."""
        with contextlib.ExitStack() as reads:
            for file in [*self.files]:
                try:
                    self._reads[file] = reads.enter_context(file.read())
                except FileError as error:
                    self.leave_out(file, error)
            yield

    def each(
        self,
        step: Callable[..., T],
        *arguments: Any,
        of: Mapping[SearchedFile, Any] | None = None,
        at_once: bool = False,
    ) -> dict[SearchedFile, T]:
        """The result of a step on each file, or on those in `of` with its last argument, inside
        `read`; long steps run `at_once` in large files. Raises what keeps all from answering."""
        begun: dict[SearchedFile, Callable[[], T]] = {}
        for file in self.files:
            if of is None or file in of:
                more = arguments if of is None else (*arguments, of[file])
                begun[file] = file.begin(step, file, self._reads[file], *more)
        results: dict[SearchedFile, T] = {}
        with contextlib.ExitStack() as end:
            if at_once and len(begun) > 1 and sum(map(_size, begun)) >= SIDE_BY_SIDE:
                begun = _side_by_side(begun, end)
            for file, finish in begun.items():
                try:
                    with translated(file.database.path):
                        results[file] = finish()
                except FileError as error:
                    self.leave_out(file, error)
        return results

    def refuse_name(self, name: str) -> None:
        """Raise CollectionNotFound, with the nearest names of all files."""
        others = [other for of_file in self.each(_names).values() for other in of_file]
        self.each(_collection, name, of={self.files[0]: others})

    def leave_out(self, file: SearchedFile, error: KbError) -> None:
        """Continue without a file. Raises its error if no other file is left."""
        self.files.remove(file)
        if not self.files:
            raise error
        self.lost.append(left_out(file.label, error))


def read_together(
    files: Sequence[SearchedFile], work: Callable[[Together], T]
) -> tuple[T, list[str]]:
    """What `work` makes of one read of the files, and why some of them do not answer."""
    while True:
        together = Together(files)
        try:
            with together.read():
                return work(together), together.lost
        except LostReadError:  # each file raises it once
            continue


def _side_by_side(
    begun: Mapping[SearchedFile, Callable[[], T]], end: contextlib.ExitStack
) -> dict[SearchedFile, Callable[[], T]]:
    """The same, in threads; not in the order of the files."""
    from concurrent.futures import wait  # here: as in _pool

    first, *others = begun
    waiting = {file: _pool().submit(begun[file]) for file in others}
    # An error must not end reads that are still in use.
    end.callback(lambda: wait([future for future in waiting.values() if not future.cancelled()]))

    def share(file: SearchedFile) -> T:
        # What no other thread has begun is done here instead of waiting.
        if file not in waiting or waiting[file].cancel():
            return begun[file]()
        return waiting[file].result()

    return {file: partial(share, file) for file in [first, *reversed(others)]}


def _names(file: SearchedFile, connection: Connection) -> set[str]:
    return file.names.existing(connection)


def _collection(
    file: SearchedFile, connection: Connection, name: str, others: Sequence[str]
) -> None:
    file.names.collection(connection, name, others=others)


def _size(file: SearchedFile) -> int:
    """Its local size in bytes; 0 if it is in memory, remote or gone."""
    try:
        return 0 if file.is_far else file.database.path.stat().st_size
    except OSError:
        return 0


def left_out(label: str, error: KbError) -> str:
    return f"{label} was left out: {error.message.rstrip('.')}."


@cache
def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # here: one file needs none

    return ThreadPoolExecutor(max(available_cores() - 1, 1), "files")  # and the calling thread


MAX_CONSTANT = 1_000.0  # of a calibration: measured models have up to 14
MAX_DF = 2_000  # passages: a word in more of them, and in more than this share, is skipped
MAX_DF_SHARE = 0.02
# Passages: a word in more of them and in more than this share does not rank if another does. On
# SciFact the share alone costs .0003 nDCG@10, a share of 0.05 .006; among 91,000 passages it takes
# the keyword list from 14 to 7 ms.
MAX_RANKING_DF = 5_000
MAX_RANKING_SHARE = 0.1
PASSAGES_A_PAGE = 740  # of the keyword index: 610 to 870 for common words of a million passages
PAGES_TELL = 200_000  # passages of a file; a smaller one is counted as fast
MIN_ESTIMATED = 20_000  # passages: fewer fill too few pages for an estimate
SAMPLE = 4_096  # passages that show whose the pages are
LARGE = 100_000  # passages of a file
SMALL_SHARE = 0.03  # of them
MAX_RANGES = 4
MAX_CHUNKS = 1000  # whose texts are held in memory


class Sizes(NamedTuple):
    """How many passages and documents a file has."""

    passages: int
    documents: int


class FileModel(NamedTuple):
    """The model that made a file's vectors."""

    build: tuple[str, str] = ("", "")  # name and SHA-256; vectors of different ones do not compare
    calibration: Calibration = BUNDLED_CALIBRATION  # how its distances become scores
    is_english: bool = True  # its vectors mean little for text in other scripts


def max_df(passages: int) -> int:
    """The document frequency from which a word is skipped."""
    return max(MAX_DF, int(passages * MAX_DF_SHARE))


def max_ranking_df(passages: int) -> int:
    """The document frequency from which a word does not rank if another does."""
    return max(MAX_RANKING_DF, int(passages * MAX_RANKING_SHARE))


class Snapshot(NamedTuple):
    """A read of a file. What it knows stays with the connection until the file changes."""

    connection: Connection

    @property
    def model(self) -> FileModel:
        return self.connection.once("file model", self._read_model)

    def _read_model(self) -> FileModel:
        if (row := current_model(self.connection)) is None:
            return FileModel()
        calibration = Calibration(row["slope"], row["intercept"])
        if not all(abs(constant) < MAX_CONSTANT for constant in calibration):
            calibration = BUNDLED_CALIBRATION  # damaged or invented: it would give no score
        return FileModel((row["name"], row["sha256"]), calibration, is_english_model(row["name"]))

    @property
    def sizes(self) -> Sizes:
        """Counted once: with a million passages that takes 5 ms."""
        count = self.connection.value
        return self.connection.once(
            "sizes", lambda: Sizes(count("count_all_chunks"), count("count_all_documents"))
        )

    def df(self, matches: Iterable[str], most: int) -> dict[str, int]:
        """The document frequency of each expression, counted to `most`."""
        cached: dict[str, tuple[int, int]] = self.connection.cached("df")
        matches = list(dict.fromkeys(matches))
        counted = {match: cached.get(match, (0, 0)) for match in matches}
        unknown = [match for match, (count, to) in counted.items() if count >= to < most]
        if unknown:
            rows = self.connection.tuples("count_holding", matches=json.dumps(unknown), limit=most)
            cached |= {match: (count, most) for match, count in rows}
        return {match: min(cached[match][0], most) for match in matches}

    def estimated_df(self, matches: Iterable[str], most: int) -> dict[str, int]:
        """As `df`; for skipped words within a fourth, by the index pages that they fill."""
        if self.sizes.passages < PAGES_TELL:
            return self.df(matches, most)
        by_pages = self._df_by_pages(list(dict.fromkeys(matches)))
        estimated = {match: count for match, count in by_pages.items() if count}
        return estimated | self.df(by_pages.keys() - estimated.keys(), most)

    def is_common_prefix(self, prefix: str) -> bool:
        """Whether a prefix's words are too frequent to rank, by the index pages that they fill."""
        most = max_ranking_df(self.sizes.passages)
        if self.sizes.passages <= most:
            return False
        bounds = json.dumps({prefix: prefix + "\U0010ffff"})
        ((_, pages),) = self.connection.tuples("pages_behind_terms", terms=bounds)
        return bool(PASSAGES_A_PAGE * pages > 2 * most)  # a passage has several of them

    def take_as_held_by_all(self, match: str) -> None:
        """Stop counting an expression of very common words."""
        passages = self.sizes.passages
        self.connection.cached("df")[match] = passages, passages

    def df_within(self, matches: Iterable[str], ranges: Ranges) -> dict[str, int]:
        """In how many passages of some ranges each expression occurs."""
        cached: dict[tuple[ChunkRange, str], int] = self.connection.cached("df of ranges")
        matches = list(dict.fromkeys(matches))
        for within in ranges:
            unknown = [match for match in matches if (within, match) not in cached]
            rows = self._count_between(unknown, *within, -1) if unknown else ()
            cached |= {(within, match): count for match, count in rows}
        return {match: sum(cached[within, match] for within in ranges) for match in matches}

    def is_small_part(self, ranges: Ranges) -> bool:
        """Whether ranges have so few of a large file's passages that the rest should not cost."""
        passages = self.sizes.passages
        if passages < LARGE or len(ranges) > MAX_RANGES:
            return False
        most = int(SMALL_SHARE * passages)

        def count(first: int, last: int) -> int:
            bounds = {"first": first, "last": last, "limit": most}
            return int(self.connection.value("count_chunks_between", **bounds))

        cached: dict[ChunkRange, int] = self.connection.cached("passages of ranges")
        cached |= {within: count(*within) for within in ranges if within not in cached}
        return sum(cached[within] for within in ranges) < most

    def _df_by_pages(self, matches: Sequence[str]) -> Mapping[str, int]:
        """Approximate frequency of skipped words; 0 for others. The pages between a term's and the
        next one's are its own or its neighbour's, so they count only if a stretch in the middle of
        the file contains the word often too."""
        passages = self.sizes.passages
        cached: dict[str, int] = self.connection.cached("df by pages")
        terms = {match: self.term(match) for match in matches if match not in cached}
        cached |= dict.fromkeys(terms, 0)
        if listed := [*{term for term in terms.values() if term}]:
            bounds = json.dumps({term: term for term in listed})
            pages = dict(self.connection.tuples("pages_behind_terms", terms=bounds))
            estimated = {
                match: min(PASSAGES_A_PAGE * pages[term], passages)
                for match, term in terms.items()
                if term
            }
            least = max(MIN_ESTIMATED, max_df(passages))
            often = SAMPLE * least // passages // 2
            sampled = self._df_of_sample(
                [match for match, count in estimated.items() if count >= least], often
            )
            cached |= {
                match: estimated[match] for match, count in sampled.items() if count >= often
            }
        return {match: cached[match] for match in matches}

    def _df_of_sample(self, matches: list[str], most: int) -> dict[str, int]:
        """As `df`, amid the longest collection, where passages are hardly newer than the index."""
        if not matches:
            return {}
        first = self.connection.once(
            "middle", lambda: self.connection.value("middle_of_longest_collection")
        )
        return dict(self._count_between(matches, first, first + SAMPLE - 1, most))

    def _count_between(
        self, matches: Sequence[str], first: int, last: int, limit: int
    ) -> list[tuple[Any, ...]]:
        bounds = {"first": first, "last": last, "limit": limit}
        listed = json.dumps(matches)
        return self.connection.tuples("count_holding_between", matches=listed, **bounds)

    def term(self, match: str) -> str:
        """The index's term for an expression; "" if it is not a single word."""
        if not (match.startswith('"') and match.endswith('"') and match.count('"') == 2):
            return ""
        terms = self.connection.stems(match[1:-1])
        return terms[0] if len(terms) == 1 else ""


def matching(connection: Connection, match: str, ranges: Ranges, limit: int = -1) -> set[int]:
    """The chunks of some ranges that match an expression; `limit` of them if there are more."""
    listed = {"ranges": [*ranges], "limit": limit}
    return {row[0] for row in connection.tuples("matching_chunk_ids", match=match, **listed)}


def existing_words(connection: Connection, words: set[str]) -> set[str]:
    """The words that the file has or had, with any ending."""
    stems = {word: connection.stems(word) for word in words}
    cached: dict[str, bool] = connection.cached("stems")
    of_all = {stem for of_word in stems.values() for stem in of_word}
    if new := {stem: beginning_of_words(stem) for stem in of_all if stem not in cached}:
        cached |= dict.fromkeys(new, False)
        cached |= {row[0]: True for row in connection.tuples("known_stems", stems=json.dumps(new))}
    return {word for word, of_word in stems.items() if all(map(cached.get, of_word))}


def bodies(
    connection: Connection, chunk_ids: Iterable[int]
) -> Iterator[tuple[int, int, str, str, str, str, str]]:
    """Each chunk's id, document id, title, headings, lead, other names and text."""
    for ids in slices(sorted(chunk_ids), MAX_CHUNKS):
        for *before, metadata, body in connection.tuples("chunk_bodies", chunk_ids=json.dumps(ids)):
            chunk_id, document_id, title, heading, lead = before
            names = names_of(json.loads(metadata)) if metadata != "{}" else ""
            yield chunk_id, document_id, title, heading, lead, names, body


def slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]

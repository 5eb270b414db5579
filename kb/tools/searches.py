"""Searches over all that a session can see: its files, and the indexes that lie in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from kb.errors import EmbeddingError, FileError, KbError
from kb.search.asked import Asked
from kb.search.files import SearchedFile, left_out
from kb.search.passages import search_files
from kb.store.connection import Row
from kb.tools.session import Session

T = TypeVar("T")


def search_all(
    session: Session,
    asked: Sequence[Asked],
    limit: int,
    max_distance: float,
    hybrid: bool,
    rerank: bool = False,
) -> tuple[list[list[Row]], str]:
    """The best rows of each query, and what to tell the reader. Raises as `search_files`."""
    found = search_files(session.files, asked, limit, max_distance, hybrid, rerank)
    return found.rows, " ".join(filter(None, (found.notice, session.lost)))


def from_each(
    session: Session,
    work: Callable[[SearchedFile], T],
    unsaid: tuple[type[KbError], ...] = (),
) -> tuple[list[tuple[SearchedFile, T]], str]:
    """What some work on each file gives, and what to tell of the files where it fails.

    Args:
        unsaid: what goes without saying while other files answer.

    Raises:
        FileError, EmbeddingError: it fails for every file.
    """
    found: list[tuple[SearchedFile, T]] = []
    failed: list[tuple[SearchedFile, KbError]] = []
    for file in session.files:
        try:
            found.append((file, work(file)))
        except (FileError, EmbeddingError) as error:
            failed.append((file, error))
    if not found:
        raise failed[0][1]
    lost = [left_out(file.label, error) for file, error in failed if not isinstance(error, unsaid)]
    return found, " ".join(filter(None, [*lost, session.lost]))

"""Searches over all that a session can see: the file, and the indexes that lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest

from kb.errors import EmbeddingError
from kb.search.passages import search_passages
from kb.store.database import Row
from kb.tools.call import Call

Asked = tuple[str, Sequence[str]]  # a query and the collections to look in; none: all


def search_all(
    call: Call,
    asked: Sequence[Asked],
    limit: int,
    max_distance: float,
    hybrid: bool,
    rerank: bool = False,
) -> tuple[list[list[Row]], str]:
    """The best rows of each query, and what to tell the reader. Raises as `search_passages`."""
    options = (limit, max_distance, hybrid, rerank)
    if not call.knowledge.has_memory:
        found = search_passages(call.model, call.names, asked, *options)
        return found.rows, found.notice
    rows: list[list[list[Row]]] = [[] for _ in asked]
    notices: list[str] = []
    for model, part in zip(call.session.models, _parts(call, asked), strict=True):
        numbers = [number for number, one in enumerate(part) if one is not None]
        try:
            found = search_passages(
                model, call.names, [one for one in part if one is not None], *options
            )
        except EmbeddingError as error:
            if model is call.model or any(names for _, names in asked):
                raise
            notices.append(f"Indexes in memory were left out: {error.message}.")
            continue
        notices.append(found.notice)
        for number, own in zip(numbers, found.rows, strict=True):
            rows[number].append(own)
    return (
        [_merged(lists)[:limit] for lists in rows],
        " ".join(dict.fromkeys(filter(None, notices))),
    )


def _parts(call: Call, asked: Sequence[Asked]) -> tuple[list[Asked | None], list[Asked | None]]:
    """What is asked of the file, and what of memory; None where a query asks nothing of one."""
    in_file: list[Asked | None] = []
    in_memory: list[Asked | None] = []
    with call.knowledge.memory.read() as connection:
        known = {row["name"] for row in call.names.collections(connection)}
        for text, names in asked:
            own = [name for name in names if call.names.aliases.get(name, name) in known]
            others = [name for name in names if name not in own]
            in_file.append((text, others) if others or not names else None)
            in_memory.append((text, own) if own or not names else None)
    return in_file, in_memory


def _merged(lists: Sequence[Sequence[Row]]) -> list[Row]:
    """Rows of several files by their scores; by rank where rows have none."""
    if all("relevanceScore" in row for rows in lists for row in rows):
        return sorted(chain(*lists), key=lambda row: -float(row["relevanceScore"]))
    return [row for rank in zip_longest(*lists) for row in rank if row is not None]

"""The passages of documents whose paths fit a glob."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kb.search.operators import Filters
from kb.store.connection import Connection
from kb.store.ids import ChunkRange

if TYPE_CHECKING:
    from kb.disk.globs import Globs

__all__ = ["within_paths"]


def within_paths(
    connection: Connection,
    filters: Filters,
    ranges: Sequence[ChunkRange],
    called: Mapping[int, Mapping[str, str]],
    globs: Sequence[str],
) -> tuple[Filters, str]:
    """Filters that let only passages of fitting documents pass, and a notice where none fits.

    A glob is held against a document's id, and against the id behind its collection's name: that
    is how most files are seen from the project, and the folder's name is the collection's.

    Raises:
        UsageError: a glob that can match nothing.
    """
    from kb.disk.globs import Globs  # here: a tenth of what a search by words imports

    fitting = Globs(globs, descend=False)
    documents = [
        document_id
        for first, last in ranges
        for document_id, collection_id, path in connection.tuples(
            "paths_of_range", first=first, last=last
        )
        if collection_id in called and _fits(fitting, path, called[collection_id])
    ]
    if not documents:
        return (set(), None), f"No document's path fits {' or '.join(globs)}."
    ids = {row[0] for row in connection.tuples("chunks_of_documents", ids=json.dumps(documents))}
    only, without = filters
    return ((ids if only is None else ids & only) - (without or set()), None), ""


def _fits(globs: Globs, path: str, called: Mapping[str, str]) -> bool:
    return globs.match(path) or any(globs.match(f"{name}/{path}") for name in called.values())

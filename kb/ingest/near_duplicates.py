"""The stored discovery that a new one repeats, by its words and by its meaning."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kb.ingest.same_statement import may_say_the_same, read_statement, says_the_same
from kb.store.chunks import chunks_of_documents
from kb.store.connection import Connection, Row
from kb.store.discoveries import stored_discoveries
from kb.store.vectors import chunk_distances

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["candidates", "repeated"]

# How far apart in meaning two discoveries may be. Words that read as the same statement may lie
# further apart, up to where equal stems mean different things ("author" and "authorization"
# have 0.3); a statement that the other holds among more must be close. The measurement is in
# docs/decisions/0006-projects-and-context.md.
SAME_DISTANCE = 0.2
PART_DISTANCE = 0.1

Candidate = tuple[Row, float]  # with the distance at which it is the same; infinite: in any case


def candidates(connection: Connection, text: str, type_: str, module: str) -> list[Candidate]:
    """The discoveries of a type and module that seem to say what a text says, or part of it."""

    def stem(word: str) -> str:
        return "".join(term for _, _, term in connection.tokenize(word, stem=True)) or word

    new = None
    found: list[Candidate] = []
    for row in stored_discoveries(connection):
        metadata = json.loads(row["metadata"])
        if (metadata["type"], metadata.get("module", "").casefold()) != (type_, module.casefold()):
            continue
        if not may_say_the_same(text, row["content"]):
            continue
        new = new or read_statement(text, stem)
        old = read_statement(row["content"], stem)
        if new.said == old.said:
            found.append((row, float("inf")))
        elif says_the_same(new, old):
            # With as many words the one can only be the other in another form.
            found.append((row, SAME_DISTANCE if new.length == old.length else PART_DISTANCE))
    return found


def repeated(
    connection: Connection, found: list[Candidate], vector: NDArray[np.float32] | None
) -> Row | None:
    """The one of the candidates that is the same; without the text's vector, in the same words."""
    for row, limit in found:
        if limit == float("inf"):
            return row
    if vector is None:
        return None
    near: list[tuple[float, int, Row]] = []
    for row, limit in found:
        ids = chunks_of_documents(connection, [row["document_id"]])
        distances = chunk_distances(connection, vector, ids)
        distance = min(distances.values(), default=float("inf"))
        if distance <= limit:
            near.append((distance, row["document_id"], row))
    return min(near, key=lambda one: one[:2])[2] if near else None

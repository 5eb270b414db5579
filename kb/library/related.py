"""Documents that are close in meaning to another or to a passage, in all files."""

from __future__ import annotations

from itertools import chain
from operator import itemgetter
from typing import Any

from kb.errors import FileError
from kb.library.resolve import OpenDocument, read_document
from kb.library.workspace import Workspace
from kb.models.embedder import Floats, are_interchangeable
from kb.results.search import RelatedResults, RelatedRow, Source
from kb.search.evidence import related_documents, related_passages
from kb.search.files import SearchedFile, Snapshot
from kb.search.rows import passage_rows
from kb.store.connection import Connection
from kb.store.contents import collection_range, find_document
from kb.store.vectors import chunk_vectors, mean_vector

NO_EMBEDDINGS = "The document has no embeddings yet: run `kb sync`."


class Relating(Workspace):
    """Documents that are close in meaning."""

    def related(
        self,
        document: str,
        *,
        collection: str = "",
        passage: str = "",
        limit: int = 5,
        same_document: bool = False,
    ) -> RelatedResults:
        """Documents of the same collection that are close in meaning to a document or a passage.

        Args:
            passage: text to relate to; by default the whole document.
            same_document: a row for each passage, the document's own included.
        """
        # A wrong name is reported before the model is loaded.
        (source, vector, build), file = read_document(self, document, collection, _meaning)
        if passage.strip():
            vector = file.model.embed_passage(passage)
        if vector is None:
            return RelatedResults(source=source, related=[], notice=NO_EMBEDDINGS)
        # One more than asked for: the passage itself may be among them.
        near = source.collection, source.document, build, vector, limit + 1, same_document
        answers, notice = self.ask_all(_nearest, *near)
        itself = (source.document, passage.strip())
        rows = [
            row
            for row in sorted(chain.from_iterable(answers.values()), key=itemgetter("distance"))
            if (row["documentId"], row["content"].strip()) != itself
        ]
        return RelatedResults(
            source=source,
            related=[
                RelatedRow.from_dict({**row, "document": row["documentId"]}) for row in rows[:limit]
            ],
            notice=notice or None,
        )


def _meaning(reading: OpenDocument) -> tuple[Source, Floats | None, tuple[str, str]]:
    """What a document is called, the mean of its vectors, and the model that made them."""
    vectors = chunk_vectors(reading.connection, reading.row["document_id"])
    mean = mean_vector([*vectors.values()]) if vectors else None
    return Source(**reading.names), mean, Snapshot(reading.connection).model.build


def _nearest(
    file: SearchedFile,
    connection: Connection,
    collection: str,
    document: str,
    build: tuple[str, str],
    vector: Floats,
    limit: int,
    same_document: bool,
) -> list[dict[str, Any]]:
    """The rows of a file's part of a collection that come nearest to a vector, a step.

    Args:
        build: of the model that made the vector.
    """
    if (row := file.names.find(connection, collection)) is None:
        return []
    snapshot, within = Snapshot(connection), collection_range(row["collection_id"])
    name, other = snapshot.model.build
    if name and (name != build[0] or not are_interchangeable(name, build[1], other)):
        raise FileError(f"its vectors come from another model, {name}: `kb reembed` gives all one")
    if same_document:
        hits = related_passages(snapshot, vector, within, limit)
    else:
        itself = find_document(connection, row["collection_id"], document)
        without = {*chunk_vectors(connection, itself["document_id"])} if itself else set()
        hits = related_documents(snapshot, vector, within, limit, without=without)
    return passage_rows(connection, hits, {row["collection_id"]: file.names.shown(row)})

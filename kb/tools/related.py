"""What is close in meaning to a document or a passage: a tool of the documents family."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kb.model_in_use import calibration_of
from kb.models.embedder import BUNDLED_CALIBRATION
from kb.search.hybrid import Hit
from kb.search.nearest import nearest_documents
from kb.search.ranking import shown as shown_score
from kb.search.rows import passage_rows
from kb.store.ids import collection_range
from kb.store.vectors import chunk_vectors, mean_vector, nearest_chunks
from kb.tools.call import Call
from kb.tools.document_types import (
    CollectionName,
    DocumentId,
    RelatedResults,
    RelatedRow,
    Source,
    find_document,
)
from kb.tools.registry import tool
from kb.tools.replies import said

LONGEST_CHUNK = 100_000  # characters of a passage that a client gives; our own have some 1,500


@tool(
    family="documents",
    title="Find related documents",
    example={"collection": "windrose", "document": "guide/wind.md", "limit": 3},
)
def documents_find_related(
    call: Call,
    collection: CollectionName,
    document: DocumentId,
    chunk: Annotated[
        str,
        Field(
            description="Text of a passage to relate to; empty: the whole document.",
            max_length=LONGEST_CHUNK,
        ),
    ] = "",
    limit: Annotated[int, Field(description="Most rows to return.", ge=1, le=100)] = 5,
    same_document: Annotated[
        bool, Field(description="Include other passages of the same document.")
    ] = False,
) -> RelatedResults:
    """Find documents of the same collection that are close in meaning to a document or passage.

    One row a document, at its closest passage; with sameDocument one row a passage.
    """
    # A wrong name is told before the model is loaded.
    with call.read_collection(collection) as (connection, found, file):
        find_document(file, connection, found, document)
    vector = file.model.embed_passage(chunk) if chunk.strip() else None
    with call.read_collection(collection) as (connection, found, file):
        row = find_document(file, connection, found, document)
        called = file.names.called(found)
        source = Source(
            collection=called.collection,
            collection_id=called.collection_id,
            document=row["path"],
        )
        own = chunk_vectors(connection, row["document_id"])
        if own and not chunk.strip():
            vector = mean_vector(list(own.values()))
        if vector is None:
            notice = "The document has no embeddings yet: run `kb sync`."
            return RelatedResults(source=source, related=[], notice=notice)
        place = collection_range(found["collection_id"])
        calibration = calibration_of(connection) or BUNDLED_CALIBRATION
        if same_document:
            # One more than asked for: the passage itself may be among them.
            nearest = nearest_chunks(connection, vector, [place], limit + 1)
            hits = [
                Hit(chunk_id, shown_score(calibration.score(distance)), distance)
                for chunk_id, distance in nearest
            ]
        else:
            without = list(own)
            hits = nearest_documents(
                connection, vector, place, limit, without=without, calibration=calibration
            )
        rows = passage_rows(connection, hits, {found["collection_id"]: file.names.shown(found)})
    passage = (row["path"], chunk.strip())
    rows = [one for one in rows if (one["documentId"], one["content"].strip()) != passage]
    fitted = call.fit(
        [RelatedRow(document=one["documentId"], **one) for one in rows[:limit]],
        "the nearest {kept} of {total} rows. Relate to a single passage with `chunk` for others.",
    )
    return RelatedResults(
        source=source,
        related=fitted.rows,
        truncated=fitted.truncated,
        notice=said(fitted.notice),
    )

"""Models at an address: how their cosines become scores, and whether they are still the same.

The packaged model, whose scores are fitted to judged collections, reads a sample of the file's own
passages too. The new model's line is laid through two points at which both say the same: a heading
with the passage below it, and a heading with passages of other documents. How near that comes to
fitted constants: docs/decisions/0031-models-by-address.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from kb.errors import ModelMismatchError
from kb.formats.chunk import embedding_text
from kb.models.choose import make_embedder, suited_model
from kb.models.embedder import BATCH_SIZE, Calibration, Embedder, is_address
from kb.store.contents import (
    all_document_ids,
    chunk_ids,
    chunks_to_embed,
    passages_of_documents,
    sections_of_documents,
    texts_of,
    texts_to_embed,
)
from kb.store.database import Database
from kb.store.vectors import chunk_vectors, insert_model, mean_vector

MAX_SAMPLES = 120
MIN_SAMPLES = 8
SAME_MODEL = 0.97  # cosine of two vectors of one text: machines and builds differ by less
MIN_CONTRAST = 0.02  # of cosines: a model below it tells nothing apart


def calibrate(database: Database, embedder: Embedder) -> None:
    """Note how the cosines of a model nobody has judged become scores. Raises EmbeddingError."""
    if is_address(embedder.name) and (calibration := _calibrated(database, embedder)) is not None:
        embedder.calibration = calibration
        with database.write() as connection:
            insert_model(connection, embedder.name, embedder.sha256, embedder.width, *calibration)


def require_same_vectors(database: Database, embedder: Embedder) -> None:
    """Raise ModelMismatchError if a server gives a text another vector than the file has."""
    with database.read() as connection:
        first = chunk_ids(connection, with_vector=True, limit=1)
        chunks = chunks_to_embed(connection, first, anew=True)
        if not chunks:
            return
        stored = chunk_vectors(connection, chunks[0].document_id)[chunks[0].chunk_id]
        (text,) = texts_to_embed(connection, chunks).values()
    if float(embedder.embed([text])[0] @ mean_vector([stored])) < SAME_MODEL:
        raise ModelMismatchError(
            f"{embedder.name} gives other vectors than those in the file: run "
            f"`kb reembed --model {embedder.name}` if the server has another model now",
            model=embedder.name,
        )


def _calibrated(database: Database, embedder: Embedder) -> Calibration | None:
    """A model's calibration by the passages of a file; None if these are too few."""
    sample = _sample(database)
    if len(sample) < MIN_SAMPLES:
        return None
    fitted = make_embedder(suited_model([text for _, text in sample]))
    related, unrelated = _medians(fitted, sample)
    own_related, own_unrelated = _medians(embedder, sample)
    if min(related - unrelated, own_related - own_unrelated) < MIN_CONTRAST:
        return None
    line = fitted.calibration
    slope = line.slope * (related - unrelated) / (own_related - own_unrelated)
    return Calibration(slope, line.slope * unrelated + line.intercept - slope * own_unrelated)


def _sample(database: Database) -> list[tuple[str, str]]:
    """A heading of each sampled document, and the passage that begins below it."""
    with database.read() as connection:
        ids = all_document_ids(connection)
        chosen = ids[:: 1 + len(ids) // MAX_SAMPLES]
        stored = passages_of_documents(connection, chosen)
        sections = {
            (row["document_id"], row["position"]): row["heading_path"]
            for row in sections_of_documents(connection, chosen)
        }
        texts = {row["document_id"]: row for row in texts_of(connection, chosen)}
    by_document: dict[int, tuple[str, str]] = {}
    for document_id, section, _, _, start, end, _, _ in stored:
        if section is not None:
            row, path = texts[document_id], sections[document_id, section]
            text = embedding_text(row["title"], path, row["content"][start:end])
            by_document[document_id] = (path.rpartition(" > ")[2], text)  # the last one
    return list(by_document.values())


def _medians(embedder: Embedder, sample: Sequence[tuple[str, str]]) -> tuple[float, float]:
    """The median cosine of headings with their own passages, and with others."""
    import numpy as np

    queries, passages = [], []
    for at in range(0, len(sample), BATCH_SIZE):
        headings, texts = zip(*sample[at : at + BATCH_SIZE], strict=True)
        queries.append(embedder.embed_queries(headings))
        passages.append(embedder.embed(texts))
    cosines = np.concatenate(queries) @ np.concatenate(passages).T
    is_own = np.eye(len(cosines), dtype=bool)
    return float(np.median(cosines[is_own])), float(np.median(cosines[~is_own]))

"""What an assistant learned about a project: recorded, merged, found again, exported.

A discovery is a small document of a collection of its own kind. It is embedded at once, so that
it is found by the next search.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kb.errors import EmbeddingError, NoEmbeddings, UsageError
from kb.formats.chunk import chunk
from kb.formats.parse import parse
from kb.ingest.discovery_text import detect_type
from kb.ingest.embed import embed_pending
from kb.ingest.near_duplicates import candidates, repeated
from kb.model_in_use import ModelInUse, calibration_of, has_english_model
from kb.models.tokens import load_tokenizer
from kb.search.hybrid import search
from kb.search.operators import enforced
from kb.search.query import parse_query
from kb.store.chunks import has_vectors
from kb.store.connection import Connection, Row
from kb.store.discoveries import (
    chunks_of_discoveries,
    discoveries_of_chunks,
    find_discoveries,
    make_discoveries,
    stored_discoveries,
)
from kb.store.documents import NewDocument, store_document
from kb.store.ids import collection_range
from kb.store.sessions import module_scores
from kb.store.tidying import tidy_a_little
from kb.text.secrets import secrets_in
from kb.text.times import utc_now

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "SHOWN_ID",
    "Recorded",
    "all_discoveries",
    "as_markdown",
    "record_discovery",
    "search_discoveries",
]

DEPTH = 1000  # discoveries of each list that are ranked

SHOWN_ID = 8  # characters of an id that people see; enough to tell thousands apart


@dataclass(frozen=True, slots=True)
class Recorded:
    """What became of a discovery."""

    discovery_id: str
    type: str
    module: str
    status: str  # "recorded" or "merged"
    notice: str = ""


def record_discovery(
    model: ModelInUse,
    content: str,
    type_: str = "",
    module: str = "",
    source: str = "",
    *,
    allow_secrets: bool = False,
    session_id: str = "",
) -> Recorded:
    """Store a discovery, or merge it into one of its type and module that says the same.

    Of two that say the same the longer text is kept, with the date of the later.

    Raises:
        UsageError: it holds what looks like a secret.
    """
    if not allow_secrets:
        _refuse_secrets({"content": content, "module": module, "source": source})
    text = "\n".join(content.split("\r\n")).strip()
    type_, module = type_ or detect_type(text), module.strip()
    metadata = {"type": type_, "module": module, "source": source.strip(), "date": utc_now()}
    metadata["session"] = session_id
    metadata = {key: value for key, value in metadata.items() if value}
    notice = ""
    new = _document(str(uuid.uuid4()), text, metadata)
    vector = _vector_to_compare(model, text, type_, module)
    with model.database.write() as connection:
        collection_id = make_discoveries(connection)
        found = candidates(connection, text, type_, module)
        same = repeated(connection, found, vector)
        if same is not None:
            old = json.loads(same["metadata"])
            kept = text if len(text) > len(same["content"]) else same["content"]
            merged = {**metadata, **old, "date": metadata["date"]}
            merged["times"] = old.get("times", 1) + 1
            new = _document(same["id"], kept, merged)
        store_document(connection, collection_id, new, same["document_id"] if same else None)
        tidy_a_little(connection)
    try:
        embed_pending(model, within=collection_range(collection_id))
    except EmbeddingError as error:
        notice = f"recorded without an embedding: {error.message}"
    return Recorded(new.path, type_, module, "merged" if same else "recorded", notice)


def search_discoveries(
    model: ModelInUse, text: str, type_: str = "", module: str = "", limit: int = 5
) -> tuple[list[dict[str, Any]], int, str]:
    """The best discoveries, how many there are in all, and a notice.

    The filters act before the ranking.

    Neighbours of equal score are ordered by how much their module is worked on.

    Raises:
        NoEmbeddings: nothing is embedded yet.
        EmbeddingError: the query cannot be embedded.
    """
    query = parse_query(text)
    with model.database.read() as connection:
        chunk_range = collection_range(find_discoveries(connection) or 0)
        if not has_vectors(connection, chunk_range):
            raise NoEmbeddings(
                "No embeddings found. Run initial session to generate context.",
                fallback="Use grep_codebase for text search",
            )
        if query.is_blank or not chunks_of_discoveries(connection, type_, module):
            return [], 0, ""
    try:
        vectors = model.embed_queries([query.words_to_embed])
    except EmbeddingError as error:
        raise EmbeddingError("Failed to generate query embedding", details=error.message) from error
    vector = vectors[0] if vectors else None
    with model.database.read() as connection:
        only = chunks_of_discoveries(connection, type_, module)
        query, (wanted, unwanted), notice = enforced(connection, query, [chunk_range])
        only = (only if wanted is None else only & wanted) - (unwanted or set())
        hits = search(
            connection,
            query,
            vector,
            ranges=[chunk_range],
            limit=2 * DEPTH,
            calibration=calibration_of(connection),
            english_model=has_english_model(connection),
            filters=(only, None),
            depth=DEPTH,
        )
        rows = discoveries_of_chunks(connection, (hit.chunk_id for hit in hits))
        weights = module_scores(connection)
    best: dict[int, dict[str, Any]] = {}
    for hit in hits:
        row = rows[hit.chunk_id]
        best.setdefault(row["document_id"], {**_shown(row), "score": hit.score})
    found: list[dict[str, Any]] = []
    for _, tied in groupby(best.values(), key=lambda one: one["score"]):
        found += sorted(tied, key=lambda one: -weights.get(one.get("module", ""), 0.0))
    return found[:limit], len(found), notice


def all_discoveries(connection: Connection) -> list[dict[str, Any]]:
    """Every discovery, by module, type and date."""
    return [_shown(row) for row in stored_discoveries(connection)]


def as_markdown(discoveries: Sequence[dict[str, Any]]) -> str:
    """The discoveries as a page with a chapter a module and a section a type."""
    lines = ["# Discoveries"]
    module = type_ = None
    for one in discoveries:
        if one.get("module", "") != module:
            module, type_ = one.get("module", ""), None
            lines += ["", f"## {module or 'The whole project'}"]
        if one["type"] != type_:
            type_ = one["type"]
            lines += ["", f"### {type_.capitalize()}s", ""]
        text = one["content"].replace("\n", "\n  ")
        source = f", {one['source']}" if one["source"] != "discovery" else ""
        lines.append(f"- {text} ({one['date'][:10]}{source}, id {one['id'][:SHOWN_ID]})")
    return "\n".join(lines) + "\n"


def _refuse_secrets(fields: Mapping[str, str]) -> None:
    """What is recorded is shown to every later session, and copied with the file."""
    found = {name: secrets for name, text in fields.items() if (secrets := secrets_in(text))}
    if found:
        said = {
            name: [f"line {secret.line} looks like a secret: {secret.kind}" for secret in secrets]
            for name, secrets in found.items()
        }
        kinds = {secret.kind: None for secrets in found.values() for secret in secrets}
        raise UsageError(
            f"Not recorded, since it seems to hold a secret ({', '.join(kinds)}): say where it is "
            "kept instead. A person who knows better can say `kb record --allow-secrets TEXT`",
            details={"fieldErrors": said},
        )


def _shown(row: Row) -> dict[str, Any]:
    metadata = json.loads(row["metadata"])
    shown = {"id": row["id"], "type": metadata["type"], "content": row["content"]}
    shown |= {key: metadata[key] for key in ("module", "session") if metadata.get(key)}
    return {**shown, "date": metadata["date"], "source": metadata.get("source", "discovery")}


def _document(discovery_id: str, text: str, metadata: dict[str, Any]) -> NewDocument:
    # Plain text, and without a title: what is embedded is what was said.
    parsed = dataclasses.replace(parse(text, "discovery.txt"), title="")
    return NewDocument(
        path=discovery_id,
        text=text,
        content_hash=hashlib.sha256(text.encode()).digest(),
        parsed=parsed,
        chunks=chunk(text, parsed, load_tokenizer()),
        metadata=metadata,
    )


def _vector_to_compare(
    model: ModelInUse, text: str, type_: str, module: str
) -> NDArray[np.float32] | None:
    """The text's vector, where `repeated` needs one and there is a model."""
    with model.database.read() as connection:
        found = candidates(connection, text, type_, module)
        if not found or repeated(connection, found, None):
            return None
    try:
        return model.embed_passage(text)
    except EmbeddingError:
        return None

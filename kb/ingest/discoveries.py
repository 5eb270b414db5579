"""What an assistant learned about a project: recorded, merged, found again, exported.

A discovery is a small document in a collection of its own kind, embedded at once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kb.errors import EmbeddingError, UsageError
from kb.formats.chunk import chunk
from kb.formats.parse import parse
from kb.ingest.embed import embed_pending
from kb.ingest.forget import find_discovery
from kb.ingest.near_duplicates import candidates, nearest_repetition
from kb.model_in_use import ModelInUse
from kb.models.tokens import load_tokenizer
from kb.results.memory import NearDiscovery, RecordedDiscovery
from kb.search.evidence import related_documents
from kb.search.families import discovery_fields
from kb.search.files import Snapshot
from kb.store.connection import Connection
from kb.store.contents import collection_range
from kb.store.discoveries import (
    discoveries_of_chunks,
    make_discoveries,
    set_metadata,
    stored_discoveries,
)
from kb.store.documents import NewDocument, store_called_document
from kb.store.vectors import chunk_vectors, mean_vector
from kb.text.secrets import secrets_in
from kb.text.times import utc_now

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


MAX_NEAR = 3
MAX_CANDIDATES = 20
NEAR_SCORE = 0.3

_TYPE_SIGN = re.compile(
    r"""(?<!\w) (?:
      (?P<pattern>  we[ ]use\b | pattern[ ]is\b | convention: )
    | (?P<rule>     \A never\b | rule: | must[ ]always\b | requirement: )
    | (?P<decision> decision: | decided[ ]to\b | chose\b | went[ ]with\b )
    | (?P<issue>    bug: | issue: | fixed: )
    )""",
    re.IGNORECASE | re.VERBOSE,
)


def record_discovery(
    model: ModelInUse,
    content: str,
    type_: str = "",
    module: str = "",
    source: str = "",
    *,
    supersedes: str = "",
    allow_secrets: bool = False,
    session_id: str = "",
) -> RecordedDiscovery:
    """Store a discovery, or merge it into one of its type and module that says the same.

    Of two that say the same the longer text is kept, with the date of the later.

    Args:
        supersedes: the id, or its beginning, of one that this corrects: it is found last from now.

    Raises:
        DiscoveryNotFound: there is none to supersede.
        UsageError: it would supersede itself, or holds what looks like a secret.
    """
    if not allow_secrets:
        _refuse_secrets({"content": content, "module": module, "source": source})
    text = "\n".join(content.split("\r\n")).strip()
    type_, module = type_ or detect_type(text), module.strip()
    facts = {"type": type_, "module": module, "source": source.strip(), "date": utc_now()}
    facts["session"] = session_id
    metadata: dict[str, Any] = {key: value for key, value in facts.items() if value}
    notice = ""
    new = _document(str(uuid.uuid4()), text, metadata)
    vector = _vector_to_compare(model, text, type_, module)
    with model.database.write() as connection:
        collection_id = make_discoveries(connection)
        rows = candidates(connection, text, type_, module)
        same = nearest_repetition(connection, rows, vector)
        if same is not None:
            old = json.loads(same["metadata"])
            kept = text if len(text) > len(same["content"]) else same["content"]
            merged = {**metadata, **old, "date": metadata["date"]}
            merged["times"] = old.get("times", 1) + 1
            new = _document(same["id"], kept, merged)
        if old_row := find_discovery(connection, supersedes) if supersedes else None:
            if old_row["id"] == new.path:
                raise UsageError("A discovery cannot supersede itself", field="supersedes")
            replaced = {**json.loads(old_row["metadata"]), "superseded_by": new.path}
            set_metadata(connection, old_row["document_id"], replaced)
        store_called_document(connection, collection_id, new, same["document_id"] if same else None)
    try:
        embed_pending(model, within=collection_range(collection_id))
    except EmbeddingError as error:
        notice = f"recorded without an embedding: {error.message}"
    with model.database.read() as connection:
        near = [] if old_row else _nearest(connection, collection_id, new.path)
    return RecordedDiscovery(
        id=new.path,
        type=type_,
        module=module or None,
        status="merged" if same else "recorded",
        supersedes=old_row["id"] if old_row else None,
        nearest=near or None,
        notice=notice or None,
    )


def all_discoveries(connection: Connection) -> list[dict[str, Any]]:
    """Every discovery, by module, type and date."""
    return [discovery_fields(row) for row in stored_discoveries(connection)]


def detect_type(content: str) -> str:
    """The type that the first telling words of a text indicate; by default a pattern."""
    sign = _TYPE_SIGN.search(content)
    return sign.lastgroup or "pattern" if sign else "pattern"


def _nearest(connection: Connection, collection_id: int, discovery_id: str) -> list[NearDiscovery]:
    """The discoveries in force that are about the same, nearest first."""
    itself = find_discovery(connection, discovery_id)["document_id"]
    if not (vectors := chunk_vectors(connection, itself)):
        return []
    vector = mean_vector([*vectors.values()])
    hits = related_documents(
        *(Snapshot(connection), vector, collection_range(collection_id), MAX_CANDIDATES),
        without={*vectors},
    )
    rows = discoveries_of_chunks(connection, (hit.chunk_id for hit in hits))
    near = [
        (discovery_fields(rows[hit.chunk_id]), hit.score) for hit in hits if hit.score >= NEAR_SCORE
    ]
    return [
        NearDiscovery(id=row["id"], type=row["type"], content=row["content"], score=score)
        for row, score in near
        if "superseded_by" not in row
    ][:MAX_NEAR]


def _refuse_secrets(fields: Mapping[str, str]) -> None:
    """Discoveries are shown to every later session, and copied with the file."""
    secrets = {name: rows for name, text in fields.items() if (rows := secrets_in(text))}
    if secrets:
        errors = {
            name: [f"line {row.line} looks like a secret: {row.kind}" for row in rows]
            for name, rows in secrets.items()
        }
        kinds = dict.fromkeys(row.kind for rows in secrets.values() for row in rows)
        raise UsageError(
            f"Not recorded, since it seems to hold a secret ({', '.join(kinds)}): say where it is "
            "kept instead. A person who knows better can say `kb record --allow-secrets TEXT`",
            details={"fieldErrors": errors},
        )


def _document(discovery_id: str, text: str, metadata: dict[str, Any]) -> NewDocument:
    # Plain text without a title, so that nothing else is embedded.
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
    """The text's vector, if `nearest_repetition` needs one and there is a model."""
    with model.database.read() as connection:
        rows = candidates(connection, text, type_, module)
        if not rows or nearest_repetition(connection, rows, None):
            return None
    try:
        return model.embed_passage(text)
    except EmbeddingError:
        return None

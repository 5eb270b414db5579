"""What an assistant learned about a project: recorded, merged, found again, exported.

A discovery is a small document in a collection of its own kind, embedded at once. A new one is
merged with one that it repeats: equal stems, equal negations, near in meaning. Meaning alone cannot
tell: "tests before lint" and "lint before tests" have a cosine of 0.99. So a text is cut before
each word that gives the others a direction (before, from, by, ...), and its parts are compared as
circles of stems. The measurement is in docs/decisions/0006-projects-and-context.md.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kb.errors import EmbeddingError, UsageError
from kb.formats.chunk import chunk
from kb.formats.parse import parse
from kb.ingest.embed import embed_pending
from kb.ingest.forget import find_discovery
from kb.model_in_use import ModelInUse
from kb.models.embedder import Floats
from kb.models.tokens import load_tokenizer
from kb.results.memory import NearDiscovery, RecordedDiscovery
from kb.search.evidence import related_documents
from kb.search.families import discovery_fields
from kb.search.files import Snapshot
from kb.store.connection import Connection, Row
from kb.store.contents import chunks_of_documents, collection_range
from kb.store.discoveries import (
    discoveries_of_chunks,
    make_discoveries,
    set_metadata,
    stored_discoveries,
)
from kb.store.documents import NewDocument, store_called_document
from kb.store.vectors import chunk_distances, chunk_vectors, mean_vector
from kb.text.assets import asset
from kb.text.secrets import secrets_in
from kb.text.times import utc_now

# Cosine distances. Equal stems may mean different things: "author" and "authorization" have 0.3.
# A text that the other contains among more must be closer.
SAME_DISTANCE = 0.2
PART_DISTANCE = 0.1
IN_ANY_CASE = float("inf")

Candidate = tuple[Row, float]  # with the distance up to which it is the same

_WORD = re.compile(r"(?<!\S)[-+]?\d+(?:[.,:]\d+)*|[^\W_]+(?:[._'+]*[^\W_]+)*(?:\+\+|\#)?|[<>]=?|%")
_WORDS = asset("statement-words")
_ALIASES = {form: word for word, forms in _WORDS["aliases"].items() for form in forms}
_FILLERS, _PREPOSITIONS, _NEGATIONS, _DIRECTIONS = (
    frozenset(_WORDS[kind]) for kind in ("fillers", "prepositions", "negations", "directions")
)

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


def candidates(connection: Connection, text: str, type_: str, module: str) -> list[Candidate]:
    """Discoveries of a type and module that seem to say the same as a text, or part of it."""
    stems: dict[str, str] = {}

    def stem(word: str) -> str:
        if word not in stems:
            stems[word] = "".join(term for _, _, term in connection.tokenize(word, stem=True))
        return stems[word] or word

    new = _read_statement(text, stem)
    rows: list[Candidate] = []
    for row in stored_discoveries(connection):
        metadata = json.loads(row["metadata"])
        if (metadata["type"], metadata.get("module", "").casefold()) != (type_, module.casefold()):
            continue
        old = _read_statement(row["content"], stem)
        if new.words == old.words:
            rows.append((row, IN_ANY_CASE))
        elif new.repeats(old):
            is_whole = len(new.stems) == len(old.stems)
            rows.append((row, SAME_DISTANCE if is_whole else PART_DISTANCE))
    return rows


def nearest_repetition(
    connection: Connection, rows: list[Candidate], vector: Floats | None
) -> Row | None:
    """The candidate that says the same; without the text's vector, one in the same words."""
    near: list[tuple[float, int, Row]] = []
    for row, limit in rows:
        if limit == IN_ANY_CASE:
            return row
        if vector is not None:
            ids = chunks_of_documents(connection, [row["document_id"]])
            distances = chunk_distances(connection, vector, [*ids])
            if (distance := min(distances.values(), default=IN_ANY_CASE)) <= limit:
                near.append((distance, row["document_id"], row))
    return min(near, key=lambda entry: entry[:2])[2] if near else None


@dataclass(frozen=True, slots=True)
class _Statement:
    """A text as words without fillers, and their stems in parts."""

    words: tuple[str, ...]
    negations: Counter[str]
    parts: list[list[str]]  # each behind the word that it begins with, "" for the first

    @property
    def stems(self) -> list[str]:
        return [stem for part in self.parts for stem in part[1:]]

    def repeats(self, other: _Statement) -> bool:
        """Whether one of the two says nothing that the other does not."""
        few, many = sorted((self, other), key=lambda statement: len(statement.stems))
        if not few.stems or few.negations != many.negations:
            return False
        if _comes_in(few.stems, many.stems):
            return True
        # "The order service calls the billing service": a repeated word ties others to itself.
        if len(set(few.stems)) < len(few.stems):
            return False
        # "Commit no files" is "files are not committed", but "A feeds B" is not "B feeds A".
        return _fits(few.parts, many.parts) or _fits(_joined(few.parts), _joined(many.parts))


def _fits(few: list[list[str]], many: list[list[str]]) -> bool:
    """Whether each part fits in another with the same first word, read round from any word."""
    rest = list(many)
    for lead, *part in few:
        for match in rest:
            turns = (match[at:] + match[1:at] for at in range(1, max(len(match), 2)))
            if match[0] == lead and any(_comes_in(part, turn) for turn in turns):
                rest.remove(match)
                break
        else:
            return False
    return True


def _joined(parts: list[list[str]]) -> list[list[str]]:
    """The parts between words of direction alone, for "on macOS the watcher fails"."""
    wide = [[""]]
    for lead, *part in parts:
        if lead in _DIRECTIONS:
            wide.append([lead])
        wide[-1] += part
    return wide


def _comes_in(few: list[str], many: list[str]) -> bool:
    rest = iter(many)
    return all(stem in rest for stem in few)


def _read_statement(text: str, stem: Callable[[str], str]) -> _Statement:
    words = _words(text)
    negations = Counter(word for word in words if word in _NEGATIONS)
    if negations:  # "not all" and "all ... not" differ; elsewhere "all" says nothing
        negations += Counter(word for word in words if word == "all")
    parts = [[""]]
    for word in words:
        if word in _DIRECTIONS or word in _PREPOSITIONS:
            parts.append([word])
        if word == "all" or word in _NEGATIONS:
            continue
        # Porter gives "deploy" for deployment, and "deploi" for deploy: so twice.
        root = stem(stem(word)) if word.isalpha() else word
        if root not in _FILLERS and word not in _PREPOSITIONS and word != "of":
            parts[-1].append(root)
    return _Statement(words, negations, parts)


@lru_cache(maxsize=1 << 12)
def _words(text: str) -> tuple[str, ...]:
    plain = re.sub(r"n['’]t\b", " not", text.casefold())
    words = (_ALIASES.get(word, word) for word in _WORD.findall(plain))
    return tuple(word for word in words if word not in _FILLERS)


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
    """As `Memory.record`. Of two that say the same the longer text is kept, with the later date."""
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
    content_hash = hashlib.sha256(text.encode()).digest()
    chunks = chunk(text, parsed, load_tokenizer())
    return NewDocument(discovery_id, text, content_hash, parsed, chunks, metadata=metadata)


def _vector_to_compare(model: ModelInUse, text: str, type_: str, module: str) -> Floats | None:
    """The text's vector, if `nearest_repetition` needs one and there is a model."""
    with model.database.read() as connection:
        rows = candidates(connection, text, type_, module)
        if not rows or nearest_repetition(connection, rows, None):
            return None
    try:
        return model.embed_passage(text)
    except EmbeddingError:
        return None

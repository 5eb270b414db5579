"""What the benchmarks share: real text at any size in a file, and questions about it.

The documents of a folder are taken as they are, then five times with their paragraphs shuffled by
a seed; from then on these five come again under other titles, until there are enough passages. All
goes through kb's own parser, chunker and store. Vectors are the packaged model's for the documents
as they are (the first 4,000 passages at most). A passage of a copy gets the vector of the passage
that its first paragraph came from, moved by noise of .4 of its length (a cosine of about .93):
embedding a million passages would take five hours.
"""

from __future__ import annotations

import hashlib
import random
import re
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import record  # noqa: F401 - says where kb is

from kb.formats.chunk import chunk
from kb.formats.parse import parse
from kb.ingest.embed import THREADS, embed_pending
from kb.ingest.engine import Engine
from kb.model_in_use import ModelInUse
from kb.models.embedder import quantize
from kb.models.tokens import load_tokenizer
from kb.store.collections import insert_collection
from kb.store.connection import Connection
from kb.store.contents import chunk_ids, count_waiting
from kb.store.database import Database
from kb.store.documents import NewDocument, store_document
from kb.store.vectors import (
    current_model,
    insert_vectors,
    rebuild_document_vectors,
    rebuild_slabs,
    set_chunk_vectors,
    vectors_of,
)

SHUFFLED = 5  # copies of each document that differ in more than their title
REAL_VECTORS = 4_000
NOISE = 0.4
PART = 100  # every so many a document goes into the collection "part", a hundredth of all
BATCH = 40  # documents a transaction


@dataclass(slots=True)
class Original:
    """A document as it was found, with the vectors of its passages by their first paragraph."""

    path: str
    paragraphs: list[str]
    vectors: dict[str, np.ndarray] = field(default_factory=dict)

    def text(self, copy: int) -> str:
        """The document, or a copy of it: its heading stays in front."""
        if not copy:
            return "\n\n".join(self.paragraphs)
        head, *rest = self.paragraphs
        random.Random(f"{copy} {self.path}").shuffle(rest)
        return "\n\n".join([head, *rest])


def originals(folder: Path) -> list[Original]:
    """The Markdown documents of a folder, in a random order by a seed."""
    found = []
    for path in sorted(folder.rglob("*.md")):
        text = path.read_text(encoding="utf-8", errors="replace")
        paragraphs = [one for one in re.split(r"\n\s*\n", text) if one.strip()]
        if len(paragraphs) > 1:
            found.append(Original(path.relative_to(folder).as_posix(), paragraphs))
    if not found:
        sys.exit(f"no Markdown documents in {folder}")
    random.Random(1).shuffle(found)
    return found


class Corpus:
    """A file that grows to the sizes that are asked for."""

    def __init__(self, folder: Path, file: Path, engine: Engine = THREADS) -> None:
        self.engine = engine
        self.documents = originals(folder)
        self.file = file
        self.database = Database(file)
        self.text_seconds = self.vector_seconds = 0.0  # of the processor
        self._read: dict[tuple[int, str], NewDocument] = {}
        self._dice = np.random.default_rng(1)
        self._next = self._documents()
        with self.database.write() as connection:
            self._collections = [
                insert_collection(connection, name, "documents") for name in ("all", "part")
            ]

    def grow(self, passages: int) -> None:
        """Add documents until the file has so many passages."""
        while True:
            with self.database.read() as connection:
                count = len(chunk_ids(connection))
                is_embedded = current_model(connection) is not None
            if not is_embedded and count >= min(passages, REAL_VECTORS):
                self._embed()
                is_embedded = True
            if count >= passages:
                self.database.merge_log()
                return
            print(f"\r{count:,} of {passages:,} passages", end="", file=sys.stderr, flush=True)
            batch = [next(self._next) for _ in range(1 if passages - count < 1000 else BATCH)]
            self._store(batch, with_vectors=is_embedded)

    @property
    def seconds(self) -> dict[str, float]:
        """Of the processor, for text and for ready vectors."""
        return {"text_seconds": self.text_seconds, "vector_seconds": self.vector_seconds}

    def _documents(self) -> Iterator[tuple[int, Original, int]]:
        number = 0
        for copy in range(10**6):
            for original in self.documents:
                yield copy, original, number
                number += 1

    def _store(self, batch: list[tuple[int, Original, int]], *, with_vectors: bool) -> None:
        started = time.process_time()
        stored: dict[int, Original] = {}
        with self.database.write() as connection:
            for copy, original, number in batch:
                collection = self._collections[number % PART == 7]
                new = self._prepared(copy, original)
                stored[store_document(connection, collection, new)] = original
            self.text_seconds += time.process_time() - started
            if with_vectors:
                started = time.process_time()
                self._give_vectors(connection, stored)
                self.vector_seconds += time.process_time() - started

    def _prepared(self, copy: int, original: Original) -> NewDocument:
        shuffled = copy if copy <= SHUFFLED else copy % SHUFFLED + 1
        key = shuffled, original.path
        if (known := self._read.get(key)) is None:
            text = original.text(shuffled)
            parsed = parse(text, original.path)
            digest = hashlib.sha256(text.encode()).digest()
            chunks = chunk(text, parsed, load_tokenizer())
            known = NewDocument("", text, digest, parsed, chunks)
            if shuffled:
                self._read[key] = known
        parsed = known.parsed
        if copy > SHUFFLED:  # under another title its passages are other texts to a model
            parsed = replace(parsed, title=f"{parsed.title} {copy}")
        return replace(known, path=f"{copy}/{original.path}", parsed=parsed)

    def _give_vectors(self, connection: Connection, documents: dict[int, Original]) -> None:
        model = current_model(connection)
        assert model is not None
        chunks: list[tuple[int, bytes]] = []
        vectors: dict[bytes, bytes] = {}
        for document_id, original in documents.items():
            for chunk_id, text_hash, start in _chunks(connection, document_id):
                chunks.append((chunk_id, text_hash))
                vectors[text_hash] = self._moved(original.vectors.get(start))
        insert_vectors(connection, model["model_id"], vectors.items())
        ids = vectors_of(connection, model["model_id"], list(vectors))
        set_chunk_vectors(connection, ((one, key, ids[key]) for one, key in chunks))
        rebuild_slabs(connection, [one for one, _ in chunks])
        rebuild_document_vectors(connection, sorted(documents))

    def _moved(self, vector: np.ndarray | None) -> bytes:
        """A vector near another one; near any of the real ones where there is none."""
        if vector is None:
            vector = self._known[self._dice.integers(len(self._known))]
        noise = self._dice.standard_normal(len(vector))
        moved = vector + NOISE * noise / np.linalg.norm(noise)
        return quantize(moved.reshape(1, -1).astype(np.float32))[0].tobytes()

    def _embed(self) -> None:
        """Embed what is there by the model, and keep the vectors for the copies."""
        print("\nembedding them", file=sys.stderr, flush=True)
        embed_pending(ModelInUse(self.database), engine=self.engine)
        with self.database.read() as connection:
            assert not count_waiting(connection)
            rows = connection.apsw.execute(
                "SELECT path, content, start_character, end_character, vector FROM chunks "
                "JOIN documents USING (document_id) JOIN vectors USING (vector_id)"
            ).fetchall()
        by_path = {f"0/{one.path}": one for one in self.documents}
        self._known = []
        for path, content, start, end, blob in rows:
            vector = np.frombuffer(blob, np.int8).astype(np.float64)
            vector /= np.linalg.norm(vector)
            self._known.append(vector)
            for paragraph in content[start:end].split("\n\n"):
                by_path[path].vectors.setdefault(_beginning(paragraph), vector)


def _chunks(connection: Connection, document_id: int) -> list[tuple[int, bytes, str]]:
    """The passages of a document: id, hash, and how the first paragraph begins."""
    rows = connection.apsw.execute(
        "SELECT chunk_id, text_hash, substr(content, start_character + 1, 400) FROM chunks "
        "JOIN documents USING (document_id) WHERE document_id = ?",
        (document_id,),
    ).fetchall()
    return [(one, key, _beginning(text)) for one, key, text in rows]


def _beginning(paragraph: str) -> str:
    return paragraph.strip().partition("\n")[0][:80]


def questions(file: Path, count: int, words: int = 8) -> list[str]:
    """So many words in a row out of passages chosen by a seed."""
    dice = random.Random(2)
    found: list[str] = []
    with Database(file, create=False) as database, database.read() as connection:
        ids = [
            one
            for (one,) in connection.apsw.execute("SELECT document_id FROM documents LIMIT 5000")
        ]
        while len(found) < count:
            ((text,),) = connection.apsw.execute(
                "SELECT content FROM documents WHERE document_id = ?", (dice.choice(ids),)
            ).fetchall()
            plain = re.findall(r"[A-Za-z]+", text)
            if len(plain) > 4 * words:
                start = dice.randrange(len(plain) - words)
                found.append(" ".join(plain[start : start + words]))
    return found


def memory_mb() -> tuple[float, float]:
    """What this process holds: memory of its own, and pages of files that the system takes back."""
    lines = Path("/proc/self/status").read_text().splitlines()
    held = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
    own, mapped = (int(held[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile"))
    return own, mapped


def peak_memory_mb() -> float:
    """What this process held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

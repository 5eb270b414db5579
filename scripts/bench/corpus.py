"""What the benchmarks share: real text at any size in a file, and questions about it.

The documents of a folder are taken as they are, then five times with their paragraphs shuffled by
a seed; from then on these five come again under other titles, until there are enough passages. All
goes through kb's own parser, chunker and store. Vectors are the packaged model's for the documents
as they are (the first 4,000 passages at most). A passage of a copy gets the vector of the passage
that its first paragraph came from, moved by noise of .4 of its length (a cosine of about .93), or
as a neighbour: by the difference between another passage and one of its ten nearest, so that copies
lie as real neighbours lie. Embedding a million passages would take five hours.
"""

from __future__ import annotations

import hashlib
import random
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
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
from kb.store.contents import count_waiting
from kb.store.database import Database
from kb.store.documents import NewDocument, store_document
from kb.store.vectors import (
    current_model,
    insert_vectors,
    rebuild_all_vectors,
    rebuild_document_vectors,
    rebuild_slabs,
    set_chunk_vectors,
    vectors_of,
)

SHUFFLED = 5  # copies of each document that differ in more than their title
REAL_VECTORS = 4_000
NOISE = 0.4
NEIGHBOURS = 10
ALIKE = 16  # words of one length, neighbours by frequency, that take each other's places
PART = 100  # every so many a document goes into the collection "part", a hundredth of all
COUNTED = 700  # documents whose words say how frequent words are
MOVED_AT_ONCE = 50_000  # vectors
_WORD = re.compile(r"[A-Za-z]{4,}")
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

    def __init__(
        self, folder: Path, file: Path, engine: Engine = THREADS, *, as_neighbours: bool = False
    ) -> None:
        self.engine = engine
        self._as_neighbours = as_neighbours
        self.documents = originals(folder)
        self.file = file
        self.database = Database(file)
        self.text_seconds = self.vector_seconds = 0.0  # of the processor
        self._read: dict[tuple[int, str], NewDocument] = {}
        self._dice = np.random.default_rng(1)
        self._passages = 0
        self._next = self._documents()
        with self.database.write() as connection:
            self._collections = [
                insert_collection(connection, name, "documents") for name in ("all", "part")
            ]

    def grow(self, passages: int) -> None:
        """Add documents until the file has so many passages."""
        while True:
            with self.database.read() as connection:
                is_embedded = current_model(connection) is not None
            count = self._passages
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
                self._passages += len(new.chunks)
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
        if self._as_neighbours:
            moved = vector + self._differences[self._dice.integers(len(self._differences))]
        else:
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
        vectors = []
        for path, content, start, end, blob in rows:
            vector = unit([blob])[0]
            vectors.append(vector)
            for paragraph in content[start:end].split("\n\n"):
                by_path[path].vectors.setdefault(_beginning(paragraph), vector)
        self._known = np.array(vectors)
        self._differences = differences(self._known)


def unit(blobs: Sequence[bytes]) -> np.ndarray:
    """Stored vectors, each of length 1."""
    vectors = np.frombuffer(b"".join(blobs), np.int8).reshape(len(blobs), -1).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def differences(vectors: np.ndarray) -> np.ndarray:
    """From each vector to its nearest neighbours."""
    order = np.argsort(-vectors @ vectors.T, axis=1)[:, 1 : NEIGHBOURS + 1]
    return (vectors[order] - vectors[:, None]).reshape(-1, vectors.shape[1])


def reword(file: Path, seed: int) -> None:
    """Make other documents of a copy of a corpus: a word becomes another of the same length that is
    about as frequent, so that every place in the text stays, and vectors are drawn anew. It takes a
    quarter of what a new corpus takes."""
    dice, noise = random.Random(seed), np.random.default_rng(seed)
    with Database(file, create=False) as database, database.write() as connection:
        execute = connection.apsw.execute
        ids = [one for (one,) in execute("SELECT document_id FROM documents").fetchall()]
        select = "SELECT title, content FROM documents WHERE document_id = ?"
        counted = Counter(
            word.lower()
            for one in ids[:COUNTED]
            for word in _WORD.findall(execute(select, (one,)).fetchall()[0][1])
        )
        others = _exchanged(counted, dice)
        reworded: dict[str, str] = {}
        for one in ids:
            ((title, content),) = execute(select, (one,)).fetchall()
            for text in (title, content):
                if text not in reworded:
                    reworded[text] = _WORD.sub(lambda word: others.get(word[0], word[0]), text)
            execute(
                "UPDATE documents SET path = ? || '/' || path, title = ?, content = ?, "
                "content_hash = ? WHERE document_id = ?",
                (seed, reworded[title], reworded[content], dice.randbytes(32), one),
            )
        later = "strftime('%Y-%m-%dT%H:%M:%SZ', created_at, ? || ' days')"
        execute(f"UPDATE collections SET created_at = {later}", (seed,))  # else a copy of one file
        execute("INSERT INTO keyword_index (keyword_index) VALUES ('rebuild')")
        numbers = [one for (one,) in execute("SELECT vector_id FROM vectors ORDER BY 1").fetchall()]
        real = "SELECT vector FROM vectors ORDER BY vector_id LIMIT ?"
        known = unit([blob for (blob,) in execute(real, (REAL_VECTORS,)).fetchall()])
        steps = differences(known)
        for start in range(0, len(numbers), MOVED_AT_ONCE):
            some = numbers[start : start + MOVED_AT_ONCE]
            moved = known[noise.integers(len(known), size=len(some))]
            moved = moved + steps[noise.integers(len(steps), size=len(some))]
            connection.apsw.executemany(
                "UPDATE vectors SET vector = ? WHERE vector_id = ?",
                ((row.tobytes(), one) for row, one in zip(quantize(moved), some, strict=True)),
            )
        rebuild_all_vectors(connection)


def _exchanged(counted: Counter[str], dice: random.Random) -> dict[str, str]:
    """What each word becomes, in lower case, with a capital, and in capitals."""
    by_length: dict[int, list[str]] = {}
    for word, _ in counted.most_common():
        by_length.setdefault(len(word), []).append(word)
    others: dict[str, str] = {}
    for words in by_length.values():
        for start in range(0, len(words), ALIKE):
            alike = words[start : start + ALIKE]
            for word, other in zip(alike, dice.sample(alike, len(alike)), strict=True):
                others |= {word: other, word.capitalize(): other.capitalize()}
                others[word.upper()] = other.upper()
    return others


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

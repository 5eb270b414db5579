"""Measure a search by part, on real text at several sizes.

FOLDER holds Markdown documents, which are copied with shuffled paragraphs until there are so many
passages; `scripts/bench/corpus.py` says where the vectors come from. Each size is searched by a
process of its own for each of --parts, with --questions of eight words in a row that stand in the
documents. Times are of the processor, which other work on the machine disturbs least. With --keep
the files stay and are used again; with --record the figures go into docs/performance.json, of
which `scripts/docs` writes its pages.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from corpus import Corpus, memory_mb, questions
from record import Figures, measured_at, percentiles, record
from report import search_table, size_table

from kb.model_in_use import calibration_of
from kb.models.embedder import quantize
from kb.models.english import EnglishEmbedder
from kb.search.hybrid import Collected, collect, ranked, search
from kb.search.keywords import literal_hits, word_hits
from kb.search.lookup import look_up, telling
from kb.search.passages import search_files
from kb.search.query import match_alternatives, parse_query
from kb.search.rows import load_rows
from kb.store.chunks import count_chunks
from kb.store.collections import find_collection_id
from kb.store.connection import Connection
from kb.store.database import Database
from kb.store.ids import WHOLE_FILE, collection_range
from kb.store.vectors import nearest_chunks
from kb.tools.session import open_session

BLOCK = 50_000  # vectors that are compared exactly at a time


def timed(work: Callable[[int], object], count: int) -> list[float]:
    """Milliseconds of processor time of each call, after one that warms up."""
    work(0)
    times = []
    for number in range(count):
        start = time.process_time()
        work(number)
        times.append((time.process_time() - start) * 1000)
    return times


def exact(connection: Connection, vectors: np.ndarray, depth: int) -> list[list[int]]:
    """The chunks that are nearest to each of some vectors, best first, by comparing all."""
    asked = quantize(vectors).astype(np.float32)
    best_ids = np.zeros((len(asked), 0), np.int64)
    best = np.zeros((len(asked), 0), np.float32)
    rows = connection.apsw.execute(
        "SELECT chunk_id, vector FROM chunks JOIN vectors USING (vector_id)"
    )
    while block := list(islice(rows, BLOCK)):
        matrix = np.frombuffer(b"".join(blob for _, blob in block), np.int8)
        matrix = matrix.reshape(len(block), -1).astype(np.float32)
        matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
        ids = np.array([one for one, _ in block])
        best = np.concatenate([best, asked @ matrix.T], axis=1)
        best_ids = np.concatenate([best_ids, np.tile(ids, (len(asked), 1))], axis=1)
        order = np.argsort(-best, axis=1)[:, :depth]
        best, best_ids = np.take_along_axis(best, order, 1), np.take_along_axis(best_ids, order, 1)
    return [row.tolist() for row in best_ids]


def recall(found: Sequence[list[int]], wanted: Sequence[list[int]], depth: int) -> float:
    pairs = zip(found, wanted, strict=True)
    return float(np.mean([len({*one[:depth]} & {*right[:depth]}) / depth for one, right in pairs]))


def lists(file: Path, count: int) -> Figures:
    """The parts of a search, what they find, and the sizes of the file."""
    texts = questions(file, count)
    vectors = EnglishEmbedder().embed_queries(texts)
    with Database(file, create=False) as database, database.read() as connection:
        ((size,),) = connection.apsw.execute(
            "SELECT sum(octet_length(content)) FROM documents"
        ).fetchall()
        return {
            "questions": count,
            "passages": count_chunks(connection),
            "file_mb": file.stat().st_size / 1e6,
            "text_mb": size / 1e6,
            **_parts(connection, texts, vectors),
        }


def whole(file: Path, count: int) -> Figures:
    """A search as a tool runs it, with embedding questions that were not asked before."""
    texts = questions(file, 3 * count + 2)
    embedder = EnglishEmbedder()
    with open_session(Database(file, create=False), make_embedder=lambda _: embedder) as session:
        fresh = iter(texts)

        def search_in(names: list[str]) -> Callable[[int], object]:
            return lambda _: search_files(
                session.files, [(next(fresh), names)], 10, 2.0, True, False
            )

        found = {
            "search": percentiles(timed(search_in([]), count)),
            "search_in_part": percentiles(timed(search_in(["part"]), count)),
        }
        own, mapped = memory_mb()
        return found | {"memory_with_model_mb": own, "mapped_with_model_mb": mapped}


def bare(file: Path, count: int) -> Figures:
    """What a process holds that searches and has no model."""
    dice = np.random.default_rng(3)
    with Database(file, create=False) as database, database.read() as connection:
        for text in questions(file, min(count, 20)):
            vector = dice.standard_normal(384).astype(np.float32)
            search(connection, parse_query(text), vector / np.linalg.norm(vector))
        own, mapped = memory_mb()
        return {"memory_mb": own, "mapped_mb": mapped}


PARTS = {one.__name__: one for one in (lists, whole, bare)}


def _parts(connection: Connection, texts: list[str], vectors: np.ndarray) -> Figures:
    queries = [parse_query(text) for text in texts]
    found_by = [telling(connection, match_alternatives(query)) for query in queries]
    collected = [
        collect(connection, query, vector) for query, vector in zip(queries, vectors, strict=True)
    ]
    part = collection_range(find_collection_id(connection, "part") or 0)
    found = [
        [one for one, _ in nearest_chunks(connection, vector, [WHOLE_FILE], 100)]
        for vector in vectors
    ]
    wanted = exact(connection, vectors, 100)
    parts: dict[str, Callable[[int], object]] = {
        "count_words": lambda i: telling(connection, match_alternatives(queries[i])),
        "keyword_list": lambda i: word_hits(connection, *found_by[i], [WHOLE_FILE], 300),
        "literal_list": lambda i: literal_hits(connection, queries[i], [WHOLE_FILE], {}),
        "vector_list": lambda i: nearest_chunks(connection, vectors[i], [WHOLE_FILE], 100),
        "vector_list_in_part": lambda i: nearest_chunks(connection, vectors[i], [part], 100),
        "ranking": lambda i: rank_again(connection, collected[i]),
        "rows": lambda i: load_rows(connection, found[i][:10]),
        "search_without_query_vector": lambda i: search(
            connection, queries[i], vectors[i], calibration=calibration_of(connection)
        ),
    }
    figures: Figures = {name: percentiles(timed(work, len(texts))) for name, work in parts.items()}
    figures["recall_10"] = recall(found, wanted, 10)
    figures["recall_100"] = recall(found, wanted, 100)
    return figures


def rank_again(connection: Connection, known: Collected) -> object:
    """What evidence costs beside the lists: words looked up, all that is known, scores, order."""
    words = known.words
    assert words is not None
    document_of = {row[0]: row[1] for row in known.rows}
    look_up(connection, words.units, words.alternatives, document_of, known.passages.lengths)
    return ranked([known], 10)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/bench/search",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, nargs="?", help="of Markdown documents")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[10_000, 100_000], help="in passages"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the files stay")
    parser.add_argument("--record", action="store_true", help="into docs/performance.json")
    parser.add_argument("--questions", type=int, default=100, help="of each part, by default 100")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(PARTS[options.parts[0]](options.measure, options.questions)))
        return
    if options.folder is None:
        parser.error("FOLDER is missing")
    with tempfile.TemporaryDirectory() as scratch:
        place = options.keep or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        growing = place / "growing.db"
        asked = ["--questions", str(options.questions)]
        corpus: Corpus | None = None
        columns: dict[str, Figures] = {}
        for size in sorted(options.sizes):
            file, built = place / f"{size}.db", place / f"{size}.json"
            if not file.exists():
                if corpus is None:
                    growing.unlink(missing_ok=True)
                    corpus = Corpus(options.folder, growing)
                corpus.grow(size)
                shutil.copy(growing, file)
                built.write_text(json.dumps(corpus.seconds))
            found = json.loads(built.read_text())
            for part in options.parts:
                done = subprocess.run(
                    [sys.executable, __file__, "--measure", file, "--parts", part, *asked],
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                found |= json.loads(done.stdout)
            columns[str(size)] = found
            if options.record:
                how = measured_at(f"scripts/bench/search {options.folder.name}")
                record("search", columns, how)
        if corpus:
            corpus.database.close()
            growing.unlink()
    if [*options.parts] == [*PARTS]:
        print(search_table(columns), size_table(columns), sep="\n\n")
    else:
        print(json.dumps(columns, indent=1))


if __name__ == "__main__":
    main()

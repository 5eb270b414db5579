"""Measure retrieval quality on judged collections: nDCG@10, recall@10, recall@100, MRR@10.

Two layouts are read: BEIR (`corpus.jsonl`, `queries.jsonl`, `qrels.tsv` or `qrels/test.tsv`),
whose documents are loaded into a file of their own, and a file of questions about documents
that are in the knowledge base already, one JSON object a line:
`{"question": ..., "document": ..., "heading": ..., "alternatives": [...]}`. Where a heading is
named, `Heading@5` says how often one of the first five rows stands below it.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.errors import FileError, SourceError
from kb.ingest.prepare import prepare_document
from kb.model_in_use import ModelInUse, made_by
from kb.search.asked import FileQuery
from kb.search.files import SearchedFile, Together
from kb.search.hybrid import ranked
from kb.search.operators import chunk_filters
from kb.search.passages import gather
from kb.search.query import Query, parse_query
from kb.search.rows import load_documents, load_rows
from kb.settings import user_cache
from kb.sources.folder import SourceFile, SourceText
from kb.store.collections import find_collection_id, insert_collection
from kb.store.connection import Connection
from kb.store.contents import document_paths
from kb.store.documents import store_document
from kb.store.embeddings import current_model
from kb.store.ids import WHOLE_FILE
from kb.text.headings import PATH_SEPARATOR

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODES = ("keyword", "vector", "hybrid")
MEASURES = ("nDCG@10", "R@10", "R@100", "RR@10", "Success@5")
HEADING_MEASURE = "Heading@5"
DEPTH = 100  # documents a query that are judged
MOST_ROWS = 10 * DEPTH  # in which they are
FIRST_ROWS = 5  # rows whose headings are
_MARKUP = re.compile(r"[`*_\\]|\s+")


@dataclass(frozen=True, slots=True)
class Judged:
    """Questions and which documents answer them, by question id; relevance above 0 is relevant."""

    questions: dict[str, str]
    relevant: dict[str, dict[str, int]]
    headings: dict[str, str] = field(default_factory=dict)  # of questions that name one


@dataclass(slots=True)
class Run:
    """What one way of searching found, by question id."""

    documents: dict[str, list[str]] = field(default_factory=dict)  # best first
    first_rows: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # with heading path


def is_beir(folder: Path) -> bool:
    """Whether a folder is a collection in BEIR layout."""
    return (folder / "corpus.jsonl").is_file()


def beir_file(folder: Path, model: str | None) -> Path:
    """The file that holds a BEIR folder with the vectors of a model, None for the one that suits.

    It is kept, so that a collection is embedded once.
    """
    key = f"{folder}\n{model}" if model else str(folder)
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return user_cache() / f"eval-{folder.name}-{digest}.db"


def read_beir(folder: Path) -> Judged:
    """The judged queries of a BEIR folder.

    Raises:
        SourceError: a file is missing or malformed.
    """
    qrels = next(
        (file for name in ("qrels.tsv", "qrels/test.tsv") if (file := folder / name).is_file()),
        None,
    )
    if qrels is None:
        raise SourceError(f"{folder} has no qrels.tsv and no qrels/test.tsv")
    relevant: dict[str, dict[str, int]] = {}
    with qrels.open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.reader(lines, delimiter="\t"), 1):
            if number == 1 and row and row[-1].strip() == "score":
                continue
            try:
                query, document, score = row
                relevant.setdefault(query, {})[f"{document}.md"] = int(score)
            except ValueError:
                raise SourceError(
                    f"{qrels}, line {number}: expected query-id, corpus-id and score, by tabs"
                ) from None
    queries = {row["_id"]: row["text"] for row in _json_lines(folder / "queries.jsonl")}
    return Judged({key: queries[key] for key in relevant if key in queries}, relevant)


def read_questions(file: Path) -> Judged:
    """Questions with the document, and perhaps the alternatives, that answer them."""
    questions: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    headings: dict[str, str] = {}
    for number, row in enumerate(_json_lines(file), 1):
        try:
            key = str(row.get("id", number))
            questions[key] = row["question"]
            relevant[key] = dict.fromkeys([row["document"], *row.get("alternatives", [])], 1)
            if row.get("heading"):
                headings[key] = str(row["heading"])
        except (KeyError, TypeError, AttributeError):
            raise SourceError(
                f"{file}, line {number}: each line needs a question and a document"
            ) from None
    return Judged(questions, relevant, headings)


def load_beir(model: ModelInUse, folder: Path, progress: Callable[[str, int, int], None]) -> None:
    """Store a BEIR folder's documents as the collection `folder.name`; once."""
    rows = list(_json_lines(folder / "corpus.jsonl"))
    with model.database.write() as connection:
        collection_id = find_collection_id(connection, folder.name)
        if collection_id is None:
            collection_id = insert_collection(connection, folder.name, "documents")
        known = set(document_paths(connection, collection_id))
        for done, row in enumerate(rows):
            progress("documents", done, len(rows))
            if (path := f"{row['_id']}.md") in known:
                continue
            text = f"# {row['title']}\n\n{row['text']}" if row.get("title") else row["text"]
            file = SourceFile(path, folder, len(text), 0)
            digest = hashlib.sha256(text.encode()).digest()
            new = prepare_document(file, SourceText(text, digest, "utf-8", ""))
            store_document(connection, collection_id, new)


def run_queries(
    files: Sequence[SearchedFile],
    judged: Judged,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> dict[str, Run]:
    """What each query finds in some files, which are searched as one, by mode."""
    runs = {mode: Run() for mode in MODES}
    for done, (key, text) in enumerate(judged.questions.items()):
        progress("queries", done, len(judged.questions))
        query = parse_query(text)
        vectors = {file: file.model.embed_queries([query.words_to_embed]) for file in files}
        together = Together(files)
        with together.read():
            for mode in MODES:
                own = {
                    file: None if mode == "keyword" or made is None else made[0]
                    for file, made in vectors.items()
                }
                found = _found(together, query, own, hybrid=mode != "vector")
                documents = list(dict.fromkeys(document for document, _ in found))
                runs[mode].documents[key] = documents[:DEPTH]
                runs[mode].first_rows[key] = found[:FIRST_ROWS]
    return runs


def _found(
    together: Together,
    query: Query,
    vectors: Mapping[SearchedFile, NDArray[np.float32] | None],
    *,
    hybrid: bool,
) -> list[tuple[str, str]]:
    """The document of each row that a query finds, and the heading path of the first ones.

    It is asked as it stands, without likely words for misspelt ones.

    Raises:
        FileError: a file does not answer; without it the figures would be others.
    """
    looked = together.each(
        lambda _, connection: FileQuery(
            query, chunk_filters(connection, query, [WHOLE_FILE]), [WHOLE_FILE], {}
        )
    )
    made = together.each(lambda _, connection: made_by(current_model(connection)))
    gathered = gather(together, looked, made, vectors, hybrid, MOST_ROWS)
    hits = ranked(list(gathered.values()), MOST_ROWS)
    origins = [[*gathered][number] for number, _ in hits]

    def own_rows(file: SearchedFile, connection: Connection) -> Iterator[tuple[str, str]]:
        ids = [
            hit.chunk_id for origin, (_, hit) in zip(origins, hits, strict=True) if origin is file
        ]
        first = [row["heading_path"] for row in load_rows(connection, ids[:FIRST_ROWS])]
        return zip_longest(load_documents(connection, ids), first, fillvalue="")

    rows = together.each(own_rows)
    if together.lost:
        raise FileError(" ".join(together.lost))
    return [next(rows[file]) for file in origins]


def measure(judged: Judged, run: Run) -> dict[str, Any]:
    """The mean of each measure, and its value for each query under "queries".

    `HEADING_MEASURE` is the share of the questions that name a heading; without any it is left out.
    """
    queries: dict[str, dict[str, float]] = {
        key: measures_of(run.documents.get(key, []), judged.relevant[key])
        for key in judged.questions
    }
    means = {
        name: sum(values[name] for values in queries.values()) / max(len(queries), 1)
        for name in MEASURES
    }
    under_heading = {
        key: float(any(_is_below(judged, key, *row) for row in run.first_rows[key]))
        for key in judged.headings
    }
    for key, value in under_heading.items():
        queries[key][HEADING_MEASURE] = value
    if under_heading:
        means[HEADING_MEASURE] = sum(under_heading.values()) / len(under_heading)
    return {**means, "queries": queries}


def measures_of(ranked: Sequence[str], relevance: Mapping[str, int]) -> dict[str, float]:
    """The measures of one question, as trec_eval has them.

    Args:
        ranked: what was found, best first, nothing twice.
        relevance: of the judged documents; above 0 is relevant. The gain of nDCG is linear in it
            (Järvelin, Kekäläinen 2002), the discount log2(rank + 1).
    """
    gains = [max(relevance.get(document, 0), 0) for document in ranked]
    ideal = sorted((gain for gain in relevance.values() if gain > 0), reverse=True)
    first = next((rank for rank, gain in enumerate(gains[:10], 1) if gain), None)
    found = {depth: sum(map(bool, gains[:depth])) for depth in (5, 10, 100)}
    every = max(len(ideal), 1)
    return {
        "nDCG@10": _discounted(gains[:10]) / (_discounted(ideal[:10]) or 1.0),
        "R@10": found[10] / every,
        "R@100": found[100] / every,
        "RR@10": 1 / first if first else 0.0,
        "Success@5": float(found[5] > 0),
    }


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def _is_below(judged: Judged, key: str, document: str, heading_path: str) -> bool:
    """Whether a passage of a right document stands below the right heading."""
    wanted = _plain(judged.headings[key])
    return judged.relevant[key].get(document, 0) > 0 and wanted in map(
        _plain, heading_path.split(PATH_SEPARATOR)
    )


def _plain(heading: str) -> str:
    return "".join(_MARKUP.sub(" ", heading).split()).casefold()


def _json_lines(file: Path) -> Iterator[Any]:
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    try:
                        yield json.loads(line)
                    except ValueError as error:
                        raise SourceError(f"{file}, line {number} is no JSON: {error}") from error
    except OSError as error:
        raise SourceError(f"cannot read {file}: {error.strerror}") from error

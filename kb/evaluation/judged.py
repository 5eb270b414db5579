"""Measure retrieval quality on judged collections: nDCG@10, recall@10, recall@100, MRR@10; and what
scores are worth: whether they fall, what 0.7 tells, and whether names are found by it.

There are two layouts. Documents of BEIR's (`corpus.jsonl`, `queries.jsonl`, `qrels.tsv` or
`qrels/test.tsv`) are loaded into a separate file. A file of questions about documents that the
knowledge base has already holds one JSON object a line:
`{"question": ..., "document": ..., "heading": ..., "alternatives": [...]}`. Where a heading is
named, `Heading@5` says how often one of the first five rows stands below it.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

from kb.disk.open_databases import opened
from kb.errors import SourceError
from kb.evaluation.questions import MadeQuestion, Page
from kb.ingest.embed import embed_pending
from kb.ingest.prepare import prepare_document
from kb.ingest.report import Progress, no_progress
from kb.model_in_use import ModelInUse
from kb.models.embedder import Floats
from kb.search.candidates import FileQuery
from kb.search.evidence import Hit
from kb.search.files import SearchedFile, Snapshot
from kb.search.filters import Filters, chunk_filters
from kb.search.query import Query, parse_query
from kb.search.ranking import RELEVANT
from kb.search.rows import load_documents, load_rows
from kb.search.run import Policy, Scope, SearchRequest, run
from kb.settings import user_cache
from kb.sources.folder import SourceFile, SourceText
from kb.store.collections import find_collection_id, insert_collection
from kb.store.connection import Connection, Row
from kb.store.contents import WHOLE_FILE, document_paths, pages_of
from kb.store.database import Database
from kb.store.documents import store_document
from kb.text.headings import PATH_SEPARATOR
from kb.text.json_text import parse_json

MODES = ("keyword", "vector", "hybrid")
MEASURES = ("nDCG@10", "R@10", "R@100", "RR@10", "Success@5")
HEADING_MEASURE = "Heading@5"
DEPTH = 100  # documents a query that are judged
MAX_ROWS = 10 * DEPTH  # in which they are
FIRST_ROWS = 5  # rows whose headings are
Files = Sequence[SearchedFile]
_MARKUP = re.compile(r"[`*_\\]|\s+")
NEIGHBOURING_ROWS = 10  # whose scores are compared


@dataclass(frozen=True, slots=True)
class Judged:
    """Questions and which documents answer them, by question id; relevance above 0 is relevant."""

    questions: dict[str, str]
    relevant: dict[str, dict[str, int]]
    headings: dict[str, str] = field(default_factory=dict)  # of questions that name one


@dataclass(slots=True)
class Run:
    """The answers of one mode of search, by question id."""

    documents: dict[str, list[str]] = field(default_factory=dict)  # best first
    first_rows: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # with heading path


def is_beir(folder: Path) -> bool:
    return (folder / "corpus.jsonl").is_file()


def beir_file(folder: Path, model: str | None) -> Path:
    """The file that keeps a BEIR folder with the vectors of a model, by default the suited one."""
    key = f"{folder}\n{model}" if model else str(folder)
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return user_cache() / f"eval-{folder.name}-{digest}.db"


def read_beir(folder: Path) -> Judged:
    """The judged queries of a BEIR folder. Raises SourceError if a file is missing or malformed."""
    qrels = next(
        (file for name in ("qrels.tsv", "qrels/test.tsv") if (file := folder / name).is_file()),
        None,
    )
    if qrels is None:
        raise SourceError(f"{folder} has no qrels.tsv and no qrels/test.tsv")
    relevant: dict[str, dict[str, int]] = {}
    with opened(qrels) as stream:
        lines = io.TextIOWrapper(stream, encoding="utf-8", newline="")
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
    """Questions, each with the document and perhaps alternatives that answer it."""
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


def load_beir(model: ModelInUse, folder: Path, progress: Progress) -> None:
    rows = list(_json_lines(folder / "corpus.jsonl"))
    with model.database.write() as connection:
        collection_id = find_collection_id(connection, folder.name)
        if collection_id is None:
            collection_id = insert_collection(connection, folder.name, "documents")
        paths = set(document_paths(connection, collection_id))
        for done, row in enumerate(rows):
            progress("documents", done, len(rows))
            if (path := f"{row['_id']}.md") in paths:
                continue
            text = f"# {row['title']}\n\n{row['text']}" if row.get("title") else row["text"]
            file = SourceFile(path, folder, len(text), 0)
            digest = hashlib.sha256(text.encode()).digest()
            new = prepare_document(file, SourceText(text, digest, "utf-8", ""))
            store_document(connection, collection_id, new)


class _JudgedPolicy(Policy):
    """A query as written, over the whole file; rows are documents, the first with headings."""

    max_hits = MAX_ROWS
    corrects = False
    tells_doubts = False
    folds = False
    needs_all_files = True  # without one the figures would be others

    def __init__(self, *, use_vectors: bool) -> None:
        self._use_vectors = use_vectors

    def parse(self, text: str) -> Query:
        return parse_query(text)

    def scope(
        self, file: SearchedFile, snapshot: Snapshot, query: Query, request: SearchRequest
    ) -> Scope:
        return Scope([WHOLE_FILE])

    def filters(
        self, snapshot: Snapshot, query: Query, scope: Scope, request: SearchRequest
    ) -> tuple[Query, Filters, str]:
        return query, chunk_filters(snapshot.connection, query, scope.ranges), ""

    def embed(
        self, model: ModelInUse, texts: Sequence[str], current: Row | None
    ) -> tuple[Sequence[Floats | None], str]:
        vectors = model.embed_queries(texts, current) if self._use_vectors else None
        return vectors or [None] * len(texts), ""

    def rows(
        self,
        _: SearchedFile,
        connection: Connection,
        request: SearchRequest,
        part: tuple[FileQuery, Sequence[Hit]],
    ) -> Sequence[tuple[str, str]]:
        ids = [hit.chunk_id for hit in part[1]]
        headings = [row["heading_path"] for row in load_rows(connection, ids[:FIRST_ROWS])]
        return [*zip_longest(load_documents(connection, ids), headings, fillvalue="")]


def run_queries(files: Files, judged: Judged, progress: Progress = no_progress) -> dict[str, Run]:
    """What each query finds in files that are searched as one, by mode. Raises FileError."""
    runs = {mode: Run() for mode in MODES}
    embedded = [file for file in files if file.model.embed_queries(["is there a model?"])]
    for done, (key, text) in enumerate(judged.questions.items()):
        progress("queries", done, len(judged.questions))
        for mode, run_of_mode in runs.items():
            request = SearchRequest(text, limit=MAX_ROWS, hybrid=mode != "vector")
            policy = _JudgedPolicy(use_vectors=mode != "keyword")
            searched = embedded if mode == "vector" else files
            rows = run(searched, request, policy).rows if searched else []
            run_of_mode.documents[key] = list(dict.fromkeys(path for path, _ in rows))[:DEPTH]
            run_of_mode.first_rows[key] = rows[:FIRST_ROWS]
    return runs


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
        key: float(any(is_below(judged, key, *row) for row in run.first_rows[key]))
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
        ranked: the answer, best first, nothing twice.
        relevance: of the judged documents; above 0 is relevant. The gain of nDCG is linear in it
            (Järvelin, Kekäläinen 2002), the discount log2(rank + 1).
    """
    gains = [max(relevance.get(document, 0), 0) for document in ranked]
    ideal = sorted((gain for gain in relevance.values() if gain > 0), reverse=True)
    first = next((rank for rank, gain in enumerate(gains[:10], 1) if gain), None)
    hits = {depth: sum(map(bool, gains[:depth])) for depth in (5, 10, 100)}
    every = max(len(ideal), 1)
    return {
        "nDCG@10": _discounted(gains[:10]) / (_discounted(ideal[:10]) or 1.0),
        "R@10": hits[10] / every,
        "R@100": hits[100] / every,
        "RR@10": 1 / first if first else 0.0,
        "Success@5": float(hits[5] > 0),
    }


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def is_below(judged: Judged, key: str, document: str, heading_path: str) -> bool:
    """Whether a passage of a right document is below the right heading."""
    if judged.relevant[key].get(document, 0) <= 0:
        return False
    heading, *path = (
        "".join(_MARKUP.sub(" ", text).split()).casefold()
        for text in (judged.headings[key], *heading_path.split(PATH_SEPARATOR))
    )
    return heading in path


def _json_lines(file: Path) -> Iterator[Any]:
    try:
        with opened(file) as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    try:
                        yield parse_json(line)
                    except ValueError as error:
                        raise SourceError(f"{file}, line {number} is not JSON: {error}") from error
    except OSError as error:
        raise SourceError(f"cannot read {file}: {error.strerror}") from error


@contextlib.contextmanager
def judged_collection(
    file: SearchedFile, folder: Path, model: str | None, progress: Progress
) -> Iterator[tuple[Files, Judged]]:
    """A collection in BEIR's layout, stored and embedded in a file that later runs use again."""
    judged = read_beir(folder)
    with contextlib.closing(Database(beir_file(folder, model))) as database:
        fresh = file.model.beside(database)
        load_beir(fresh, folder, progress)
        embed_pending(fresh, progress=progress)
        yield [SearchedFile(fresh, file.names)], judged


def judged_figures(
    files: Files, judged: Judged, progress: Progress = no_progress
) -> dict[str, float]:
    """How often scores rise, and F1 at 0.7 as a share of the best threshold's."""
    pairs: list[tuple[float, bool]] = []
    rising = neighbours = relevant = 0
    for done, (key, question) in enumerate(judged.questions.items()):
        progress("scores", done, len(judged.questions))
        scores, documents = _ask(files, question)
        first = scores[:NEIGHBOURING_ROWS]
        neighbours += max(len(first) - 1, 0)
        rising += sum(after > before for before, after in pairwise(first))
        answers = judged.relevant[key]
        relevant += sum(grade > 0 for grade in answers.values())
        pairs += [(score, answers.get(path, 0) > 0) for path, score in documents.items()]
    best, threshold, at = best_threshold(pairs, relevant)
    return {
        "rising": rising / max(neighbours, 1),
        "bestF1": best,
        "bestThreshold": threshold,
        "shareOfBestF1": at / best if best else 0.0,
    }


def best_threshold(
    pairs: Sequence[tuple[float, bool]], relevant: int
) -> tuple[float, float, float]:
    """The greatest F1 of any threshold, that threshold, and F1 at 0.7.

    `pairs`: the score of each question and document, and whether that answers it; `relevant`: how
    many answers there are, found or not.
    """
    best = threshold = at = 0.0
    right = 0
    ordered = sorted(pairs, key=lambda pair: -pair[0])
    for number, (score, is_right) in enumerate(ordered, 1):
        right += is_right
        if number < len(ordered) and ordered[number][0] == score:
            continue  # equal scores pass together
        f1 = 2 * right / (number + relevant)
        if score >= RELEVANT:
            at = f1
        if f1 > best:
            best, threshold = f1, score
    return best, threshold, at


def made_figures(
    files: Files, made: Sequence[MadeQuestion], progress: Progress = no_progress
) -> list[dict[str, Any]]:
    """For each kind of question, how many come out right."""
    rows: dict[str, dict[str, Any]] = {}
    for done, question in enumerate(made):
        progress("questions", done, len(made))
        row = rows.setdefault(question.kind, {"kind": question.kind, "questions": 0})
        row["questions"] += 1
        for name, is_so in _outcome(question, *_ask(files, question.question)).items():
            row[name] = row.get(name, 0) + is_so
    return [
        {
            key: round(value / row["questions"], 4) if key not in ("kind", "questions") else value
            for key, value in row.items()
        }
        for row in rows.values()
    ]


def pages(files: Files) -> list[Page]:
    """The documents of some files, to make questions from."""
    listed: list[Page] = []
    for file in files:
        with file.database.read() as connection:
            ranges, _ = file.names.ranges(connection, [])
            listed += [Page(*row) for place in ranges for row in pages_of(connection, place)]
    return listed


def _outcome(
    question: MadeQuestion, scores: list[float], documents: dict[str, float]
) -> dict[str, bool]:
    if question.kind == "unrelated":
        return {"at0.7": max(scores, default=0.0) >= RELEVANT}
    right = max((documents.get(path, 0.0) for path in question.documents), default=0.0)
    if question.kind == "near-miss":
        order = list(documents)
        places = [order.index(path) for path in question.documents if path in order]
        wrong = [order.index(path) for path in question.behind if path in order]
        return {"before": bool(places) and (not wrong or min(places) < min(wrong))}
    return {"at0.7": right >= RELEVANT, "first": next(iter(documents), "") in question.documents}


def _ask(files: Files, question: str) -> tuple[list[float], dict[str, float]]:
    """The scores of a question's answer, by row, and the best of each document, best first."""
    rows = run(files, SearchRequest(question, limit=DEPTH)).rows
    documents: dict[str, float] = {}
    for row in rows:
        documents.setdefault(row["documentId"], row["relevanceScore"])
    return [row["relevanceScore"] for row in rows], documents

"""`kb eval`: measure retrieval quality on a judged collection."""

from __future__ import annotations

import argparse
import contextlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kb.cli import render
from kb.cli.progress import progress
from kb.errors import SourceError, UsageError
from kb.evaluation.judged import (
    HEADING_MEASURE,
    MEASURES,
    MODES,
    Judged,
    beir_file,
    is_beir,
    load_beir,
    measure,
    read_beir,
    read_questions,
    run_queries,
)
from kb.evaluation.questions import (
    MadeQuestion,
    make_questions,
    read_made_questions,
    write_questions,
)
from kb.evaluation.score_figures import judged_figures, made_figures, pages
from kb.ingest.embed import embed_pending
from kb.search.files import SearchedFile
from kb.store.database import Database
from kb.tools.session import Session


def evaluate(kb: Session, options: argparse.Namespace) -> int:
    """Print the measures of keyword, vector and hybrid search, and what the scores are worth."""
    if options.unrelated is not None:
        return _report_made(kb, _unrelated(options), options)
    if options.judged is None:
        documents = pages(kb.files)
        if not documents:
            raise UsageError("there are no documents to make questions from: `kb add` some first")
        made = make_questions(documents, options.count, options.seed)
        if options.save:
            write_questions(made, options.save)
        return _report_made(kb, made, options)
    path = Path(options.judged).expanduser().resolve()
    if path.is_dir() and is_beir(path):
        judged = read_beir(path)
        with contextlib.closing(Database(beir_file(path, options.model))) as database:
            fresh = kb.model.beside(database)
            with progress(options) as show:
                load_beir(fresh, path, show)
                embed_pending(fresh, progress=show)
            return _report([SearchedFile(fresh, kb.names)], judged, options)
    if not path.is_file():
        raise SourceError(
            f"{options.judged} is neither a folder with corpus.jsonl, queries.jsonl and qrels.tsv "
            "nor a file of questions"
        )
    if made := read_made_questions(path):
        return _report_made(kb, made, options)
    return _report(_files(kb, options), read_questions(path), options)


def _unrelated(options: argparse.Namespace) -> list[MadeQuestion]:
    """The questions of another collection, of which none should be answered here.

    Raises:
        UsageError: a collection to measure is named as well.
    """
    if options.judged is not None:
        raise UsageError("--unrelated asks about the documents you have: name no other collection")
    path = Path(options.unrelated).expanduser().resolve()
    if path.is_dir() and is_beir(path):
        judged = read_beir(path)
    elif path.is_file():
        judged = read_questions(path)
    else:
        raise SourceError(f"{options.unrelated} is neither a judged collection nor questions")
    questions = random.Random(options.seed).sample(
        sorted(judged.questions.values()), min(options.count, len(judged.questions))
    )
    return [MadeQuestion("unrelated", question) for question in questions]


def _report_made(kb: Session, made: Sequence[MadeQuestion], options: argparse.Namespace) -> int:
    files = _files(kb, options)
    with progress(options) as show:
        rows = made_figures(files, made, show)
    columns = ("kind", "questions", "at0.7", "first", "before")
    render.table({"made": rows}, rows, columns, options)
    return 0


def _files(kb: Session, options: argparse.Namespace) -> list[SearchedFile]:
    """The files that are measured as one, each with its vectors' model as it is."""
    files = kb.files
    render.remark(kb.lost, options)
    return files


def _report(files: Sequence[SearchedFile], judged: Judged, options: argparse.Namespace) -> int:
    with progress(options) as show:
        runs = run_queries(files, judged, show)
        figures = judged_figures(files, judged, show)
    measured = {mode: measure(judged, runs[mode]) for mode in MODES}
    names = (*MEASURES, HEADING_MEASURE) if judged.headings else MEASURES
    rows: list[dict[str, Any]] = [
        {"mode": mode, **{name: round(measured[mode][name], 4) for name in names}} for mode in MODES
    ]
    if options.per_query:
        for row in rows:
            row["queries"] = measured[row["mode"]]["queries"]
    scores = {name: round(value, 4) for name, value in figures.items()}
    result = {"queries": len(judged.questions), "measures": rows, "scores": scores}
    render.remark(
        f"scores: {scores['rising']:.0%} of neighbouring rows rise; F1 at 0.7 is "
        f"{scores['shareOfBestF1']:.2f} of the best, which lies at {scores['bestThreshold']:.2f}.",
        options,
    )
    if options.json or not options.per_query:
        render.table(result, rows, ("mode", *names), options)
        return 0
    lines = [
        {
            "query": key,
            **{
                mode: round(measured[mode]["queries"].get(key, {}).get("nDCG@10", 0.0), 4)
                for mode in MODES
            },
            "text": text,
        }
        for key, text in judged.questions.items()
    ]
    render.table(result, lines, ("query", *MODES, "text"), options)
    return 0

"""`kb eval`: measure retrieval quality on a judged collection."""

from __future__ import annotations

import argparse
import contextlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kb.cli import render
from kb.cli.commands import Parser, positive
from kb.cli.render import progress
from kb.errors import SourceError, UsageError
from kb.evaluation.judged import (
    HEADING_MEASURE,
    MEASURES,
    MODES,
    Files,
    Judged,
    is_beir,
    judged_collection,
    judged_figures,
    made_figures,
    measure,
    pages,
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
from kb.tools.session import Session


def evaluate_options(parser: Parser) -> None:
    judged = (
        "a judged collection in BEIR layout, or a file of questions (default: questions that "
        "are made from the documents: names, titles, near-misses, unrelated ones)"
    )
    parser.argument("judged", "FOLDER", judged, nargs="?")
    parser.option("--count", None, "questions made of each kind", type=positive, default=100)
    parser.option("--seed", None, "which questions are made (default: 1)", type=int, default=1)
    parser.option("--save", "FILE", "keep the questions that are made", type=Path)
    unrelated = (
        "ask the questions of this collection, or file of questions, about your documents, "
        "which do not answer them"
    )
    parser.option("--unrelated", "FOLDER", unrelated)
    parser.flag("--per-query", "show nDCG@10 of each query")
    parser.table_format()


def evaluate(session: Session, options: argparse.Namespace) -> int:
    if options.unrelated is not None:
        return _report_made(session, _unrelated(options), options)
    if options.judged is None:
        if not (documents := pages(session.files)):
            raise UsageError("there are no documents to make questions from: `kb add` some first")
        made = make_questions(documents, options.count, options.seed)
        if options.save:
            write_questions(made, options.save)
        return _report_made(session, made, options)
    path = Path(options.judged).expanduser().resolve()
    if path.is_dir() and is_beir(path):
        with contextlib.ExitStack() as opened:
            with progress(options) as show:
                collection = judged_collection(session.files[0], path, options.model, show)
                files, judged = opened.enter_context(collection)
            return _report(files, judged, options)
    if not path.is_file():
        raise SourceError(
            f"{options.judged} is neither a folder with corpus.jsonl, queries.jsonl and qrels.tsv "
            "nor a file of questions"
        )
    if made := read_made_questions(path):
        return _report_made(session, made, options)
    render.remark(session.lost, options)
    return _report(session.files, read_questions(path), options)


def _unrelated(options: argparse.Namespace) -> list[MadeQuestion]:
    """The questions of another collection, none of which the documents here should answer."""
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


def _report_made(
    session: Session, made: Sequence[MadeQuestion], options: argparse.Namespace
) -> int:
    render.remark(session.lost, options)
    with progress(options) as show:
        rows = made_figures(session.files, made, show)
    render.table({"made": rows}, rows, ("kind", "questions", "at0.7", "first", "before"), options)
    return 0


def _report(files: Files, judged: Judged, options: argparse.Namespace) -> int:
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

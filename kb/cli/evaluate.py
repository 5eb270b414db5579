"""`kb eval`: measure retrieval quality on a judged collection."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from kb.cli import render
from kb.errors import SourceError
from kb.evaluation import (
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
from kb.ingest.sync import embed_pending
from kb.model_in_use import ModelInUse
from kb.store.database import Database
from kb.tools.session import Session


def evaluate(kb: Session, options: argparse.Namespace) -> int:
    """Print the measures of keyword, vector and hybrid search."""
    path = Path(options.judged).expanduser().resolve()
    if path.is_dir() and is_beir(path):
        judged = read_beir(path)
        with contextlib.closing(Database(beir_file(path, options.model))) as database:
            fresh = kb.model.beside(database)
            with render.progress(options) as show:
                load_beir(fresh, path, show)
                embed_pending(fresh, progress=show)
            return _report(fresh, judged, options)
    if not path.is_file():
        raise SourceError(
            f"{options.judged} is neither a folder with corpus.jsonl, queries.jsonl and qrels.tsv "
            "nor a file of questions"
        )
    return _report(kb.model, read_questions(path), options)


def _report(model: ModelInUse, judged: Judged, options: argparse.Namespace) -> int:
    with render.progress(options) as show:
        runs = run_queries(model, judged, progress=show)
    measured = {mode: measure(judged, runs[mode]) for mode in MODES}
    names = (*MEASURES, HEADING_MEASURE) if judged.headings else MEASURES
    rows: list[dict[str, Any]] = [
        {"mode": mode, **{name: round(measured[mode][name], 4) for name in names}} for mode in MODES
    ]
    if options.per_query:
        for row in rows:
            row["queries"] = measured[row["mode"]]["queries"]
    result = {"queries": len(judged.questions), "measures": rows}
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

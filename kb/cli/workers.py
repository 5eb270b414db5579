"""`--workers`: which engine a command embeds with."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator

from kb.cli import render
from kb.ingest.embed import THREADS
from kb.ingest.engine import Engine


@contextlib.contextmanager
def engine(options: argparse.Namespace, said: list[str]) -> Iterator[Engine]:
    """What runs the model. What it has to say is printed at once, and kept for `--json`."""
    if not options.workers:
        yield THREADS
        return
    from kb.ingest.workers import DaskWorkers

    def say(sentence: str) -> None:
        said.append(sentence)
        render.say(sentence)

    with DaskWorkers(options.workers, say) as workers:
        yield workers

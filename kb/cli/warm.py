"""`kb search` by a server that has the file open already: its model is loaded, ours is not."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from kb.cli import render
from kb.server.running import ask, running_server
from kb.settings import database_path, find_project

# What a server has decided for itself when it was started.
_OWN_CHOICES = ("model", "reranker", "download", "folder")


def search_by_server(options: argparse.Namespace) -> int | None:
    """Search by the running server of the file; None where there is none, or it cannot answer.

    What it refuses is then refused by the command itself, in the command's own words.
    """
    if options.command != "browse.search" or any(getattr(options, o) for o in _OWN_CHOICES):
        return None
    server = running_server(database_path(options.db), find_project())
    if server is None:
        return None
    asked = {
        "query": options.query,
        "collections": options.collection,
        "limit": options.limit,
        "rerank": options.rerank,
        "explain": options.explain,
        "distances": options.json or options.format == "json",
    }
    answer: dict[str, Any] | None = ask(server, "/api/search", asked)
    if answer is None:
        return None
    for problem in answer["problems"]:
        print(f"kb: {problem}", file=sys.stderr)
    rows = answer["rows"]
    render.search_results(rows, answer["notice"], options)
    return 0 if rows else 1

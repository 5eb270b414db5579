"""`kb search` by a server that has the file open already: its model is loaded, ours is not."""

from __future__ import annotations

import argparse
from typing import Any

from kb.cli import render, search_results
from kb.server.running import ask, running_server
from kb.settings import database_paths, find_project

# What a server has decided for itself when it was started.
_OWN_CHOICES = ("model", "reranker", "download", "folder")


def search_by_server(options: argparse.Namespace) -> int | None:
    """Search by the running server of the file; None where there is none, or it cannot answer.

    What it refuses is then refused by the command itself, in the command's own words.
    """
    if options.command != "browse.search" or any(getattr(options, o) for o in _OWN_CHOICES):
        return None
    path, *beside = database_paths(options.db)
    server = None if beside else running_server(path, find_project())
    if server is None:
        return None
    asked = {
        "query": options.query,
        "collections": options.collection,
        "limit": options.limit,
        "rerank": options.rerank,
        "explain": options.explain,
        "distances": search_results.shows_distances(options),
        "paths": options.path,
    }
    answer: dict[str, Any] | None = ask(server, "/api/search", asked)
    if answer is None:
        return None
    for problem in answer["problems"]:
        render.say(problem)
    return search_results.show(answer["rows"], answer["notice"], options)

"""`kb search` and `kb list`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.cli import render, search_results
from kb.cli.arguments import Parser, Text, add_filters, add_shards, filters_of, share
from kb.errors import EmbeddingError
from kb.server.running import ask, running_server
from kb.settings import database_paths, find_project
from kb.text.counted import counted
from kb.text.file_names import storable

if TYPE_CHECKING:
    from kb.tools.session import Session

FEW = 100  # passages that take two seconds to embed: not worth an answer before
LEAST_SCORE = 0.1  # a row below is usually noise
# What a server decided when it was started.
_OWN_CHOICES = ("model", "reranker", "download", "folder", "shards", "workers")


class _CreatesFile(argparse.Action):
    """An option with which the command creates a missing file."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        setattr(namespace, self.dest, values)
        namespace.creates = True


def search_options(parser: Parser) -> None:
    parser.example = 'kb search "retry with backoff" --path "guide/**" -n 5'
    query = 'words or a question; +must, -mustnot, "exact phrase", prefix*'
    parser.argument("query", "QUERY", query, nargs="+", action=Text)
    first = "add and sync this folder first, and search it"
    parser.option("--from", "FOLDER", first, dest="folder", action=_CreatesFile)
    only = "only this collection; may be given several times"
    parser.option("-c --collection", "NAME", only, is_list=True)
    add_filters(parser)
    parser.limit(10)
    least = (
        "hide rows below this score, 0 to 1; from 0.7 on a row most likely answers "
        f"(default: {LEAST_SCORE})"
    )
    parser.option("--min-score", "S", least, type=share, default=LEAST_SCORE)
    formats = "files: paths alone; md: the passages; csv, tsv: a table with its headers"
    parser.option("--format", None, formats, choices=search_results.FORMATS)
    parser.flag("--rerank", "a finer order, about a second slower")
    parser.flag("--explain", "say why each row is found")
    parser.flag("--no-embed", "with --from: keywords only, for now")
    add_shards(parser)


def search_by_server(options: argparse.Namespace) -> int | None:
    """Search through the file's running server, whose model is loaded already; None if there is
    none or it cannot answer, when the command searches, or refuses, itself."""
    if any(getattr(options, choice) for choice in _OWN_CHOICES):
        return None
    path, *beside = database_paths(options.db)
    server = None if beside else running_server(path, find_project())
    if server is None:
        return None
    question = {**_question(options), "collections": options.collection}
    answer: dict[str, Any] | None = ask(server, "/api/search", question)
    if answer is None:
        return None
    for problem in answer["problems"]:
        render.say(problem)
    return search_results.show(answer["rows"], answer["notice"], options)


def search(session: Session, options: argparse.Namespace) -> int:
    """Search, after adding a folder if one is given."""
    names = options.collection
    if options.folder is not None:
        from kb.cli.collect import say_problems, summary
        from kb.cli.progress import progress

        with progress(options) as show:
            synced = session.base.add_for_search(options.folder, collections=names, progress=show)
        say_problems(synced, options)
        if not options.quiet and not options.json:
            render.say(summary(synced))
        if not synced.is_stored:
            return search_results.show([], f"{options.folder} holds no document", options)
        names = names or [synced.collection]
        waiting = 0 if options.no_embed else session.base.passages_waiting(synced.collection)
        if waiting > FEW and render.is_read_as_it_comes(options):
            _answer(session, names, options)
            render.remark(f"embedding {counted(waiting, 'passage')} for a better answer", options)
        if waiting:
            try:
                with progress(options) as show:
                    session.base.embed(synced.collection, progress=show)
            except EmbeddingError as error:
                render.say(error.message)
            except KeyboardInterrupt:
                render.say("interrupted; searching with what is there, `kb sync` does the rest")
    return _answer(session, names, options)


def _answer(session: Session, names: list[str], options: argparse.Namespace) -> int:
    answer = session.base.search_for_people(collections=names, **_question(options))
    return search_results.show(*answer, options)


def _question(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of a search except its collections."""
    return {
        "query": options.query,
        "limit": options.limit,
        "rerank": options.rerank,
        "explain": options.explain,
        "distances": search_results.shows_distances(options),
        **filters_of(options),
    }


def list_names_options(parser: Parser) -> None:
    parser.example = "kb list docs"
    parser.argument("name", "COLLECTION", nargs="?")
    parser.table_format()
    add_shards(parser)


def list_names(session: Session, options: argparse.Namespace) -> int:
    if options.name is not None:
        documents = session.base.list_documents(options.name).to_dict()
        del documents["hasMore"]
        rows = documents["documents"]
        render.table(documents, rows, ("id", "title", "size"), options)
        return 0 if rows else 1
    listed = session.base.list_collections()
    render.remark(listed.notice or "", options)
    rows = [{**row.to_dict(), "description": row.description or ""} for row in listed]
    shown = rows
    if sys.stdout.isatty():
        shown = [{**row, "source": _short(row["source"])} for row in rows]
    columns = ("collection", "documentCount", "kind", "source", "description")
    render.table({"collections": rows}, shown, columns, options)
    if not rows:
        render.remark(_why_empty(session), options)
    return 0 if rows else 1


def recent_options(parser: Parser) -> None:
    parser.example = "kb recent -n 5"
    parser.limit(20)
    parser.table_format()


def recent(session: Session, options: argparse.Namespace) -> int:
    result = session.base.recent(limit=options.limit).to_dict()
    rows = [
        {"what": "new", "when": row["date"], "where": f"{row['collection']}/{row['id']}", **row}
        for row in result["documents"]
    ]
    rows += [
        {"what": "read", "when": row["lastRead"], "where": row["path"]} for row in result["read"]
    ]
    render.table(result, rows, ("what", "when", "where", "title"), options)
    render.remark(result.get("notice", "" if rows else _why_empty(session)), options)
    return 0 if rows else 1


def _why_empty(session: Session) -> str:
    if roots := session.base.project_roots():
        return f"only external documentation is in the file: `kb list` in {' or '.join(roots)}"
    return "the file holds no collection yet: add one with `kb add FOLDER`"


def _short(source: str) -> str:
    for folder, short in ((storable(Path.cwd()), ""), (storable(Path.home()), "~/")):
        if source.startswith(f"{folder}/"):
            return short + source[len(folder) + 1 :]
    return source

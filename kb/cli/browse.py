"""`kb search`, with its rows in each of their formats, `kb list` and `kb recent`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kb.cli import render
from kb.cli.commands import Parser, Text, add_filters, add_shards, filters_of, share
from kb.errors import EmbeddingError
from kb.server.running import ask, running_server
from kb.settings import database_paths, find_project
from kb.text.controls import flat
from kb.text.counted import counted, some_of
from kb.text.file_names import on_disk, storable

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
    parser.option("--format", None, formats, choices=FORMATS)
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
    return print_results(answer["rows"], answer["notice"], options)


def search(session: Session, options: argparse.Namespace) -> int:
    """Search, after adding a folder if one is given."""
    names = options.collection
    if options.folder is not None:
        from kb.cli.collect import say_problems, summary
        from kb.cli.render import progress

        with progress(options) as show:
            synced = session.base.add_for_search(options.folder, collections=names, progress=show)
        say_problems(synced, options)
        if not options.quiet and not options.json:
            render.say(summary(synced))
        if not synced.is_stored:
            return print_results([], f"{options.folder} holds no document", options)
        names = names or [synced.collection]
        waiting = 0 if options.no_embed else session.base.passages_waiting(synced.collection)
        # Somebody reads along, so a better answer may follow a first one.
        is_plain = not options.json and options.format in (None, "table")
        if waiting > FEW and is_plain and not options.quiet and sys.stdout.isatty():
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
    return print_results(*answer, options)


def _question(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of a search except its collections."""
    return {
        "query": options.query,
        "limit": options.limit,
        "rerank": options.rerank,
        "explain": options.explain,
        "distances": options.json or options.format in ("json", "csv", "tsv"),
        **filters_of(options),
    }


def list_names_options(parser: Parser) -> None:
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
    is_short = sys.stdout.isatty()
    shown = [{**row, "source": _short(row["source"])} for row in rows] if is_short else rows
    columns = ("collection", "documentCount", "kind", "source", "description")
    render.table({"collections": rows}, shown, columns, options)
    if not rows:
        render.remark(_why_empty(session), options)
    return 0 if rows else 1


def recent_options(parser: Parser) -> None:
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


# Names an editor, or is an address with {path} and {line} in it.
EDITOR_VARIABLE = "KB_EDITOR"
NO_LINKS = "none"
_JETBRAINS = "://open?file={path}&line={line}"
EDITORS = {
    "file": "file://{path}",
    **{
        name: f"{name}://file{{path}}:{{line}}"
        for name in ("vscode", "vscode-insiders", "vscodium", "cursor", "windsurf", "zed")
    },
    **{name: f"{name}{_JETBRAINS}" for name in ("idea", "pycharm", "webstorm", "goland")},
    "sublime": "subl://open?url=file://{path}&line={line}",
    "textmate": "txmt://open?url=file://{path}&line={line}",
    "macvim": "mvim://open?url=file://{path}&line={line}",
    NO_LINKS: "",
}
ORIGINS = ("page", "slide", "sheet", "cell")  # of a converted file
FORMATS = ("table", "json", "csv", "tsv", "files", "md")
NOT_IN_JSON = ("file", "marks")  # of a row: for people
COLUMNS = (
    *("collection", "documentId", "startLine", "endLine", *ORIGINS),
    *("relevanceScore", "distance", "documentTitle", "sectionHeading", "content"),
)


def print_results(
    candidates: Sequence[dict[str, Any]], notice: str, options: argparse.Namespace
) -> int:
    """Print the results of a search, without rows below the least score; the exit code."""
    rows = [row for row in candidates if row["relevanceScore"] >= options.min_score]
    hidden = len(candidates) - len(rows)
    kind = "json" if options.json else options.format or "table"
    if kind == "json":
        listed = [{key: row[key] for key in row if key not in NOT_IN_JSON} for row in rows]
        for row in listed:
            if not row["changedSinceSync"]:
                del row["changedSinceSync"]
        result: dict[str, Any] = {"results": listed}
        if hidden:
            result["hidden"] = hidden
        render.print_json({**result, "notice": notice} if notice else result)
        return 0 if rows else 1
    if notice:
        render.say(notice)
    _print(rows, kind, options)
    if hidden:
        beginning = "" if rows else "nothing found; "
        least = f"{options.min_score:g}"
        render.say(f"{beginning}{hidden} more below {least} (--min-score 0 shows them)")
    elif not rows and kind == "table":
        render.say("nothing found")
    return 0 if rows else 1


def _print(rows: Sequence[dict[str, Any]], kind: str, options: argparse.Namespace) -> None:
    if kind in ("csv", "tsv"):
        render.separated(rows, COLUMNS, kind)
    elif kind == "files":
        for file in dict.fromkeys(map(shown_file, rows)):
            print(file)
    elif kind == "md":
        for row in rows:
            score = _score(row, " · ")
            print(f"## {_heading(row)}\n\n`{place_of(row)}`{score}\n\n{row['content']}\n")
    elif sys.stdout.isatty():
        _on_terminal(rows, options)
    else:  # each row with its place, so that `grep` and `cut` can work on it
        for row in rows:
            changed = "  (changed since sync)" if row["changedSinceSync"] else ""
            also = f"  (also in {flat(some_of(row['alsoIn'], 3))})" if row.get("alsoIn") else ""
            print(f"{place_of(row)}{_score(row, '  ')}  {_heading(row)}{changed}{also}")
            print(f"    {flat(row['snippet'])}")
            if options.explain:
                print(f"    {_explanation(row)}")


def _on_terminal(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    """Print rows under their documents, which come in the order of their best rows."""
    from kb.cli import terminal

    form, problem = editor_link()
    if problem:
        render.say(problem)
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(shown_file(row), []).append(row)
    for number, (file, group) in enumerate(groups.items()):
        if number:
            print()
        title = flat(group[0]["documentTitle"])
        terminal.search_group(file, title, _address(form, group[0], 1))
        for row in group:
            section = flat(row.get("sectionHeading", ""))
            terminal.search_row(
                row,
                lines_of(row),
                section if section != title else "",
                _address(form, row, row["startLine"]),
                _explanation(row) if options.explain else "",
            )


def _address(form: str, row: dict[str, Any], line: int) -> str:
    """Where a click on a row leads, or ""."""
    if not row["file"]:
        return ""
    path = quote(os.fsencode(Path(on_disk(row["file"])).absolute().as_posix()), safe="/:")
    if not path.startswith("/"):
        path = f"/{path}"  # a drive's letter
    # A converted file's lines are those of its text: they mean nothing to an editor.
    shown = 1 if any(kind in row for kind in ORIGINS) else line
    return form.replace("{path}", path).replace("{line}", str(shown))


def editor_link() -> tuple[str, str]:
    """The form of links' addresses, "" for none, and what is wrong with the setting."""
    choice = os.environ.get(EDITOR_VARIABLE, "")
    if "{path}" in choice and "://" in choice:
        return choice, ""
    if choice in EDITORS:
        return EDITORS[choice], ""
    problem = (
        f'{EDITOR_VARIABLE} is "{choice}": it names an editor ({", ".join(EDITORS)}) or an address '
        "with {path} and {line} in it"
    )
    return EDITORS["file"], problem if choice else ""


def place_of(row: dict[str, Any]) -> str:
    return f"{shown_file(row)}:{lines_of(row)}"


def shown_file(row: dict[str, Any]) -> str:
    """A hit's file relative to here if it is below; without a file collection/id."""
    file: str = row["file"]
    if not file:
        return f"{row['collection']}/{row['documentId']}"
    return file_from_here(Path(on_disk(file)))


def file_from_here(file: Path) -> str:
    """A file relative to here if it is below, else its path."""
    here = Path.cwd()
    return storable(file.relative_to(here) if file.is_relative_to(here) else file)


def lines_of(row: dict[str, Any]) -> str:
    """A hit's lines, followed by the page or slide of a converted file."""
    lines = f"{row['startLine']}-{row['endLine']}"
    for kind in ORIGINS:
        if kind in row:
            last = row.get(f"end{kind.capitalize()}")
            return f"{lines} ({kind} {row[kind]}{f' to {last}' if last is not None else ''})"
    return lines


def _heading(row: dict[str, Any]) -> str:
    section = flat(row.get("sectionHeading", ""))
    title = flat(row["documentTitle"])
    return f"{title} > {section}" if section and section != title else title


def _score(row: dict[str, Any], before: str) -> str:
    return f"{before}{row['relevanceScore']:.2f}" if "relevanceScore" in row else ""


def _explanation(row: dict[str, Any]) -> str:
    distance = f", distance {row['distance']:.4f}" if "distance" in row else ""
    return (
        f"{row['why']} (keyword rank {row['keywordRank'] or '-'}, vector rank "
        f"{row['vectorRank'] or '-'}{distance})"
    )

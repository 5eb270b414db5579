"""`kb cite` and `kb graph`: citations."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from kb.cli import render
from kb.cli.arguments import Parser
from kb.cli.graph_formats import FORMATS, to_html, to_sarif
from kb.cli.read import add_collection
from kb.disk.open_databases import require_no_database
from kb.errors import FileError, UsageError
from kb.library.resolve import resolve
from kb.results.citations import BrokenLink
from kb.sources.address import document_file
from kb.text.counted import counted
from kb.text.file_names import storable
from kb.tools.session import Session

CONTEXT_CHARACTERS = 120


def cite_options(parser: Parser) -> None:
    parser.example = "kb cite guide/install.md --depth 2"
    parser.argument("document", "DOC", "as for `kb get`")
    add_collection(parser)
    _add_depth(parser, 1)
    parser.table_format()


def _add_depth(parser: Parser, default: int) -> None:
    parser.option(
        "--depth", None, "steps to follow", type=int, choices=range(1, 4), default=default
    )


def cite(session: Session, options: argparse.Namespace) -> int:
    collection, path = resolve(session.base, options.document, options.collection)
    result = session.base.cite(path, collection=collection, depth=options.depth)
    shown = [
        {
            "way": row.way,
            "page": row.document or row.target,
            "line": row.line,
            "context": row.context[:CONTEXT_CHARACTERS],
        }
        for row in result
    ]
    if result.citation_graph is not None:
        document = result.document
        pairs = [{edge.source, edge.target} for edge in result.citation_graph.edges]
        near = {document}.union(*(pair for pair in pairs if document in pair))
        shown += [
            {"way": "further", "page": node.id, "line": "", "context": node.label}
            for node in result.citation_graph.nodes
            if node.id not in near
        ]
    render.table(result.to_dict(), shown, ("way", "page", "line", "context"), options)
    return 0 if result.citations else 1


def graph_options(parser: Parser) -> None:
    parser.example = "kb graph --format html -o graph.html"
    parser.argument("documents", "DOC", "around these (default: all)", nargs="*")
    add_collection(parser)
    _add_depth(parser, 3)
    formats = (*FORMATS, "html", "sarif")
    parser.option("--format", None, "default: json; sarif with --broken, for CI", choices=formats)
    parser.option("-o --output", "FILE", "default: print it", type=Path)
    parser.flag("--broken", "list links to missing pages, files or sections; exit 1 if any")


def graph(session: Session, options: argparse.Namespace) -> int:
    if options.broken:
        return _broken(session, options)
    if options.format == "sarif":
        raise UsageError("--format sarif lists broken links: give --broken too")
    documents = [
        "/".join(resolve(session.base, name, options.collection)) for name in options.documents
    ]
    result = session.base.graph(documents, depth=options.depth)
    render.remark(result.notice, options)
    if options.format == "html":
        within = {node.id for node in result.nodes} if documents else None
        text = to_html(session.base.graph_picture(_address, within))
    else:
        text = FORMATS[options.format or "json"](result)
    _write(text, options)
    if options.output is not None and not options.quiet:
        pages = counted(len(result.nodes), "page")
        render.say(f"{options.output}: {pages}, {counted(len(result.edges), 'citation')}")
    return 0 if result.nodes else 1


def _address(_: str, path: str, source: str) -> str:
    file = document_file(source, path)
    return file.resolve().as_uri() if os.path.isfile(file) else ""


def _broken(session: Session, options: argparse.Namespace) -> int:
    links = session.base.broken_links(collection=options.collection or "")
    render.remark(links.notice, options)
    if options.format == "sarif":
        _write(to_sarif([(link, _location(link)) for link in links]), options)
    elif options.json:
        render.print_json(links.to_dict())
    else:
        for link in links:
            reason = "" if link.missing == "target" else "  (no such section)"
            print(f"{_location(link)}:{link.line}: {link.target}{reason}")
    if not (options.json or options.quiet):
        count = counted(len(links), "broken link") if len(links) else "no broken links"
        others = (f"{n:,} {state}" for state, n in links.states.items() if state != "broken")
        render.say("; ".join((count, ", ".join(others))))
    return 1 if len(links) else 0


def _write(text: str, options: argparse.Namespace) -> None:
    if options.output is None:
        print(text)
        return
    output = options.output.expanduser()
    require_no_database(output)
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write {options.output}: {error.strerror}") from error


def _location(link: BrokenLink) -> str:
    """The file relative to here if it is below, else its path; without a file COLLECTION/id."""
    if not link.file:
        return f"{link.collection}/{link.document}"
    near = os.path.relpath(link.file)
    return storable(Path(link.file if near.startswith("..") else near))

"""`kb context`, `kb get`, `kb outline`, `kb section`, `kb related`, `kb cite` and `kb graph`, whose
graph is JSON, GraphML, DOT, Mermaid, or one HTML page, or SARIF of broken links."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kb.cli import render
from kb.cli.browse import file_from_here
from kb.cli.commands import Parser, Text, add_filters, add_shards, filters_of, positive
from kb.disk.open_databases import require_no_database
from kb.errors import FileError, UsageError
from kb.library.resolve import resolve, resolve_lines
from kb.settings import PACKAGE, VERSION
from kb.sources.address import document_file
from kb.text.controls import escaped_in_json, visible
from kb.text.counted import counted
from kb.tools.session import Session

if TYPE_CHECKING:
    from kb.results.citations import BrokenLink, Graph, GraphEdge, GraphNode


def _add_collection(parser: Parser) -> None:
    parser.option("-c --collection", "NAME", "look in this collection alone", default="")


def _add_document(parser: Parser) -> None:
    parser.argument("document", "DOC", "as for `kb get`")
    _add_collection(parser)
    add_shards(parser)


def _add_raw(parser: Parser) -> None:
    parser.flag("--raw", "on a terminal too: the text as it is written")


def get_options(parser: Parser) -> None:
    names = "id, COLLECTION/id, path on disk, or the end of an id"
    parser.argument("documents", "DOC[:LINE[-[LINE]]]", names, nargs="+")
    _add_collection(parser)
    add_shards(parser)
    _add_raw(parser)


def get(session: Session, options: argparse.Namespace) -> int:
    """Print documents, or some of their lines; all of them or none."""
    places = [resolve_lines(session.base, text, options.collection) for text in options.documents]
    results = [
        session.base.get(document, collection=collection, start_line=first, end_line=last).to_dict()
        for collection, document, first, last in places
    ]
    if options.json:
        render.print_json(results[0] if len(results) == 1 else {"documents": results})
        return 0
    several = len(results) > 1
    for result, (collection, document, first, _) in zip(results, places, strict=True):
        title = f"{collection}/{document}" if several else ""
        show = partial(_show, result["content"], document, options, title, is_whole=not first)
        plain = f"==> {title} <==\n{result['content']}" if several else result["content"]
        render.text(result, plain, options, show)
    return 0


def outline_options(parser: Parser) -> None:
    _add_document(parser)
    text = "levels (default: all)"
    parser.option("--depth", None, text, type=int, choices=range(1, 7), default=6)


def outline(session: Session, options: argparse.Namespace) -> int:
    collection, document = resolve(session.base, options.document, options.collection)
    shown = session.base.outline(document, collection=collection, max_depth=options.depth).to_dict()
    lines = [
        f"{row['line']:>6}  {'  ' * (row['level'] - 1)}{row['text']}" for row in shown["outline"]
    ]
    render.text(shown, "\n".join(lines), options)
    render.remark(shown.get("notice", "" if lines else f"{document} has no headings"), options)
    return 0 if lines else 1


def section_options(parser: Parser) -> None:
    _add_document(parser)
    parser.argument("heading", "HEADING", "its text, its path or its anchor")
    parser.flag("--no-subsections", "only down to the next heading of any level")
    _add_raw(parser)


def section(session: Session, options: argparse.Namespace) -> int:
    collection, document = resolve(session.base, options.document, options.collection)
    result = session.base.section(
        document,
        options.heading,
        collection=collection,
        include_subsections=not options.no_subsections,
    ).to_dict()
    content = result["content"]
    render.text(result, content, options, partial(_show, content, document, options))
    return 0


def context_options(parser: Parser) -> None:
    parser.argument("query", "QUESTION", action=Text, nargs="+")
    only = "only this collection; may be given several times"
    parser.option("-c --collection", "NAME", only, is_list=True)
    add_filters(parser)
    length = "about how long, 500 to 40,000 (default: 3,000)"
    parser.option("--max-characters", "N", length, type=positive, default=3000)
    add_shards(parser)


def context(session: Session, options: argparse.Namespace) -> int:
    results = session.base.context(
        options.query,
        collections=options.collection,
        max_characters=options.max_characters,
        **filters_of(options),
    )
    lines: list[str] = []
    for document in results:
        lines.append(f"# {document.document_title} ({document.collection}/{document.document_id})")
        for part in document.parts:
            place = f"lines {part.start_line}-{part.end_line}, score {part.score:.2f}"
            lines += [f"\n> {part.heading or document.document_title}: {place}\n", part.content]
        lines.append("")
    if results.more:
        lines.append("Not shown:")
    for omitted in results.more:
        place = (
            f"{omitted.collection}/{omitted.document_id}:{omitted.start_line}-{omitted.end_line}"
        )
        lines.append(f"- {place} {omitted.heading or ''}".rstrip())
    render.text(results.to_dict(), "\n".join(lines), options)
    render.remark(results.notice or ("" if results.documents else "nothing found"), options)
    return 0 if results.documents else 1


def related_options(parser: Parser) -> None:
    _add_document(parser)
    parser.limit(5)
    parser.table_format()


def related(session: Session, options: argparse.Namespace) -> int:
    collection, document = resolve(session.base, options.document, options.collection)
    result = session.base.related(document, collection=collection, limit=options.limit).to_dict()
    rows = [
        {"score": row["relevanceScore"], "document": row["document"], "title": row["documentTitle"]}
        for row in result["related"]
    ]
    render.table(result, rows, ("score", "document", "title"), options)
    render.remark(result.get("notice", "" if rows else "nothing found"), options)
    return 0 if rows else 1


def _show(
    content: str, document: str, options: argparse.Namespace, title: str = "", is_whole: bool = True
) -> None:
    """Print text on a terminal; a range of lines as it is, since rendering would change lines."""
    from kb.cli import terminal
    from kb.library.reading import body_of_markdown

    body = body_of_markdown(document, content) if is_whole and not options.raw else None
    terminal.document(content if body is None else body, title, as_markdown=body is not None)


CONTEXT_CHARACTERS = 120


def cite_options(parser: Parser) -> None:
    parser.argument("document", "DOC", "as for `kb get`")
    _add_collection(parser)
    parser.option("--depth", None, "steps to follow", type=int, choices=range(1, 4), default=1)
    parser.table_format()


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
    parser.argument("documents", "DOC", "around these (default: all)", nargs="*")
    _add_collection(parser)
    parser.option("--depth", None, "steps to follow", type=int, choices=range(1, 4), default=3)
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
    return file_from_here(Path(link.file)) if link.file else f"{link.collection}/{link.document}"


LAYOUT = ("dispatch", "quadtree", "timer", "force")  # d3's modules, each needs those before it
DRAWING = ("page", "static", "graph.js")
_MISSING = {"target": "page or file", "section": "section"}
# What XML 1.0 cannot hold.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_json(graph: Graph) -> str:
    parts = {
        key: [{**part.to_dict(), **({"state": part.state} if part.state else {})} for part in list_]
        for key, list_ in (("nodes", graph.nodes), ("edges", graph.edges))
    }
    return escaped_in_json(json.dumps(parts, ensure_ascii=False, indent=2))


def to_graphml(graph: Graph) -> str:
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
        '  <key id="label" for="node" attr.name="label" attr.type="string"/>',
        '  <key id="type" for="node" attr.name="type" attr.type="string"/>',
        '  <key id="external" for="node" attr.name="external" attr.type="boolean"/>',
        '  <key id="state" for="all" attr.name="state" attr.type="string"/>',
        '  <key id="confidence" for="edge" attr.name="confidence" attr.type="double"/>',
        '  <graph id="citations" edgedefault="directed">',
    ]
    lines += [
        f'    <node id="{_xml(node.id)}"><data key="label">{_xml(node.label)}</data>'
        f'<data key="type">{node.type}</data>'
        f'<data key="external">{str(node.is_external).lower()}</data>{_state(node)}</node>'
        for node in graph.nodes
    ]
    lines += [
        f'    <edge source="{_xml(edge.source)}" target="{_xml(edge.target)}">'
        f'<data key="confidence">{edge.confidence}</data>{_state(edge)}</edge>'
        for edge in graph.edges
    ]
    return "\n".join([*lines, "  </graph>", "</graphml>"])


def _state(part: GraphNode | GraphEdge) -> str:
    return f'<data key="state">{part.state}</data>' if part.state else ""


def to_dot(graph: Graph) -> str:
    lines = ["digraph citations {", "  rankdir=LR;", "  node [shape=box];"]
    for node in graph.nodes:
        style = ", style=dashed" if node.is_external else ""
        style += ", color=red" if node.state == "broken" else ""
        lines.append(f"  {_dot(node.id)} [label={_dot(node.label)}{style}];")
    for edge in graph.edges:
        weak = f' [label="{edge.confidence:.2f}", style=dashed]' if edge.confidence < 1 else ""
        lines.append(f"  {_dot(edge.source)} -> {_dot(edge.target)}{weak};")
    return "\n".join([*lines, "}"])


def to_mermaid(graph: Graph) -> str:
    names = {node.id: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = ["graph LR"]
    for node in graph.nodes:
        left, right = ("([", "])") if node.is_external else ("[", "]")
        lines.append(f'  {names[node.id]}{left}"{_mermaid(node.label)}"{right}')
    for edge in graph.edges:
        arrow = f"-. {edge.confidence:.2f} .->" if edge.confidence < 1 else "-->"
        lines.append(f"  {names[edge.source]} {arrow} {names[edge.target]}")
    return "\n".join(lines)


def to_html(picture: Mapping[str, Any]) -> str:
    """A page that contains a graph's picture and a script that draws it; nothing is loaded."""
    page = _asset("graph.html")
    data = json.dumps(picture, ensure_ascii=False, separators=(",", ":"))
    parts = {
        "style": "".join(_asset("page", "static", name) for name in ("colours.css", "graph.css")),
        "script": "".join(
            [*(_asset("vendor", f"d3-{name}.min.js") for name in LAYOUT), _asset(*DRAWING)]
        ),
        "licence": _asset("vendor", "d3-LICENSE.txt"),
        # No text of a document may end the script element.
        "graph": escaped_in_json(data).replace("<", "\\u003c"),
    }
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]], page)


def to_sarif(links: Iterable[tuple[BrokenLink, str]]) -> str:
    """Broken links with their files, for CI systems to annotate lines (SARIF 2.1.0)."""
    results = [
        {
            "ruleId": f"missing-{link.missing}",
            "level": "error",
            "message": {"text": f"{link.target}: no such {_MISSING[link.missing]}"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": quote(file)},
                        "region": {"startLine": link.line},
                    }
                }
            ],
        }
        for link, file in links
    ]
    rules = [{"id": f"missing-{missing}"} for missing in _MISSING]
    driver = {"name": "kb", "version": VERSION, "rules": rules}
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return escaped_in_json(json.dumps(log, ensure_ascii=False, indent=2))


def _asset(*names: str) -> str:
    return PACKAGE.joinpath("assets", *names).read_text(encoding="utf-8")


FORMATS: dict[str, Callable[[Graph], str]] = {
    "json": to_json,
    "graphml": to_graphml,
    "dot": to_dot,
    "mermaid": to_mermaid,
}


def _xml(text: str) -> str:
    from html import escape  # here: `kb get` needs none

    return escape(_NO_XML.sub("\ufffd", visible(text)))


def _dot(text: str) -> str:
    flat = " ".join(visible(text).split()).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_NO_XML.sub(chr(0xFFFD), flat)}"'


def _mermaid(text: str) -> str:
    flat = " ".join(visible(text).split())
    return re.sub(r"[#\"<>&`\[\]{}|\\;]", lambda match: f"#{ord(match[0])};", flat)

"""`kb context`, `kb get`, `kb outline`, `kb section`, `kb related`."""

from __future__ import annotations

import argparse
from functools import partial

from kb.cli import render
from kb.cli.arguments import Parser, Text, add_filters, add_shards, filters_of, positive
from kb.library.resolve import resolve, resolve_lines
from kb.tools.session import Session


def add_collection(parser: Parser) -> None:
    parser.option("-c --collection", "NAME", "look in this collection alone", default="")


def _add_document(parser: Parser) -> None:
    parser.argument("document", "DOC", "as for `kb get`")
    add_collection(parser)
    add_shards(parser)


def _add_raw(parser: Parser) -> None:
    parser.flag("--raw", "on a terminal too: the text as it is written")


def get_options(parser: Parser) -> None:
    parser.example = "kb get guide/install.md:10-40"
    names = "id, COLLECTION/id, path on disk, or the end of an id"
    parser.argument("documents", "DOC[:LINE[-[LINE]]]", names, nargs="+")
    add_collection(parser)
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
    parser.example = "kb outline guide/install.md --depth 2"
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
    parser.example = 'kb section guide/install.md "Install > Linux"'
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
    parser.example = 'kb context "how do I retry?" --max-characters 2000'
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
    render.remark(results.notice or "", options)
    return 0 if results.documents else 1


def related_options(parser: Parser) -> None:
    parser.example = "kb related guide/install.md -n 3"
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

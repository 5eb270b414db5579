"""`kb get`, `kb outline`, `kb section`, `kb related`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from kb.cli import render
from kb.cli.resolve import resolve, resolve_lines
from kb.tools.session import Session

NO_BUDGET = 1 << 60  # a person's terminal has no context window


def get(kb: Session, options: argparse.Namespace) -> int:
    """Print documents, or some of their lines; all of them or none."""
    places = [resolve_lines(kb, text, options.collection) for text in options.documents]
    results = [
        _call(
            kb,
            "documents_get_document",
            collection=collection,
            document=document,
            start_line=first,
            end_line=last,
        )
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


def outline(kb: Session, options: argparse.Namespace) -> int:
    """Print a document's headings, indented by level, with their lines."""
    collection, document = resolve(kb, options.document, options.collection)
    result = _call(
        kb,
        "documents_get_outline",
        collection=collection,
        document=document,
        max_depth=options.depth,
    )
    lines = [
        f"{row['line']:>6}  {'  ' * (row['level'] - 1)}{row['text']}" for row in result["outline"]
    ]
    render.text(result, "\n".join(lines), options)
    if not lines:
        render.remark(f"{document} has no headings", options)
    return 0 if lines else 1


def section(kb: Session, options: argparse.Namespace) -> int:
    """Print one section."""
    collection, document = resolve(kb, options.document, options.collection)
    result = _call(
        kb,
        "documents_get_section",
        collection=collection,
        document=document,
        section=options.heading,
        include_subsections=not options.no_subsections,
    )
    content = result["content"]
    render.text(result, content, options, partial(_show, content, document, options))
    return 0


def related(kb: Session, options: argparse.Namespace) -> int:
    """List documents close in meaning."""
    collection, document = resolve(kb, options.document, options.collection)
    result = _call(
        kb, "documents_find_related", collection=collection, document=document, limit=options.limit
    )
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
    """Print text on a terminal.

    Lines that were asked for by number are shown as they are: rendered, they would be others.
    """
    from kb.cli import terminal
    from kb.formats.front_matter import read_front_matter
    from kb.formats.parse import is_markdown

    as_markdown = is_markdown(document) and is_whole and not options.raw
    if as_markdown:
        content = content[read_front_matter(content).character_count :]
    terminal.document(content, title, as_markdown=as_markdown)


def _call(kb: Session, name: str, **arguments: Any) -> dict[str, Any]:
    """Run a tool's function for a person: without budget, and with errors raised."""
    # Only now: they bring pydantic, which a search needs not.
    from kb.tools.call import Call
    from kb.tools.registry import load_tools
    from kb.tools.replies import as_json

    result: dict[str, Any] = as_json(
        load_tools()[name].function(Call(kb, budget=NO_BUDGET), **arguments)
    )
    return result

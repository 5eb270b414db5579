"""Options of what searches and reads."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kb.cli.arguments import FIND, Parser, Words, add_format, positive, share

SEARCH_FORMATS = ("table", "json", "csv", "tsv", "files", "md")
GRAPH_FORMATS = ("json", "graphml", "dot", "mermaid", "html")
LEAST_SCORE = 0.1  # below it a row is noise as a rule


def add_options(add: Callable[..., Parser]) -> None:
    """The commands with their options."""
    _add_search(add)
    sub = add(
        "list",
        "browse.list_names",
        "list collections, or the documents of one",
        group=FIND,
        example="kb list docs",
    )
    sub.add_argument("name", nargs="?", metavar="COLLECTION")
    add_format(sub)
    _add_reading(add)

    sub = add(
        "cite",
        "cite.cite",
        "list what a document cites and what cites it",
        group=FIND,
        example="kb cite guide/install.md --depth 2",
    )
    sub.add_argument("document", metavar="DOC", help="as for `kb get`")
    _add_collection(sub)
    sub.add_argument("--depth", type=int, choices=range(1, 4), default=1, help="steps to follow")
    add_format(sub)

    sub = add(
        "graph",
        "cite.graph",
        "export the citation graph, or find broken links",
        group=FIND,
        example="kb graph --format html -o graph.html",
    )
    sub.add_argument("documents", nargs="*", metavar="DOC", help="around these (default: all)")
    _add_collection(sub)
    sub.add_argument("--depth", type=int, choices=range(1, 4), default=3, help="steps to follow")
    sub.add_argument("--format", choices=GRAPH_FORMATS, help="default: json")
    sub.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: print it")
    sub.add_argument(
        "--broken", action="store_true", help="list links that lead nowhere; exit 1 if any does"
    )


def _add_search(add: Callable[..., Parser]) -> None:
    sub = add(
        "search",
        "browse.search",
        "search by keywords and meaning",
        group=FIND,
        example='kb search "retry with backoff" --path "guide/**" -n 5',
        creates=False,
    )
    sub.add_argument(
        "query",
        metavar="QUERY",
        nargs="+",
        action=Words,
        help='words or a question; +must, -mustnot, "exact phrase", prefix*',
    )
    sub.add_argument(
        "--from",
        dest="folder",
        metavar="FOLDER",
        action=_CreatesFile,
        help="add and sync this folder first, and search it",
    )
    sub.add_argument(
        "-c",
        "--collection",
        action="append",
        default=[],
        metavar="NAME",
        help="only this collection; may be given several times",
    )
    sub.add_argument(
        "--path",
        action="append",
        default=[],
        metavar="GLOB",
        help='only documents such as "guide/**"; may be given several times',
    )
    sub.add_argument(
        "-n", "--limit", type=positive, default=10, metavar="N", help="rows (default: 10)"
    )
    sub.add_argument(
        "--min-score",
        type=share,
        default=LEAST_SCORE,
        metavar="S",
        help="hide rows below this score, 0 to 1; from 0.7 on a row most likely answers "
        f"(default: {LEAST_SCORE})",
    )
    sub.add_argument(
        "--format",
        choices=SEARCH_FORMATS,
        help="files: paths alone; md: the passages; csv, tsv: a table with its headers",
    )
    sub.add_argument("--rerank", action="store_true", help="a finer order, about a second slower")
    sub.add_argument("--explain", action="store_true", help="say why each row is found")
    sub.add_argument("--no-embed", action="store_true", help="with --from: keywords only, for now")


def _add_reading(add: Callable[..., Parser]) -> None:
    sub = add(
        "get",
        "read.get",
        "print documents or some of their lines",
        group=FIND,
        example="kb get guide/install.md:10-40",
    )
    sub.add_argument(
        "documents",
        nargs="+",
        metavar="DOC[:LINE[-[LINE]]]",
        help="id, COLLECTION/id, path on disk, or the end of an id",
    )
    _add_collection(sub)
    _add_raw(sub)

    sub = add(
        "outline",
        "read.outline",
        "print a document's headings",
        group=FIND,
        example="kb outline guide/install.md --depth 2",
    )
    _add_document(sub)
    sub.add_argument(
        "--depth", type=int, choices=range(1, 7), default=6, help="levels (default: all)"
    )

    sub = add(
        "section",
        "read.section",
        "print one section of a document",
        group=FIND,
        example='kb section guide/install.md "Install > Linux"',
    )
    _add_document(sub)
    sub.add_argument("heading", metavar="HEADING", help="its text, its path or its anchor")
    sub.add_argument(
        "--no-subsections", action="store_true", help="only down to the next heading of any level"
    )
    _add_raw(sub)

    sub = add(
        "related",
        "read.related",
        "list documents close in meaning",
        group=FIND,
        example="kb related guide/install.md -n 3",
    )
    _add_document(sub)
    sub.add_argument(
        "-n", "--limit", type=positive, default=5, metavar="N", help="rows (default: 5)"
    )
    add_format(sub)


def _add_document(sub: Parser) -> None:
    sub.add_argument("document", metavar="DOC", help="as for `kb get`")
    _add_collection(sub)


def _add_collection(sub: Parser) -> None:
    sub.add_argument(
        "-c", "--collection", default="", metavar="NAME", help="look in this collection alone"
    )


def _add_raw(sub: Parser) -> None:
    sub.add_argument(
        "--raw", action="store_true", help="on a terminal too: the text as it is written"
    )


class _CreatesFile(argparse.Action):
    """An option that makes the command create the file if it is missing."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        namespace.creates = True

"""Options of the tools and of what keeps the file in order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kb.cli import serve
from kb.cli.arguments import ASSISTANTS, CARE, Parser, add_format, positive


def add_tool_options(add: Callable[..., Parser]) -> None:
    """The tools that a server offers."""
    sub = add(
        "tools",
        "care.list_tools",
        "list the tools with their parameters",
        group=ASSISTANTS,
        example="kb tools",
        needs_file=False,
    )
    add_format(sub)
    sub = add(
        "tool",
        "care.call",
        "call a tool as a client would",
        group=ASSISTANTS,
        example='kb tool documents_search \'{"query": "retry", "limit": 3}\'',
        creates=True,
    )
    sub.add_argument("name", metavar="NAME", help="as `kb tools` lists it")
    sub.add_argument(
        "arguments",
        nargs="?",
        default="{}",
        metavar="JSON",
        help='arguments as a JSON object, or "-" to read them from stdin',
    )
    serve.add_reply_tokens(sub)
    serve.add_allow_docs(sub)


def add_options(add: Callable[..., Parser]) -> None:
    """What keeps the file in order."""
    sub = add(
        "status",
        "care.status",
        "show what the file holds",
        group=CARE,
        example="kb status --calls",
    )
    sub.add_argument(
        "--calls", action="store_true", help="how often, how well and how fast tools were called"
    )
    add_format(sub)
    sub = add(
        "copy",
        "care.copy",
        "write a clean, compact copy of the file",
        group=CARE,
        example="kb copy handbook.db",
    )
    sub.add_argument("destination", metavar="DEST", type=Path, help="a new file, or a folder")
    sub.add_argument(
        "--share",
        action="store_true",
        help="for others: without questions, reads, discoveries and paths of this machine",
    )
    _add_pack(add)
    _add_eval(add)


def _add_pack(add: Callable[..., Parser]) -> None:
    sub = add(
        "pack",
        "care.pack",
        "write a folder's documents as one bundle, always the same bytes",
        group=CARE,
        example="kb pack docs -o docs.tar.gz",
        needs_file=False,
    )
    sub.add_argument("folder", metavar="FOLDER")
    sub.add_argument("-o", "--output", metavar="BUNDLE", type=Path, required=True)
    sub.add_argument("--name", default="", help="its name; by default the folder's")
    sub.add_argument("--description", default="", help="what it holds")
    sub.add_argument("--edition", default="", metavar="VERSION", help="its version")
    sub.add_argument("--include", action="append", default=[], metavar="GLOB", help="only these")
    sub.add_argument("--exclude", action="append", default=[], metavar="GLOB", help="not these")


def _add_eval(add: Callable[..., Parser]) -> None:
    sub = add(
        "eval",
        "evaluate.evaluate",
        "measure retrieval quality",
        group=CARE,
        example="kb eval --count 20",
        creates=True,
    )
    sub.add_argument(
        "judged",
        nargs="?",
        metavar="FOLDER",
        help="a judged collection in BEIR layout, or a file of questions (default: questions that "
        "are made from the documents: names, titles, near-misses, unrelated ones)",
    )
    sub.add_argument("--count", type=positive, default=100, help="questions made of each kind")
    sub.add_argument("--seed", type=int, default=1, help="which questions are made (default: 1)")
    sub.add_argument("--save", metavar="FILE", type=Path, help="keep the questions that are made")
    sub.add_argument(
        "--unrelated",
        metavar="FOLDER",
        help="ask the questions of this collection, or file of questions, about your documents, "
        "which do not answer them",
    )
    sub.add_argument("--per-query", action="store_true", help="show nDCG@10 of each query")
    add_format(sub)


def add_parts_options(add: Callable[..., Parser]) -> None:
    """Moving collections between files."""
    sub = add(
        "split",
        "parts.split",
        "move collections into another file, with their vectors",
        group=CARE,
        example="kb split team.db handbook",
    )
    sub.add_argument("file", metavar="FILE", type=Path, help="made when it is missing")
    sub.add_argument("names", metavar="NAME", nargs="+", help="collections to move")
    sub = add(
        "merge",
        "parts.merge",
        "take collections out of another file, with their vectors",
        group=CARE,
        example="kb merge team.db",
        creates=True,
    )
    sub.add_argument("file", metavar="FILE", type=Path, help="the other file")
    sub.add_argument("names", metavar="NAME", nargs="*", help="collections (default: all)")

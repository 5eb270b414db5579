"""The commands with their options: what `kb --help` lists."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kb
from kb.cli import completion, doctor, install, render, serve
from kb.cli.arguments import Parser, Words, positive

LOG_LEVELS = ("debug", "info", "warning", "error")


def make_parser() -> Parser:
    """The parser of the whole command line."""
    common = _common_options(argparse.SUPPRESS)
    parser = Parser(
        prog="kb",
        description="A project's knowledge in one SQLite file: add folders, search, serve.",
        parents=[_common_options(None)],
    )
    parser.add_argument("--version", action="version", version=f"kb {kb.__version__}")
    parser.set_defaults(creates=False, needs_file=True)
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)

    def add(name: str, command: str, text: str, **defaults: Any) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text, parents=[common])
        sub.set_defaults(command=command, **defaults)
        return sub

    _add_collecting(add)
    _add_browsing(add)
    _add_context(add)
    _add_care(add)
    serve.add_options(add)
    install.add_options(add)
    doctor.add_options(add)
    completion.add_options(add)
    return parser


def _common_options(default: Any) -> Parser:
    """The global options, accepted before and after the command."""

    def value(own: Any) -> Any:
        return own if default is None else default

    options = Parser(add_help=False)
    options.add_argument(
        "--db",
        metavar="PATH",
        default=default,
        help="the knowledge base file (default: KB_DB, else .kb/kb.db of the project)",
    )
    options.add_argument(
        "--json", action="store_true", default=value(False), help="one JSON document on stdout"
    )
    options.add_argument(
        "--quiet", action="store_true", default=value(False), help="no progress and no summary"
    )
    options.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        default=value("warning"),
        help="how much to log on stderr",
    )
    options.add_argument(
        "--model",
        metavar="NAME",
        default=default,
        help="embedding model (default: the file's, else the one for the documents' language)",
    )
    options.add_argument(
        "--reranker", metavar="NAME", default=default, help="a fastembed cross-encoder for rerank"
    )
    options.add_argument(
        "--threads", type=positive, default=value(1), metavar="N", help="threads of one model run"
    )
    options.add_argument(
        "--download",
        action="store_true",
        default=value(False),
        help="let fastembed download the model named with --model",
    )
    return options


def _add_collecting(add: Callable[..., argparse.ArgumentParser]) -> None:
    sub = add("add", "collect.add", "register a folder as a collection and sync it", creates=True)
    sub.add_argument(
        "source",
        metavar="SOURCE",
        help="a folder, a file, a bundle (.tar.gz, .tgz, .zip), file://; the http address of a "
        "page, sitemap, llms.txt, manifest or bundle; or a repository: git+https://, "
        "git+ssh:// or git+file://, with ?path=FOLDER, ?manifest=FILE and #REF",
    )
    sub.add_argument("--name", help="name of the collection (default: the folder's)")
    for option, which in (("--include", "only"), ("--exclude", "not")):
        sub.add_argument(
            option,
            action="append",
            default=[],
            metavar="GLOB",
            help=f'{which} these files, such as "guide/**"; may be given several times',
        )
    # A project's external documentation is registered by its activation alone.
    sub.add_argument(
        "--kind",
        choices=("documents", "archive", "external"),
        help="(default: as before, else documents)",
    )
    sub.add_argument("--description", default=None, help="what the collection is about")
    sub.add_argument(
        "--holds",
        choices=("research", "url-content"),
        help="what an archive holds (default: told by each document's layout)",
    )
    sub.add_argument(
        "--published-at",
        action="append",
        default=[],
        metavar="URL[=FOLDER]",
        help="where the documents (of FOLDER) are read on the web: links there resolve to them",
    )
    sub.add_argument(
        "--url-field",
        metavar="NAME",
        help="header line of an archive's documents that links their own page, such as 'RFC PR'",
    )
    sub.add_argument(
        "--allow-private",
        action="store_true",
        help="also fetch from this machine and from private networks, now and at every sync",
    )
    sub.add_argument("--no-embed", action="store_true", help="keywords only, for now")

    sub = add("sync", "collect.sync", "bring collections up to date")
    sub.add_argument("names", nargs="*", metavar="NAME")
    sub.add_argument(
        "--force",
        action="store_true",
        help="read every file again; an empty folder empties its collection",
    )
    sub.add_argument("--no-embed", action="store_true", help="keywords only, for now")

    sub = add("reembed", "collect.reembed_all", "embed everything again with another model")

    sub = add("remove", "collect.remove", "remove a collection from the file")
    sub.add_argument("name", metavar="NAME")
    sub.add_argument(
        "--force", action="store_true", help="even if its documents are nowhere but in the file"
    )


def _add_browsing(add: Callable[..., argparse.ArgumentParser]) -> None:
    sub = add("search", "browse.search", "search by keywords and meaning", creates=False)
    sub.add_argument("query", metavar="QUERY", nargs="+", action=Words)
    sub.add_argument(
        "--from",
        dest="folder",
        metavar="FOLDER",
        action=_CreatesFile,
        help="add and sync this folder first, and search it",
    )
    sub.add_argument("-c", "--collection", action="append", default=[], metavar="NAME")
    sub.add_argument("-n", "--limit", type=positive, default=10, metavar="N")
    sub.add_argument("--format", choices=render.FORMATS, default=None)
    sub.add_argument("--rerank", action="store_true", help="a finer order, about a second slower")
    sub.add_argument("--explain", action="store_true", help="show how each row was ranked")
    sub.add_argument("--no-embed", action="store_true", help="with --from: keywords only, for now")

    sub = add("list", "browse.list_names", "list collections, or the documents of one")
    sub.add_argument("name", nargs="?", metavar="COLLECTION")

    for name, text in (
        ("get", "print a document or some of its lines"),
        ("outline", "print a document's headings"),
        ("section", "print one section of a document"),
        ("related", "list documents close in meaning"),
    ):
        sub = add(name, f"browse.{name}", text)
        lines = "[:LINE[-[LINE]]]" if name == "get" else ""
        sub.add_argument(
            "document",
            metavar=f"DOC{lines}",
            help="id, COLLECTION/id, path on disk, or the end of an id",
        )
        sub.add_argument("-c", "--collection", default="", metavar="NAME")
        if name == "outline":
            sub.add_argument("--depth", type=int, choices=range(1, 7), default=6)
        if name == "section":
            sub.add_argument("heading", metavar="HEADING")
            sub.add_argument("--no-subsections", action="store_true")
        if name == "related":
            sub.add_argument("-n", "--limit", type=positive, default=5, metavar="N")

    sub = add("cite", "cite.cite", "list what a document cites and what cites it")
    sub.add_argument("document", metavar="DOC", help="as for `kb get`")
    sub.add_argument("-c", "--collection", default="", metavar="NAME")
    sub.add_argument("--depth", type=int, choices=range(1, 4), default=1, help="steps to follow")

    sub = add("graph", "cite.graph", "export the citation graph, or find broken links")
    sub.add_argument("documents", nargs="*", metavar="DOC", help="around these (default: all)")
    sub.add_argument("-c", "--collection", default="", metavar="NAME")
    sub.add_argument("--depth", type=int, choices=range(1, 4), default=3, help="steps to follow")
    sub.add_argument("--format", choices=("json", "graphml", "dot", "mermaid", "html"))
    sub.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: print it")
    sub.add_argument(
        "--broken", action="store_true", help="list links that lead nowhere; exit 1 if any does"
    )


def _add_context(add: Callable[..., argparse.ArgumentParser]) -> None:
    sub = add("grep", "context.grep", "search the project's files by regular expression")
    sub.set_defaults(creates=True)
    sub.add_argument("pattern", metavar="PATTERN")
    sub.add_argument("--glob", default="", metavar="GLOB", help='only files such as "src/**/*.ts"')
    sub.add_argument("-s", "--case-sensitive", action="store_true")
    sub.add_argument("-n", "--limit", type=positive, default=1000, metavar="N")

    types = ("", "pattern", "rule", "decision", "issue")
    sub = add(
        "record", "context.record", "record something learned about the project", creates=True
    )
    sub.add_argument("text", metavar="TEXT", help='a sentence or two, or "-" to read stdin')
    sub.add_argument("--type", choices=types, default="", help="default: told from the words")
    sub.add_argument("--module", default="", metavar="NAME")
    sub.add_argument("--source", default="", metavar="TEXT", help="where it comes from")
    sub.add_argument(
        "--allow-secrets",
        action="store_true",
        help="record it though it seems to hold a password, a key or a token",
    )

    sub = add("forget", "context.forget", "take back what was recorded, without a trace")
    sub.add_argument("id", metavar="ID", help="as `kb recall` shows it; its beginning is enough")

    sub = add("recall", "context.recall", "search what was recorded, or print all as Markdown")
    sub.add_argument(
        "query", metavar="QUERY", nargs="*", action=Words, help="without it: all, by module"
    )
    sub.add_argument("--type", choices=types, default="")
    sub.add_argument("--module", default="", metavar="NAME")
    sub.add_argument("-n", "--limit", type=positive, default=5, metavar="N")


def _add_care(add: Callable[..., argparse.ArgumentParser]) -> None:
    add("tools", "care.list_tools", "list the tools with their parameters", needs_file=False)
    sub = add("tool", "care.call", "call a tool as a client would", creates=True)
    sub.add_argument("name", metavar="NAME")
    sub.add_argument(
        "arguments",
        nargs="?",
        default="{}",
        metavar="JSON",
        help='arguments as a JSON object, or "-" to read them from stdin',
    )
    sub.add_argument("--max-reply-tokens", type=positive, default=None, metavar="N")
    serve.add_allow_docs(sub)

    sub = add("eval", "evaluate.evaluate", "measure retrieval quality", creates=True)
    sub.add_argument(
        "judged",
        nargs="?",
        metavar="FOLDER",
        help="a judged collection in BEIR layout, or a file of questions (default: questions that "
        "are made from the documents: names, titles, near-misses, unrelated ones)",
    )
    sub.add_argument("--count", type=positive, default=100, help="questions made of each kind")
    sub.add_argument("--seed", type=int, default=1, help="which questions are made (default: 1)")
    sub.add_argument(
        "--unrelated",
        metavar="FOLDER",
        help="ask the questions of this collection, or file of questions, about your documents, "
        "which do not answer them",
    )
    sub.add_argument("--save", metavar="FILE", type=Path, help="keep the questions that are made")
    sub.add_argument("--per-query", action="store_true", help="show nDCG@10 of each query")

    sub = add("status", "care.status", "show what the file holds")
    sub.add_argument(
        "--calls", action="store_true", help="how often, how well and how fast tools were called"
    )
    sub = add("copy", "care.copy", "write a clean, compact copy of the file")
    sub.add_argument("destination", metavar="DEST", type=Path)
    sub = add(
        "pack", "care.pack", "write a folder's documents as one bundle, always the same bytes"
    )
    sub.set_defaults(needs_file=False)
    sub.add_argument("folder", metavar="FOLDER")
    sub.add_argument("-o", "--output", metavar="BUNDLE", type=Path, required=True)
    sub.add_argument("--name", default="", help="its name; by default the folder's")
    sub.add_argument("--description", default="", help="what it holds")
    sub.add_argument("--edition", default="", metavar="VERSION", help="its version")
    sub.add_argument("--include", action="append", default=[], metavar="GLOB")
    sub.add_argument("--exclude", action="append", default=[], metavar="GLOB")


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

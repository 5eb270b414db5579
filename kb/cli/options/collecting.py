"""Options of what fills the file."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from kb.cli.arguments import FILL, Parser


def add_options(add: Callable[..., Parser]) -> None:
    """The commands with their options."""
    _add_adding(add)
    sub = add(
        "sync",
        "collect.sync",
        "bring collections up to date",
        group=FILL,
        example="kb sync docs",
    )
    sub.add_argument("names", nargs="*", metavar="NAME", help="default: all collections")
    sub.add_argument(
        "--force",
        action="store_true",
        help="read every file again; an empty folder empties its collection",
    )
    how = sub.add_mutually_exclusive_group()
    how.add_argument("--no-embed", action="store_true", help="keywords only, for now")
    _add_workers(how)

    sub = add(
        "reembed",
        "collect.reembed_all",
        "embed everything again with another model",
        group=FILL,
        example="kb reembed --model multilingual-e5-small-q4",
    )
    _add_workers(sub)

    sub = add(
        "move",
        "collect.move",
        "say where the documents of a collection are now",
        group=FILL,
        example="kb move docs manual",
    )
    sub.add_argument("name", metavar="NAME")
    sub.add_argument("folder", metavar="FOLDER", help="the folder, file or repository they are in")
    sub.add_argument("--no-embed", action="store_true", help="keywords only, for now")

    sub = add(
        "remove",
        "collect.remove",
        "remove a collection from the file, or a document of an index",
        group=FILL,
        example="kb remove docs",
    )
    sub.add_argument("name", metavar="NAME")
    sub.add_argument(
        "document", nargs="?", metavar="DOC", help="only this document, which came by a tool call"
    )
    sub.add_argument(
        "--force", action="store_true", help="even if its documents are nowhere but in the file"
    )


def _add_workers(to: argparse._ActionsContainer) -> None:
    to.add_argument(
        "--workers",
        metavar="ADDRESS",
        help="embed on the workers of a Dask scheduler, such as tcp://host:8786 or tls://host:8786 "
        "(pip install 'kbfile[dask]'); it and they see the texts, and could run anything here",
    )


def _add_adding(add: Callable[..., Parser]) -> None:
    sub = add(
        "add",
        "collect.add",
        "register a folder as a collection and sync it",
        group=FILL,
        example='kb add docs --exclude "drafts/**"',
        creates=True,
    )
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

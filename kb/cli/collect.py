"""`kb add`, `sync`, `move`, `remove`, `reembed`, `trust`: what goes into the file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kb.cli import render
from kb.cli.commands import Parser, Words
from kb.cli.exit_codes import FAILURE, NOTHING_FOUND
from kb.cli.render import progress
from kb.errors import UsageError
from kb.settings import database_paths
from kb.text.controls import flat
from kb.text.counted import counted

if TYPE_CHECKING:
    from kb.results.care import SyncedCollection, SyncResults
    from kb.results.findings import Reach
    from kb.tools.session import Session

MOST_SHOWN = 20  # files that failed, or notices, of one collection


def _add_no_embed(to: argparse._ActionsContainer) -> None:
    to.add_argument("--no-embed", action="store_true", help="keywords only, for now")


def _add_workers(to: argparse._ActionsContainer) -> None:
    to.add_argument(
        "--workers",
        metavar="ADDRESS",
        help="embed on the workers of a Dask scheduler, such as tcp://host:8786 or tls://host:8786 "
        "(pip install 'kbfile[dask]'); it and they see the texts, and could run anything here",
    )


def add_options(parser: Parser) -> None:
    sources = (
        "a folder, a file, a bundle (.tar.gz, .zip ...), file://; the http address of a "
        "page, sitemap, llms.txt, manifest or bundle; or a repository: git+https://, "
        "git+ssh:// or git+file://, with ?path=FOLDER, ?manifest=FILE and #REF; "
        "several become a collection each"
    )
    parser.argument("sources", "SOURCE", sources, nargs="+", action=Words)
    parser.option("--name", None, "name of the collection (default: the folder's)")
    several = 'these files, such as "guide/**"; may be given several times'
    parser.option("--include", "GLOB", f"only {several}", is_list=True)
    parser.option("--exclude", "GLOB", f"not {several}", is_list=True)
    # Only its activation registers a project's external documentation.
    kinds = ("documents", "archive", "external")
    parser.option("--kind", None, "(default: as before, else documents)", choices=kinds)
    parser.option("--description", None, "what the collection is about")
    holds = "what an archive holds (default: told by each document's layout)"
    parser.option("--holds", None, holds, choices=("research", "url-content"))
    published = "where the documents (of FOLDER) are read on the web: links there resolve to them"
    parser.option("--published-at", "URL[=FOLDER]", published, is_list=True)
    field = "header line of an archive's documents that links their own page, such as 'RFC PR'"
    parser.option("--url-field", "NAME", field)
    ocr = (
        "recognise the text of PDF pages that are pictures, some seconds a page, now and at "
        "every sync (pip install 'kbfile[ocr]')"
    )
    parser.flag("--ocr", ocr, action="store_const", const="rapidocr")
    languages = "the same by tesseract and its languages, such as rus+eng"
    parser.option("--ocr-languages", "LANGUAGES", languages, dest="ocr")
    parser.flag(
        "--allow-private",
        "also fetch from this machine and from private networks, now and at every sync",
    )
    _add_no_embed(parser)


def add(session: Session, options: argparse.Namespace) -> int:
    """Add all sources, or none if one cannot be added."""
    for option in ("name", "description", "published_at"):
        if getattr(options, option) and len(options.sources) > 1:
            shown = option.replace("_", "-")
            raise UsageError(f"--{shown} is for one collection: add each source by itself")
    pairs = [
        text.rpartition("=") if "=" in text else (text, "", "") for text in options.published_at
    ]
    settings = {
        "source": options.holds,
        "allow_private": options.allow_private,
        "ocr": options.ocr,
        "url_field": options.url_field,
        "published": [[address, folder.strip("/")] for address, _, folder in pairs],
    }
    with progress(options) as show:
        results = session.base.add(
            *options.sources,
            name=options.name,
            kind=options.kind,
            include=options.include,
            exclude=options.exclude,
            description=options.description,
            settings={key: value for key, value in settings.items() if value},
            embed=not options.no_embed,
            progress=show,
        )
    _show_sync(results, options)
    if results.has_failed or session.base.problems():
        return FAILURE
    return 0 if all(synced.is_stored for synced in results) else NOTHING_FOUND


def sync_options(parser: Parser) -> None:
    parser.argument("names", "NAME", "default: all collections", nargs="*")
    parser.flag("--force", "read every file again; an empty folder empties its collection")
    how = parser.add_mutually_exclusive_group()
    _add_no_embed(how)
    _add_workers(how)


def sync(session: Session, options: argparse.Namespace) -> int:
    _ask_about_sources(session, session.base.sources_to_confirm(options.names), options)
    notices: list[str] = []
    with progress(options) as show:
        results = session.base.sync(
            options.names,
            force=options.force,
            embed=not options.no_embed,
            workers=options.workers,
            tell=_telling(notices),
            progress=show,
        )
    _show_sync(results, options, notices)
    # The problems were printed at the start of the command: syncing alone does not solve them.
    return FAILURE if results.has_failed or session.base.problems() else 0


def _ask_about_sources(
    session: Session, sources: Sequence[Reach], options: argparse.Namespace
) -> None:
    """Ask a person, once, about unconfirmed sources; without one each sync refuses by itself."""
    is_person = sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()
    if not sources or options.json or not is_person:
        return
    render.say(
        f"{session.database.path} came from elsewhere, or an earlier version of kb made it. "
        "Outside of its project it would read:"
    )
    for reach in sources:
        print(f"  {flat(reach.what)} ({flat(reach.name)})", file=sys.stderr)
    print("Read this from now on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        session.base.confirm_sources(sources)


def trust_options(parser: Parser) -> None:
    names = "collections (default: all, and the file counts as one that you made)"
    parser.argument("names", "NAME", names, nargs="*")


def trust(_: object, options: argparse.Namespace) -> int:
    files = database_paths(options.db)
    path = files[0]
    from kb.library.collecting import trust as trust_file  # here: help needs nothing that syncs

    reaches = trust_file(files, options.names)
    result = {
        "file": str(path),
        "confirmed": [
            {"collection": reach.name, "source": reach.source, "privateAddresses": reach.is_private}
            for reach in reaches
        ],
    }
    lines = [f"{path} may read {reach.what} ({reach.name})" for reach in reaches]
    if not options.quiet or options.json:
        nothing = f"{path} reads nothing more that you had not named"
        render.text(result, "\n".join(lines) or nothing, options)
    return 0


def move_options(parser: Parser) -> None:
    parser.argument("name", "NAME")
    parser.argument("folder", "FOLDER", "the folder, file or repository they are in")
    _add_no_embed(parser)


def move(session: Session, options: argparse.Namespace) -> int:
    with progress(options) as show:
        results = session.base.move(
            options.name, options.folder, embed=not options.no_embed, progress=show
        )
    _show_sync(results, options)
    return FAILURE if session.base.problems() else 0


def remove_options(parser: Parser) -> None:
    parser.argument("name", "NAME")
    only = "only this document, which came by a tool call"
    parser.argument("document", "DOC", only, nargs="?")
    parser.flag("--force", "even if its documents are nowhere but in the file")


def remove(session: Session, options: argparse.Namespace) -> int:
    removed = session.base.remove(options.name, options.document, force=options.force)
    if removed.document is None:
        line = f"removed {removed.collection} with {counted(removed.documents, 'document')}"
    else:
        line = f"removed {removed.document} from {removed.collection}"
    if options.json or not options.quiet:
        render.text(removed.to_dict(), line, options)
    return 0


def reembed_options(parser: Parser) -> None:
    _add_workers(parser)


def reembed(session: Session, options: argparse.Namespace) -> int:
    notices: list[str] = []
    with progress(options) as show:
        result = session.base.reembed(
            options.model or "", workers=options.workers, tell=_telling(notices), progress=show
        )
    if options.json:
        notice = {"notice": " ".join(notices)} if notices else {}
        render.print_json(result.to_dict() | notice)
    elif not options.quiet:
        embedded = counted(result.embedded, "passage")
        print(f"{result.model}: {embedded} embedded, {result.reused:,} reused")
    return 0


def _telling(notices: list[str]) -> Callable[[str], None]:
    """Prints what workers report at once, and keeps it for `--json`."""

    def tell(sentence: str) -> None:
        notices.append(sentence)
        render.say(sentence)

    return tell


def _show_sync(
    results: SyncResults, options: argparse.Namespace, notices: Sequence[str] = ()
) -> None:
    """Print what syncs did, and the embedding after them; JSON repeats earlier notices."""
    notice = results.notice or ""
    if options.json:
        all_notices = " ".join(filter(None, (*notices, notice)))
        render.print_json(results.to_dict() | ({"notice": all_notices} if all_notices else {}))
    else:
        for synced in results:
            say_problems(synced, options)
            if not options.quiet:
                print(summary(synced))
        if results.model and not options.quiet:
            reused = f", {results.reused} had a known text" if results.reused else ""
            made = counted(results.embedded, "passage")
            print(f"{made} embedded with {results.model}{reused}")
    if notice and (results.embedding_error or not options.quiet):
        render.say(notice)


def summary(synced: SyncedCollection) -> str:
    if not synced.is_stored:
        return f"{synced.collection}: nothing there, so nothing was added"
    if synced.errors and not synced.errors[0]["path"]:  # of the whole collection
        return f"{synced.collection}: not synced"
    counts = {
        "added": synced.added,
        "updated": synced.updated,
        "removed": synced.removed,
        "unchanged": synced.unchanged,
        "failed": len(synced.errors),
    }
    changes = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)
    total = counted(synced.total, "document")
    return f"{synced.collection}: {changes or 'nothing there'} ({total})"


def say_problems(synced: SyncedCollection, options: argparse.Namespace) -> None:
    """Print some of the files that failed, and some of the notices."""
    if options.quiet:
        return
    for problems, what in (
        (synced.errors, ("more file that failed", "more files that failed")),
        (synced.notices, ("more notice", "more notices")),
    ):
        for problem in problems[:MOST_SHOWN]:
            place = f"{problem['path']}: " if problem["path"] else ""
            render.say(f"{synced.collection}: {place}{problem['message']}")
        if (more := len(problems) - MOST_SHOWN) > 0:
            render.say(f"{synced.collection}: {counted(more, *what)}: see --json")

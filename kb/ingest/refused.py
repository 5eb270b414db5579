"""What a sync refuses or leaves out, and what to do then."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from os.path import splitext
from pathlib import Path

from kb.errors import SourceError, UsageError
from kb.formats.convert.formats import INSTALL
from kb.ingest.prepare import Preparation
from kb.ingest.report import SyncReport
from kb.sources.folder import SourceFile
from kb.store.connection import Row
from kb.text.counted import counted, most_first

MOST_KINDS = 8  # of files, in a notice


def require_source(collection: Row) -> None:
    """Refuse to sync what has no source.

    Raises:
        UsageError: the collection is filled by tool calls.
    """
    if not collection["source"]:
        raise UsageError(
            f'the collection "{collection["name"]}" is filled by tool calls and has no source to '
            "sync from"
        )


def would_empty(collection: Row, count: int, *, is_addition: bool) -> SourceError:
    """The refusal to delete all that a collection holds."""
    name, source = collection["name"], collection["source"]
    way_out = (
        "check the globs"
        if is_addition
        else f"bring the files back, give other globs with `kb add`, or `kb remove {name}`"
    )
    documents = counted(count, "document")
    return SourceError(
        f"{source} holds no matching file{shown_globs(collection)} that can be read, but the "
        f'collection "{name}" has {documents}: nothing was changed; {way_out}',
        path=source,
    )


def nothing_readable(collection: Row, report: SyncReport, *, found_none: bool) -> SourceError:
    """The refusal to add what would hold nothing, with the first of its errors.

    Args:
        found_none: the globs, where there are any, fit no file at all.
    """
    first = report.errors[0]
    others = f" ({len(report.errors) - 1} more failed)" if len(report.errors) > 1 else ""
    where = f"{first['path']}: "
    if not first["path"] or where in first["message"]:  # "Cannot read a.md: ..."
        where = ""
    globs = shown_globs(collection) if found_none else ""
    unfit = f"no file matches{globs}; " if globs else ""
    return SourceError(
        f"nothing was added: {unfit}{where}{first['message']}{others}", path=collection["source"]
    )


def shown_globs(collection: Row) -> str:
    """What a collection takes and leaves out, to be said where nothing was found."""
    only, never = json.loads(collection["include"]), json.loads(collection["exclude"])
    parts = [
        f"{word} {', '.join(globs)}" for word, globs in (("only", only), ("not", never)) if globs
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def other_formats(paths: Sequence[str]) -> str:
    """What to say of files that are no documents, by suffix."""
    kinds = Counter(splitext(path)[1].lower() or "without a suffix" for path in paths)
    shown = [f"{count} {kind}" for kind, count in most_first(kinds)[:MOST_KINDS]]
    if len(kinds) > MOST_KINDS:
        shown.append(f"{len(kinds) - MOST_KINDS} other kinds")
    return f"left out for their formats: {', '.join(shown)} (--include takes any text files)"


def without_unavailable(
    files: Sequence[SourceFile], preparation: Preparation, report: SyncReport, root: Path
) -> list[SourceFile]:
    """The files that can be read with what is installed; the others are told in one line.

    Raises:
        SourceError: the collection is a single file that cannot.
    """
    kept: list[SourceFile] = []
    left_out: Counter[str] = Counter()
    for file in files:
        kind = preparation.format_of(file)
        if kind is None or kind.is_available:
            kept.append(file)
        else:
            left_out[kind.name] += 1
            missing = kind
    if left_out and root.is_file():
        raise SourceError(
            f"{root.name} is a file in the format {missing.name}: `{INSTALL}` adds its reading",
            path=str(root),
        )
    if left_out:
        names = ", ".join(f"{count} {name}" for name, count in most_first(left_out))
        message = f"left out: {names}; `{INSTALL}` adds these formats"
        report.tell(message)
    return kept

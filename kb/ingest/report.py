"""What a sync did, refused or left out, and how it tells of its progress."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from os.path import splitext
from typing import Any

from kb.errors import SourceError, UsageError
from kb.store.connection import Row
from kb.text.counted import counted, most_first, some_of
from kb.text.secrets import secrets_in

MAX_KINDS = 8  # kinds of files in a notice

# Called with a stage ("documents" or "embedding"), how much is done and how much there is.
Progress = Callable[[str, int, int], None]


def no_progress(stage: str, done: int, total: int) -> None:
    """The progress of work that nobody watches."""


@dataclass(slots=True)
class SyncReport:
    """What a sync of one collection did, in documents, and what it could not do."""

    collection: str
    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    total: int = 0
    renamed: int = 0  # counted under `updated` too
    errors: list[dict[str, str]] = field(default_factory=list)
    notices: list[dict[str, str]] = field(default_factory=list)
    is_stored: bool = True  # False: a new collection without documents was not made

    def tell(self, message: str, path: str = "") -> None:
        """Note what the user should know about a file, or the whole collection."""
        self.notices.append({"path": path, "message": message})

    def fail(self, path: str, message: str) -> None:
        self.errors.append({"path": path, "message": message})

    def include(self, other: SyncReport) -> None:
        """Add what the sync of another shard of the collection did."""
        for name in ("added", "updated", "removed", "unchanged", "total", "renamed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, others in ((self.errors, other.errors), (self.notices, other.notices)):
            mine += [problem for problem in others if problem not in mine]

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "is_stored"}


def require_source(collection: Row) -> None:
    """Raise UsageError for a collection that is filled by tool calls."""
    if not collection["source"]:
        raise UsageError(
            f'the collection "{collection["name"]}" is filled by tool calls and has no source to '
            "sync from"
        )


def would_empty(collection: Row, count: int, *, is_addition: bool) -> SourceError:
    """The refusal to delete everything in a collection."""
    name, source = collection["name"], collection["source"]
    way_out = (
        "check the globs"
        if is_addition
        else f"bring the files back, give other globs with `kb add`, or `kb remove {name}`"
    )
    return SourceError(
        f"{source} holds no matching file{shown_globs(collection)} that can be read, but the "
        f'collection "{name}" has {counted(count, "document")}: nothing was changed; {way_out}',
        path=source,
    )


def nothing_readable(collection: Row, report: SyncReport, *, has_files: bool) -> SourceError:
    """The refusal to add a collection without documents, with the first of its errors."""
    first = report.errors[0]
    others = f" ({len(report.errors) - 1} more failed)" if len(report.errors) > 1 else ""
    where = f"{first['path']}: "
    if not first["path"] or where in first["message"]:  # "Cannot read a.md: ..."
        where = ""
    globs = "" if has_files else shown_globs(collection)
    unfit = f"no file matches{globs}; " if globs else ""
    return SourceError(
        f"nothing was added: {unfit}{where}{first['message']}{others}", path=collection["source"]
    )


def shown_globs(collection: Row) -> str:
    """A collection's globs, for a message that nothing matches; "" without any."""
    only, never = json.loads(collection["include"]), json.loads(collection["exclude"])
    parts = [
        f"{word} {', '.join(globs)}" for word, globs in (("only", only), ("not", never)) if globs
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def other_formats(paths: Sequence[str]) -> str:
    """The notice about files that are not documents, by suffix."""
    kinds = Counter(splitext(path)[1].lower() or "without a suffix" for path in paths)
    shown = [f"{count} {kind}" for kind, count in most_first(kinds)[:MAX_KINDS]]
    if len(kinds) > MAX_KINDS:
        shown.append(f"{len(kinds) - MAX_KINDS} other kinds")
    return f"left out for their formats: {', '.join(shown)} (--include takes any text files)"


def secret_names(paths: Sequence[str]) -> str:
    """Some of the files that are never stored, and why."""
    return f"{some_of(sorted(paths))} (secret by name, or a private key)"


def tokens_notice(text: str) -> str:
    """The notice about what looks like secrets in a document, which is stored all the same."""
    lines = [f"line {secret.line} ({secret.kind})" for secret in secrets_in(text)]
    return f"stored, though it seems to hold a secret: {some_of(lines)}" if lines else ""

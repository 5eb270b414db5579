"""Opens knowledge bases."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kb.errors import FileError
from kb.library.knowledge_base import KnowledgeBase
from kb.model_in_use import ModelInUse
from kb.models.choose import make_embedder as make_named_embedder
from kb.open_file import OpenFile
from kb.search.files import left_out
from kb.settings import FILE_NAME, database_paths, find_project
from kb.store.collections import all_collections
from kb.store.database import AttachedFiles, Database

if TYPE_CHECKING:
    from kb.models.embedder import Embedder
    from kb.models.rerank import Reranker

Opened = tuple[Database, AttachedFiles]  # the file that is written, and those read beside it
Named = str | os.PathLike[str]


def open_knowledge_base(
    path: Named | Sequence[Named] | None,
    project: Named | None,
    *,
    read_only: bool,
    model: str | None,
) -> KnowledgeBase:
    """As `kb.open`."""
    root = find_project() if project is None else Path(project).expanduser().absolute()
    if path is None:
        path = root / FILE_NAME
    named = [path] if isinstance(path, str | os.PathLike) else path
    first, *others = database_paths([os.fspath(path) for path in named])
    refusal = (
        f"{first} was opened to be read only: open it without read_only to write"
        if read_only
        else ""
    )
    database = Database(first, create=not read_only, refusal=refusal)
    return on_database(database, project=root, model=model, beside=AttachedFiles(others))


def on_database(
    database: Database,
    *,
    project: Path | None = None,
    model: str | None = None,
    reranker: Reranker | None = None,
    make_embedder: Callable[[str], Embedder] = make_named_embedder,
    allowed_docs: Sequence[str] = (),
    beside: AttachedFiles | None = None,
) -> KnowledgeBase:
    """The knowledge base of an open file; the arguments are those of its parts."""
    return KnowledgeBase(
        OpenFile(database, project=project, beside=beside),
        ModelInUse(database, model, reranker=reranker, make_embedder=make_embedder),
        allowed_docs=allowed_docs,
    )


def open_files(path: Path, others: Sequence[Path], *, create: bool) -> Opened:
    """The file to write and those to read beside it. If the first cannot be opened, the next that
    can answers for it, and nothing is written."""
    try:
        return Database(path, create=create), AttachedFiles(others)
    except FileError as error:
        lost = [left_out(str(path), error)]
        for number, other in enumerate(others, 1):
            with contextlib.suppress(FileError):
                refusal = f"nothing is written, since the first file cannot be: {error.message}"
                first = Database(other, create=False, refusal=refusal)
                return first, AttachedFiles(others[number:], lost)
        raise


def open_replica(address: str, writer: str) -> Opened:
    """A copy that follows the one at an address; a refused write names `writer` as the place.
    Raises SourceError or UsageError if there is no copy, or the address is malformed."""
    from kb.store.replication import follow

    return follow.open_replica(address, writer)


def holds_nothing(file: Path) -> bool:
    """Whether a file has no collection."""
    with Database(file, create=False) as database, database.read() as connection:
        return not all_collections(connection)

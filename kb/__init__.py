"""kb: a project's knowledge in one SQLite file.

    import kb

    with kb.open("handbook.db") as base:
        for row in base.search("retry", limit=5):
            print(row.document_id, row.start_line, row.content)

`open`, `KnowledgeBase`, the result types of `kb.results` and the exceptions of `kb.errors` are the
library; everything else may change.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kb.settings import VERSION

if TYPE_CHECKING:
    from kb.library.knowledge_base import KnowledgeBase as KnowledgeBase

__all__ = ["KnowledgeBase", "__version__", "open"]

__version__ = VERSION


def open(  # noqa: A001 - as gzip.open, io.open: it is called kb.open
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    project: str | os.PathLike[str] | None = None,
    read_only: bool = False,
    model: str | None = None,
) -> KnowledgeBase:
    """Open a knowledge base, made where there is none yet.

    Args:
        path: the `.db` file; of several the first is written and all are read as one. None: the
            one of the project, `.kb/kb.db`.
        project: the folder whose files and configuration belong to it; by default the nearest one
            upwards from the working directory that has a `.kb` or `.git`.
        read_only: never write; the file has to exist.
        model: the embedding model of a new file, or the one that the file has to have.

    Raises:
        kb.errors.FileError: it cannot be read or made, or is open in this process already.
        kb.errors.DamagedFileError: it is no knowledge base.
    """
    from kb.library.opening import open_knowledge_base

    return open_knowledge_base(path, project, read_only=read_only, model=model)


def __getattr__(name: str) -> Any:
    # Only when asked for: the command line starts without it.
    if name == "KnowledgeBase":
        from kb.library.knowledge_base import KnowledgeBase

        return KnowledgeBase
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""What a tool works on: one call of one client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kb.knowledge_base import KnowledgeBase
from kb.model_in_use import ModelInUse
from kb.search.files import SearchedFile
from kb.store.connection import Connection, Row
from kb.store.database import Database
from kb.store.names import Names
from kb.tools.replies import Fitted, rows_within
from kb.tools.session import Session

if TYPE_CHECKING:
    from kb.project.in_use import ProjectInUse

T = TypeVar("T")

# Called with a stage, how much of it is done and how much there is.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the client's session, and who wants to hear how far it is."""

    session: Session
    progress: Progress | None = None
    budget: int | None = None  # tokens of the reply; None: as the session has it

    @property
    def knowledge(self) -> KnowledgeBase:
        return self.session.knowledge

    @property
    def database(self) -> Database:
        return self.session.database

    @property
    def model(self) -> ModelInUse:
        return self.session.model

    @property
    def names(self) -> Names:
        return self.session.names

    @property
    def project(self) -> ProjectInUse:
        return self.session.project

    @property
    def reply_tokens(self) -> int:
        """About how many tokens the reply may take."""
        return self.session.reply_tokens if self.budget is None else self.budget

    def read(self) -> AbstractContextManager[Connection]:
        """A read transaction on the file."""
        return self.session.database.read()

    def read_collection(
        self, name: str
    ) -> AbstractContextManager[tuple[Connection, Row, SearchedFile]]:
        """As the session's."""
        return self.session.read_collection(name)

    def fit(self, rows: Sequence[T], advice: str, *, start: int = 0) -> Fitted[T]:
        """The first rows that the reply has room for, at least one.

        Args:
            advice: how to get the others; `{kept}`, `{left}`, `{total}` and `{next}` (the number
                of the first one left out) stand for numbers.
            start: the number of the first row.
        """
        kept = rows_within(rows, self.reply_tokens)
        if len(kept) == len(rows):
            whole = all(one is row for one, row in zip(kept, rows, strict=True))
            return Fitted(kept, "" if whole else "The reply is full: its texts are cut.")
        numbers = {
            "kept": len(kept),
            "left": len(rows) - len(kept),
            "total": len(rows),
            "next": start + len(kept),
        }
        return Fitted(kept, f"The reply is full: {advice.format_map(numbers)}")

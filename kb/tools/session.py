"""One client's side of an open knowledge base: what it may do, what it did, its project."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kb.errors import CollectionNotFound, FileError
from kb.knowledge_base import KnowledgeBase
from kb.model_in_use import ModelInUse
from kb.models.choose import make_embedder as make_named_embedder
from kb.models.embedder import Embedder
from kb.search.files import SearchedFile, left_out
from kb.store.beside import FilesBeside, labels
from kb.store.calls import CallLog
from kb.store.connection import Connection, Row
from kb.store.database import Database
from kb.store.names import Names
from kb.store.sessions import SessionLog
from kb.tools.limits import DEFAULT_REPLY_TOKENS, RateLimits

if TYPE_CHECKING:
    from kb.models.rerank import Reranker
    from kb.project.in_use import ProjectInUse


class Activity:
    """When a tool was last called and whether documents came in that wait for vectors.

    What runs beside the calls listens to it. All clients of a process share one.
    """

    def __init__(self) -> None:
        self._last_call = 0.0
        self._added = threading.Event()

    def note_call(self) -> None:
        """A tool was called just now."""
        self._last_call = time.monotonic()

    def note_addition(self) -> None:
        """Documents came in by a call and wait for vectors."""
        self._added.set()

    @property
    def last_call(self) -> float:
        """`time.monotonic()` of the latest call, 0 before the first."""
        return self._last_call

    @property
    def waits_for_vectors(self) -> bool:
        return self._added.is_set()

    def wait_for_addition(self) -> None:
        self._added.wait()

    def take_additions(self) -> None:
        """What came in until now is being embedded."""
        self._added.clear()


class Rights(NamedTuple):
    """What a client may do.

    Attributes:
        may_write: whether it may call the tools that change what is stored.
        may_choose_project: whether it may activate another project than the one that is served.
    """

    may_write: bool = True
    may_choose_project: bool = True


ALL_RIGHTS = Rights()


class Session:
    """An open knowledge base as one client uses it.

    Args:
        knowledge: the file; several sessions may share it.
        model: the file's embedding model, shared as well.
        reply_tokens: about how many tokens a tool's reply may take.
        limits: how often tools may be called.
        allowed_docs: folders outside a project that its external docs may lie in.
        activity: what background work listens to.
        rights: what the client may do.
    """

    def __init__(
        self,
        knowledge: KnowledgeBase,
        model: ModelInUse,
        *,
        reply_tokens: int = DEFAULT_REPLY_TOKENS,
        limits: RateLimits | None = None,
        allowed_docs: Sequence[str] = (),
        activity: Activity | None = None,
        rights: Rights = ALL_RIGHTS,
    ) -> None:
        self.knowledge = knowledge
        self.model = model
        self.reply_tokens = reply_tokens
        self.limits = limits or RateLimits()
        self.activity = activity or Activity()
        self.rights = rights
        self._allowed_docs = allowed_docs
        self.calls = CallLog(knowledge.database)
        self.log = SessionLog(knowledge.database)

    @cached_property
    def project(self) -> ProjectInUse:
        """The project in whose files the client works."""
        from kb.project.in_use import ProjectInUse  # here: most commands need none

        return ProjectInUse(
            self.knowledge,
            self.model,
            self._allowed_docs,
            may_choose=self.rights.may_choose_project,
        )

    @cached_property
    def memory_model(self) -> ModelInUse:
        """The model of the indexes that lie in memory."""
        return self.model.beside(self.knowledge.memory)

    @property
    def models(self) -> list[ModelInUse]:
        """The model of the file, and of what lies in memory if anything does."""
        return [self.model, *([self.memory_model] if self.knowledge.has_memory else [])]

    @property
    def files(self) -> list[SearchedFile]:
        """All that is read as one: the file, what lies in memory, and the files beside it."""
        beside = self.knowledge.beside.databases()
        if not beside:
            own = [SearchedFile(self.model, self.names)]
        else:
            own = self._named_files([self.database, *beside])
        if self.knowledge.has_memory:
            own.insert(1, SearchedFile(self.memory_model, self.names, "Indexes in memory"))
        return own

    def _named_files(self, databases: Sequence[Database]) -> list[SearchedFile]:
        """Files whose collections carry their file's name where another has the same."""
        names: list[set[str]] = []
        for database in databases:
            try:
                with database.read() as connection:
                    rows = self.names.collections(connection)
            except FileError:  # told when it is searched
                rows = []
            names.append({row["name"] for row in rows})
        count = Counter(name for own in names for name in own)
        found = []
        called = labels([database.path for database in databases])
        for database, label, own in zip(databases, called, names, strict=True):
            shared = {name: f"{name}@{label}" for name in own if count[name] > 1}
            found.append(
                SearchedFile(
                    self._model_of(database),
                    Names(self.names.aliases, self.names.notices, shared),
                    str(database.path),
                )
            )
        return found

    def _model_of(self, database: Database) -> ModelInUse:
        if database is self.database:
            return self.model
        return self.model.beside(database, as_it_is=True)

    @contextlib.contextmanager
    def read_collection(
        self,
        name: str,
        find: Callable[[SearchedFile, Connection], Row | None] | None = None,
    ) -> Iterator[tuple[Connection, Row, SearchedFile]]:
        """A read of the file that holds a collection, the collection's row, and that file.

        Args:
            find: finds it in a file; by default by its name or alias.

        Raises:
            CollectionNotFound: with the nearest names, and which files could not be looked into.
        """
        files = self.files
        lost = [self.lost] if self.lost else []
        known: set[str] = set()
        for file in files:
            with contextlib.ExitStack() as read:
                try:
                    connection = read.enter_context(file.database.read())
                    with file.database.translated():
                        found = (
                            find(file, connection) if find else file.names.find(connection, name)
                        )
                        known |= file.names.known(connection)
                except FileError as error:
                    if len(files) == 1:
                        raise
                    lost.append(left_out(file.label, error))
                    continue
                if found is not None and found["collection_id"]:
                    yield connection, found, file
                    return
        with self.database.read() as connection:
            try:
                found = files[0].names.collection(connection, name, others=list(known))
            except CollectionNotFound as error:
                message = " ".join([error.message, *lost])
                raise CollectionNotFound(message, **error.details) from error
            yield connection, found, files[0]

    @property
    def lost(self) -> str:
        """What to tell of files that could not be read when they were last looked for."""
        return " ".join(self.knowledge.beside.lost)

    @property
    def database(self) -> Database:
        return self.knowledge.database

    @property
    def names(self) -> Names:
        return self.knowledge.names

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def another(self, *, rights: Rights = ALL_RIGHTS, limits: RateLimits | None = None) -> Session:
        """A session for another client of this process: with its own log and project.

        Args:
            limits: that it shares with others; by default its own.
        """
        return Session(
            self.knowledge,
            self.model,
            reply_tokens=self.reply_tokens,
            limits=limits or self.limits.renewed(),
            allowed_docs=self._allowed_docs,
            activity=self.activity,
            rights=rights,
        )

    def on_file(self, path: Path) -> Session:
        """A session on another file, served without a project, with the same choices.

        Raises:
            FileError: it cannot be opened.
        """
        database = Database(path, create=False)
        # By its name, though nothing lies there: the files of a project are not served.
        knowledge = KnowledgeBase(database, project=path.with_suffix(""), has_project=False)
        return Session(
            knowledge,
            self.model.beside(database),
            reply_tokens=self.reply_tokens,
            limits=self.limits.renewed(),
        )

    def flush(self) -> None:
        """Write what is collected in memory: calls, accesses, what happened in the session."""
        self.calls.flush()
        self.log.flush()

    def end(self) -> None:
        """The client is gone; the file stays open for others."""
        if "project" in vars(self):
            self.project.stop()
        self.log.end()
        self.calls.flush()

    def close(self) -> None:
        """End the session and close the file."""
        self.end()
        self.knowledge.close()


def open_session(
    database: Database,
    *,
    project: Path | None = None,
    model: str | None = None,
    reranker: Reranker | None = None,
    make_embedder: Callable[[str], Embedder] = make_named_embedder,
    reply_tokens: int = DEFAULT_REPLY_TOKENS,
    limits: RateLimits | None = None,
    allowed_docs: Sequence[str] = (),
    beside: FilesBeside | None = None,
) -> Session:
    """A session of its own on a file; the arguments are those of the parts."""
    return Session(
        KnowledgeBase(database, project=project, beside=beside),
        ModelInUse(database, model, reranker=reranker, make_embedder=make_embedder),
        reply_tokens=reply_tokens,
        limits=limits,
        allowed_docs=allowed_docs,
    )

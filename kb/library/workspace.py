"""What every verb of the library works on: the open file, its model, and the project."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, partial
from itertools import combinations
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from kb.errors import CollectionNotFound, EmbeddingError, FileError, KbError
from kb.model_in_use import ModelInUse
from kb.open_file import OpenFile
from kb.results.findings import Finding
from kb.search.files import SearchedFile, Together, left_out
from kb.store.collections import Names, all_collections, shard_of
from kb.store.connection import Connection, Row, translated
from kb.store.contents import collection_range
from kb.store.database import Database, labels
from kb.store.sessions import CallLog, SessionLog
from kb.store.write_ahead_log import COPY, held_log, log_finding

if TYPE_CHECKING:
    from kb.library.shards import Shards
    from kb.project.in_use import ProjectInUse

T = TypeVar("T")
Remainder = tuple[int, int]  # which part of all documents a shard has: remainder and divisor


class _Contents(NamedTuple):
    """An open file, which shard it is, and the names of its collections that are whole."""

    database: Database
    shard: Remainder | None
    names: set[str]


@cache
def _missing(shards: tuple[Remainder, ...]) -> str:
    for (remainder, divisor), (other, of_other) in combinations(shards, 2):
        if (remainder - other) % gcd(divisor, of_other) == 0:
            return "A shard is among the files twice, and so are its documents."
    if len(shards) < 2:
        return ""
    from fractions import Fraction  # here: it takes some milliseconds, and few files are cut

    if (share := sum((Fraction(1, divisor) for _, divisor in shards), Fraction(0))) >= 1:
        return ""
    return f"These are {share} of all shards: the documents of the others are missing."


class Workspace:
    """An open file with its model and a project, shared by all verbs.

    Args:
        file, model: several workspaces may share them.
        allowed_docs: folders outside a project that its external docs may be in.
        may_choose: whether a project other than the file's may be activated.
    """

    def __init__(
        self,
        file: OpenFile,
        model: ModelInUse,
        *,
        allowed_docs: Sequence[str] = (),
        may_choose: bool = True,
    ) -> None:
        self.file = file
        self.model = model
        self._allowed_docs = allowed_docs
        self._may_choose = may_choose
        self.shards: Shards | None = None
        self._shards: tuple[Remainder, ...] = ()  # when the files were last looked for

    def another(self, *, may_choose: bool = True) -> Self:
        """The same file for another client, with its own project."""
        another = type(self)(
            self.file, self.model, allowed_docs=self._allowed_docs, may_choose=may_choose
        )
        another.shards = self.shards
        return another

    def use_shards(self, workers: str, patterns: Sequence[str], seconds: float = 0.0) -> None:
        """Also search files on the machines of a Dask scheduler's workers.

        Args:
            workers: the scheduler's address.
            patterns: of the files there, or of folders of them.
            seconds: how long a question waits for them; 0: five.

        Raises:
            UsageError: the extra is not installed, or the address malformed.
        """
        from kb.library.shards import SECONDS, Shards  # here: Dask takes half a second

        self.shards = Shards(workers, patterns, seconds or SECONDS)

    def on_file(self, path: Path) -> Self:
        """Another file, without a project, with the same choices of models."""
        database = Database(path, create=False)
        # Named after the file though nothing is there: the files of a project are not served.
        file = OpenFile(database, project=path.with_suffix(""), has_project=False)
        return type(self)(file, self.model.beside(database))

    @property
    def shards_here(self) -> list[Self]:
        """The file and the shards beside it (`kb.ingest.copying`): all of them are written."""
        return self.list_shards()

    def list_shards(self, *, skips_unreadable: bool = False) -> list[Self]:
        """As `shards_here`, if wanted without those that cannot be read."""
        if not self.file.beside.paths:
            return [self]
        first, *others = self._look(skips_unreadable=skips_unreadable)
        beside = [other.database for other in others if first.shard and other.shard]
        return [self, *(type(self)(self.file.shard(d), self.model.beside(d)) for d in beside)]

    @property
    def database(self) -> Database:
        return self.file.database

    @property
    def names(self) -> Names:
        return self.file.names

    @property
    def lost(self) -> str:
        """A notice of files that could not be read when they were last looked for, and of shards of
        which some were not among them, or twice.
        """
        lost = self.shards.unavailable if self.shards else []
        return " ".join([*self.file.beside.unavailable, *lost]) or _missing(self._shards)

    @cached_property
    def project(self) -> ProjectInUse:
        """The project in whose files the client works."""
        from kb.project.in_use import ProjectInUse  # here: most commands need none

        return ProjectInUse(self.file, self.model, self._allowed_docs, may_choose=self._may_choose)

    @cached_property
    def memory_model(self) -> ModelInUse:
        """The model of the indexes in memory."""
        return self.model.beside(self.file.memory)

    @property
    def models(self) -> list[ModelInUse]:
        """The model of the file, and of the indexes in memory if there are any."""
        return [self.model, *([self.memory_model] if self.file.has_memory else [])]

    @property
    def files(self) -> list[SearchedFile]:
        """All that is read as one: the file, indexes in memory, and the files beside it."""
        if not self.file.beside.paths:
            files = [SearchedFile(self.model, self.file.names)]
        else:
            files = self._named_files(self._look(skips_unreadable=True))
        if self.file.has_memory:
            files.insert(1, SearchedFile(self.memory_model, self.names, "Indexes in memory"))
        return files

    @property
    def everywhere(self) -> list[SearchedFile]:
        """All that is searched: `files`, and the shards of workers."""
        return [*self.files, *(self.shards.files(self.model, self.names) if self.shards else ())]

    def _look(self, *, skips_unreadable: bool = False) -> list[_Contents]:
        """The file and those beside it, with what their collections say; read once a change."""
        listed = []
        for database in [self.database, *self.file.beside.databases()]:
            try:
                with database.read() as connection:
                    shard, names = connection.once("contents", partial(self._contents, connection))
            except FileError:
                if not skips_unreadable:
                    raise
                shard, names = None, set()  # the search reports it
            listed.append(_Contents(database, shard, names))
        self._shards = tuple(each.shard for each in listed if each.shard)
        return listed

    def _contents(self, connection: Connection) -> tuple[Remainder | None, set[str]]:
        rows = self.names.collections(connection)
        names = {row["name"] for row in rows if "shard" not in json.loads(row["options"])}
        remainder = shard_of(connection)
        return (remainder[0], remainder[1]) if remainder else None, names

    def _named_files(self, contents: Sequence[_Contents]) -> list[SearchedFile]:
        """Files whose collections carry their file's name if another has the same."""
        count = Counter(name for each in contents for name in each.names)
        files = []
        for (database, _, names), label in zip(
            contents, labels([each.database.path for each in contents]), strict=True
        ):
            is_first = database is self.database
            model = self.model if is_first else self.model.beside(database, as_it_is=True)
            shared = {name: f"{name}@{label}" for name in names if count[name] > 1}
            called = Names(self.names.aliases, self.names.notices, shared, self.names.inside)
            files.append(SearchedFile(model, called, str(database.path)))
        return files

    @contextlib.contextmanager
    def read_collection(
        self, name: str, find: Callable[[SearchedFile, Connection], Row | None] | None = None
    ) -> Iterator[tuple[Connection, Row, SearchedFile]]:
        """A read of the file that holds a collection, the collection's row, and that file.

        Args:
            find: finds it in a file; by default by its name or alias.

        Raises:
            CollectionNotFound: with the nearest names, and which files could not be read.
        """
        files = self.files
        notices = [self.lost] if self.lost else []
        names: set[str] = set()
        for file in files:
            with contextlib.ExitStack() as read:
                try:
                    connection = read.enter_context(file.database.read())
                    with translated(file.database.path):
                        row = find(file, connection) if find else file.names.find(connection, name)
                        names |= file.names.existing(connection)
                except FileError as error:  # of the only file it comes again below
                    notices.append(left_out(file.label, error))
                    continue
                if row is not None and row["collection_id"]:
                    yield connection, row, file
                    return
        with self.database.read() as connection:
            yield connection, self.first_collection(connection, name, names, notices), files[0]

    def first_collection(
        self, connection: Connection, name: str, names: Iterable[str], notices: Sequence[str]
    ) -> Row:
        """A collection of the first file, where no other file has it.

        Args:
            names: of all collections in the others.
            notices: which files could not be looked into.

        Raises:
            CollectionNotFound: with the nearest names.
        """
        try:
            return self.files[0].names.collection(connection, name, others=list(names))
        except CollectionNotFound as error:
            message = " ".join(filter(None, [error.message, *notices]))
            raise CollectionNotFound(message, **error.details) from error

    def ask_all(self, step: Callable[..., T], *arguments: Any) -> tuple[dict[SearchedFile, T], str]:
        """What a step (`kb/search/run.py`) gives of each file, those of workers too.

        Returns:
            the answers, and what to tell of files that did not answer.

        Raises:
            FileError: none did.
        """
        together = Together(self.everywhere)
        with together.read():
            answers = together.each(step, *arguments)
        return answers, " ".join([*together.lost, *filter(None, [self.lost])])

    def ask_each(
        self, work: Callable[[SearchedFile], T], unsaid: tuple[type[KbError], ...] = ()
    ) -> tuple[list[tuple[SearchedFile, T]], str]:
        """The result of `work` for each file, and a notice of the files for which it failed.

        Args:
            unsaid: errors that the notice leaves out.

        Raises:
            FileError, EmbeddingError: it fails for every file.
        """
        done: list[tuple[SearchedFile, T]] = []
        failed: list[tuple[SearchedFile, KbError]] = []
        for file in self.everywhere:
            try:
                done.append((file, work(file)))
            except (FileError, EmbeddingError) as error:
                failed.append((file, error))
        if not done:
            raise failed[0][1]
        notices = [
            left_out(file.label, error) for file, error in failed if not isinstance(error, unsaid)
        ]
        return done, " ".join(filter(None, [*notices, self.lost]))

    def call_log(self) -> CallLog:
        return CallLog(self.database)

    def session_log(self) -> SessionLog:
        return SessionLog(self.database)

    def embed_added(self, should_stop: Callable[[], bool]) -> bool:
        """Embed what waits in named indexes and archives, not in folders synced without vectors;
        whether some still waits.

        Raises:
            EmbeddingError: the model cannot be used.
        """
        from kb.ingest.embed import embed_pending  # here: not before a server's first reply

        for model in [*self.models, *(base.model for base in self.shards_here[1:])]:
            with model.database.read() as connection:
                rows = all_collections(connection)
            for row in rows:
                if row["kind"] in ("index", "archive"):
                    within = collection_range(row["collection_id"])
                    if embed_pending(model, within=within, should_stop=should_stop).waiting:
                        return True
        return False

    def follow_folders(self) -> None:
        """Keep all collections in line with their folders; does not return."""
        from kb.ingest.follow import follow_folders  # here: not before a server's first reply

        for base in self.shards_here:
            follow_folders(base.file, base.model)

    def problems(self) -> list[Finding]:
        """What keeps the file from answering as it should; a few look-ups."""
        from kb.store.health import quick

        with self.database.read() as connection:
            return quick(connection)

    def waiting_log(self) -> Finding | None:
        """That writes wait beside the `.db` because others keep them from being merged."""
        return log_finding(self.database)

    def require_sound(self, failure: Exception) -> None:
        """Raise DamagedFileError or ReplacedFileError where that explains a failure."""
        from kb.store.health import require_sound  # here: it is hardly ever needed

        require_sound(self.database, failure)

    def held_log(self) -> str:
        """What a copy of the `.db` alone would lack and why, a sentence; "" if nothing."""
        if not self.database.log.waits:
            return ""
        return f"{held_log(self.database).sentence()}. To copy all, {COPY}."

    def stop(self) -> None:
        """Stop following the project's folder; the file stays open for others."""
        if "project" in vars(self):
            self.project.stop()

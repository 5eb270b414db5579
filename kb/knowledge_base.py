"""What every tool and command works on: one open file, its model, its names."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Container, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kb.disk.aliases import load_aliases
from kb.errors import CollectionNotFound, DocumentNotFound, EmbeddingError, ModelMismatchError
from kb.models.choose import make_embedder as make_named_embedder
from kb.models.choose import suited_model
from kb.models.embedder import PACKAGED_MODELS, Calibration, Embedder, is_english_model
from kb.models.rerank import LateInteraction, Reranker, TokenEmbedder
from kb.search.hybrid import WHOLE_FILE, ChunkRange, collection_range
from kb.settings import find_project
from kb.store.calls import CallLog
from kb.store.database import Connection, Database, Row
from kb.store.sessions import SessionLog
from kb.text.nearest import nearest
from kb.tools.limits import RateLimits
from kb.tools.replies import DEFAULT_REPLY_TOKENS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kb.project.config import ActiveProject

log = logging.getLogger("kb")

# Kinds whose documents the documents tools see. External documentation belongs to one active
# project, discoveries to the context tools.
BROWSABLE_KINDS = ("documents", "archive", "index")
LANGUAGE_SAMPLES = 200  # documents whose language is looked at
QUERY_CACHE_SIZE = 256  # vectors of the latest queries, 1.5 kB each


class KnowledgeBase:
    """An open knowledge base.

    Args:
        database: the file.
        project: where alias files are looked for; found from the working directory by default.
        model: the embedding model to use; by default the one that made the file's vectors, or
            the one that suits the documents.
        reply_tokens: about how many tokens a tool's reply may take.
        reranker: what reorders when asked to; by default the embedding model's own tokens.
        make_embedder: how a model's name becomes an embedder; tests put a faster one here.
    """

    def __init__(
        self,
        database: Database,
        *,
        project: Path | None = None,
        model: str | None = None,
        reply_tokens: int = DEFAULT_REPLY_TOKENS,
        make_embedder: Callable[[str], Embedder] = make_named_embedder,
        reranker: Reranker | None = None,
    ) -> None:
        self.database = database
        self.project = project or find_project()
        self.notices: list[str] = []  # what the user should know of the project's own files
        self.reply_tokens = reply_tokens
        self.calls = CallLog(database)
        self.last_call = 0.0  # time.monotonic() when a tool was last called
        self.has_added = threading.Event()  # documents came in by a call and wait for vectors
        self._memory: Database | None = None
        self._memory_lock = threading.Lock()
        self.sessions = SessionLog(database)
        self.limits = RateLimits()
        self.active: ActiveProject | None = None
        self.allowed_docs: Sequence[str] = ()  # folders outside a project its docs may lie in
        self.watches = False  # a server keeps active projects fresh, a command does not
        self.background: list[Callable[[], None]] = []  # how to stop what runs beside the tools
        self.sync_lock = threading.Lock()  # held while folders are synced in the background
        self._wanted_model = model
        self.make_embedder = make_embedder
        self._reranker = reranker
        self._embedder: Embedder | None = None
        self._embedder_lock = threading.Lock()
        self._query_vectors: dict[tuple[str, str], NDArray[np.float32]] = {}

    def __enter__(self) -> KnowledgeBase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.active is not None:
            self.active.stop()
        for stop in self.background:
            stop()
        self.sessions.end()
        self.calls.flush()
        self.database.close()
        if self._memory is not None:
            self._memory.close()

    def beside(self, database: Database) -> KnowledgeBase:
        """Another file, with what was asked for of models."""
        return KnowledgeBase(
            database,
            project=self.project,
            model=self._wanted_model,
            make_embedder=self.make_embedder,
            reranker=self._reranker,
        )

    @property
    def memory(self) -> Database:
        """A second file, in memory, for indexes that go with the process."""
        with self._memory_lock:
            if self._memory is None:
                self._memory = Database(":memory:")
            return self._memory

    @property
    def has_memory(self) -> bool:
        """Whether anything was put into memory yet."""
        return self._memory is not None

    def flush(self) -> None:
        """Write what is collected in memory: calls, accesses, what happened in the session."""
        self.calls.flush()
        self.sessions.flush()

    @property
    def root(self) -> Path:
        """The folder of the project whose files the tools read."""
        return self.active.project.root if self.active is not None else self.project

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Alias -> collection id. What is wrong with an alias file is logged, and a notice."""

        def warn(message: str) -> None:
            if message not in self.notices:
                log.warning("%s", message)
                self.notices.append(message)

        return load_aliases(self.project, warn)

    # ------------------------------------------------------------------ the embedding model

    # None of this inside a read: the model takes a second to load, and a transaction that lasts
    # keeps the log from being merged, for which every writer would wait.

    def embedder(self) -> Embedder:
        """The model of this file; while it has no vector, the one asked for or the suited one.

        Raises:
            ModelMismatchError: the file's vectors come from another model.
        """
        return self._embedder_for(self._current_model())

    def _current_model(self) -> Row | None:
        self.database.require_no_read("embed")
        with self.database.read() as connection:
            return connection.row("current_model")

    def _embedder_for(self, current: Row | None) -> Embedder:
        name = self._name_of(current)
        if current and self._wanted_model and self._wanted_model != name:
            raise ModelMismatchError(
                f"this file's vectors come from the model {name}, not {self._wanted_model}: "
                f"run `kb reembed --model {self._wanted_model}` to change it",
                model=name,
            )
        with self._embedder_lock:
            if self._embedder is None or self._embedder.name != name:
                self._embedder = self.make_embedder(name)
            embedder = self._embedder
        if current and embedder.name != name:
            raise ModelMismatchError(
                f"this file's vectors come from the model {name}, not {embedder.name}: "
                f"run `kb reembed --model {embedder.name}`",
                model=name,
            )
        if current and current["sha256"] != embedder.sha256:
            raise ModelMismatchError(
                f"this file's vectors come from another build of the model {name}: "
                f"run `kb reembed --model {name}`",
                model=name,
            )
        return embedder

    def keep_embedder(self, embedder: Embedder) -> None:
        """Take an embedder that is loaded already, for when the file asks for its model."""
        with self._embedder_lock:
            self._embedder = embedder

    def reranker(self) -> Reranker | None:
        """What reorders the best candidates; None when the model gives no token vectors."""
        if self._reranker is not None:
            return self._reranker
        embedder = self.embedder()
        if not hasattr(embedder, "token_vectors"):
            return None
        return LateInteraction(cast(TokenEmbedder, embedder))

    def model_name(self) -> str:
        """The model of the file's vectors, or the one that would make them."""
        return self._name_of(self._current_model())

    def _name_of(self, current: Row | None) -> str:
        return str(current["name"]) if current else self._wanted_model or self.suited_model()

    def suited_model(self) -> str:
        """The packaged model for the language of the documents that the file holds now."""
        with self.database.read() as connection:
            ids = [row[0] for row in connection.tuples("all_document_ids")]
            some = json.dumps(ids[:: 1 + len(ids) // LANGUAGE_SAMPLES])
            texts = [
                row[0] for row in connection.tuples("beginnings_of_documents", document_ids=some)
            ]
        return suited_model(texts)

    def better_model(self) -> str:
        """The packaged model that suits the documents, "" if it is the file's or not ours to say.

        Not where a model was asked for, or where the file has one that is not packaged.
        """
        current = self._current_model()
        if self._wanted_model or current is None or current["name"] not in PACKAGED_MODELS:
            return ""
        suited = self.suited_model()
        return suited if suited != current["name"] else ""

    def embed_queries(self, texts: Sequence[str]) -> list[NDArray[np.float32]] | None:
        """One unit vector a query, embedded in one batch; None while the file has no vector.

        Raises:
            EmbeddingError: there are vectors, but the model that made them cannot be used.
        """
        current = self._current_model()
        if current is None:
            return None
        embedder = self._embedder_for(current)
        # Other threads fill and clear the cache meanwhile: each entry is read once.
        known = {text: self._query_vectors.get((embedder.name, text)) for text in texts}
        missing = [text for text, vector in known.items() if vector is None]
        fresh = dict(zip(missing, embedder.embed_queries(missing), strict=True)) if missing else {}
        if missing:
            _require_width(embedder, current)
        if len(self._query_vectors) + len(fresh) > QUERY_CACHE_SIZE:
            self._query_vectors.clear()
        self._query_vectors.update({(embedder.name, text): vec for text, vec in fresh.items()})
        known.update(fresh)
        return [vector for text in texts if (vector := known[text]) is not None]

    def embed_passage(self, text: str) -> NDArray[np.float32] | None:
        """The unit vector of a text as passages have it, to look for others that say the same.

        None while the file has no vector.

        Raises:
            EmbeddingError: as `embed_queries`.
        """
        current = self._current_model()
        if current is None:
            return None
        embedder = self._embedder_for(current)
        vectors = embedder.embed([text])
        _require_width(embedder, current)
        vector: NDArray[np.float32] = vectors[0]
        return vector

    def try_embed_queries(
        self, texts: Sequence[str]
    ) -> tuple[list[NDArray[np.float32] | None], str]:
        """As `embed_queries`, but a missing model gives None for each and a notice that says so."""
        try:
            vectors = self.embed_queries(texts)
        except ModelMismatchError:
            raise
        except EmbeddingError as error:
            return [None] * len(texts), f"searched by keywords alone: {error.message}"
        if vectors is None:
            return [None] * len(texts), ""
        return list(vectors), ""

    @staticmethod
    def has_english_model(connection: Connection) -> bool:
        """Whether the file's vectors mean little for text in other scripts."""
        current = connection.row("current_model")
        return current is None or is_english_model(current["name"])

    @staticmethod
    def calibration(connection: Connection) -> Calibration | None:
        """How the current model's distances become scores."""
        current = connection.row("current_model")
        return Calibration(current["slope"], current["intercept"]) if current else None

    # ------------------------------------------------------------------ names

    def collections(self, connection: Connection, kinds: Container[str] | None = None) -> list[Row]:
        """The collections that hold something or have a source, by name.

        Args:
            kinds: of these kinds; by default all that the documents tools browse.
        """
        return [
            row
            for row in connection.rows("collections")
            if (row["has_documents"] or row["source"])
            and (_is_browsable(row) if kinds is None else row["kind"] in kinds)
        ]

    def collection(
        self, connection: Connection, name: str, kinds: Container[str] | None = None
    ) -> Row:
        """A collection by its id or an alias; `kinds` as in `collections`.

        Raises:
            CollectionNotFound: with the nearest names.
        """
        rows = {row["name"]: row for row in self.collections(connection, kinds)}
        wanted = self.aliases.get(name, name)
        if wanted in rows:
            return rows[wanted]
        known = sorted([*rows, *(alias for alias, id_ in self.aliases.items() if id_ in rows)])
        near = nearest(name, known)
        hint = f" Did you mean {_either(near)}?" if near else _known_hint(known)
        raise CollectionNotFound(
            f'Collection "{name}" not found.{hint}',
            collection=name,
            suggestions=near or known[:10],
            **({"notice": "; ".join(self.notices)} if self.notices else {}),
        )

    def count_documents(self, connection: Connection, collection: Row) -> int:
        """How many documents a collection holds."""
        count: int = connection.value("count_documents", collection_id=collection["collection_id"])
        return count

    def named(self, row: Row) -> dict[str, str]:
        """How a collection is shown: its alias with the full id beside it, or its id."""
        for alias, name in self.aliases.items():
            if name == row["name"]:
                return {"collection": alias, "collectionId": name}
        return {"collection": row["name"]}

    def document(self, connection: Connection, collection: Row, path: str, shown: str) -> Row:
        """A document with its text.

        Raises:
            DocumentNotFound: with the nearest ids.
        """
        collection_id = collection["collection_id"]
        if found := connection.row("document", collection_id=collection_id, path=path):
            return found
        paths = [row[0] for row in connection.tuples("document_paths", collection_id=collection_id)]
        if same := _same_name(path, paths):
            return connection.rows("document", collection_id=collection_id, path=same)[0]
        near = nearest(path, paths)
        details = {"suggestions": near} if near else {}
        raise DocumentNotFound(
            f'Document "{path}" not found in collection "{shown}".',
            collection=shown,
            document=path,
            **details,
        )

    def ranges(
        self, connection: Connection, names: Sequence[str]
    ) -> tuple[Sequence[ChunkRange], dict[int, dict[str, str]]]:
        """Where to search, and how each collection there is shown; [] means everywhere."""
        if names:
            rows = [self.collection(connection, name) for name in names]
        else:
            rows = self.collections(connection)
        shown = {row["collection_id"]: self.named(row) for row in rows}
        everything = not names and len(shown) == connection.value("count_collections")
        return ([WHOLE_FILE] if everything else [collection_range(i) for i in sorted(shown)]), shown


def _require_width(embedder: Embedder, current: Row) -> None:
    # A model's width is known once it is loaded.
    if embedder.width != current["width"]:
        raise ModelMismatchError(
            f"the model {embedder.name} now gives {embedder.width} dimensions, the file has "
            f"{current['width']}: run `kb reembed --model {embedder.name}`"
        )


def _is_browsable(row: Row) -> bool:
    # External docs that no project owns were added by hand (`kb add --kind external`).
    return row["kind"] in BROWSABLE_KINDS or (
        row["kind"] == "external" and row["project_id"] is None
    )


def _same_name(path: str, paths: Sequence[str]) -> str | None:
    """The one id that is `path` in another Unicode normal form, or with `./` in front."""
    import unicodedata

    wanted = unicodedata.normalize("NFC", path.removeprefix("./"))
    same = [known for known in paths if unicodedata.normalize("NFC", known) == wanted]
    return same[0] if len(same) == 1 else None


def _either(names: Sequence[str]) -> str:
    return " or ".join(f'"{name}"' for name in names)


def _known_hint(known: Sequence[str]) -> str:
    if not known:
        return " The file holds no collection yet: add one with `kb add FOLDER`."
    return f" There are: {json.dumps(known[:10], ensure_ascii=False)[1:-1]}."

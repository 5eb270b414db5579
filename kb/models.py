"""Which embedding model: by its name, or by the language of the documents."""

from __future__ import annotations

from collections.abc import Sequence

from kb.embed import BUNDLED_MODEL, Embedder, FastembedEmbedder
from kb.multilingual import MULTILINGUAL_MODEL, MultilingualEmbedder
from kb.weights import is_installed

PACKAGED_MODELS = (BUNDLED_MODEL, MULTILINGUAL_MODEL)
# Below this share of English documents the multilingual model finds more. Among mixed documents
# the English one does: docs/decisions/0007-languages.md.
ENGLISH_SHARE = 0.25


def make_embedder(name: str, *, threads: int = 1, allow_download: bool = False) -> Embedder:
    """The embedder of a model's name; see `FastembedEmbedder` for the rest."""
    if name == MULTILINGUAL_MODEL:
        return MultilingualEmbedder(threads=threads)
    return FastembedEmbedder(name, threads=threads, allow_download=allow_download)


def suited_model(texts: Sequence[str]) -> str:
    """The packaged model that suits documents which begin like these."""
    if not texts or not is_installed():
        return BUNDLED_MODEL
    from py3langid import classify

    english = sum(classify(text)[0] == "en" for text in texts)
    return BUNDLED_MODEL if english >= ENGLISH_SHARE * len(texts) else MULTILINGUAL_MODEL

"""The step from texts to stored vectors: a function of the model and the texts alone.

One text goes through a model at a time, so its vector does not depend on the texts that it comes
with, nor on how many processes share the work.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from kb.errors import EmbeddingError
from kb.models.choose import make_embedder
from kb.models.embedder import Embedder, quantize

# What every machine that helps embeds first, to be compared with what this one makes of it.
PROBES = (
    "Calibrate the vane before the first storm of the year.",
    "HTTP 429: retry after the number of seconds that the header names.",
    "Ein Satz in einer anderen Sprache, mit Umlauten: größer, öfter, früher.",
)
# Processors that round alike give equal bytes; others were seen to give a cosine of .9996
# (docs/decisions/0014-embedding-speed.md), other models one of .3.
LEAST_COSINE = 0.999

_loaded: dict[str, Embedder] = {}
_lock = threading.Lock()


def vectors_of(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """The int8 vector of each text, as the file holds it."""
    if not texts:
        return []
    return [vector.tobytes() for vector in quantize(embedder.embed(texts))]


def vectors_by_model(name: str, sha256: str, texts: Sequence[str]) -> list[bytes]:
    """The same by this machine's own model of a name, loaded once a process.

    Args:
        sha256: of the model that the file has: no other one may make its vectors.

    Raises:
        EmbeddingError: this machine has no such model, or another build of it.
    """
    with _lock:
        if (embedder := _loaded.get(name)) is None:
            embedder = _loaded[name] = make_embedder(name)
    if embedder.sha256 != sha256:
        raise EmbeddingError(
            f"another build of the model {name} is installed (SHA-256 {embedder.sha256[:12]}..., "
            f"not {sha256[:12]}...): install the same version of kb"
        )
    return vectors_of(embedder, texts)


def unlike(vectors: Sequence[bytes], expected: Sequence[bytes]) -> str:
    """What is wrong with another machine's vectors of the probes, "" if nothing is."""
    if list(vectors) == list(expected):
        return ""
    if [len(vector) for vector in vectors] != [len(vector) for vector in expected]:
        return "its vectors have another width"
    least = min(_cosine(one, other) for one, other in zip(vectors, expected, strict=True))
    if least < LEAST_COSINE:
        return f"its vectors are not those of this machine (cosine {least:.4f})"
    return ""


def _cosine(one: bytes, other: bytes) -> float:
    import numpy as np

    first, second = (np.frombuffer(part, np.int8).astype(np.float64) for part in (one, other))
    return float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))

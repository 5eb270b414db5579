"""What a worker of the tests loads first: it writes down what it embeds.

KB_COUNTED names the file, a line a text. KB_BUILD makes the worker one that has another build of
the models.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from kb.models import embedder, english
from kb.models.encoder import PackagedEmbedder


def dask_setup(worker: Any) -> None:
    """Called by Dask once the worker is there, before it gets any work."""
    embed = PackagedEmbedder.embed

    def counted(self: PackagedEmbedder, texts: Sequence[str]) -> Any:
        with open(os.environ["KB_COUNTED"], "a") as file:
            for text in texts:
                file.write(json.dumps(embedder.text_hash(text).hex()) + "\n")
        return embed(self, texts)

    PackagedEmbedder.embed = counted  # type: ignore[method-assign]
    if build := os.environ.get("KB_BUILD"):
        english.EnglishEmbedder.sha256 = build

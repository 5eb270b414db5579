"""What was found out about a file, and the cheap look at it that every command has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kb.store.connection import Connection
from kb.store.embeddings import current_model, has_vectors_without_model

SOUND, HINT, BROKEN = "sound", "hint", "broken"


class Finding(NamedTuple):
    """One thing that was looked at."""

    check: str
    state: str  # SOUND, HINT (nothing is lost or wrong) or BROKEN
    message: str
    remedy: str = ""
    repair: str = ""  # what `--fix` does about it: a key of `REPAIRS`, or of the caller's own

    def as_dict(self) -> dict[str, str]:
        return {key: value for key, value in self._asdict().items() if value}


def quick(connection: Connection, known_models: Mapping[str, Collection[str]]) -> list[Finding]:
    """What keeps the file from answering as it should; a few look-ups, no table is read.

    Args:
        known_models: the builds of the models that come with kb, by name.
    """
    if has_vectors_without_model(connection):
        return [
            Finding(
                "model",
                BROKEN,
                "the row of the model that made the file's vectors is gone: searches use "
                "keywords alone",
                "`kb reembed` makes the vectors anew",
            )
        ]
    model = current_model(connection)
    if model is None:
        return []
    known = known_models.get(model["name"])
    if known is not None and model["sha256"] not in known:
        return [
            Finding(
                "model",
                BROKEN,
                f"the file's vectors come from another build of the model {model['name']}",
                f"`kb reembed --model {model['name']}` makes them anew",
            )
        ]
    return []

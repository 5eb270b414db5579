"""`manifest.json` at the root of a folder or bundle: what a collection says of itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kb.sources.opened import Opened

NAME = "manifest.json"
MOST_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Manifest:
    """Version and description, each None where the manifest has none."""

    version: str | None = None
    description: str | None = None


def read_manifest(source: Opened) -> Manifest:
    """The manifest of a source; an empty one where there is none, or none of ours.

    Other programs have files of this name too: ours names its `sources`. Where the manifest says
    no version, the source's own one counts.
    """
    manifest = _read(source.manifest or source.root / NAME)
    return replace(manifest, version=manifest.version or source.version)


def _read(file: Path) -> Manifest:
    try:
        if not file.is_file() or file.stat().st_size > MOST_BYTES:
            return Manifest()
        content: Any = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return Manifest()
    if not isinstance(content, dict) or not isinstance(content.get("sources"), dict | list):
        return Manifest()
    return Manifest(_text(content, "version"), _text(content, "description"))


def _text(content: Mapping[str, Any], key: str) -> str | None:
    value = content.get(key)
    return value.strip() if isinstance(value, str) and value.strip() else None

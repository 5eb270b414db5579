"""The tables in kb/assets, each read once, when it is first asked for."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def asset(name: str) -> dict[str, Any]:
    """The table of this name; do not change it."""
    file = Path(__file__).parent.parent / "assets" / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))

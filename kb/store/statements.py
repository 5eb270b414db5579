"""The named SQL statements of `kb/queries/*.sql`, loaded once."""

from __future__ import annotations

from functools import cache
from importlib import resources

import aiosql
from aiosql.adapters.generic import GenericAdapter


@cache
def statements() -> dict[str, str]:
    """Every statement by its name, as it is handed to SQLite."""
    folder = resources.files("kb") / "queries"
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            queries = aiosql.from_str(
                file.read_text(encoding="utf-8"), GenericAdapter, mandatory_parameters=False
            )
            for name in queries.available_queries:
                if name.endswith("_cursor"):
                    continue
                if name in found:
                    raise ValueError(f"statement {name} is defined twice, again in {file.name}")
                found[name] = getattr(queries, name).sql
    return found

"""The named SQL statements of `kb/queries/*.sql`, each file loaded when it is first needed."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

import aiosql
from aiosql.adapters.generic import GenericAdapter

_NAME = re.compile(r"^-- name: (\w+)", re.MULTILINE)


def statement(name: str) -> str:
    """A statement as it is handed to SQLite."""
    return _loaded(_texts()[name])[name]


@cache
def _texts() -> dict[str, str]:
    """Of each statement the text of the file that it stands in."""
    found: dict[str, str] = {}
    for file in (resources.files("kb") / "queries").iterdir():
        if file.name.endswith(".sql"):
            text = file.read_text(encoding="utf-8")
            for name in _NAME.findall(text):
                if name in found:
                    raise ValueError(f"statement {name} is defined twice, again in {file.name}")
                found[name] = text
    return found


@cache
def _loaded(text: str) -> dict[str, str]:
    # A command needs a third of the files; all of them take 10 ms.
    queries = aiosql.from_str(text, GenericAdapter, mandatory_parameters=False)
    names = [name for name in queries.available_queries if not name.endswith("_cursor")]
    return {name: getattr(queries, name).sql for name in names}

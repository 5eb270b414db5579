"""The named SQL statements of `kb/queries/*.sql`, loaded once.

A statement is a line `-- name: NAME`, a comment that says what it is for, and its SQL. Behind the
name `!` says that it changes something, `$` that it gives one value. Every command starts with
this: the library that did it took .05 s of the .14 s of a search by keywords.
"""

from __future__ import annotations

import re
from functools import cache

from kb import PACKAGE

_HEAD = re.compile(r"^-- name: (\w+)[!$]?\n(?:--.*\n)*", re.MULTILINE)


def statement(name: str) -> str:
    """A statement as it is handed to SQLite."""
    return _statements()[name]


@cache
def _statements() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in (PACKAGE / "queries").iterdir():
        if file.name.endswith(".sql"):
            _, *parts = _HEAD.split(file.read_text(encoding="utf-8"))
            for name, sql in zip(parts[::2], parts[1::2], strict=True):
                if name in found:
                    raise ValueError(f"statement {name} is defined twice, again in {file.name}")
                found[name] = sql.strip()
    return found

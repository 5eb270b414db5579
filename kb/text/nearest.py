"""Near names for a name that was not found."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, candidates: Iterable[str], limit: int = 3) -> list[str]:
    """Up to `limit` existing names that look like `name`, nearest first.

    A name counts as near when it ends alike (a path given without its folder), contains the
    wanted one, or differs by a few letters.
    """
    wanted = name.casefold()
    by_key: dict[str, str] = {}
    for candidate in candidates:
        by_key.setdefault(candidate.casefold(), candidate)
    close = difflib.get_close_matches(wanted, by_key, n=limit, cutoff=0.6)
    inside = [key for key in by_key if wanted and wanted in key]
    stem = wanted.rsplit("/", 1)[-1]
    same_file = [key for key in by_key if stem and key.rsplit("/", 1)[-1].startswith(stem)]
    ordered = dict.fromkeys([*close, *sorted(inside, key=len), *sorted(same_file, key=len)])
    return [by_key[key] for key in ordered][:limit]

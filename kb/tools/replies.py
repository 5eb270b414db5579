"""What tools reply: the base of their result types, and the budget that bounds every reply."""

from __future__ import annotations

import copy
import json
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

# About what tokenizers of current models make of English and of everything else.
ASCII_CHARACTERS_PER_TOKEN = 4

LONGEST_ECHO = 1000  # characters of a text in an error
NOTICE_TOKENS = 60  # about what is said of a list that ends earlier
SHORTEST_TEXT = 40  # characters that are left of a text which is cut
# What other calls are made with: a part of it names nothing.
EXACT_KEYS = frozenset(
    "id path document documentId collection collectionId doc_id file uri sourceId targetId "
    "targetUrl from to".split()
)

T = TypeVar("T")


class Reply(BaseModel):
    """A result, or a part of one. What is None is left out of the reply."""

    model_config = ConfigDict(populate_by_name=True)


class CamelReply(Reply):
    """One whose keys are in camel case where it is sent: `total_lines` is `totalLines`."""

    model_config = ConfigDict(alias_generator=to_camel)


class Row(Reply):
    """One row of a list, which is shortened where the reply has no room for all of it."""

    truncated: bool | None = None


class CamelRow(CamelReply):
    """As `Row`."""

    truncated: bool | None = None


@dataclass(frozen=True, slots=True)
class Fitted(Generic[T]):
    """The rows that a reply has room for, and what to say of the rest."""

    rows: list[T]
    notice: str = ""

    @property
    def truncated(self) -> bool | None:
        """True where rows were left out; else None, which no reply shows."""
        return True if self.notice else None


def as_json(value: Any) -> Any:
    """A reply as the object that is sent."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {
            fields[name].alias or name: as_json(part) for name, part in value if part is not None
        }
    if isinstance(value, list):
        return [as_json(part) for part in value]
    return value


def said(*sentences: str) -> str | None:
    """Some notices as one, None without any."""
    return " ".join(filter(None, sentences)) or None


def estimate_tokens(text: str) -> int:
    """About how many tokens of an assistant's context a text takes."""
    if text.isascii():
        return len(text) // ASCII_CHARACTERS_PER_TOKEN + 1
    ascii_count = sum(map(str.isascii, text))
    return ascii_count // ASCII_CHARACTERS_PER_TOKEN + (len(text) - ascii_count) + 1


def rows_within(rows: Sequence[T], tokens: int) -> list[T]:
    """The first rows that fit into a budget as JSON, at least one.

    A first row that alone is too large is returned with its texts shortened: see `shortened`.
    """
    kept: list[T] = []
    for row in rows:
        cost = cost_of(row)
        if cost > tokens:
            return kept or [shortened(row, tokens)]
        tokens -= cost
        kept.append(row)
    return kept


def shared_rows(lists: Sequence[Sequence[T]], tokens: int) -> list[list[T]]:
    """The first rows of several lists that fit together: each list's first, then the second ones.

    A list has none where there is no room for its first.
    """
    kept: list[list[T]] = [[] for _ in lists]
    full = [False] * len(lists)
    share = tokens // max(len(lists), 1)
    for rank in range(max(map(len, lists), default=0)):
        for own, rows, number in zip(kept, lists, range(len(lists)), strict=True):
            if rank >= len(rows) or full[number]:
                continue
            row = rows[rank]
            if rank == 0 and cost_of(row) > share:
                row = shortened(row, share)
            cost = cost_of(row)
            full[number] = cost > tokens
            if not full[number]:
                tokens -= cost
                own.append(row)
    return kept


def shortened(value: T, tokens: int, *, exact: Container[str] = EXACT_KEYS) -> T:
    """A row whose longest texts are cut until it fits, and then its lists.

    A row that was cut says so: `truncated` is true in it.

    Args:
        exact: keys whose text is not cut.
    """
    if not isinstance(value, Row | CamelRow | dict) or cost_of(value) <= tokens:
        return value
    row: Any = {**copy.deepcopy(as_json(value)), "truncated": True}
    while cost_of(row) > tokens:
        place = _longest_text(row, exact)
        if place is None:
            longest = max(_lists_in(row), key=len, default=[])
            if not longest:
                break
            del longest[len(longest) // 2 :]
            continue
        holder, key = place
        text = holder[key]
        surplus = cost_of(row) - tokens
        most = max(SHORTEST_TEXT, min(len(text) - surplus, 3 * len(text) // 4))
        holder[key] = f"{text[:most].rstrip()} …"
    return cast(T, row if isinstance(value, dict) else type(value).model_validate(row))


def bounded(value: dict[str, Any], tokens: int) -> dict[str, Any]:
    """An object whose longest lists end earlier, and then its texts, until it fits.

    What was left out is said in its `notice`.
    """
    if cost_of(value) <= tokens:
        return value
    cut = {key: [*part] if isinstance(part, list) else part for key, part in value.items()}
    while (surplus := cost_of(cut) + NOTICE_TOKENS - tokens) > 0:
        lists = [key for key, part in cut.items() if isinstance(part, list) and part]
        if not lists:
            break
        key = max(lists, key=lambda name: cost_of(cut[name]))
        while cut[key] and surplus > 0:
            surplus -= cost_of(cut[key].pop())
    shortage = [
        f"{len(cut[key])} of {len(part)} {key}"
        for key, part in value.items()
        if isinstance(part, list) and len(cut[key]) < len(part)
    ]
    if shortage:
        before = f"{cut['notice']} " if cut.get("notice") else ""
        cut["notice"] = f"{before}The reply is full: it shows {', '.join(shortage)}."
    return shortened({**cut, "truncated": True}, tokens)


def _longest_text(value: Any, exact: Container[str]) -> tuple[Any, Any] | None:
    """The holder and key of the longest text in a row that is worth to be cut."""
    longest: tuple[int, Any, Any] = (SHORTEST_TEXT + 2, None, None)
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        pairs = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, inner in pairs:
            if isinstance(inner, dict | list):
                waiting.append(inner)
            elif isinstance(inner, str) and len(inner) > longest[0] and key not in exact:
                longest = (len(inner), holder, key)
    return None if longest[1] is None else longest[1:]


def _lists_in(value: Any) -> list[list[Any]]:
    parts = value.values() if isinstance(value, dict) else value
    below = [one for part in parts if isinstance(part, dict | list) for one in _lists_in(part)]
    return [value, *below] if isinstance(value, list) else below


def cost_of(row: Any) -> int:
    """About how many tokens a row takes as JSON."""
    return estimate_tokens(json.dumps(as_json(row), ensure_ascii=False, separators=(",", ":"))) + 1


def lines_within(lines: Sequence[str], tokens: int) -> tuple[str, int, bool]:
    """The first lines that fit into a budget, at least one, joined; their number; whether cut.

    A first line that alone is too long is cut inside.
    """
    for count, line in enumerate(lines):
        cost = estimate_tokens(json.dumps(line, ensure_ascii=False))
        if cost > tokens:
            if count:
                return "\n".join(lines[:count]), count, True
            # Of the densest text every character may be a token.
            return line[: max(tokens, 1)], 1, True
        tokens -= cost
    return "\n".join(lines), len(lines), False


def echoed(value: Any) -> Any:
    """What an error says, with the middle of long texts left out."""
    if isinstance(value, str):
        # What to do next stands at the end of a message.
        half = LONGEST_ECHO // 2
        return value if len(value) <= LONGEST_ECHO else f"{value[:half]} … {value[-half:]}"
    if isinstance(value, dict):
        return {echoed(name): echoed(part) for name, part in value.items()}
    return [echoed(item) for item in value] if isinstance(value, list) else value

"""What a tool works on, one call of one client, and the budget that bounds its reply."""

from __future__ import annotations

import copy
import json
import operator
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from kb.results.base import Listing, Row, estimate_tokens, plain
from kb.results.context import require_length
from kb.text.sentences import cut_at_sentence
from kb.tools.session import Session

LONGEST_ECHO = 1000  # characters of a text in an error
NOTICE_TOKENS = 60  # about, for the notice of a cut list
SHORTEST_TEXT = 40  # characters left of a text that is cut
MIN_CUT_ROW = 450  # characters of a last row that is cut: its keys, and a few sentences
# Arguments of other calls: a part of one names nothing.
EXACT_KEYS = frozenset(
    "id path document documentId collection collectionId doc_id file uri sourceId targetId "
    "targetUrl from to".split()
)

T = TypeVar("T")
L = TypeVar("L", bound=Listing[Any])


# Called with a stage, what is done and what there is.
Progress = Callable[[str, int, int], None]


class Call:
    """One call: the client's session, and who wants to hear of its progress."""

    def __init__(self, session: Session, progress: Progress | None = None) -> None:
        self.session, self.progress = session, progress
        self.base, self.reply_tokens = session.base, session.reply_tokens

    def shorten(self, listing: L, advice: str, *, start: int = 0, spare: int = 0) -> L:
        """A listing with the first rows that fit into the reply, at least one, and a notice.

        Args:
            advice: how to get the others; `{kept}`, `{left}` and `{total}` stand for numbers,
                `{row}` for the first row left out and `{next}` for its number.
            start: the number of the first row.
            spare: tokens that other parts of the reply take.
        """
        whole: Any = listing
        rows: list[Any] = getattr(listing, listing.listed)
        kept = rows_within(rows, self.reply_tokens - spare)
        full = ""
        if left := rows[len(kept) :]:
            numbers = {"kept": len(kept), "left": len(left), "total": len(rows)}
            advice = advice.format(**numbers, next=start + len(kept), row=left[0])
            full = f"The reply is full: {advice}"
        elif not all(map(operator.is_, kept, rows)):
            full = "The reply is full: its texts are cut."
        changes = {listing.listed: kept, "notice": join(full, whole.notice or "")}
        part: L = replace(whole, **changes, truncated=True if full else whole.truncated)
        return part

    def pack(self, listing: L, max_characters: int, name: str) -> L:
        """A listing with the rows that fit into so many characters of JSON; 0: with all. Raises
        UsageError, which names the parameter `name`, if the length is out of bounds."""
        if not max_characters:
            return listing
        require_length(max_characters, name)
        if characters_of(listing) <= max_characters:
            return listing
        whole: Any = listing
        rows = list(listing)
        notice = f"{max_characters:,} characters hold {{}} of {len(rows)} rows: raise {name}."
        changes = {"truncated": True, "notice": join(notice, whole.notice or "")}
        empty = replace(whole, **{listing.listed: []}, **changes)
        kept = rows_within_characters(rows, max_characters - characters_of(empty))
        changes["notice"] = join(notice.format(len(kept)), whole.notice or "")
        part: L = replace(whole, **{listing.listed: kept}, **changes)
        return part


def join(*sentences: str) -> str | None:
    """Some notices as one; None if there are none."""
    return " ".join(filter(None, sentences)) or None


def rows_within_characters(rows: Sequence[T], characters: int) -> list[T]:
    """The first rows that fit into so many characters as JSON, at least one, the last one cut."""
    return rows_within(rows, characters, lambda row: characters_of(row) + 1, least=MIN_CUT_ROW)


def rows_within(
    rows: Sequence[T], budget: int, cost: Callable[[Any], int] | None = None, *, least: int = 0
) -> list[T]:
    """The first rows within a budget, at least one; the next one is cut to the rest if that is
    enough. By default the budget is in tokens, and only a first row is cut."""
    cost, least = cost or cost_of, least or budget + 1
    kept: list[T] = []
    for row in rows:
        size = cost(row)
        if size > budget:
            return kept if kept and budget < least else [*kept, shortened(row, budget, cost)]
        budget -= size
        kept.append(row)
    return kept


def shared_rows(lists: Sequence[Sequence[T]], tokens: int) -> list[list[T]]:
    """The first rows of several lists that fit together: each list's first, then the second ones. A
    list whose first row does not fit has none."""
    kept: list[list[T]] = [[] for _ in lists]
    full = [False] * len(lists)
    share = tokens // max(len(lists), 1)
    for rank in range(max(map(len, lists), default=0)):
        for number, rows in enumerate(lists):
            if rank >= len(rows) or full[number]:
                continue
            row = rows[rank]
            if rank == 0 and cost_of(row) > share:
                row = shortened(row, share)
            cost = cost_of(row)
            full[number] = cost > tokens
            if not full[number]:
                tokens -= cost
                kept[number].append(row)
    return kept


def cost_of(row: Any) -> int:
    """About how many tokens a row takes as JSON."""
    return estimate_tokens(as_json(row)) + 1


def characters_of(row: Any) -> int:
    return len(as_json(row))


def as_json(row: Any) -> str:
    return json.dumps(plain(row), ensure_ascii=False, separators=(",", ":"))


def shortened(
    value: T,
    budget: int,
    cost: Callable[[Any], int] = cost_of,
    *,
    exact: Container[str] = EXACT_KEYS,
) -> T:
    """A row whose longest texts, but for those under the keys `exact`, are cut until it fits, and
    then its lists; `truncated` says so."""
    if not isinstance(value, Row | dict) or cost(value) <= budget:
        return value
    row: Any = {**copy.deepcopy(plain(value)), "truncated": True}
    while cost(row) > budget:
        if (place := _longest_text(row, exact)) is None:
            if not (longest := max(_lists_in(row), key=len, default=[])):
                break
            del longest[len(longest) // 2 :]
            continue
        holder, key = place
        text = holder[key]
        surplus = cost(row) - budget
        most = max(SHORTEST_TEXT, min(len(text) - surplus, 3 * len(text) // 4))
        holder[key] = f"{text[: cut_at_sentence(text, 0, len(text), most)].rstrip()} …"
    return cast(T, type(value).from_dict(row) if isinstance(value, Row) else row)


def bounded(value: dict[str, Any], tokens: int) -> dict[str, Any]:
    """An object whose longest lists, and then texts, are cut until it fits; its `notice` says what
    was left out."""
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
    """The holder and key of the longest text in a row that is worth cutting."""
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
    below = [inner for part in parts if isinstance(part, dict | list) for inner in _lists_in(part)]
    return [value, *below] if isinstance(value, list) else below


def echoed(value: Any) -> Any:
    """What an error says, without the middle of long texts."""
    if isinstance(value, str):
        # The end of a message says what to do next.
        half = LONGEST_ECHO // 2
        return value if len(value) <= LONGEST_ECHO else f"{value[:half]} … {value[-half:]}"
    if isinstance(value, dict):
        return {echoed(name): echoed(part) for name, part in value.items()}
    return [echoed(item) for item in value] if isinstance(value, list) else value

"""The log of tool calls in numbers: how many, how many ended well, how long they took."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import Any

from kb.store.connection import Connection, Row


def logged_calls(connection: Connection) -> list[Row]:
    """The newest 10,000 calls of a file: tool, code of the error, milliseconds."""
    return connection.rows("tool_call_durations")


def call_statistics(calls_of_files: Iterable[Sequence[Row]]) -> list[dict[str, Any]]:
    """One row a tool, of the calls that some files have logged; times in milliseconds."""
    rows = sorted(chain(*calls_of_files), key=lambda row: (row["tool"], row["duration_ms"]))
    statistics = []
    for tool, group in groupby(rows, key=lambda row: row["tool"]):
        calls = list(group)
        durations = [call["duration_ms"] for call in calls]
        errors = Counter(call["code"] for call in calls if call["code"])
        statistics.append(
            {
                "tool": tool,
                "calls": len(calls),
                "successRate": round(1 - errors.total() / len(calls), 4),
                "p50": percentile(durations, 0.50),
                "p95": percentile(durations, 0.95),
                "p99": percentile(durations, 0.99),
                "errors": dict(sorted(errors.items())),
            }
        )
    return statistics


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

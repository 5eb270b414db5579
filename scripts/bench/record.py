"""Figures of the benchmarks as JSON, small enough for the repository, each with its command."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # for who reads this first
RECORD = ROOT / "docs" / "performance.json"
Figures = dict[str, Any]


def percentiles(times: Sequence[float]) -> Figures:
    """Median and p95 of some times."""
    return {"p50": statistics.median(times), "p95": statistics.quantiles(times, n=20)[-1]}


def measured_at(command: str) -> Figures:
    """When, with what and on what something was measured."""
    import apsw

    return {
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
    }


def record(name: str, figures: Figures, how: Figures) -> None:
    """Put figures by size into the record, in place of those of the same name; others stay."""
    known = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    old = known.get(name, {}).get("figures", {})
    merged = {size: old.get(size, {}) | found for size, found in figures.items()}
    known[name] = {"how": how, "figures": _rounded(old | merged)}
    RECORD.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def record_table(
    name: str, head: Sequence[str], rows: Iterable[Sequence[Any]], how: Figures
) -> None:
    """Put a table into the record as it was printed."""
    known = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    cells = [[str(cell) for cell in row] for row in rows]
    known[name] = {"how": how, "head": list(head), "rows": cells}
    RECORD.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join(lines)

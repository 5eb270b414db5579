"""docs/performance.md and docs/scale.md, from docs/performance.json and the texts in pages/.

`scripts/docs` calls `page`, and its --check fails where a page and the record differ. A table or
figure of a page comes from the record, which says by which command it was measured, and when.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
from record import RECORD, Figures, markdown

PAGES = Path(__file__).with_name("pages")
SIZES = (10**5, 10**6, 10**7, 10**8)
SEARCH_ROWS = (
    ("questions", "questions", "{:,}"),
    ("keyword_list", "passages by words", ""),
    ("vector_list", "passages by meaning", ""),
    ("recall_10", "its recall@10 against exact", "{:.3f}"),
    ("recall_100", "its recall@100 against exact", "{:.3f}"),
    ("ranking", "words looked up, evidence, order", ""),
    ("search_without_query_vector", "search, its vector known", ""),
    ("search", "search with embedding the question", ""),
    ("search_in_part", "search in a collection of 1 %", ""),
)
SIZE_ROWS = (
    ("text_mb", "text, MB", "{:,.1f}"),
    ("file_mb", "file, MB", "{:,.1f}"),
    ("text_seconds", "text into the file, cpu s", "{:,.1f}"),
    ("vector_seconds", "ready vectors stored, cpu s", "{:,.1f}"),
    ("memory_mb", "a search's own memory without model, MB", "{:,.0f}"),
    ("mapped_mb", "pages of the file beside it, MB", "{:,.0f}"),
    ("memory_with_model_mb", "own memory with model, MB", "{:,.0f}"),
    ("mapped_with_model_mb", "pages of the file beside it, MB", "{:,.0f}"),
)
FILTER_ROWS = (
    ("filtered_none", "no filter", ""),
    ("filtered_half", "a date that half of the documents have", ""),
    ("filtered_half_again", "the same again", ""),
    ("filtered_tenth", "a tenth", ""),
    ("filtered_tenth_again", "the same again", ""),
    ("filtered_hundredth", "a hundredth", ""),
    ("filtered_hundredth_again", "the same again", ""),
    ("filtered_metadata", "metadata that a third has, and a date", ""),
    ("filtered_metadata_again", "the same again", ""),
    ("filtered_path", "a path that a sixth has, and a date", ""),
    ("filtered_path_again", "the same again", ""),
    ("filtered_random", "one to three of dates, tags, metadata and paths at random", ""),
    ("filtered_random_again", "the same again", ""),
)
PEER_HEAD = (
    "engine", "build cpu s", "hybrid cpu", "wall", "by meaning cpu", "wall", "by words cpu", "wall",
    "recall@10", "disk MB", "peak memory MB", "set to",
)  # fmt: skip


def page(name: str) -> str:
    """The text of a page."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGES), undefined=jinja2.StrictUndefined, autoescape=False
    )
    text = environment.get_template(name).render(
        how=lambda entry: how(record[entry]["how"]),
        table=lambda entry: markdown(record[entry]["head"], record[entry]["rows"]),
        search=search_table(record["search"]["figures"]),
        filters=_by_size(
            "cpu ms, p50 / p95", FILTER_ROWS, record.get("filters", {}).get("figures", {})
        ),
        sizes=size_table(record["search"]["figures"]),
        peers={
            int(size): peers_table(found)
            for size, found in sorted(
                record["peers"]["figures"].items(), key=lambda one: int(one[0])
            )
        },
        figures=record["search"]["figures"],
        scale=scale(record),
    )
    return text.rstrip("\n") + "\n"


def how(said: Figures) -> str:
    """By which command something was measured, and when and on what."""
    command, _, what = said["command"].partition(", ")
    parts = [f"`{command}`", what, said["date"]]
    if cores := said.get("cores"):
        parts.append(f"{cores} cores, load {said['load']}" if "load" in said else f"{cores} cores")
    return ", ".join(part for part in parts if part)


def search_table(figures: Figures) -> str:
    """Milliseconds of a search's parts by size."""
    return _by_size("cpu ms, p50 / p95", SEARCH_ROWS, figures)


def size_table(figures: Figures) -> str:
    """What a file of a size takes."""
    return _by_size("", SIZE_ROWS, figures)


def _by_size(corner: str, rows: tuple[tuple[str, str, str], ...], figures: Figures) -> str:
    columns = [figures[size] for size in sorted(figures, key=int)]
    head = [corner, *(f"{one['passages']:,} passages" for one in columns)]
    return markdown(
        head, [[title, *(_cell(one[key], form) for one in columns)] for key, title, form in rows]
    )


def _cell(value: Any, form: str) -> str:
    if isinstance(value, dict):
        return f"{value['p50']:.1f} / {value['p95']:.1f}"
    return form.format(value)


def peers_table(figures: dict[str, Figures]) -> str:
    """The engines beside each other."""

    def row(name: str, found: Figures) -> list[str]:
        kinds = [
            (part, kind) for part in ("hybrid", "vectors", "words") for kind in ("cpu", "wall")
        ]
        times = [found.get(f"{part}_{kind}") for part, kind in kinds]
        recall = found.get("recall_10")
        return [
            name,
            f"{found['build_cpu_s']:.1f}",
            *(_cell(one, "") if one else "" for one in times),
            f"{recall:.3f}" if recall is not None else "",
            f"{found['size_mb']:.0f}",
            f"{found['peak_memory_mb']:.0f}",
            found.get("setting", ""),
        ]

    return markdown(PEER_HEAD, [row(name, found) for name, found in figures.items()])


def scale(record: Figures) -> Figures:
    """What is derived for sizes that were not measured, from those that were."""
    measured = record["search"]["figures"]
    largest = measured[max(measured, key=int)]
    passages = largest["passages"]
    embedded = float(record["embed"]["rows"][0][2])  # passages a cpu-second, English
    stored = [float(row[1].replace(",", "")) for row in record["writer"]["rows"]]
    smaller = measured[sorted(measured, key=int)[-2]]
    text = smaller["text_seconds"] / smaller["passages"]  # above, copies are not parsed anew
    bytes_each = largest["file_mb"] * 1e6 / passages
    more = passages - smaller["passages"]

    def growth(key: str, part: str = "") -> tuple[float, float]:
        """Base and slope a passage of what grows evenly between the two largest sizes."""
        first, last = (one[key][part] if part else one[key] for one in (smaller, largest))
        slope = (last - first) / more
        return last - slope * passages, slope

    memory, search = growth("memory_mb"), growth("search", "p50")
    vector = growth("vector_list", "p50")

    def row(title: str, arithmetic: str, value: Any) -> list[str]:
        return [title, arithmetic, *(value(size) for size in SIZES)]

    rows = [
        row(
            "text read and stored, one core", f"N x {text * 1000:.2f} ms", lambda n: _time(n * text)
        ),
        row("embedded, one core", f"N / {embedded:.0f} a second", lambda n: _time(n / embedded)),
        row(
            "embedded on 32 cores of workers",
            f"N / (32 x {embedded:.0f}) a second",
            lambda n: _time(n / embedded / 32),
        ),
        row(
            "vectors stored by the one writer",
            f"N / {stored[-1]:,.0f} a second",
            lambda n: _time(n / stored[-1]),
        ),
        row("file", f"N x {bytes_each / 1000:.2f} kB", lambda n: _bytes(n * bytes_each)),
        row(
            "a search's own memory, without model",
            f"{memory[0]:.0f} MB + N x {memory[1] * 1e6:.0f} bytes",
            lambda n: _bytes((memory[0] + n * memory[1]) * 1e6),
        ),
        row(
            "candidates by meaning, p50",
            f"{vector[0]:.1f} ms + N x {vector[1] * 1e6:.1f} ns",
            lambda n: _time((vector[0] + n * vector[1]) / 1000),
        ),
        row(
            "search, p50",
            f"{search[0]:.1f} ms + N x {search[1] * 1e6:.1f} ns",
            lambda n: _time((search[0] + n * search[1]) / 1000),
        ),
    ]
    head = ["step, cpu", "arithmetic", *(f"10^{len(str(size)) - 1}" for size in SIZES)]
    return {
        "table": markdown(head, rows),
        "embedded": embedded,
        "stored": stored,
        "cores_fed": [one / embedded for one in stored],
        "largest": largest,
    }


def _time(seconds: float) -> str:
    for unit, name in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= (2 if unit > 1 else 1) * unit:
            return f"{seconds / unit:,.3g} {name}"
    return f"{seconds * 1000:.3g} ms"


def _bytes(count: float) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count / 1000:.3g} kB"

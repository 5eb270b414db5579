"""Filters find exactly the documents that pass them, in every door, and bad ones are refused."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from support import Filler, call, failure, git

from kb.cli.main import main
from kb.formats.metadata import document_date
from kb.tools.session import Session

DOCUMENTS = 60
QUERY = "+vane"
TAGS = ("boats", "boats/sails", "wind", "winter food")
STATES = ("done", "open", "late")
WRITTEN = {"vane.md": "2021-03-04", "gauge.md": "2023-11-05", "mast.md": "2024-02-29"}


def make_documents(seed: int) -> tuple[dict[str, str | bytes], list[dict[str, Any]]]:
    """Texts by path, and what is true of each document."""
    draw = random.Random(seed)
    texts: dict[str, str | bytes] = {}
    facts = []
    for number in range(DOCUMENTS):
        folder = draw.choice(("guide", "notes", "guide/deep"))
        day = f"{draw.randint(2019, 2024)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"
        is_in_path = draw.random() < 0.5
        path = f"{folder}/{f'{day}-' if is_in_path else ''}page{number}.md"
        tags = draw.sample(TAGS, draw.randint(0, 2))
        states = draw.sample(STATES, draw.randint(0, 2))
        front: dict[str, Any] = {"tags": tags, "rank": draw.randint(1, 3), "draft": number % 2 == 0}
        if states:
            front["status"] = states if len(states) > 1 else states[0]
        if not is_in_path:
            front["date"] = day
        words = " ".join(draw.sample("wind gauge mast sail rope deck".split(), 3))
        texts[path] = f"---\n{json.dumps(front)}\n---\n# Page {number}\n\nA vane with {words}.\n"
        facts.append(
            {"path": path, "day": day, "tags": tags, "status": states}
            | {"rank": front["rank"], "draft": str(front["draft"]).lower()}
        )
    return texts, facts


def draw_filter(draw: random.Random) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    if draw.random() < 0.4:
        chosen["paths"] = draw.sample(("guide/**", "notes/**", "guide/deep/*"), draw.randint(1, 2))
    if draw.random() < 0.4:
        chosen["tags"] = draw.sample(TAGS, draw.choice((1, 1, 2)))
    if draw.random() < 0.5:
        fields = ("status=done", "status=late", "rank=1", "rank=3", "draft=true")
        chosen["metadata"] = draw.sample(fields, draw.randint(1, 3))
    for name in ("since", "until"):
        if draw.random() < 0.3:
            day = f"{draw.randint(2019, 2024)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"
            chosen[name] = day[: draw.choice((4, 7, 10))]
    return chosen


def passing(facts: sqlite3.Connection, chosen: dict[str, Any]) -> set[str]:
    """What plain SQL says."""
    conditions = ["1"]
    if paths := chosen.get("paths"):
        likes = [f"path LIKE '{glob.rstrip('*')}%'" for glob in paths]
        conditions.append(f"({' OR '.join(likes)})")
    conditions += [
        f"EXISTS (SELECT 1 FROM json_each(tags) WHERE value = '{tag}' OR value LIKE '{tag}/%')"
        for tag in chosen.get("tags", ())
    ]
    values: dict[str, list[str]] = {}
    for text in chosen.get("metadata", ()):
        key, value = text.split("=")
        values.setdefault(key, []).append(f"'{value}'")
    for key, listed in values.items():
        alternatives = ", ".join(listed)
        conditions.append(
            f"EXISTS (SELECT 1 FROM json_each(status) WHERE value IN ({alternatives}))"
            if key == "status"
            else f"CAST({key} AS TEXT) IN ({alternatives})"
        )
    if since := chosen.get("since"):
        conditions.append(f"day >= '{since}'")
    if until := chosen.get("until"):
        conditions.append(f"substr(day, 1, {len(until)}) <= '{until}'")
    return {
        path for (path,) in facts.execute(f"SELECT path FROM f WHERE {' AND '.join(conditions)}")
    }


def facts_in_sql(facts: list[dict[str, Any]]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE f (path, day, tags, status, rank, draft)")
    connection.executemany(
        "INSERT INTO f VALUES (:path, :day, :tags, :status, :rank, :draft)",
        [
            {**fact, "tags": json.dumps(fact["tags"]), "status": json.dumps(fact["status"])}
            for fact in facts
        ],
    )
    return connection


@pytest.mark.parametrize(
    ("combinations", "among"),
    [(60, 5_000), (60, 0), pytest.param(1_000, 0, marks=pytest.mark.slow)],
)
def test_random_filters_find_what_sql_finds(
    fill: Filler, combinations: int, among: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kb.search.keywords.MAX_AMONG", among)  # passages whose ids SQLite is given
    texts, facts = make_documents(26)
    kb = fill(texts)
    by_hand = facts_in_sql(facts)
    rows = call(kb, "documents_search", query=QUERY, limit=100)["results"]
    scores = {row["documentId"]: row["relevanceScore"] for row in rows}
    assert scores.keys() == texts.keys()
    best = dict([*scores.items()][:20])
    draw = random.Random(combinations)
    sizes = set()
    for _ in range(combinations):
        chosen = draw_filter(draw)
        rows = call(kb, "documents_search", query=QUERY, limit=100, **chosen)["results"]
        expected = passing(by_hand, chosen)
        assert {row["documentId"] for row in rows} == expected, chosen
        # Documents far down are not looked at as a whole, unless a filter brings them up.
        assert all(
            row["relevanceScore"] == best.get(row["documentId"], row["relevanceScore"])
            for row in rows
        )
        sizes.add(len(expected))
    by_hand.close()
    assert {0, DOCUMENTS} < sizes
    assert len(sizes) > 15


def dated(fill: Filler) -> Session:
    return fill(
        {
            name: f"---\ndate: {day}\nstatus: [done]\ntags: boats\n---\n# {name}\n\n"
            + "\n\n".join(
                f"## Part {n}\n\nA vane turns {n} times. {'Long text. ' * 90}" for n in "ab"
            )
            for name, day in WRITTEN.items()
        }
        | {"plain.md": "# Plain\n\nA vane without a date of its own.\n"}
    )


def documents(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["documentId"] for row in rows))


def test_rows_are_limited_by_score_and_document_and_ordered_by_date(fill: Filler) -> None:
    kb = dated(fill)
    every = call(kb, "documents_search", query="vane")["results"]
    assert not any("date" in row for row in every)
    once = call(kb, "documents_search", query="vane", maxPerDocument=1)["results"]
    assert [row["documentId"] for row in once] == documents(every)
    least = sorted(row["relevanceScore"] for row in every)[2]
    above = call(kb, "documents_search", query="vane", minScore=least, limit=2)["results"]
    assert above == [row for row in every if row["relevanceScore"] >= least][:2]
    newest = call(kb, "documents_search", query="vane", metadata=["status=done"], sort="date")
    days = [row["date"] for row in newest["results"]]
    assert days == sorted(days, reverse=True)
    assert {*days} == {*WRITTEN.values()}


def test_every_door_takes_the_filters(
    fill: Filler, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = dated(fill)
    chosen = {"since": "2023", "until": "2023-12", "tags": ["boats"], "metadata": ["status=done"]}
    assert documents(call(kb, "documents_search", query="vane", **chosen)["results"]) == [
        "gauge.md"
    ]
    batch = call(
        kb, "documents_search_batch", queries=[{"query": "vane", **chosen}, {"query": "vane"}]
    )
    first, second = (documents(answer["results"]) for answer in batch["results"])
    assert first == ["gauge.md"]
    assert len(second) > 1
    packed = call(kb, "documents_context", query="vane", **chosen)
    assert documents(packed["documents"]) == ["gauge.md"]
    assert packed["documents"][0]["date"] == "2023-11-05"
    rows = kb.base.search("vane", **chosen)  # type: ignore[arg-type]
    assert [row.date for row in rows] == ["2023-11-05"] * len(rows)
    monkeypatch.setenv("KB_DB", str(kb.database.path))
    kb.knowledge.close()
    options = ["--since", "2023", "--until", "2023-12", "--tag", "boats", "--meta", "status=done"]
    for command in ("search", "context"):
        with pytest.raises(SystemExit) as ended:
            main(["--json", command, "vane", *options])
        assert ended.value.code == 0
        shown = json.loads(capsys.readouterr().out)
        assert documents(shown.get("results") or shown["documents"]) == ["gauge.md"]


@pytest.mark.parametrize(
    ("chosen", "field"),
    [
        ({"since": "yesterday"}, "since"),
        ({"until": "2026-02-30"}, "until"),
        ({"since": "٢٠٢٦"}, "since"),
        ({"metadata": ["done"]}, "metadata"),
        ({"metadata": ["=done"]}, "metadata"),
        ({"sort": "size"}, "sort"),
        ({"minScore": 2}, "minScore"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(
    fill: Filler, chosen: dict[str, Any], field: str
) -> None:
    kb = fill({"a.md": "# A\n"})
    for tool in ("documents_search", "documents_context"):
        error = failure(kb, tool, query="a", **chosen)
        assert error["code"] == "VALIDATION_ERROR"
        assert field in json.dumps(error)


@pytest.mark.parametrize(
    ("chosen", "notice"),
    [
        ({"since": "2030"}, "No document has a date since 2030."),
        ({"tags": ["boat"]}, 'No document has the tag "boat": there are boats.'),
        ({"metadata": ["status=open", "status=x"]}, "No document has status=open or status=x."),
        ({"paths": ["x/**"]}, "No document's path fits x/**."),
        ({"until": "2021", "paths": ["gauge.md"]}, "No document passes all filters together."),
    ],
)
def test_a_filter_that_no_document_passes_says_so(
    fill: Filler, chosen: dict[str, Any], notice: str
) -> None:
    reply = call(dated(fill), "documents_search", query="vane", **chosen)
    assert (reply["results"], reply["notice"]) == ([], notice)


@pytest.mark.parametrize(
    ("metadata", "path", "date"),
    [
        ({"date": "2026-01-31", "updated": "2026-02-01T10:00:00Z"}, "2020-01-01.md", "2026-02-01"),
        ({"Last-Modified": "January 5, 2024"}, "a.md", "2024-01-05"),
        ({"date": "Mon, 30 Nov 2026 12:00:00 +0000"}, "a.eml", "2026-11-30"),
        ({"date": 1706659200}, "a.md", "2024-01-31"),
        ({"date": "soon"}, "notes/2024-02-29-x.md", "2024-02-29"),
        ({}, "journals/2024_03_01.md", "2024-03-01"),
        ({"date": ["x"], "archive": {"date": "2022-01-01"}}, "a.md", "2022-01-01"),
        ({"archive": "x"}, "2024-02-30.md", ""),
    ],
)
def test_a_document_says_its_date(metadata: dict[str, Any], path: str, date: str) -> None:
    assert document_date(metadata, path) == date


def test_without_a_date_of_its_own_a_document_has_that_of_its_file(
    fill: Filler, tmp_path: Path
) -> None:
    kb = fill({"a.md": "# A\n\nA vane.\n"})
    file = next(tmp_path.rglob("a.md"))
    os.utime(file, (1_600_000_000, 1_600_000_000))
    file.write_text("# A\n\nAnother vane.\n", encoding="utf-8")
    os.utime(file, (1_600_000_000, 1_600_000_000))
    kb.base.sync()
    rows = call(kb, "documents_search", query="vane", sort="date")["results"]
    assert rows[0]["date"] == "2020-09-13T12:26:40Z"


def test_a_file_of_a_repository_has_the_date_of_its_last_commit(
    kb: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q", "repo")
    for name, day in (("old.md", "2020-05-06"), ("new.md", "2022-07-08")):
        (tmp_path / "repo" / name).write_text(f"# {name}\n\nA vane.\n", encoding="utf-8")
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"{day}T12:00:00Z")
        git(tmp_path / "repo", "add", ".")
        git(tmp_path / "repo", "commit", "-q", "-m", name)
    kb.base.add(f"git+file://{tmp_path / 'repo'}")
    rows = call(kb, "documents_search", query="vane", sort="date")["results"]
    assert [(row["documentId"], row["date"][:10]) for row in rows] == [
        ("new.md", "2022-07-08"),
        ("old.md", "2020-05-06"),
    ]

"""Which rows `kb search` shows, and tables for other programs."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from support import Run


@pytest.mark.parametrize(
    ("globs", "found"),
    [
        (["guide/**"], ["guide/sub dir.md"]),
        (["guide"], ["guide/sub dir.md"]),
        (["docs/guide/*.md"], ["guide/sub dir.md"]),
        (["*.md"], ["guide/sub dir.md", "wind.md"]),
        (["wind.*", "docs/guide/sub*"], ["guide/sub dir.md", "wind.md"]),
        (["{wind,rain}.md"], ["wind.md"]),
    ],
)
def test_path_leaves_only_the_documents_that_fit(
    globs: list[str], found: list[str], filled: Run
) -> None:
    options = [word for glob in globs for word in ("--path", glob)]
    rows = filled("search", "quartz", *options, "--json").json["results"]
    assert sorted(row["documentId"] for row in rows) == found


def test_path_is_applied_before_rows_are_counted(run: Run, project: Path) -> None:
    for number in range(120):
        (project / "docs" / f"n{number}.md").write_text(f"# Quartz {number}\n\nquartz quartz\n")
    run("add", "docs", "--no-embed")
    rows = run("search", "quartz", "--path", "guide/**", "-n", "3", "--json").json["results"]
    assert [row["documentId"] for row in rows] == ["guide/sub dir.md"]


def test_path_that_fits_nothing_is_said(filled: Run) -> None:
    outcome = filled("search", "quartz", "--path", "giude/**")
    assert (outcome.code, outcome.out) == (1, "")
    assert "No document's path fits giude/**." in outcome.errors
    assert filled("search", "quartz", "--path", "[").code == 2


def test_path_and_operators_hold_together(filled: Run) -> None:
    assert filled("search", "+quartz -again", "--path", "guide/**").code == 1
    (row,) = filled("search", "+quartz", "--path", "guide/**", "--json").json["results"]
    assert row["documentId"] == "guide/sub dir.md"


def test_rows_below_the_least_score_are_counted(embedded: Run) -> None:
    rows = embedded("search", "E417", "--min-score", "0", "--json").json["results"]
    scores = [row["relevanceScore"] for row in rows]
    least = scores[3]
    above = [score for score in scores if score >= least]
    found = embedded("search", "E417", "--min-score", str(least), "--json").json
    assert [row["relevanceScore"] for row in found["results"]] == above
    assert found["hidden"] == len(scores) - len(above) > 0
    outcome = embedded("search", "E417", "--min-score", str(least))
    more = f"kb: {found['hidden']} more below {least:g} (--min-score 0 shows them)"
    assert more in outcome.errors
    nothing = embedded("search", "E417", "--min-score", "1")
    assert (nothing.code, nothing.out) == (1, "")
    assert f"kb: nothing found; {len(scores)} more below 1" in nothing.errors


def test_what_has_nothing_to_do_with_the_documents_is_hidden_by_default(embedded: Run) -> None:
    outcome = embedded("search", "parliamentary procedure of ancient Rome")
    assert (outcome.code, outcome.out) == (1, "")
    assert "more below 0.1" in outcome.errors


@pytest.mark.parametrize("score", ["-0.1", "1.1", "nan", "high"])
def test_a_score_is_a_number_from_0_to_1(score: str, filled: Run) -> None:
    outcome = filled("search", "quartz", f"--min-score={score}")
    assert outcome.code == 2
    assert "is not a number from 0 to 1" in outcome.errors


def test_several_documents_are_printed_in_their_order(filled: Run) -> None:
    outcome = filled("get", "wind.md:3", "rain.md")
    assert outcome.out == (
        "==> docs/wind.md <==\nquartz line\n==> docs/guide/rain.md <==\n# Rain\n\nmarble gauge\n"
    )
    documents = filled("get", "wind.md:3", "rain.md", "--json").json["documents"]
    assert [one["document"] for one in documents] == ["wind.md", "guide/rain.md"]
    assert filled("get", "wind.md", "--json").json["document"] == "wind.md"


def test_of_several_documents_all_are_printed_or_none(filled: Run) -> None:
    outcome = filled("get", "wind.md", "nothing.md")
    assert (outcome.code, outcome.out) == (1, "")
    assert "nothing.md" in outcome.errors


@pytest.mark.parametrize(
    "arguments", ["search quartz", "list", "list docs", "cite wind.md", "tools", "status"]
)
def test_tables_have_headers_as_tsv_and_csv(arguments: str, filled: Run, project: Path) -> None:
    (project / "docs" / "wind.md").write_text("# Wind\n\nquartz\tline [rain](guide/rain.md)\n")
    filled("sync", "--no-embed")
    written = {
        kind: filled(*arguments.split(), "--format", kind).out for kind in ("tsv", "csv", "json")
    }
    tsv = [line.split("\t") for line in written["tsv"].splitlines()]
    rows = list(csv.reader(io.StringIO(written["csv"])))
    assert len(rows) > 1
    assert len({len(row) for row in (*tsv, *rows)}) == 1
    assert tsv[0] == rows[0]
    assert [[" ".join(value.split()) for value in row] for row in rows] == tsv
    assert written["json"].startswith("{")


def test_context_prints_the_evidence_with_where_it_stands(embedded: Run) -> None:
    question = "how do I calibrate the wind vane?"
    done = embedded("context", question, "--max-characters", "1500")
    assert done.code == 0
    assert done.out.startswith("# Calibrate the vane (windrose/how-to/calibrate the vane.md)\n")
    assert "> Point and store: lines " in done.out
    assert "Not shown:\n- windrose/" in done.out
    rows = embedded("context", question, "--path", "guide/**", "--json").json["documents"]
    assert {row["documentId"].split("/")[0] for row in rows} == {"guide"}
    assert embedded("context", question, "--max-characters", "10").code == 2
    assert embedded("context", "-vane").code == 1

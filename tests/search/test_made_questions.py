"""Questions made from documents, and what is measured with them."""

import json
from pathlib import Path

import pytest

from kb.cli.main import main
from kb.evaluation.judged import Judged, best_threshold, judged_figures, made_figures, pages
from kb.evaluation.questions import (
    MadeQuestion,
    Page,
    make_questions,
    read_made_questions,
    write_questions,
)
from kb.tools.session import Session


@pytest.fixture
def made(windrose: Session) -> list[MadeQuestion]:
    return make_questions(pages(windrose.files), 20)


def test_the_same_documents_give_the_same_questions(
    windrose: Session, made: list[MadeQuestion]
) -> None:
    assert make_questions(pages(windrose.files), 20) == made
    assert make_questions(pages(windrose.files), 20, seed=2) != made
    kinds = [one.kind for one in made]
    assert all(kinds.count(kind) > 3 for kind in ("identifier", "title", "near-miss", "unrelated"))


def test_names_and_titles_are_those_of_few_documents(
    windrose: Session, made: list[MadeQuestion]
) -> None:
    texts = {page.path: page for page in pages(windrose.files)}
    for one in made:
        if one.kind == "identifier":
            assert 1 <= len(one.documents) <= 3
            held = [f"{texts[path].text}\n{path}".lower() for path in one.documents]
            assert all(one.question.lower() in text for text in held)
        if one.kind == "title":
            assert [texts[path].title for path in one.documents] == [one.question]
        if one.kind == "near-miss":
            assert not set(one.documents) & set(one.behind)


def test_names_are_found_and_unrelated_questions_are_not(
    windrose: Session, made: list[MadeQuestion]
) -> None:
    figures = {row["kind"]: row for row in made_figures(windrose.files, made)}
    assert figures["identifier"]["at0.7"] >= 0.97
    assert figures["identifier"]["first"] >= 0.9
    assert figures["title"]["at0.7"] >= 0.9
    assert figures["unrelated"]["at0.7"] == 0
    assert figures["near-miss"]["before"] >= 0.9


def test_questions_are_kept_and_read_again(tmp_path: Path, made: list[MadeQuestion]) -> None:
    file = tmp_path / "made.jsonl"
    write_questions(made, file)
    assert read_made_questions(file) == made
    file.write_text('{"question": "why", "document": "a.md"}\n')
    assert read_made_questions(file) == []


def test_f1_is_that_of_all_rows_from_a_score_on() -> None:
    pairs = [(0.9, True), (0.8, False), (0.8, True), (0.5, True), (0.1, False)]
    best, threshold, at = best_threshold(pairs, relevant=4)
    assert (best, threshold) == (pytest.approx(2 * 3 / (4 + 4)), 0.5)
    assert at == pytest.approx(2 * 2 / (3 + 4))
    assert best_threshold([], 3) == (0.0, 0.0, 0.0)


def test_judged_questions_say_what_the_scores_are_worth(windrose: Session) -> None:
    judged = Judged({"a": "E417"}, {"a": {"guide/wind.md": 1}})
    figures = judged_figures(windrose.files, judged)
    assert figures["rising"] == 0
    assert 0 < figures["shareOfBestF1"] <= 1


def test_names_of_every_form_are_taken_and_parts_of_them_are_not() -> None:
    text = "Use `--no-embed`, E417, max_count, HTTPException or docs/guide.md, not half-life."
    names = {one.question for one in make_questions([Page("a.md", "A", text)], 50)[:50]}
    assert {"--no-embed", "E417", "max_count", "docs/guide.md"} <= names
    assert "half-life" not in names


def test_kb_eval_makes_questions_of_the_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# Pump\n\nThe option `--low-pressure` stops it.\n")
    file = ["--db", str(tmp_path / "kb.db")]
    kept = tmp_path / "kept.jsonl"

    def run(*words: str) -> None:
        with pytest.raises(SystemExit) as ended:
            main([*file, *words])
        assert ended.value.code == 0

    run("add", str(tmp_path / "docs"), "--no-embed", "--quiet")
    run("eval", "--json", "--count", "5", "--save", str(kept))
    kinds = {row["kind"]: row for row in json.loads(capsys.readouterr().out)["made"]}
    assert kinds["identifier"]["first"] == 1
    assert kinds["unrelated"]["at0.7"] == 0
    run("eval", str(kept), "--json")


def test_questions_of_another_collection_are_asked_as_unrelated(
    windrose_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.jsonl"
    lines = [{"question": f"how long do {n} lentils simmer", "document": "x.md"} for n in range(3)]
    # One that the handbook answers: what the figure is there to show.
    lines.append({"question": "E310", "document": "x.md"})
    other.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ["--db", str(windrose_copy), "--json", "eval", "--unrelated", str(other)]
    with pytest.raises(SystemExit) as ended:
        main(options)
    assert ended.value.code == 0
    (row,) = json.loads(capsys.readouterr().out)["made"]
    assert (row["kind"], row["questions"]) == ("unrelated", 4)
    assert row["at0.7"] == 0.25
    with pytest.raises(SystemExit) as ended:
        main([*options, str(other)])
    assert ended.value.code == 2

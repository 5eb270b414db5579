"""Floors of retrieval quality on the fixture corpus, so that no change loses some unseen."""

import json
from pathlib import Path

import pytest
from support import Filler, search

from kb.evaluation.judged import Judged, Run, measure, read_questions, run_queries
from kb.search.query import parse_query, scripts_of_query
from kb.search.ranking import readable_share
from kb.search.run import SearchRequest, run_batch
from kb.text.terms import scripts
from kb.tools.session import Session

QUESTIONS = Path(__file__).parents[2] / "fixtures" / "windrose-questions.jsonl"


def test_hybrid_search_keeps_its_quality_and_beats_its_parts(windrose: Session) -> None:
    judged = read_questions(QUESTIONS)
    runs = run_queries(windrose.files, judged)
    measured = {mode: measure(judged, run) for mode, run in runs.items()}
    assert measured["hybrid"]["nDCG@10"] >= 0.87
    assert measured["hybrid"]["Success@5"] >= 0.95
    assert measured["keyword"]["nDCG@10"] >= 0.77
    assert measured["vector"]["nDCG@10"] >= 0.82
    parts = max(measured["keyword"]["nDCG@10"], measured["vector"]["nDCG@10"])
    assert measured["hybrid"]["nDCG@10"] > parts
    assert measured["hybrid"]["Heading@5"] >= 0.6


def test_a_heading_is_found_where_a_passage_of_a_right_page_stands_below_it() -> None:
    judged = Judged(
        dict.fromkeys("abc", "question"),
        {key: {"page.md": 1} for key in "abc"},
        {"a": "Use the `code_name` here", "b": "Other", "c": "Other"},
    )
    run = Run(
        {key: ["page.md"] for key in "abc"},
        {
            "a": [("page.md", "Page > Use the code_name here > Details")],
            "b": [("wrong.md", "Page > Other"), ("page.md", "Page > Another")],
            "c": [],
        },
    )
    measured = measure(judged, run)
    assert measured["Heading@5"] == pytest.approx(1 / 3)
    assert [measured["queries"][key]["Heading@5"] for key in "abc"] == [1, 0, 0]
    assert "Heading@5" not in measure(Judged(judged.questions, judged.relevant), run)


TRANSLATIONS = {
    "en.md": "# Uploads of files from a form\n\nUploadFile\n",
    "ja.md": "# ファイル\n\nUploadFile\n",
    "zh.md": "# 上传文件\n\nUploadFile\n",
    "ru.md": "# Загрузка файлов из веб формы\n\nUploadFile\n",
}


@pytest.mark.parametrize(
    ("question", "page"),
    [
        # Nothing but the name is in any of the pages.
        ("what is UploadFile", "en.md"),
        ("UploadFile とは", "ja.md"),
        ("UploadFile 是什么", "zh.md"),
        ("зачем нужен UploadFile", "ru.md"),
    ],
)
def test_of_translations_the_one_in_the_questions_script_is_first(
    fill: Filler, question: str, page: str
) -> None:
    assert first_row(fill(TRANSLATIONS, embed=False), question)["documentId"] == page


def test_an_english_model_reads_latin_letters_alone() -> None:
    assert readable_share("where is the file") == readable_share("E417") == 1
    assert readable_share("42") == 1
    assert readable_share("ファイル") == readable_share("😀") == 0
    assert 0 < readable_share("UploadFile の名前") < 1


def test_a_name_asks_in_no_language() -> None:
    for text in ("UploadFile", "--no-embed", '"type": "missing"'):
        assert scripts_of_query(parse_query(text)) is None
    assert scripts_of_query(parse_query("where is the file")) == frozenset()
    assert scripts_of_query(parse_query("ファイルの名前")) == {"Han", "Kana"}
    assert scripts_of_query(parse_query("where is the UploadFile -ファイル")) == frozenset()
    assert scripts_of_query(parse_query("+ファイル UploadFile")) == {"Kana"}
    for text in ("😀", '"how do I"', "-ファイル UploadFile", "+++"):
        assert scripts_of_query(parse_query(text)) is None
    assert scripts("ab 全文", 0.5) == frozenset()
    assert scripts("a 全文", 0.5) == {"Han"}
    assert scripts("The radius r times π is half the circumference.", 0.1) == frozenset()
    assert scripts("Ｆｕｌｌ ﬁle, naïve 😀 1٢") == frozenset()
    assert scripts("مرحبا שלום ไทย") == {"Arabic", "Hebrew", "Thai"}


def first_row(kb: Session, query: str) -> dict[str, object]:
    return dict(search(kb, query, limit=5).rows[0])


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("E417: vane offset not stored", "E417: vane offset not stored"),
        ("--no-upload", "--no-upload"),
        ("wind_speed_max", "wind_speed_max"),
        ("1.0.21", "1.0.21"),
        ("GustWindow", "GustWindow"),
        ("vane offset not stored", "vane offset not stored"),
    ],
)
def test_exact_words_are_in_the_first_row(windrose: Session, query: str, words: str) -> None:
    row = first_row(windrose, query)
    assert words in str(row["content"]) or words in str(row.get("sectionHeading"))


def test_exact_questions_have_their_document_first(windrose: Session) -> None:
    rows = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
    exact = [row for row in rows if row["kind"] == "exact"]
    right = [
        first_row(windrose, row["question"])["documentId"]
        in [row["document"], *row.get("alternatives", [])]
        for row in exact
    ]
    assert sum(right) >= 0.9 * len(exact)


def test_no_score_rises_from_one_row_to_the_next(windrose: Session) -> None:
    questions = [json.loads(line)["question"] for line in QUESTIONS.read_text().splitlines()]
    for hybrid in (True, False):
        requests = [SearchRequest(question, hybrid=hybrid) for question in questions]
        for result in run_batch(windrose.files, requests)[0]:
            scores = [row["relevanceScore"] for row in result.rows]
            assert scores == sorted(scores, reverse=True)
            assert all(0 <= score <= 0.99 for score in scores)


def test_good_passages_of_one_document_stand_together(windrose: Session) -> None:
    rows = search(windrose, "wind vane calibration").rows
    documents = [row["documentId"] for row in rows]
    assert documents[0] == documents[1]


@pytest.mark.parametrize(
    "query",
    ["E417", "GustWindow", "wind_speed_max", "windrose export --since", "battery", "mqtt topic"],
)
def test_rare_words_as_typed_are_evidence_by_themselves(windrose: Session, query: str) -> None:
    row = first_row(windrose, query)
    assert float(str(row["relevanceScore"])) >= 0.7


def test_reranking_keeps_the_candidates_and_gives_an_order(windrose: Session) -> None:
    query = "why does my station show the wrong wind direction?"
    plain = search(windrose, query, limit=20)
    reranked = search(windrose, query, limit=20, rerank=True)
    assert not reranked.notice
    assert {hit.chunk_id for hit in reranked.hits} == {hit.chunk_id for hit in plain.hits}
    again = search(windrose, query, limit=20, rerank=True)
    assert [hit.chunk_id for hit in again.hits] == [hit.chunk_id for hit in reranked.hits]
    assert [hit.chunk_id for hit in plain.hits] != [hit.chunk_id for hit in reranked.hits]
    scores = [row["relevanceScore"] for row in reranked.rows]
    assert scores == sorted(scores, reverse=True)


def test_scores_tell_an_answer_from_an_unrelated_question(windrose: Session) -> None:
    answered = first_row(windrose, "how do I calibrate the wind vane?")
    unrelated = first_row(windrose, "best recipe for sourdough bread")
    assert float(str(answered["relevanceScore"])) >= 0.7
    assert float(str(unrelated["relevanceScore"])) <= 0.4


def test_meaning_alone_is_ordered_by_distance(windrose: Session) -> None:
    found = search(windrose, "northerly breezes", limit=50, hybrid=False)
    distances = [row["distance"] for row in found.rows]
    assert len(distances) == 50
    assert distances == sorted(distances)

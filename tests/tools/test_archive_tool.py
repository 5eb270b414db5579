"""searchLocalArchives, as clients call it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from support import HashEmbedder, call

from kb.ingest.embed import embed_pending
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.store.database import Database
from kb.tools.registry import call_tool
from kb.tools.session import Session, open_session

ARCHIVES = Path(__file__).parents[2] / "fixtures" / "archives"
INTRODUCTION = "research/2025-05-20/machine_learning_intro.md"
ALGORITHMS = "url-content/4dafe80cfc8f5bc7f8fe46cbd4edf47b/content.md"


@pytest.fixture(scope="module", params=["keywords", "vectors"])
def archive(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("archive")
    embedder = HashEmbedder()
    with open_session(
        Database(folder / "kb.db"), project=folder, make_embedder=lambda _: embedder
    ) as knowledge:
        for name in ("research", "url-content"):
            sync_collection(
                knowledge.database,
                register(knowledge.database, str(ARCHIVES / name), kind="archive"),
            )
        if request.param == "vectors":
            embed_pending(knowledge.model)
        yield knowledge


def search(kb: Session, query: str, **arguments: Any) -> dict[str, Any]:
    result = call_tool(kb, "searchLocalArchives", {"query": query, **arguments})
    assert not result.is_error, result.text
    return result.content


def found(kb: Session, query: str, **arguments: Any) -> list[str]:
    return [row["document"]["id"] for row in search(kb, query, **arguments)["results"]]


def test_the_worked_example_has_the_documented_shape(archive: Session) -> None:
    result = search(archive, "machine learning", fuzzy=True, includeCitations=True, limit=5)
    assert set(result) == {"results", "citationGraph", "metadata"}
    row = next(r for r in result["results"] if r["document"]["id"] == INTRODUCTION)
    document = row["document"]
    assert document["title"] == "Introduction to Machine Learning"
    assert document["path"] == "research/2025-05-20/machine_learning_intro.md"
    assert (document["source"], document["date"]) == ("research", "2025-05-20")
    assert 0 <= document["score"] <= 1
    (title,) = [h["snippets"] for h in row["highlights"] if h["field"] == "title"]
    assert title == ["Introduction to <mark>Machine</mark> <mark>Learning</mark>"]
    assert {h["field"] for h in row["highlights"]} == {"title", "content", "query"}
    citation = next(
        c
        for c in row["citations"]["citing"]
        if c["targetUrl"] == "https://example.com/ml-algorithms"
    )
    assert citation == {
        "sourceId": INTRODUCTION,
        "targetId": ALGORITHMS,
        "targetUrl": "https://example.com/ml-algorithms",
        "context": "For more information on ML algorithms, see "
        "[this resource](https://example.com/ml-algorithms).",
        "confidence": 1.0,
    }
    graph = result["citationGraph"]
    assert {"id": ALGORITHMS, "label": "Machine Learning Algorithms", "type": "both"} in graph[
        "nodes"
    ]
    assert {"from": INTRODUCTION, "to": ALGORITHMS, "confidence": 1.0} in graph["edges"]
    assert result["metadata"] == {
        "totalResults": len(result["results"]),
        "query": "machine learning",
        "fuzzy": True,
        "includeCitations": True,
        "citationDepth": 1,
        "limit": 5,
    }


def test_cited_are_the_citations_that_others_make(archive: Session) -> None:
    result = search(archive, '"three families"', includeCitations=True)
    (row,) = [r for r in result["results"] if r["document"]["id"] == ALGORITHMS]
    assert {c["sourceId"] for c in row["citations"]["cited"]} == {
        INTRODUCTION,
        "research/queries/7f3a/result.json",
    }
    assert {c["targetId"] for c in row["citations"]["cited"]} == {ALGORITHMS}


def test_similar_paragraphs_of_reports_are_citations_with_their_similarity(
    archive: Session,
) -> None:
    result = search(archive, "introduction machine", includeCitations=True)
    row = next(r for r in result["results"] if r["document"]["id"] == INTRODUCTION)
    trees = [
        c for c in row["citations"]["citing"] if c.get("targetId") == "research/decision trees.md"
    ]
    assert sorted(c["confidence"] for c in trees)[-1] == 1.0
    assert 0.7 < sorted(c["confidence"] for c in trees)[0] < 1.0


def test_without_citations_there_is_neither_list_nor_graph(archive: Session) -> None:
    result = search(archive, "learning")
    assert "citationGraph" not in result
    assert all("citations" not in row for row in result["results"])


def test_depth_widens_the_graph(archive: Session) -> None:
    sizes = [
        len(
            search(
                archive, '"walks downhill"', includeCitations=True, citationDepth=depth, limit=1
            )["citationGraph"]["nodes"]
        )
        for depth in (1, 2, 3)
    ]
    assert sizes[0] < sizes[1] <= sizes[2]


def test_fuzzy_finds_a_misspelt_word_and_off_does_not(archive: Session) -> None:
    assert "research/queries/7f3a/result.json" in found(archive, "gradint")
    assert found(archive, "gradint", fuzzy=False) == []
    assert found(archive, "unheardofword") == []


def test_what_a_misspelt_word_was_taken_for_is_marked_and_said(archive: Session) -> None:
    result = search(archive, "machne learning")
    row = next(r for r in result["results"] if r["document"]["id"] == INTRODUCTION)
    (title,) = [h["snippets"] for h in row["highlights"] if h["field"] == "title"]
    assert title == ["Introduction to <mark>Machine</mark> <mark>Learning</mark>"]
    assert '"machne"' in result["notice"]


def test_words_that_say_nothing_neither_find_nor_are_marked(archive: Session) -> None:
    result = search(archive, "how long is the step of the descent", fuzzy=False)
    text = str(result["results"])
    assert "<mark>step</mark>" in text
    assert "<mark>the</mark>" not in text
    assert ALGORITHMS not in text


def test_exact_matches_stand_above_misspelt_ones(archive: Session) -> None:
    ids = found(archive, "trees", limit=50)
    assert ids[0] == "research/decision trees.md"
    scores = [row["document"]["score"] for row in search(archive, "learning")["results"]]
    assert scores == sorted(scores, reverse=True)


def test_every_operator_is_enforced_with_and_without_fuzzy(archive: Session) -> None:
    for fuzzy in (True, False):
        assert found(archive, "learning -downhill -supervised -judge", fuzzy=fuzzy) == []
        assert found(archive, '+"walks downhill"', fuzzy=fuzzy) == [
            "research/queries/7f3a/result.json"
        ]
        assert found(archive, "-learning", fuzzy=fuzzy) == []
        assert found(archive, " ", fuzzy=fuzzy) == []


def test_markup_in_a_document_is_escaped_in_highlights(kb: Session, folder: Path) -> None:
    (folder / "a.md").write_text("# T\n\nUse <script>alert(1)</script> & <mark>word</mark> here.")
    sync_collection(kb.database, register(kb.database, str(folder), kind="archive"))
    (row,) = search(kb, "alert")["results"]
    (snippet,) = [s for h in row["highlights"] for s in h["snippets"]]
    assert "&lt;script&gt;<mark>alert</mark>(1)&lt;/script&gt; &amp; &lt;mark&gt;word" in snippet


def test_a_large_neighbourhood_is_cut_and_said_so(kb: Session, folder: Path) -> None:
    links = "\n".join(f"- <https://example.com/{n}/{'x' * 80}>" for n in range(400))
    (folder / "a.md").write_text(f"# Hub\n\n{links}")
    (folder / "b.md").write_text("# Hub\n\n[a](a.md)")
    sync_collection(kb.database, register(kb.database, str(folder), kind="archive"))
    kb.reply_tokens = 8000
    result = search(kb, "hub", includeCitations=True)
    assert result["truncated"]
    assert "kb graph" in result["notice"]
    assert len(str(result)) < 4 * 8000 * 1.5


def test_wrong_arguments_and_failures_are_clean_errors(
    archive: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in ({}, {"query": "x", "citationDepth": 4}, {"query": "x", "limit": 51}):
        assert call_tool(archive, "searchLocalArchives", arguments).is_error
    monkeypatch.setenv("RESEARCH_ARCHIVE_PATH", "/nonexistent/archive")
    result = call_tool(archive, "searchLocalArchives", {"query": "x"})
    assert result.is_error
    assert result.content["error"].startswith("Failed to search local archives: ")
    assert result.content["code"] == "FILE_SYSTEM_ERROR"


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.text())
def test_any_text_is_a_query(archive: Session, query: str) -> None:
    search(archive, query, includeCitations=True)


def test_a_path_begins_with_the_archives_folder_whatever_its_collection_is_called(
    kb: Session, tmp_path: Path
) -> None:
    folder = tmp_path / "research-archive" / "2025-05-20"
    folder.mkdir(parents=True)
    (folder / "tides.md").write_text("# Research: how tides turn\n\nTwice a day.\n")
    row = register(kb.database, str(folder.parent), name="notes", kind="archive")
    sync_collection(kb.database, row)
    (found_row,) = search(kb, "tides")["results"]
    assert found_row["document"]["id"] == "notes/2025-05-20/tides.md"
    assert found_row["document"]["path"] == "research-archive/2025-05-20/tides.md"


def test_archives_can_be_named_in_the_projects_configuration(
    kb: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = tmp_path / "notes" / "research-archive" / "2025-05-20" / "wind.md"
    report.parent.mkdir(parents=True)
    report.write_text("# Research: anemometers\n\nCups turn faster than vanes.\n")
    (tmp_path / "captured").mkdir()
    (tmp_path / "captured" / "page.md").write_text(
        "# Source: [Vanes](https://example.org/vanes)\n\nCups are not vanes.\n"
    )
    (tmp_path / ".kb").mkdir(exist_ok=True)
    config = tmp_path / ".kb" / "config.json"
    config.write_text(
        json.dumps(
            {
                "project_name": "windrose",
                "archives": {
                    "research": "notes/research-archive",
                    "url_content": "./captured",
                    "reserch": "x",
                },
            }
        )
    )
    answer = call(kb, "searchLocalArchives", query="cups vanes")
    found = {row["document"]["path"]: row["document"]["source"] for row in answer["results"]}
    assert found == {
        "research-archive/2025-05-20/wind.md": "research",
        "captured/page.md": "url-content",
    }
    assert "archives.reserch is not used" in answer["notice"]


@pytest.mark.parametrize(
    ("archives", "said"),
    [
        ({"research": "../elsewhere"}, "leads out of the project"),
        ({"research": "missing"}, "does not exist"),
        ({"research": 5}, "must be a path"),
        (["x"], "must be a JSON object"),
    ],
)
def test_an_archive_that_cannot_be_used_is_a_notice(
    kb: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archives: object, said: str
) -> None:
    (tmp_path.parent / "elsewhere").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".kb").mkdir(exist_ok=True)
    config = {"project_name": "windrose", "archives": archives}
    (tmp_path / ".kb" / "config.json").write_text(json.dumps(config))
    answer = call(kb, "searchLocalArchives", query="cups")
    assert answer["results"] == []
    assert said in answer["notice"]
    assert call(kb, "activate_project")["status"] == "activated"

"""Discoveries: detection, merging, search with filters, errors, export."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, HashEmbedder, call, failure

from kb.cli.context import as_markdown
from kb.errors import EmbeddingError
from kb.ingest.discoveries import all_discoveries, detect_type
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.models.english import EnglishEmbedder
from kb.store.database import Database
from kb.store.discoveries import stored_discoveries
from kb.tools.session import Session, open_session

EXAMPLES = (
    ("We use JWT tokens stored in httpOnly cookies for auth", "auth"),
    ("Pattern is: token refresh with mutex locks to prevent race conditions", "auth"),
    ("Fixed: token refresh race condition with mutex lock", "auth"),
    ("Decided to keep orders in PostgreSQL, not in MongoDB", "orders"),
    ("Rule: every API handler validates its input with zod", "api"),
)


@pytest.fixture
def meaning(tmp_path: Path, model: EnglishEmbedder) -> Iterator[Session]:
    """An empty knowledge base with the packaged model."""
    with open_session(
        Database(tmp_path / "kb.db"), project=tmp_path, make_embedder=lambda _: model
    ) as knowledge:
        yield knowledge


def record(kb: Session, content: str, **arguments: Any) -> dict[str, Any]:
    return call(kb, "context_record", content=content, **arguments)


def found(kb: Session, query: str, **arguments: Any) -> list[str]:
    results = call(kb, "context_search", query=query, **arguments)["results"]
    return [row["content"] for row in results]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("We use ruff for linting", "pattern"),
        ("The PATTERN IS a result object", "pattern"),
        ("Convention: kebab-case file names", "pattern"),
        ("Rule: no default exports", "rule"),
        ("Handlers must always validate", "rule"),
        ("Requirement: Python 3.11", "rule"),
        ("Last year we decided to use Redis", "decision"),
        ("We chose pnpm", "decision"),
        ("Went with SQLite", "decision"),
        ("Bug: it hangs", "issue"),
        ("Known issue: it leaks", "issue"),
        ("Fixed: the leak", "issue"),
        ("Decided to write a rule: never sleep", "decision"),
        ("Decision: tokens live in cookies", "decision"),
        ("Never deploy on a Friday", "rule"),
        ("The cache is never emptied", "pattern"),
        ("Chosenness, tissue: and reuse are none of these", "pattern"),
    ],
)
def test_the_type_is_told_from_the_words(text: str, kind: str) -> None:
    assert detect_type(text) == kind


def pairs(name: str) -> list[tuple[str, str]]:
    text = (ROOT / "fixtures" / "discoveries" / name).read_text(encoding="utf-8")
    found = []
    for line in text.splitlines():
        one, other = line.split(" | ")
        found.append((one, other))
    assert len(found) == 40
    return found


def test_near_duplicates_merge(meaning: Session) -> None:
    wrong = []
    for number, pair in enumerate(pairs("same.txt")):
        for place, (one, other) in enumerate((pair, pair[::-1])):
            module = f"{number} {place}"
            first = record(meaning, one, type="rule", module=module)
            second = record(meaning, other, type="rule", module=module)
            if (second["id"], second["status"]) != (first["id"], "merged"):
                wrong.append((one, other))
    assert (
        len(wrong) <= 14
    )  # seven pairs: the passive with "by", genitives, two phrases changed round


def test_discoveries_that_say_something_else_stay_apart(meaning: Session) -> None:
    wrong = []
    for number, pair in enumerate(pairs("different.txt")):
        for place, (one, other) in enumerate((pair, pair[::-1])):
            module = f"{number} {place}"
            record(meaning, one, type="rule", module=module)
            if record(meaning, other, type="rule", module=module)["status"] != "recorded":
                wrong.append((one, other))
    assert wrong == []


def test_equal_stems_of_another_meaning_stay_apart(meaning: Session) -> None:
    record(meaning, "The author of a document is checked", type="rule")
    other = record(meaning, "The authorization of a document is checked", type="rule")
    assert other["status"] == "recorded"


@pytest.mark.parametrize(
    ("text", "swapped"),
    [
        ("The parser feeds the lexer", "The lexer feeds the parser"),
        ("Admins can delete users", "Users can delete admins"),
        ("Workers notify the scheduler", "The scheduler notifies workers"),
    ],
)
def test_who_does_what_to_whom_is_told_apart(meaning: Session, text: str, swapped: str) -> None:
    record(meaning, text, type="rule")
    assert record(meaning, swapped, type="rule")["status"] == "recorded"


def test_without_a_model_the_same_words_merge(kb: Session) -> None:
    first = record(kb, "We use the repository pattern.")
    again = record(kb, "we use the  Repository pattern")
    assert (again["id"], again["status"]) == (first["id"], "merged")


def test_a_long_text_is_compared_in_bounded_time(kb: Session) -> None:
    text = "The state of the handler of the socket of the worker is kept. " * 16
    assert record(kb, text[:1000])["status"] == "recorded"
    start = time.process_time()
    assert record(kb, text[:999])["status"] == "merged"
    assert time.process_time() - start < 5


def test_of_near_duplicates_the_longer_text_stays(meaning: Session) -> None:
    short, long = pairs("same.txt")[2]
    first = record(meaning, short, module="auth")
    assert first["status"] == "recorded"
    assert record(meaning, long, module="Auth")["status"] == "merged"
    again = record(meaning, short.upper(), module="auth", type="pattern")
    assert (again["id"], again["status"]) == (first["id"], "merged")
    assert record(meaning, short, module="web")["status"] == "recorded"
    assert record(meaning, short, module="auth", type="rule")["status"] == "recorded"
    assert found(meaning, "JWT tokens in cookies", module="auth", type="pattern") == [long]


def test_examples_are_found_as_documented(meaning: Session) -> None:
    for content, module in EXAMPLES:
        record(meaning, content, module=module, source="" if module != "api" else "src/api.ts")
    result = call(meaning, "context_search", query="how does authentication work")
    assert result["results"][0]["module"] == "auth"
    assert result["query"] == "how does authentication work"
    assert result["totalFound"] == len(EXAMPLES)
    assert isinstance(result["searchTime"], int)
    row = result["results"][0]
    assert set(row) == {"id", "type", "module", "content", "date", "score", "source"}
    assert row["source"] == "discovery"
    assert 0 <= row["score"] <= 1
    assert found(meaning, "token refresh issue", type="issue", module="auth", limit=3) == [
        EXAMPLES[2][0]
    ]
    result = call(meaning, "context_search", query="validate input", type="rule")
    assert result["results"][0]["source"] == "src/api.ts"
    assert found(meaning, "which database are orders in?")[0] == EXAMPLES[3][0]


def test_filters_act_before_the_best_are_taken(kb: Session) -> None:
    for number in range(40):
        record(kb, f"Rule: the parser number {number} is fast", module="parser")
    record(kb, "Bug: the moon is late", module="sky")
    result = call(kb, "context_search", query="parser is fast", module="sky", limit=1)
    assert [row["content"] for row in result["results"]] == ["Bug: the moon is late"]
    assert result["totalFound"] == 1
    assert found(kb, "parser is fast", type="issue") == ["Bug: the moon is late"]
    assert found(kb, "parser is fast", module="nowhere") == []


def test_a_module_that_is_worked_on_wins_ties(kb: Session) -> None:
    record(kb, "Rule: boats need blue paint", module="a")
    record(kb, "Rule: boats need blue paint", module="b")

    def modules() -> list[str]:
        return [row["module"] for row in call(kb, "context_search", query="blue paint")["results"]]

    assert modules() == ["a", "b"]
    kb.log.read("x.py", "b", 10)
    kb.flush()
    assert modules() == ["b", "a"]


def test_errors_have_their_exact_texts(kb: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failure(kb, "context_search", query="ab")["error"] == (
        "Query must be at least 3 characters"
    )
    error = failure(kb, "context_search", query="abc")
    assert error == {
        "error": "No embeddings found. Run initial session to generate context.",
        "code": "EMBEDDING_SERVICE_ERROR",
        "fallback": "Use grep_codebase for text search",
    }
    record(kb, "Rule: something to be found")

    def fail(self: HashEmbedder, texts: list[str]) -> None:
        raise EmbeddingError("it is broken")

    monkeypatch.setattr(HashEmbedder, "embed", fail)
    error = failure(kb, "context_search", query="something")
    assert error["error"] == "Failed to generate query embedding"
    assert error["details"] == "it is broken"
    # What is learned is not lost with the model.
    result = record(kb, "Rule: this one is recorded all the same")
    assert result["status"] == "recorded"
    assert "it is broken" in result["notice"]


@pytest.mark.parametrize("content", ["short", "x" * 1001])
def test_lengths_are_checked(kb: Session, content: str) -> None:
    error = failure(kb, "context_record", content=content, type="x")
    assert set(error["details"]["fieldErrors"]) == {"content", "type"}


@pytest.mark.parametrize("query", ["NEAR(", '"""', "-a -b", "+x*", "日本語", "   "])
def test_any_text_is_a_query(kb: Session, query: str) -> None:
    record(kb, "規則: 日本語の全文検索 rule")
    call(kb, "context_search", query=query)


def test_a_session_is_noted_with_what_it_recorded(kb: Session) -> None:
    kb.log.begin("client 1.0")
    recorded = record(kb, "Rule: sessions hold discoveries")
    row = call(kb, "context_search", query="sessions hold")["results"][0]
    assert row["session"] == kb.log.current_id
    kb.log.end()
    with kb.database.read() as connection:
        (session,) = connection.rows("recent_sessions", limit=5)
        details = connection.rows(
            "session_details", session_id=session["id"], kind="discovery", limit=5
        )
    assert (session["queries"], session["discoveries"]) == (1, 1)
    assert details[0]["detail"] == recorded["id"]


def test_the_export_has_a_chapter_a_module(kb: Session) -> None:
    rule = record(kb, "Rule: line one\nline two", module="api", source="a.ts")["id"][:8]
    issue = record(kb, "Bug: it leaks when full", module="api")["id"][:8]
    pattern = record(kb, "We use tabs everywhere")["id"][:8]
    with kb.database.read() as connection:
        page = as_markdown(all_discoveries(connection))
    date = page.split("(")[1][:10]
    assert page == (
        "# Discoveries\n\n## The whole project\n\n### Patterns\n\n"
        f"- We use tabs everywhere ({date}, id {pattern})\n\n"
        f"## api\n\n### Issues\n\n- Bug: it leaks when full ({date}, id {issue})\n\n"
        f"### Rules\n\n- Rule: line one\n  line two ({date}, a.ts, id {rule})\n"
    )


def test_discoveries_survive_a_folder_of_that_name(kb: Session, tmp_path: Path) -> None:
    (tmp_path / "discoveries").mkdir()
    (tmp_path / "discoveries" / "a.md").write_text("# A\n")
    sync_collection(kb.database, register(kb.database, str(tmp_path / "discoveries")))
    record(kb, "Rule: names may collide")
    with kb.database.read() as connection:
        names = [row["name"] for row in connection.rows("collections")]
        metadata = stored_discoveries(connection)[0]["metadata"]
    assert names == ["discoveries", "discoveries-2"]
    assert json.loads(metadata).keys() == {"type", "date"}


def test_what_is_known_about_the_same_comes_with_a_new_discovery(meaning: Session) -> None:
    first = record(meaning, "We use Celery for background jobs")
    assert "nearest" not in first
    assert "nearest" not in record(meaning, "The API returns RFC 7807 problem documents")
    correction = record(meaning, "Dramatiq, not Celery, runs the background jobs")
    [near] = correction["nearest"]
    assert (near["id"], near["content"]) == (first["id"], "We use Celery for background jobs")
    assert 0.7 < near["score"] < 1


def test_what_is_superseded_is_found_last_and_says_by_what(meaning: Session) -> None:
    old = record(meaning, "We use Celery for background jobs")
    record(meaning, "Background jobs are tested with a real broker")
    new = record(meaning, "Dramatiq, not Celery, runs the jobs", supersedes=old["id"][:8])
    assert (new["supersedes"], new.get("nearest")) == (old["id"], None)
    question = "background jobs with Celery"
    rows = call(meaning, "context_search", query=question)["results"]
    assert [row.get("supersededBy") for row in rows] == [None, None, new["id"]]
    assert rows[-1]["id"] == old["id"]
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    listed = {row.id: row.superseded_by for row in meaning.base.recall()}
    assert listed[old["id"]] == new["id"]
    # The correction is taken back: the older one counts again.
    meaning.base.forget(new["id"])
    rows = call(meaning, "context_search", query=question)["results"]
    assert rows[0]["id"] == old["id"]
    assert all("supersededBy" not in row for row in rows)


def test_a_correction_may_be_recorded_again_to_say_what_it_supersedes(kb: Session) -> None:
    old = record(kb, "We use Celery for background jobs")
    new = record(kb, "Dramatiq runs the background jobs")
    again = record(kb, "Dramatiq runs the background jobs", supersedes=old["id"])
    assert (again["id"], again["status"]) == (new["id"], "merged")
    for wrong, told in ((new["id"], "cannot supersede itself"), ("abcd1234", "no discovery")):
        error = failure(
            *(kb, "context_record"), content="Dramatiq runs the background jobs", supersedes=wrong
        )
        assert told in error["error"]
    assert len(kb.base.recall()) == 2


def test_what_says_nothing_about_the_question_is_left_out(meaning: Session) -> None:
    for note in ("We use Celery for background jobs", "The parser keeps comments", "Chose SQLite"):
        record(meaning, note)
    result = call(meaning, "context_search", query="what is the capital of France")
    assert len(result["results"]) == 1  # the nearest one stays
    assert result["results"][0]["score"] < 0.12

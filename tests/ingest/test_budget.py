"""A document whose reading does not end costs that document and nothing else."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kb.errors import DocumentTooComplex, UsageError
from kb.formats.markdown import PARSER
from kb.ingest import budget
from kb.ingest.budget import within_budget
from kb.ingest.indexes import add_document
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.models.tokens import load_tokenizer
from kb.tools.session import Session


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "BASE_SECONDS", 0.5)
    monkeypatch.setattr(budget, "WATCH_SECONDS", 0.02)
    monkeypatch.setattr(budget, "AGAIN_SECONDS", 0.05)


@pytest.fixture
def endless() -> Iterator[None]:
    """A rule of the Markdown parser that does not come back from a line that says LOOP."""

    def rule(state: Any, start: int, _end: int, _silent: bool) -> bool:
        while "LOOP" in state.getLines(start, start + 1, 0, False):
            pass
        return False

    load_tokenizer()
    ruler = PARSER.block.ruler
    rules = [*ruler.__rules__]
    ruler.before("table", "endless", rule)
    yield
    ruler.__rules__[:] = rules
    ruler.__cache__ = None


def forever() -> None:
    while True:
        pass


def test_work_in_time_gives_its_result_and_its_own_errors() -> None:
    assert within_budget("text", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within_budget("text", lambda: 1 // 0)


def test_work_that_does_not_end_is_stopped_in_any_thread(short: None) -> None:
    stopped: list[str] = []

    def run() -> None:
        try:
            within_budget("a", forever)
        except DocumentTooComplex as error:
            stopped.append(error.message)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(stopped) == 3
    assert "too complex" in stopped[0]


def test_work_that_catches_everything_is_stopped_all_the_same(short: None) -> None:
    def stubborn() -> None:
        with contextlib.suppress(BaseException):
            forever()
        forever()

    with pytest.raises(DocumentTooComplex):
        within_budget("a", stubborn)


def test_a_profiler_works_after_work_was_stopped() -> None:
    """CPython 3.11 looks for an exception that was taken back until another one comes."""
    script = """
        import sys
        from kb.ingest import budget

        budget.BASE_SECONDS, budget.WATCH_SECONDS = 0.2, 0.02

        def forever():
            while True:
                pass

        try:
            budget.within_budget("a", forever)
        except budget.DocumentTooComplex:
            sys.setprofile(lambda *_: None)
            (lambda: None)()
            print("came back")
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert run.stdout == "came back\n"


def test_a_text_has_time_by_its_length(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "SECONDS_A_CHARACTER", 1.0)

    def long_work() -> str:
        for _ in range(3_000_000):
            pass
        return "done"

    assert within_budget("x" * 1_000, long_work) == "done"


def test_a_text_has_a_limit_of_lines() -> None:
    assert within_budget("\n" * budget.MAXIMUM_LINES, lambda: "done") == "done"
    with pytest.raises(DocumentTooComplex, match="500,001 lines, more than the limit of 500,000"):
        within_budget("\n" * (budget.MAXIMUM_LINES + 1), lambda: "done")


def test_a_document_that_does_not_end_is_that_documents_error(
    kb: Session, tmp_path: Path, short: None, endless: None
) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text("# A\n\nFirst.\n")
    (folder / "b.md").write_text("# B\n\nLOOP\n")
    (folder / "c.md").write_text("# C\n\nLast.\n")
    report = sync_collection(kb.database, register(kb.database, str(folder)))
    assert (report.added, report.total) == (2, 2)
    (error,) = report.errors
    assert error["path"] == "b.md"
    assert "too complex" in error["message"]


def test_an_added_document_has_the_limits_of_a_file(kb: Session) -> None:
    with pytest.raises(
        UsageError, match=r"20\.0 MB is more than the limit of 20 MB: add it in parts"
    ):
        add_document(kb.knowledge, "default", "one", "x" * 20_000_001, {})
    with pytest.raises(UsageError, match="500,001 lines"):
        add_document(kb.knowledge, "default", "one", "x" + "\n" * 500_001, {})


def test_an_added_document_that_does_not_end_is_refused(
    kb: Session, short: None, endless: None
) -> None:
    with pytest.raises(DocumentTooComplex, match=r"^The content takes more than .*too complex"):
        add_document(kb.knowledge, "default", "one", "LOOP", {})

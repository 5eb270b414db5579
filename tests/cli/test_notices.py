"""A command that takes long says so on stderr, once for each long step."""

from __future__ import annotations

import pytest
from support import Run


@pytest.fixture
def busy(filled: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command of which every step takes long."""
    monkeypatch.setattr("kb.cli.render.NOTICE_SECONDS", 0.0)
    return filled


def test_what_is_done_is_said_with_the_time_that_is_left(busy: Run) -> None:
    outcome = busy("remove", "docs")
    assert outcome.code == 0
    assert "kb: removing passages and what belongs to them, about 1 s more" in outcome.errors
    assert outcome.errors.count("removing") == 1


@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_whoever_wants_no_notice_gets_none(busy: Run, option: str) -> None:
    outcome = busy(option, "remove", "docs")
    assert outcome.code == 0
    assert not outcome.errors


def test_a_short_command_says_nothing(filled: Run) -> None:
    assert not filled("remove", "docs").errors

"""Where lines match: a pattern of plain characters is looked up here, any other one by ripgrep."""

from __future__ import annotations

import pytest
from hypothesis import example, given, strategies as st

from kb.disk import ripgrep
from kb.disk.ripgrep import Query, first_places

TEXTS = st.lists(st.sampled_from(["a", "b", "é", "-", "#", " ", "\r\n", "\n"]), max_size=40)
LITERALS = st.text(st.sampled_from("abé-# <&~"), min_size=1, max_size=3)


@given(TEXTS.map("".join), LITERALS, st.integers(1, 4))
@example("ab\nab", "ab", 1)
@example("\n\nab ab\n\nab", "ab", 4)
@example("", "a", 1)
def test_plain_characters_are_found_where_ripgrep_finds_them(
    text: str, literal: str, limit: int
) -> None:
    # In a group it is no plain pattern any more, and means the same.
    by_ripgrep, _ = first_places(Query(f"(?:{literal})", True), text.encode(), limit, 60)
    assert first_places(Query(literal, True), text.encode(), limit, 60) == (by_ripgrep, True)


@pytest.mark.parametrize("pattern", ["a.b", "a|b", "^a", r"\bab", "[ab]", "a*", "(a)", "a{2}", ""])
def test_what_means_more_than_its_characters_is_asked_of_ripgrep(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    run = ripgrep._run
    monkeypatch.setattr(ripgrep, "_run", lambda *more: asked.append(more) or run(*more))
    first_places(Query(pattern, True), b"a.b", 1, 60)
    first_places(Query("ab", False), b"AB", 1, 60)
    assert len(asked) == 2

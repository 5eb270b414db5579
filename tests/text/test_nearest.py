"""Names that may be meant by one that does not exist."""

import pytest
from hypothesis import given, strategies as st

from kb.errors import DocumentNotFound
from kb.text.nearest import nearest


def test_a_slip_of_the_keyboard_is_near() -> None:
    known = ["guide/wind.md", "guide/radio.md", "reference/ports.md"]
    assert nearest("giude/wnd.md", known)[0] == "guide/wind.md"
    assert nearest("refrence/ports.md", known) == ["reference/ports.md"]


def test_case_makes_no_name_far() -> None:
    assert nearest("README", ["notes", "readme"]) == ["readme"]


def test_a_path_without_its_folder_is_near_and_the_shortest_comes_first() -> None:
    known = ["archive/old/wind-tunnel.md", "guide/wind.md"]
    assert nearest("wind", known) == ["guide/wind.md", "archive/old/wind-tunnel.md"]


def test_unrelated_names_are_not_near() -> None:
    assert nearest("harbor", ["config", "billing", "queue"]) == []


@pytest.mark.slow
@given(st.lists(st.text(min_size=1)), st.text(), st.integers(1, 5))
def test_what_is_near_exists_once_and_within_the_limit(
    known: list[str], name: str, limit: int
) -> None:
    found = nearest(name, known, limit)
    assert set(found) <= set(known)
    assert len(found) == len(set(found)) <= limit


def test_near_names_are_looked_for_once_and_only_when_the_error_is_told() -> None:
    asked = []

    def near() -> list[str]:
        asked.append("asked")
        return ["guide/wind.md"]

    error = DocumentNotFound("No such document.", near=near, document="wind")
    assert not asked
    assert error.as_result()["suggestions"] == ["guide/wind.md"]
    assert error.details == {"document": "wind", "suggestions": ["guide/wind.md"]}
    assert asked == ["asked"]

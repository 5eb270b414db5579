"""Replies fit into their budget, and rows say when they were cut."""

from typing import Any

from kb.tools.call import bounded, cost_of, rows_within, shared_rows, shortened


def row(number: int, content: str) -> dict[str, Any]:
    return {"documentId": f"page-{number}.md", "content": content, "startLine": number}


def test_rows_are_kept_as_long_as_they_fit() -> None:
    rows = [row(number, "word " * 20) for number in range(10)]
    kept = rows_within(rows, 100)
    assert kept == rows[: len(kept)]
    assert 1 < len(kept) < 10
    assert sum(map(cost_of, kept)) <= 100


def test_a_first_row_that_is_too_large_is_cut_and_says_so() -> None:
    for text in ("word " * 5000, "漢字" * 5000, '"\\\n' * 5000):
        (kept,) = rows_within([row(1, text), row(2, "b")], 100)
        assert cost_of(kept) <= 100
        assert kept["truncated"] is True
        assert kept["documentId"] == "page-1.md"
        assert text.startswith(kept["content"].removesuffix(" …"))


def test_texts_inside_of_lists_are_cut_too_but_no_names() -> None:
    whole = {
        "document": {"id": "a/" + "long-name-" * 30, "title": "title " * 100},
        "highlights": [{"field": "content", "snippets": ["snippet " * 200, "short"]}],
    }
    cut = shortened(whole, 200)
    assert cost_of(cut) <= 200
    assert cut["document"]["id"] == whole["document"]["id"]  # type: ignore[index]
    assert cut["highlights"][0]["snippets"][1] == "short"  # type: ignore[index]
    assert "truncated" not in whole


def test_several_lists_share_a_budget_by_rank() -> None:
    lists = [[row(number, "word " * 20) for number in range(5)] for _ in range(4)]
    kept = shared_rows(lists, 400)
    sizes = [len(own) for own in kept]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    assert sum(cost_of(one) for own in kept for one in own) <= 400


def test_lists_without_room_are_empty_rather_than_over_the_budget() -> None:
    lists = [[row(1, "word " * 400)] for _ in range(10)]
    kept = shared_rows(lists, 150)
    assert sum(cost_of(one) for own in kept for one in own) <= 150
    assert kept[0]
    assert not kept[-1]


def test_a_list_that_is_short_leaves_its_room_to_the_others() -> None:
    long = [row(number, "word " * 20) for number in range(20)]
    kept = shared_rows([[], long, [row(1, "x")]], 300)
    assert len(kept[1]) > 5


def test_an_object_ends_its_longest_lists_earlier_and_says_so() -> None:
    whole = {
        "name": "project",
        "modules": [{"name": f"module-{number}", "files": number} for number in range(500)],
        "languages": {"python": 3},
        "keyFiles": [row(1, "x")],
    }
    for tokens in (200, 1000):
        cut = bounded(whole, tokens)
        assert cost_of(cut) <= tokens
        assert cut["truncated"] is True
        assert cut["keyFiles"] == whole["keyFiles"]
        assert f"{len(cut['modules'])} of 500 modules" in cut["notice"]
    assert bounded(whole, 100_000) == whole

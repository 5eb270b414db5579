"""A short word keeps its s: `lfs` is not `LF`, though the index has one stem for both."""

import pytest
from support import Filler, call

PAGES = {
    "ends.md": "# LF\n\nA line ends with LF. LF is one character, CR LF are two.",
    "large.md": "# Large files\n\nBinary files are kept by Git LFS, outside of the history.",
    "aw.md": "# Aw\n\nAw is what one says to a puppy. Aw!",
    "cloud.md": "# Clouds\n\nBackups go to AWS once a night.",
    "tests.md": "# Test\n\nA test is short.",
    "more.md": "# Checks\n\nAll tests run before a release.",
}


@pytest.mark.parametrize(
    ("query", "right", "wrong"),
    [("lfs", "large.md", "ends.md"), ("LFS", "large.md", "ends.md"), ("aws", "cloud.md", "aw.md")],
)
def test_the_form_as_typed_stands_before_its_stem(
    fill: Filler, query: str, right: str, wrong: str
) -> None:
    rows = call(fill(PAGES), "documents_search", query=query)["results"]
    scores = {row["documentId"]: row["relevanceScore"] for row in rows}
    assert rows[0]["documentId"] == right
    assert scores[right] >= 0.7 > scores.get(wrong, 0.0)


def test_a_plural_finds_the_singular(fill: Filler) -> None:
    rows = call(fill(PAGES), "documents_search", query="tests")["results"]
    assert {row["documentId"] for row in rows if row["relevanceScore"] >= 0.7} == {
        "tests.md",
        "more.md",
    }


def test_a_stem_is_found_where_nothing_has_the_form_as_typed(fill: Filler) -> None:
    rows = call(fill({"ends.md": PAGES["ends.md"]}), "documents_search", query="lfs")["results"]
    assert [row["documentId"] for row in rows] == ["ends.md"]

"""Words in the address of a link are found, and weigh less than words of the text."""

import pytest
from support import Filler, call

FILLING = "Sails are hoisted in the morning and taken in at night by whoever has the watch."
LINKS = [
    "See [this page](calibrate-rain-gauge.md).",
    "See [this page](<calibrate-rain-gauge.md> 'x').",
    "See [this page](docs/calibrate_(rain)-gauge.md#part).",
    "See [this page][1].\n\n[1]: calibrate-rain-gauge.md",
    "See [[calibrate rain gauge|this page]].",
    "See ![this picture](a.png) and [this page](calibrate-rain-gauge.md \"x\").",
]  # fmt: skip
TEXT = "Calibrate the rain gauge every spring with a measuring cup."


def scores(fill: Filler, link: str, query: str) -> dict[str, float]:
    kb = fill(
        {
            "linking.md": f"# Notes\n\n{FILLING} {link}\n",
            "telling.md": f"# Other notes\n\n{FILLING} {TEXT}\n",
            **{f"page{n}.md": f"# Page {n}\n\n{FILLING}\n" for n in range(20)},
        }
    )
    rows = call(kb, "documents_search", query=query)["results"]
    return {row["documentId"]: row["relevanceScore"] for row in rows}


@pytest.mark.parametrize("link", LINKS)
def test_a_link_to_a_page_is_not_text_about_it(fill: Filler, link: str) -> None:
    found = scores(fill, link, "calibrate rain gauge")
    assert found["telling.md"] >= 0.7 > 0.5 > found["linking.md"] > 0.1


@pytest.mark.parametrize("query", ["+gauge +rain", '"rain gauge"', "gauge"])
def test_words_of_an_address_are_found(fill: Filler, query: str) -> None:
    found = scores(fill, LINKS[0], query)
    assert found["telling.md"] > found["linking.md"] >= 0.1


@pytest.mark.parametrize("query", ["calibrate-rain-gauge.md", "docs/calibrate-rain-gauge"])
def test_an_address_that_is_asked_for_counts_as_typed(fill: Filler, query: str) -> None:
    link = "See [this page](docs/calibrate-rain-gauge.md)."
    assert next(iter(scores(fill, link, query))) == "linking.md"


def test_words_that_stand_in_the_text_as_well_lose_nothing(fill: Filler) -> None:
    link = "See [calibrate the rain gauge](calibrate-rain-gauge.md)."
    assert scores(fill, link, "calibrate rain gauge")["linking.md"] >= 0.7

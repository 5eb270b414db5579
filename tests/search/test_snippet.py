"""Snippets: the text round the words that were asked for, without marks of layout."""

import pytest

from kb.search.query import parse_query
from kb.search.results import WIDTH, nearest_snippets, readable, snippet
from kb.store.database import Database
from kb.tools.session import Session

DATABASE = Database(":memory:")


def shown(content: str, query: str, *headings: str) -> tuple[str, list[str]]:
    with DATABASE.read() as connection:
        found = snippet(connection, parse_query(query), content, headings)
    return found.text, [found.text[start:end] for start, end in found.marks]


def test_a_snippet_lies_round_the_words_that_were_asked_for() -> None:
    text, marks = shown(
        "Filler text. " * 60 + "Spooled files rest. " + "More text. " * 60, "the file"
    )
    assert "Spooled files rest." in text
    assert len(text) <= WIDTH + 6
    assert marks == ["files"]  # by stem, and no stop word


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Read [the *vane*](guide/vane.md) first.", "Read the vane first."),
        ('A ![vane](img/vane.png "A vane") here.', "A vane here."),
        (
            "See [the vane][1] and [[Mast|the mast]] or [[Vane]].",
            "See the vane and the mast or Vane.",
        ),
        ("**Never** turn a ***loose*** ~~old~~ _wind vane_.", "Never turn a loose old wind vane."),
        ("Run `vane --set *x*` and [`vane`](cli.md).", "Run vane --set *x* and vane."),
        (
            "def __init__(self, *vane, **more): a[0][1](x)",
            "def __init__(self, *vane, **more): a[0][1](x)",
        ),
        ("2 * 3 * vane and **/*.md", "2 * 3 * vane and **/*.md"),
    ],
)
def test_a_snippet_has_no_markup(content: str, text: str) -> None:
    found, marks = shown(content, "vane")
    assert found == text
    assert marks
    assert {mark.lower() for mark in marks} == {"vane"}


def test_without_a_matched_word_the_first_sentences_are_shown() -> None:
    text, marks = shown("The first sentence. " + "It goes on " * 40, "bread")
    assert (text, marks) == ("The first sentence.", [])


def test_of_a_passage_without_a_matched_word_the_nearest_sentence_is_shown(
    windrose: Session,
) -> None:
    text = (
        "Paint protects the wood. The boat carries four sailors. "
        "Hang the anchor on a chain of iron. It takes an hour."
    )
    contents = [(f"# Boats\n\n{text}", ["Boats"]), ("One sentence alone.", [])]
    query = parse_query("how many people fit on board of the ship")
    near, single = nearest_snippets(windrose.model, query, contents)
    assert near.startswith("... The boat carries four sailors. Hang")
    assert single == ""


def test_without_a_model_no_sentence_is_the_nearest(kb: Session) -> None:
    assert nearest_snippets(kb.model, parse_query("bread"), [("One. Two.", [])]) == [""]


def test_a_heading_that_is_shown_is_not_repeated() -> None:
    assert shown("## Set up {#setup}\n\nRun it.", "run", "Guide", "Set up")[0] == "Run it."
    assert shown("## Set up {#id-1.9.3}\n\nRun it.", "run", "Guide", "Set up")[0] == "Run it."
    assert shown("Guide\n=====\n\nRun it.", "run", "Guide")[0] == "Run it."
    assert shown("### Another\n\nRun it.", "run", "Guide")[0] == "Another Run it."


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Text {.lead} and [a](b){: target=_blank }", "Text and a"),
        ('<div class="x">\nText <b>bold</b><br/>\n</div>', "Text bold"),
        ('!!! note "Careful"\n    Text', "Careful\n    Text"),
        ("::: warning\nText\n:::", "Text"),
        ("/// tip | A hint\nText\n///", "A hint\nText"),
        ("> [!NOTE]\n> Text", "> Text"),
        ("Text <!-- not\nshown --> more", "Text   more"),
        ("```html\n<b>{.x}</b>\n```\nText", "<b>{.x}</b>\nText"),  # code is shown as it is
        ("| way | cost |\n|:---|---:|\n| a | 1 |", "| way | cost |\n| a | 1 |"),
        ("Title\n=====\nText\n\n* * *\nMore", "Title\nText\nMore"),
        ("List<int> and a < b, {x} and {1: 2}", "List<int> and a < b, {x} and {1: 2}"),
    ],
)
def test_marks_of_layout_are_left_out(content: str, expected: str) -> None:
    assert readable(content).replace("\n\n", "\n").strip() == expected


def test_a_passage_of_marks_alone_is_shown_as_it_is() -> None:
    assert readable("<br/>") == "<br/>"

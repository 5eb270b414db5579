"""Links of Markdown documents: which, where, and the sentence round them."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from kb.formats.links import MAXIMUM_INLINE
from kb.formats.outline import Link
from kb.formats.parse import parse
from kb.text.sentences import CONTEXT_MARGIN

CASES = Path(__file__).parents[2] / "fixtures" / "links.txt"


def cases() -> list[tuple[str, str, list[str]]]:
    text = CASES.read_text(encoding="utf-8").split("\n\n", 1)[1]
    found = []
    for case in text.split("\n=====\n"):
        title, source, expected = case.split("\n...", 2)
        found.append((title.strip(), source.removeprefix("\n"), expected.strip().splitlines()))
    return found


def links(text: str, path: str = "a.md") -> tuple[Link, ...]:
    return parse(text, path).links


@pytest.mark.parametrize(("title", "source", "expected"), cases(), ids=[c[0] for c in cases()])
def test_links_are_found(title: str, source: str, expected: list[str]) -> None:
    assert [f"{one.kind} {one.line} {one.url}" for one in links(source)] == expected, title


def test_the_context_is_the_sentence_as_written_on_one_line() -> None:
    text = "First one. See e.g. the\n[guide](g.md), v1.2. Last one."
    assert [one.context for one in links(text)] == ["See e.g. the [guide](g.md), v1.2."]


def test_the_context_of_a_footnote_is_the_sentence_that_it_belongs_to() -> None:
    text = "Before. It rains here[^r]. After.\n\n[^r]: See [the rain](r.md). More.\n"
    (one,) = links(text)
    assert (one.context, one.line) == ("It rains here[^r].", 3)


def test_a_very_long_sentence_is_cut_to_a_hundred_characters_each_side() -> None:
    text = f"{'word ' * 200}[link](x.md){' word' * 200}"
    (one,) = links(text)
    assert "[link](x.md)" in one.context
    assert len(one.context) <= 2 * CONTEXT_MARGIN + len("[link](x.md)")
    assert set(one.context.replace("[link](x.md)", "").split()) == {"word"}


def test_sentences_of_scripts_without_spaces_end_at_their_own_full_stop() -> None:
    assert links("前の文。[ここ](x.md)を見る。次の文。")[0].context == "[ここ](x.md)を見る。"


def test_only_markdown_has_links() -> None:
    assert links("[a](a.md)", "a.txt") == ()
    assert links("[a](a.md)", "a.rst") == ()


def test_links_of_a_paragraph_longer_than_a_piece_keep_their_lines() -> None:
    line = "some words and [a](a.md) behind them\n"
    count = 3 * MAXIMUM_INLINE // len(line)
    assert [one.line for one in links(line * count)] == list(range(1, count + 1))


@pytest.mark.parametrize("text", ["[" * 9_000, "[a](" * 3_000, "[[a" * 4_000, "![" * 4_000])
def test_hostile_text_has_no_links_and_ends(text: str) -> None:
    assert links(text) == ()


@given(st.text(alphabet="[]()!<>`^:#|\\\n ahttps/.md-"))
def test_any_text_is_read_and_lines_lie_inside(text: str) -> None:
    for one in links(text):
        assert 1 <= one.line <= text.count("\n") + 1
        assert one.url


def test_a_footnote_whose_mark_is_nowhere_else_ends_with_its_own_sentence() -> None:
    # "See:" ends where a search that found nothing goes on: it once never ended.
    (one,) = links("See:\n[^1]: [t](u)\n")
    assert (one.url, one.kind, one.context) == ("u", "footnote", "[t](u)")


def test_each_of_many_footnotes_in_one_paragraph_has_its_own_sentence() -> None:
    number = 300
    marks = " ".join(f"Fact {i}[^{i}]." for i in range(number))
    notes = "\n".join(f"[^{i}]: See [page {i}](p{i}.md)." for i in range(number))
    found = links(f"{marks}\n\nNotes:\n{notes}\n")
    assert [one.context for one in found] == [f"Fact {i}[^{i}]." for i in range(number)]

"""Words of ASCII text are found by the standard library's expressions, of others by `regex`."""

from __future__ import annotations

import regex
from hypothesis import example, given, strategies as st

from kb.text import terms

ASCII = st.text(st.characters(max_codepoint=127))


@given(ASCII)
@example("snake_case, camelCase2 \x1f-\x7f 10.5")
def test_ascii_words_are_those_of_the_full_expression(text: str) -> None:
    found = regex.findall(terms._WORD, text)
    assert terms.words(text) == found
    assert terms.has_word(text) == bool(found)
    assert terms.runs(text) == regex.findall(terms._RUN, text)
    assert terms.without_pictographs(text) == regex.sub(terms._PICTOGRAPH, "", text).strip()


def test_the_quick_looks_pass_over_nothing() -> None:
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    for expression, maybe in (
        (terms._HAS_UNSPACED, terms._MAYBE_UNSPACED),
        (terms._PICTOGRAPH, terms._MAYBE_PICTOGRAPH),
    ):
        found = regex.findall(expression, everything)
        assert len(found) > 1_000
        assert not [one for one in found if not maybe.search(one)]


def test_words_of_other_scripts_are_found() -> None:
    assert terms.words("größer ﬁn 全文検索 x") == ["größer", "ﬁn", "全文検索", "x"]
    assert terms.runs("FastAPIの検索") == ["FastAPI", "の検索"]
    assert terms.without_pictographs("Vane 😀 ") == "Vane"

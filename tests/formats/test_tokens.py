"""Tokens found word by word are those of the tokenizer on the whole text."""

from itertools import pairwise

import pytest
from hypothesis import example, given, strategies as st

from kb.formats import pieces
from kb.formats.pieces import token_count, token_starts
from kb.models.tokens import load_tokenizer

TOKENIZER = load_tokenizer()

_PIECES = [
    "unbelievable",
    "UnbelievableHTTPException",
    "E417",
    "wind_speed",
    "[MASK]",
    "[",
    "]",
    "全文検索",
    "é",
    "e\u0301",
    "ﬁ",
]
_PIECES += [" ", "\t", "\n", "\r", "\v", "\x00", "\u200b", "\u3000", "\u0301", "。", "-", "x" * 101]
_TEXTS = st.lists(st.sampled_from(_PIECES) | st.text(max_size=6), max_size=12).map("".join)


@given(_TEXTS)
@example("[[MASK]]")
@example("a\x00.b")
@example("")
def test_tokens_by_word_are_those_of_the_whole_text(text: str) -> None:
    encoding = TOKENIZER.encode(text, add_special_tokens=False)
    starts, opens = token_starts(text, 0, TOKENIZER)
    assert list(starts) == [start for start, _ in encoding.offsets]
    assert list(opens) == [word != before for before, word in pairwise([None, *encoding.word_ids])]
    assert token_count(text, TOKENIZER) == len(encoding.ids)


def test_tokens_count_from_where_the_text_begins() -> None:
    starts, opens = token_starts("---\nunwritten words", 4, TOKENIZER)
    assert list(starts) == [4, 6, 14]
    assert list(opens) == [True, False, True]


def test_long_texts_are_cut_in_parts_that_hold_whole_words() -> None:
    text = "An unbelievable sentence about 全文検索, repeated. " * 2_000
    encoding = TOKENIZER.encode(text, add_special_tokens=False)
    assert list(token_starts(text, 0, TOKENIZER)[0]) == [start for start, _ in encoding.offsets]


def test_words_that_are_forgotten_are_cut_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_MOST_REMEMBERED", 10)
    text = " ".join(f"unwritten{number:x} 全文{number}" for number in range(5_000))
    encoding = TOKENIZER.encode(text, add_special_tokens=False)
    assert list(token_starts(text, 0, TOKENIZER)[0]) == [start for start, _ in encoding.offsets]

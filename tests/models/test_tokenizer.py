"""The tokenizer: what it makes of a text, by all of its pieces and by those of the text."""

from __future__ import annotations

from hypothesis import example, given, strategies as st

from kb.models import tokens
from kb.models.tokens import load_tokenizer, small_tokenizer, tokenizer_for

_PIECES = ["unbelievable", "UnbelievableHTTPException", "E417", "[MASK]", "[", "]", "[SEP]", "é"]
_PIECES += [
    "全文検索",
    "e\u0301",
    "ﬁ",
    " ",
    "\n",
    "\x00",
    "\u3000",
    "\u0301",
    "-",
    "##ing",
    "x" * 101,
]
TEXTS = st.lists(st.sampled_from(_PIECES) | st.text(max_size=6), max_size=12).map("".join)


def test_the_vocabulary_is_the_model_s() -> None:
    tokenizer = load_tokenizer()
    assert tokenizer.get_vocab_size() == 30_522
    tokens_of_text = tokenizer.encode("Calibrate the vane: [SEP] naïve 検索").tokens
    assert tokens_of_text == [
        *("[CLS]", "cal", "##ib", "##rate", "the", "vane", ":", "[SEP]", "naive"),
        *("[UNK]", "[UNK]", "[SEP]"),
    ]
    pieces = tokens.VOCABULARY.read_text(encoding="utf-8").split("\n")
    longest = max(len(piece.removeprefix(tokens.INSIDE)) for piece in pieces)
    assert longest == tokens.MAX_PIECE


@given(TEXTS)
@example("[[MASK]]un[SEP]able")
@example("a" * 100 + " " + "b" * 101)
def test_the_pieces_of_a_text_suffice_for_it(text: str) -> None:
    whole, small = load_tokenizer().encode(text), small_tokenizer(text).encode(text)
    assert small.ids == whole.ids
    assert small.tokens == whole.tokens


def test_the_whole_tokenizer_is_used_where_it_is_loaded() -> None:
    assert tokenizer_for("vane") is load_tokenizer()

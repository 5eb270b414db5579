"""The English model's tokenizer: WordPiece (Wu et al. 2016), the longest piece that fits first.

It measures chunks for every model, so that changing the model never moves a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

from kb import PACKAGE

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece

__all__ = ["load_tokenizer", "small_tokenizer", "tokenizer_for"]

VOCABULARY = PACKAGE / "assets" / "english-tokens.txt"  # a piece a line, by their numbers
FIRST, LAST, UNKNOWN = "[CLS]", "[SEP]", "[UNK]"
SPECIAL = ("[PAD]", UNKNOWN, FIRST, LAST, "[MASK]")
INSIDE = "##"  # before pieces that do not begin a word
LONGEST_PIECE = 18
LONGEST_WORD = 100  # a longer one is unknown as a whole

FEW_TEXTS = 30
SHORT = 2_000  # characters


@cache
def load_tokenizer() -> Tokenizer:
    """The whole tokenizer, with neither truncation nor padding."""
    from tokenizers.models import WordPiece

    return _tokenizer(
        WordPiece.from_file(
            str(VOCABULARY), unk_token=UNKNOWN, max_input_chars_per_word=LONGEST_WORD
        )
    )


def tokenizer_for(text: str) -> Tokenizer:
    """A tokenizer that takes this text apart as the whole one does.

    It knows only the pieces that occur in the text, while a process has few short ones: 5 ms for
    the first, then .3, in place of 20. A search by the command line has a question and some
    sentences.
    """
    if load_tokenizer.cache_info().currsize or len(text) > SHORT or next(_asked) >= FEW_TEXTS:
        _vocabulary.cache_clear()
        return load_tokenizer()
    return small_tokenizer(text)


def small_tokenizer(text: str) -> Tokenizer:
    """The tokenizer with no more pieces than may occur in a text."""
    from tokenizers.models import WordPiece

    known = _vocabulary()
    pieces = {piece: known[piece] for piece in _possible_pieces(text) if piece in known}
    return _tokenizer(WordPiece(pieces, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST_WORD))


_asked = count()


def _tokenizer(model: WordPiece) -> Tokenizer:
    from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors

    made = Tokenizer(model)
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single=f"{FIRST} $A {LAST}",
        special_tokens=[(name, model.token_to_id(name)) for name in (FIRST, LAST)],
    )
    made.add_special_tokens([*SPECIAL])
    return made


@cache
def _vocabulary() -> dict[str, int]:
    pieces = VOCABULARY.read_bytes().decode().removesuffix("\n").split("\n")
    return dict(zip(pieces, range(len(pieces)), strict=True))


def _possible_pieces(text: str) -> Iterator[str]:
    """Whatever of a text may be a piece, and the special ones."""
    from tokenizers import normalizers, pre_tokenizers

    yield from SPECIAL
    plain = normalizers.BertNormalizer().normalize_str(text)
    words = {word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(plain)}
    for word in words:
        if len(word) > LONGEST_WORD:
            continue
        for start in range(len(word)):
            for end in range(start + 1, min(start + LONGEST_PIECE, len(word)) + 1):
                yield INSIDE * (start > 0) + word[start:end]

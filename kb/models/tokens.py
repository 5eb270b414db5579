"""The English model's tokenizer: WordPiece (Wu et al. 2016), the longest piece that fits first.

It measures chunks for every model, so that changing the model never moves a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

from kb.settings import PACKAGE

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece

VOCABULARY = PACKAGE / "assets" / "english-tokens.txt"  # a piece a line, by their numbers
FIRST, LAST, UNKNOWN = "[CLS]", "[SEP]", "[UNK]"
SPECIAL = ("[PAD]", UNKNOWN, FIRST, LAST, "[MASK]")
INSIDE = "##"  # before pieces that do not begin a word
MAX_PIECE = 18
MAX_WORD = 100  # a longer one is unknown as a whole

FEW_TEXTS = 30
SHORT = 2_000  # characters


@cache
def load_tokenizer() -> Tokenizer:
    """The whole tokenizer, with neither truncation nor padding."""
    from tokenizers.models import WordPiece

    return _tokenizer(
        WordPiece.from_file(str(VOCABULARY), unk_token=UNKNOWN, max_input_chars_per_word=MAX_WORD)
    )


def tokenizer_for(text: str) -> Tokenizer:
    """A tokenizer that splits this text as the whole one does.

    While a process has few short texts, it knows only the pieces in the text: 5 ms for the first,
    then .3, in place of 20. A search by the command line has a question and some sentences.
    """
    if load_tokenizer.cache_info().currsize or len(text) > SHORT or next(_calls) >= FEW_TEXTS:
        _vocabulary.cache_clear()
        return load_tokenizer()
    return small_tokenizer(text)


def small_tokenizer(text: str) -> Tokenizer:
    """The tokenizer with only the pieces that may occur in a text."""
    from tokenizers.models import WordPiece

    vocabulary = _vocabulary()
    pieces = {piece: vocabulary[piece] for piece in _possible_pieces(text) if piece in vocabulary}
    return _tokenizer(WordPiece(pieces, unk_token=UNKNOWN, max_input_chars_per_word=MAX_WORD))


def english_number(word: str) -> int | None:
    """The place of a word in small letters, common ones first; None of a rare or misspelt one."""
    if load_tokenizer.cache_info().currsize:
        number: int | None = load_tokenizer().token_to_id(word)
        return number
    return _vocabulary().get(word)


_calls = count()


def _tokenizer(model: WordPiece) -> Tokenizer:
    from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{FIRST} $A {LAST}",
        special_tokens=[(name, model.token_to_id(name)) for name in (FIRST, LAST)],
    )
    tokenizer.add_special_tokens([*SPECIAL])
    return tokenizer


@cache
def _vocabulary() -> dict[str, int]:
    pieces = VOCABULARY.read_bytes().decode().removesuffix("\n").split("\n")
    return dict(zip(pieces, range(len(pieces)), strict=True))


def _possible_pieces(text: str) -> Iterator[str]:
    """Every part of a text that may be a piece, and the special pieces."""
    from tokenizers import normalizers, pre_tokenizers

    yield from SPECIAL
    plain = normalizers.BertNormalizer().normalize_str(text)
    for word in {word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(plain)}:
        if len(word) > MAX_WORD:
            continue
        for start in range(len(word)):
            for end in range(start + 1, min(start + MAX_PIECE, len(word)) + 1):
                yield INSIDE * (start > 0) + word[start:end]

"""The terms of a text that the stock FTS5 tokenizer cannot see by itself.

The index must open in a plain `sqlite3` shell, so there is no tokenizer of our own. Instead each
chunk stores `extra_terms` beside its text, and a query is translated the same way:

- Scripts without spaces (Chinese, Japanese, Korean, Thai, ...): every two neighbouring
  characters of a run as one term, then its last character alone: `全文検索` gives
  `全文 文検 検索 索`. A word of two or more characters is a phrase of such terms, a single
  character is a prefix.
- A word in another script inside such a run (`FastAPIの`) by itself.
- The parts of an identifier: `HTTPException` gives `HTTP Exception`.
- A word whose compatibility form (NFKC) differs: full-width letters, ligatures, Japanese and
  Korean text in decomposed form.
- Pictographs: `😀` gives `u1f600`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from kb.text.assets import asset

if TYPE_CHECKING:
    from regex import Pattern

_UNSPACED = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Bopomofo}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー々"
)
# One term for the tokenizer. `re` is enough for ASCII: the module `regex` takes 8 ms to load.
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
# Quick checks before it is loaded.
_MAYBE_UNSPACED = re.compile("[\u02ea\u02eb\u0e00-\u1fff\u2e80-\U0010ffff]")
_MAYBE_PICTOGRAPH = re.compile("[\u203c-\U0010ffff]")
_WORD = r"[\p{L}\p{N}\p{M}\p{Co}]+"
_RUN = rf"[{_UNSPACED}]+(?:\p{{M}}*[{_UNSPACED}]+)*|[^{_UNSPACED}]+"
_HAS_UNSPACED = rf"[{_UNSPACED}]"
_PICTOGRAPH = r"(?V1)[\p{Extended_Pictographic}--\p{ASCII}--[©®™]]"
# Possessive, so that other words are passed over in linear time.
_CAPITAL_INSIDE = re.compile(r"\b[A-Za-z0-9_][a-z0-9_]*+[A-Z][A-Za-z0-9_]*+")
_HUMP = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_CAMEL_CASE_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_MAYBE_NOT_LATIN = re.compile(r"[^\W\d_\x00-\u024f]")  # quick: a search looks at many titles
# Behind what is never part of a word, and between two characters that are words by themselves.
_BETWEEN_WORDS = r"[\x00-/:-@\[-`{-\x7f]|\p{Han}(?=\p{Han})"
_VERSION = re.compile(r"[vV]?\d+(?:\.\d+)+")
_MAX_IDENTIFIER = 100  # longer runs are encoded data, not names


@cache
def _unicode(expression: str) -> Pattern[str]:
    import regex

    return regex.compile(expression)


def words(text: str) -> list[str]:
    """The words of a text in order, as the keyword index's tokenizer splits them."""
    if text.isascii():
        return _ASCII_WORD.findall(text)
    return _unicode(_WORD).findall(text)


def has_word(text: str) -> bool:
    expression = _ASCII_WORD if text.isascii() else _unicode(_WORD)
    return expression.search(text) is not None


def parts(text: str, least: int) -> Iterator[str]:
    """A long text in parts with the same words, each at least this long."""
    start = 0
    while len(text) - start > least:
        cut = _unicode(_BETWEEN_WORDS).search(text, start + least)
        if cut is None:
            break
        yield text[start : cut.end()]
        start = cut.end()
    yield text[start:]


def scripts(text: str, share: float = 0.0) -> frozenset[str]:
    """The scripts except Latin that each have more than a share of a text's letters."""
    if text.isascii():
        return frozenset()
    counts = Counter(map(_script, _MAYBE_NOT_LATIN.findall(text)))
    least = share * sum(map(str.isalpha, text)) if counts else 0
    return frozenset(script for script, count in counts.items() if script and count > least)


@lru_cache(maxsize=1 << 14)
def _script(character: str) -> str:
    if not character.isalpha():
        return ""  # the numbers of some scripts
    name = unicodedata.name(character, "").partition(" ")[0]
    return str(asset("texts")["scripts"].get(name, ""))


def is_unspaced(word: str) -> bool:
    """Whether a word holds characters of a script that is written without spaces."""
    if word.isascii() or not _MAYBE_UNSPACED.search(word):
        return False
    return _unicode(_HAS_UNSPACED).search(word) is not None


def runs(word: str) -> list[str]:
    """A word cut between unspaced and other scripts."""
    if word.isascii() or not _MAYBE_UNSPACED.search(word):
        return [word] if word else []
    return _unicode(_RUN).findall(word)


def bigrams(run: str) -> list[str]:
    """Overlapping pairs of an unspaced run; a single character is returned alone."""
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def pictographs(text: str) -> list[str]:
    return [term for term, _ in pictograph_places(text)]


def pictograph_places(text: str) -> list[tuple[str, int]]:
    """A term for each emoji or other pictograph, and where it stands."""
    if text.isascii() or not _MAYBE_PICTOGRAPH.search(text):
        return []
    return [
        (f"u{ord(match.group()):x}", match.start())
        for match in _unicode(_PICTOGRAPH).finditer(text)
    ]


def without_pictographs(text: str) -> str:
    """A text without pictographs and the blanks they leave at its ends."""
    return text.strip() if text.isascii() else _unicode(_PICTOGRAPH).sub("", text).strip()


def extra_terms(text: str) -> str:
    """The terms to store beside a chunk's text, space-separated, in order of appearance."""
    terms = list(dict.fromkeys(identifier_parts(text)))
    if not text.isascii():
        for word in words(text):
            if not word.isascii():
                terms.extend(_terms_of_word(word))
        terms.extend(pictographs(text))
    return " ".join(terms)


def identifier_parts(text: str) -> list[str]:
    """The parts of identifiers with inner capitals, except single letters."""
    parts: list[str] = []
    for name in _CAPITAL_INSIDE.findall(text):
        if len(name) <= _MAX_IDENTIFIER and _HUMP.search(name):
            parts.extend(part for part in _CAMEL_CASE_PART.findall(name) if len(part) > 1)
    return parts


def version_pattern(text: str) -> re.Pattern[str] | None:
    """Matches a version (`1.5`, `v2.0.1`) or decimal as a word: `1.1.5` does not contain 1.5."""
    if not _VERSION.fullmatch(text):
        return None
    digits = re.escape(text.lstrip("vV"))
    return re.compile(rf"(?<!\d)(?<!\d\.){digits}(?!\d)(?!\.\d)")


def _terms_of_word(word: str) -> list[str]:
    normal = unicodedata.normalize("NFKC", word)
    if not is_unspaced(normal):
        # An accent that is merely written apart needs no help: the tokenizer drops both.
        plain = unicodedata.normalize("NFC", word)
        return [normal] if normal != plain else []
    terms: list[str] = []
    for run in runs(normal):
        if is_unspaced(run):
            terms.extend(bigrams(run))
            if len(run) > 1:
                terms.append(run[-1])
        else:
            terms.append(run)
    return terms

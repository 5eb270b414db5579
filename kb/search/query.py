"""User words -> operators -> a safe FTS5 MATCH expression.

`+must` and `"phrases"` must occur, `-mustnot` must not, `prefix*` matches beginnings of words, bare
words are optional and rank. `tag:NAME` filters documents where they have tags; elsewhere it is
text. Any string is a valid query: everything a user types reaches FTS5 inside double quotes, and a
sign is an operator only in front of a word.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from kb.formats.metadata import normal_tag
from kb.text.file_names import clean
from kb.text.terms import (
    bigrams,
    is_unspaced,
    pictographs,
    runs,
    scripts,
    without_pictographs,
    words,
)

# Without them a question is answered 2.8 times as fast and no worse
# (docs/decisions/0003-ranking.md); a query of nothing else keeps them.
STOP_WORDS = frozenset(
    """
    a about am an and any are as at be been being but by can could did do does doing done for from
    had has have having he her hers him his how i if in into is it its may me might must my no not
    of on or our ours shall she should so such than that the their theirs them then there these
    they this those to too us was we were what when where which while who whom whose why will with
    would you your yours
    """.split()
)
# They find and rank, but a query of nothing else says little, however few of a file's passages are
# in its language. None is in Latin letters: `der`, `die` and `del` are names somewhere.
FUNCTION_WORDS = frozenset(
    """
    の は が を に へ と で も や か ね よ な さ た て だ から まで より など です ます した する
    ある いる ない これ それ あれ この その あの ここ そこ こと もの なに 何 どう なぜ
    的 了 在 是 有 和 就 不 也 都 而 与 或 着 这 那 个 吗 呢 吧 们 我 你 他 她 它
    什么 怎么 如何 这个 那个 我们 可以 一个 怎样 哪里
    은 는 이 가 을 를 에 의 도 와 과
    и в во не на что с со как а то по из у за о от к до для или где это я он мы вы ли бы
    """.split()
)
MAX_CORRECTED = 12  # words; a longer query finds its documents by the others
MAX_LITERAL_WORDS = 12  # a longer query is a question, not a quotation
MAX_OPTIONAL_TERMS = 100  # a longer text ranks by its first distinct words
# A longer text was pasted: its signs and quotes are not operators. Both are bounded because words
# of scripts without spaces have any length.
MAX_OPERATOR_WORDS = 32
MAX_OPERATOR_CHARACTERS = 1_000
MAX_CHARACTERS = 10_000  # the rest is ignored
MAX_PIECE = 100  # characters of a word of a pasted text
MAX_TERMS = 300  # distinct words searched of a pasted text
TAG = "tag:"
_CLOSING = {
    '"': '"', "＂": "＂", "“": "”", "”": "”", "„": "“”", "‟": "”", "«": "»", "»": "«",
    "「": "」", "『": "』", "｢": "｣", "《": "》", "〈": "〉",
}  # fmt: skip


def says_little(word: str) -> bool:
    """Whether a word has no topic of its own, in any language."""
    word = word.casefold()
    return word in STOP_WORDS or word in FUNCTION_WORDS


class Operand(NamedTuple):
    """A word or phrase of a query, without its operator."""

    text: str
    is_phrase: bool = False
    is_prefix: bool = False
    is_required: bool = False  # by a `+`; a phrase without one may lose its quotes

    @property
    def is_stop_word(self) -> bool:
        return self.text.casefold() in STOP_WORDS


class Query(NamedTuple):
    text: str
    terms: tuple[Operand, ...] = ()
    must: tuple[Operand, ...] = ()
    must_not: tuple[Operand, ...] = ()
    # Words that the file does not have, each with the likely ones among the terms.
    guesses: tuple[tuple[str, tuple[str, ...]], ...] = ()
    notice: str = ""  # what was left out
    tags: tuple[str, ...] = ()  # normalised; a document must have all of them
    tags_not: tuple[str, ...] = ()  # and none of these

    @property
    def asks_for_nothing(self) -> bool:
        """Blank, signs alone, or only exclusions: the answer is empty."""
        return not (self.terms or self.must)

    @property
    def is_exact(self) -> bool:
        """Whether every word is required: then there is no meaning to be near to."""
        return bool(self.must) and not self.terms

    @property
    def quoted(self) -> list[Operand]:
        """The phrases required only by their quotes."""
        return [phrase for phrase in self.must if phrase.is_phrase and not phrase.is_required]

    def without_quotes(self) -> Query:
        """The same words, which need not be adjacent."""
        quoted = self.quoted
        unquoted = (Operand(word) for phrase in quoted for word in phrase.text.split())
        return self._replace(
            must=tuple(operand for operand in self.must if operand not in quoted),
            terms=tuple(dict.fromkeys([*self.terms, *filter(_match_required, unquoted)])),
        )

    def without_stop_words(self) -> Query:
        """The query without stop words among its bare words, unless it has nothing else."""
        telling = tuple(term for term in self.terms if not term.is_stop_word)
        return self._replace(terms=telling) if telling or self.must else self

    @property
    def words_to_embed(self) -> str:
        """The text for the embedding model, without operators and exclusions. Models know plain
        letters, not their full-width forms. Emoji beside words are decoration."""
        text = self.text
        if self.must or self.must_not:
            text = " ".join(operand.text for operand in (*self.must, *self.terms))
        if text.isascii():
            return text
        normal = unicodedata.normalize("NFKC", text)
        plain = without_pictographs(normal)
        return plain if words(plain) else normal


def parse_query(text: str, *, tags: bool = False) -> Query:
    """Split a query into its operands; never fails. With `tags`, `tag:NAME` filters documents."""
    notice = ""
    if len(text) > MAX_CHARACTERS:
        text = text[:MAX_CHARACTERS]
        notice = (
            f"The query is long: what follows its first {MAX_CHARACTERS:,} characters is left out."
        )
    if not text.isascii() or "\0" in text:
        text = clean(text)
    tags = tags and TAG in text.casefold()
    if len(text) > MAX_OPERATOR_CHARACTERS or len(words(text)) > MAX_OPERATOR_WORDS:
        return _pasted(text, notice)
    terms: list[Operand] = []
    must: list[Operand] = []
    must_not: list[Operand] = []
    tagged: dict[bool, list[str]] = {True: [], False: []}
    rest = ""  # the text without the tags
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        sign = ""
        if text[position] in "+-" and _starts_operand(text, position + 1):
            sign = text[position]
            position += 1
        start = position
        tag, position = _read_tag(text, position) if tags else ("", position)
        if tag:
            tagged[sign != "-"].append(tag)
            continue
        operand, position = _read_operand(text, position)
        rest = f"{rest} {sign}{text[start:position]}"
        if not _match_required(operand):
            continue  # punctuation alone
        if sign == "-":
            must_not.append(operand)
        elif sign == "+" or operand.is_phrase:
            must.append(operand._replace(is_required=sign == "+"))
        else:
            terms.append(operand)
    if any(tagged.values()):
        text = rest.strip()
        if not (terms or must):  # the tag's name ranks what has the tag
            text = f"{text} {' '.join(tagged[True])}".strip()
            terms = [Operand(tag) for tag in tagged[True]]
    return Query(
        text,
        tuple(dict.fromkeys(terms)),
        tuple(dict.fromkeys(must)),
        tuple(dict.fromkeys(must_not)),
        notice=notice,
        tags=tuple(dict.fromkeys(tagged[True])),
        tags_not=tuple(dict.fromkeys(tagged[False])),
    )


def _pasted(text: str, notice: str) -> Query:
    """A text whose signs and quotes mean nothing."""
    terms: dict[Operand, None] = {}
    for word in dict.fromkeys(piece for long in text.split() for piece in _pieces(long)):
        operand = Operand(word.strip("".join(_CLOSING)))
        if operand not in terms and _match_required(operand):
            terms[operand] = None
            if len(terms) == MAX_TERMS:
                break
    return Query(text, tuple(terms), notice=notice)


def _pieces(word: str) -> Iterator[str]:
    """A word of a pasted text in pieces: a phrase of thousands of common terms takes a minute."""
    if len(word) <= MAX_PIECE and len(words(word)) <= MAX_LITERAL_WORDS:
        yield word
        return
    for part in words(word) or [word]:
        for start in range(0, len(part), MAX_PIECE):
            yield part[start : start + MAX_PIECE]


def bare_words(queries: Iterable[Query]) -> set[str]:
    """The words of some queries that may be misspelt."""
    typed: set[str] = set()
    for query in queries:
        if len(operands := (*query.terms, *query.must)) <= MAX_CORRECTED:
            bare = (word for word in operands if not (word.is_phrase or word.is_prefix))
            typed |= {word.text for word in bare}
    return typed


def scripts_of_query(query: Query) -> frozenset[str] | None:
    """A question's scripts but Latin; None if neither they nor stop words show its language."""
    of_words = scripts(query.words_to_embed)
    if not of_words and not any(term.is_stop_word for term in query.terms):
        return None
    return of_words


@lru_cache(maxsize=64)
def match_alternatives(query: Query) -> Sequence[str]:
    """The MATCH expressions by which a row ranks, operators aside; cached for several files."""
    required: list[str] = []
    for operand in query.must:
        required += _match_optional(operand)
        if not operand.is_prefix:
            # A phrase that continues into the next chunk is whole in neither.
            normal = unicodedata.normalize("NFKC", operand.text)
            for run in (run for word in words(normal) for run in runs(word)):
                required += map(_match_run, run) if is_unspaced(run) else [quote(run)]
            required += map(quote, pictographs(normal))
    telling = [term for term in query.terms if not term.is_stop_word]
    optional = [part for term in telling or query.terms for part in _match_optional(term)]
    first = list(dict.fromkeys(optional))[:MAX_OPTIONAL_TERMS]
    return tuple(dict.fromkeys([*required, *first]))


def is_literal(query: Query) -> bool:
    """Whether to look for the query's exact words next to each other: several, or one with signs
    (`--repo`, `1.0.21`), without operators. Scripts without spaces are left to their pairs."""
    typed = words(query.text)
    return not (
        query.must
        or query.must_not
        or not 1 <= len(typed) <= MAX_LITERAL_WORDS
        or (len(typed) == 1 and typed[0] == query.text.strip().rstrip(".,;:?!"))
        or any(map(is_unspaced, typed))
        or any(term.is_prefix for term in query.terms)
    )


def _match_required(operand: Operand) -> str:
    """What a row must match to contain this operand; "" if it has no searchable character."""
    parts: list[str] = []
    normal = unicodedata.normalize("NFKC", operand.text)
    typed = words(normal)
    if typed and not any(map(is_unspaced, typed)):
        # Several words in one operand (`1.0.21`, `a-b`, a phrase) become consecutive terms.
        parts.append(quote(normal) + ("*" if operand.is_prefix else ""))
    else:
        parts += [_match_run(run) for word in typed for run in runs(word)]
    if not normal.isascii():
        parts += map(quote, pictographs(normal))
    return f"({' AND '.join(parts)})" if len(parts) > 1 else "".join(parts)


def _match_optional(operand: Operand) -> list[str]:
    """Alternatives that each let a row match; `operators.match_prefixes` has those of prefixes."""
    normal = unicodedata.normalize("NFKC", operand.text)
    typed = words(normal)
    unspaced = [word for word in typed if is_unspaced(word)]
    if operand.is_prefix and len(words(operand.text)) == 1 and not is_unspaced(operand.text):
        return []
    alternatives = [] if unspaced else [_match_required(operand)]
    if len(typed) > 1 and not operand.is_phrase:
        alternatives += [quote(word) for word in typed if len(word) > 1 and word not in unspaced]
    for run in (run for word in unspaced for run in runs(word)):
        alternatives.append(_match_run(run))
        if is_unspaced(run) and len(run) > 2:
            alternatives += map(quote, bigrams(run))
    if not typed:
        alternatives += map(quote, pictographs(normal))
    return [alternative for alternative in alternatives if alternative]


def quote(text: str) -> str:
    """Text as an FTS5 string."""
    return '"' + text.replace('"', '""') + '"'


def _match_run(run: str) -> str:
    if not is_unspaced(run):
        return quote(run)
    if len(run) == 1:
        return quote(run) + "*"  # the first or only character of some pair
    return quote(" ".join(bigrams(run)))


def _starts_operand(text: str, position: int) -> bool:
    sign = text[position : position + 1]
    return sign in _CLOSING or bool(words(sign) or pictographs(sign))


def _read_tag(text: str, position: int) -> tuple[str, int]:
    """The tag filter at a position, and the position after it; "" if there is none."""
    if text[position : position + len(TAG)].casefold() != TAG or position + len(TAG) == len(text):
        return "", position
    start = position + len(TAG)
    operand, end = _read_operand(text, start) if not text[start].isspace() else (Operand(""), start)
    tag = normal_tag(operand.text + "*" * operand.is_prefix)
    return (tag, end) if words(tag) or pictographs(tag) else ("", position)


def _read_operand(text: str, position: int) -> tuple[Operand, int]:
    if text[position] in _CLOSING:
        closing = _CLOSING[text[position]]
        end = next((i for i in range(position + 1, len(text)) if text[i] in closing), -1)
        if end < 0:
            return Operand(""), position + 1  # an unbalanced quote quotes nothing
        return Operand(text[position + 1 : end].strip(), is_phrase=True), end + 1
    end = position
    while end < len(text) and not text[end].isspace() and text[end] not in _CLOSING:
        end += 1
    word = text[position:end]
    bare = word.rstrip("*")
    if bare != word and bare and words(bare[-1]):
        return Operand(bare, is_prefix=True), end
    return Operand(word), end

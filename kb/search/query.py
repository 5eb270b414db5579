"""User words -> operators -> a safe FTS5 MATCH expression.

`+must` and `"phrases"` have to be there, `-mustnot` must not, `prefix*` matches word beginnings,
bare words are optional and rank. Where documents are filtered by their tags, `tag:NAME` is one
too; elsewhere it is text. Any string is a valid query: everything a user types reaches
FTS5 inside double quotes, and a sign counts as an operator only in front of a word.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from kb.formats.tags import normal_tag
from kb.text.file_names import printable
from kb.text.terms import (
    bigrams,
    has_word,
    is_unspaced,
    pictographs,
    runs,
    scripts,
    without_pictographs,
    words,
)

# English words that say nothing of the matter. Without them a question is answered 2.8 times as
# fast and no worse (docs/decisions/0003-ranking.md); a query of nothing else keeps them.
STOP_WORDS = frozenset(
    """
    a about am an and any are as at be been being but by can could did do does doing done for from
    had has have having he her hers him his how i if in into is it its may me might must my no not
    of on or our ours shall she should so such than that the their theirs them then there these
    they this those to too us was we were what when where which while who whom whose why will with
    would you your yours
    """.split()
)
# What says as little in scripts without spaces and in Cyrillic. These still find and rank; a query
# of nothing else tells little, however few passages of a file are in its language. Words in Latin
# letters are not among them: `der`, `die` and `del` are names somewhere.
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
LONGEST_LITERAL = 12  # words; a longer query is a question, not a quotation
MOST_OPTIONAL_TERMS = 100  # a longer text ranks by its first distinct words
# What is longer was pasted, and its signs and quotes are its own. Scripts without spaces have
# words of any length.
MOST_OPERATOR_WORDS = 32
MOST_OPERATOR_CHARACTERS = 1_000
MOST_CHARACTERS = 10_000  # the rest of a text is left out
LONGEST_PIECE = 100  # characters of one word of a pasted text
MOST_TERMS = 300  # distinct words of a pasted text that are looked for
TAG = "tag:"
_CLOSING = {
    '"': '"', "＂": "＂", "“": "”", "”": "”", "„": "“”", "‟": "”", "«": "»", "»": "«",
    "「": "」", "『": "』", "｢": "｣", "《": "》", "〈": "〉",
}  # fmt: skip


def says_little(word: str) -> bool:
    """Whether a word says nothing of the matter, in whichever language."""
    word = word.casefold()
    return word in STOP_WORDS or word in FUNCTION_WORDS


class Operand(NamedTuple):
    """One word or phrase of a query, without its operator."""

    text: str
    is_phrase: bool = False
    is_prefix: bool = False
    is_required: bool = False  # by a `+`: a phrase without one may lose its quotes

    @property
    def is_stop_word(self) -> bool:
        return self.text.casefold() in STOP_WORDS


class Query(NamedTuple):
    """A parsed query."""

    text: str
    terms: tuple[Operand, ...] = ()
    must: tuple[Operand, ...] = ()
    must_not: tuple[Operand, ...] = ()
    # Words that the file has not, each with what it was taken for; those are among the terms.
    guesses: tuple[tuple[str, tuple[str, ...]], ...] = ()
    notice: str = ""  # what was left out
    tags: tuple[str, ...] = ()  # in their normal form: a document has to have all of them
    tags_not: tuple[str, ...] = ()  # and none of these

    @property
    def is_blank(self) -> bool:
        return not (self.terms or self.must or self.must_not)

    @property
    def asks_for_nothing(self) -> bool:
        """Blank, signs alone, or only exclusions: the answer is empty."""
        return not (self.terms or self.must)

    @property
    def has_operators(self) -> bool:
        return bool(self.must or self.must_not)

    @property
    def is_exact(self) -> bool:
        """Whether all that is asked for has to be there: then there is no meaning to be near to."""
        return bool(self.must) and not self.terms

    @property
    def is_quoted(self) -> bool:
        """Whether some phrase is required by its quotes alone."""
        return any(one.is_phrase and not one.is_required for one in self.must)

    def without_quotes(self) -> Query:
        """The same words, which need not stand in a row."""
        quoted = [one for one in self.must if one.is_phrase and not one.is_required]
        words_ = (Operand(word) for one in quoted for word in one.text.split())
        return self._replace(
            must=tuple(one for one in self.must if one not in quoted),
            terms=tuple(dict.fromkeys([*self.terms, *(w for w in words_ if match_required(w))])),
        )

    def without_stop_words(self) -> Query:
        """The query without bare words that say nothing, unless it has nothing else."""
        telling = tuple(one for one in self.terms if not one.is_stop_word)
        return self._replace(terms=telling) if telling or self.must else self

    @property
    def words_to_embed(self) -> str:
        """What the embedding model gets: the text without operators and exclusions.

        Full-width letters and the like become plain ones, which are what models know; emoji beside
        words are decoration.
        """
        text = self.text
        if self.has_operators:
            text = " ".join(operand.text for operand in (*self.must, *self.terms))
        if text.isascii():
            return text
        normal = unicodedata.normalize("NFKC", text)
        plain = without_pictographs(normal)
        return plain if has_word(plain) else normal


def parse_query(text: str, *, tags: bool = False) -> Query:
    """Split a query into its operands. Never fails.

    Args:
        tags: `tag:NAME` says which documents are meant.
    """
    text, notice = _shortened(clean(text))
    if len(text) > MOST_OPERATOR_CHARACTERS or len(words(text)) > MOST_OPERATOR_WORDS:
        return _pasted(text, notice)
    terms: list[Operand] = []
    must: list[Operand] = []
    must_not: list[Operand] = []
    tagged: dict[str, list[str]] = {"": [], "-": []}
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
            tagged["-" if sign == "-" else ""].append(tag)
            continue
        operand, position = _read_operand(text, position)
        rest = f"{rest} {sign}{text[start:position]}"
        if not match_required(operand):
            continue  # punctuation alone
        if sign == "-":
            must_not.append(operand)
        elif sign == "+" or operand.is_phrase:
            must.append(operand._replace(is_required=sign == "+"))
        else:
            terms.append(operand)
    if any(tagged.values()):
        text = rest.strip()
        if not (terms or must):  # what has the tag is found by its name
            text = f"{text} {' '.join(tagged[''])}".strip()
            terms = [Operand(tag) for tag in tagged[""]]
    return Query(
        text,
        tuple(dict.fromkeys(terms)),
        tuple(dict.fromkeys(must)),
        tuple(dict.fromkeys(must_not)),
        notice=notice,
        tags=tuple(dict.fromkeys(tagged[""])),
        tags_not=tuple(dict.fromkeys(tagged["-"])),
    )


def _shortened(text: str) -> tuple[str, str]:
    if len(text) <= MOST_CHARACTERS:
        return text, ""
    return text[:MOST_CHARACTERS], (
        f"The query is long: what follows its first {MOST_CHARACTERS:,} characters is left out."
    )


def _pasted(text: str, notice: str) -> Query:
    """A text whose signs and quotes mean nothing."""
    terms: dict[Operand, None] = {}
    for word in dict.fromkeys(piece for long in text.split() for piece in _pieces(long)):
        operand = Operand(word.strip("".join(_CLOSING)))
        if operand not in terms and match_required(operand):
            terms[operand] = None
            if len(terms) == MOST_TERMS:
                break
    return Query(text, tuple(terms), notice=notice)


def _pieces(word: str) -> Iterator[str]:
    """A word of a pasted text, in parts where it is no word that anybody asks for.

    As one phrase thousands of common terms take a minute: every row that holds them is looked at.
    """
    if len(word) <= LONGEST_PIECE and len(words(word)) <= LONGEST_LITERAL:
        yield word
        return
    for part in words(word) or [word]:
        for start in range(0, len(part), LONGEST_PIECE):
            yield part[start : start + LONGEST_PIECE]


def scripts_asked(query: Query) -> frozenset[str] | None:
    """The scripts but Latin of a question; None where it does not say in which language it is.

    Names and options are the same in every language. English shows by its stop words.
    """
    found = scripts(query.words_to_embed)
    if not found and not any(term.is_stop_word for term in query.terms):
        return None
    return found


def clean(text: str) -> str:
    """Text that SQLite and FTS5 can hold: no NUL, no lone surrogate."""
    return printable(text.replace("\0", " "))


@lru_cache(maxsize=64)
def match_alternatives(query: Query) -> Sequence[str]:
    """What lets a row match and rank, each once.

    Operators are no part of it: `kb/search/operators.py` says which chunks may be ranked at all.
    Several files are asked the same.
    """
    if query.asks_for_nothing:
        return ()
    parts = [part for operand in query.must for part in match_any(operand)]
    telling = [term for term in query.terms if not term.is_stop_word]
    optional = list(
        dict.fromkeys(part for term in telling or query.terms for part in match_optional(term))
    )
    return tuple(dict.fromkeys([*parts, *optional[:MOST_OPTIONAL_TERMS]]))


def match_any(operand: Operand) -> list[str]:
    """Alternatives for a required operand: as a whole, and its words one by one.

    A phrase that reaches from one chunk into the next is in neither as a whole.
    """
    single = [] if operand.is_prefix else match_words(operand)
    return list(dict.fromkeys([*match_optional(operand), *single]))


@lru_cache(maxsize=64)
def match_literally(query: Query) -> str:
    """The MATCH expression of the query's very words in a row; "" when that says nothing.

    Two words or more, or one with signs (`--repo`, `1.0.21`), and no operator; scripts without
    spaces are left to their pairs.
    """
    found = words(query.text)
    if query.has_operators or not 1 <= len(found) <= LONGEST_LITERAL:
        return ""
    if len(found) == 1 and found[0] == query.text.strip().rstrip(".,;:?!"):
        return ""
    if any(is_unspaced(word) for word in found) or any(term.is_prefix for term in query.terms):
        return ""
    return quote(unicodedata.normalize("NFKC", query.text))


def match_words(operand: Operand) -> list[str]:
    """An operand's words and characters one by one."""
    normal = unicodedata.normalize("NFKC", operand.text)
    found: list[str] = []
    for word in words(normal):
        for run in runs(word):
            found.extend(map(_unspaced_phrase, run) if is_unspaced(run) else [quote(run)])
    return found + [quote(term) for term in pictographs(normal)]


def match_required(operand: Operand) -> str:
    """What a row must hold to hold this operand; "" when it has no searchable character."""
    parts: list[str] = []
    normal = unicodedata.normalize("NFKC", operand.text)
    found = words(normal)
    if found and not any(is_unspaced(word) for word in found):
        # Several words in one operand (`1.0.21`, `a-b`, a phrase) become consecutive terms.
        parts.append(quote(normal) + ("*" if operand.is_prefix else ""))
    else:
        for word in found:
            parts.extend(_unspaced_phrase(run) for run in runs(word))
    parts.extend(quote(term) for term in pictographs(normal))
    if len(parts) > 1:
        return "(" + " AND ".join(parts) + ")"
    return parts[0] if parts else ""


def match_optional(operand: Operand) -> list[str]:
    """Alternatives that each let a row match and rank.

    The words of a prefix are left to `operators.match_prefixes`: the index's stems know none.
    """
    if operand.is_prefix and len(words(operand.text)) == 1 and not is_unspaced(operand.text):
        return []
    normal = unicodedata.normalize("NFKC", operand.text)
    found = words(normal)
    alternatives = [match_required(operand)] if not any(map(is_unspaced, found)) else []
    if len(found) > 1 and not operand.is_phrase:
        alternatives.extend(
            quote(word) for word in found if len(word) > 1 and not is_unspaced(word)
        )
    for word in found:
        if is_unspaced(word):
            for run in runs(word):
                alternatives.append(_unspaced_phrase(run))
                if is_unspaced(run) and len(run) > 2:
                    alternatives.extend(quote(pair) for pair in bigrams(run))
    if not found:
        alternatives.extend(quote(term) for term in pictographs(normal))
    return [alternative for alternative in alternatives if alternative]


def quote(text: str) -> str:
    """Text as an FTS5 string."""
    return '"' + text.replace('"', '""') + '"'


def _unspaced_phrase(run: str) -> str:
    if not is_unspaced(run):
        return quote(run)
    if len(run) == 1:
        return quote(run) + "*"  # the first or only character of some pair
    return quote(" ".join(bigrams(run)))


def _starts_operand(text: str, position: int) -> bool:
    if position >= len(text):
        return False
    return text[position] in _CLOSING or bool(words(text[position]) or pictographs(text[position]))


def _read_tag(text: str, position: int) -> tuple[str, int]:
    """The tag that a filter names there, and what follows it; "" where there is no filter."""
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
            # An unbalanced quote quotes nothing.
            return Operand(""), position + 1
        return Operand(text[position + 1 : end].strip(), is_phrase=True), end + 1
    end = position
    while end < len(text) and not text[end].isspace() and text[end] not in _CLOSING:
        end += 1
    word = text[position:end]
    bare = word.rstrip("*")
    if bare != word and bare and words(bare[-1]):
        return Operand(bare, is_prefix=True), end
    return Operand(word), end

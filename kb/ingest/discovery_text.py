"""What the words of a discovery tell: its type, and whether another one says the same."""

from __future__ import annotations

import re

from kb.text.terms import words

__all__ = ["DISCOVERY_TYPES", "detect_type", "is_same_statement", "said_words"]

DISCOVERY_TYPES = ("pattern", "rule", "decision", "issue")

_TYPE_SIGN = re.compile(
    r"""(?<!\w) (?:
      (?P<pattern>  we[ ]use\b | pattern[ ]is\b | convention: )
    | (?P<rule>     rule: | must[ ]always\b | requirement: )
    | (?P<decision> decided[ ]to\b | chose\b | went[ ]with\b )
    | (?P<issue>    bug: | issue: | fixed: )
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# Words that carry no statement of their own. Negations, numbers and prepositions do.
_FILLERS = frozenset(
    re.findall(
        r"\w+",
        "a an the is are was were be been it its we our has have had do does and as that this "
        "these those stored so also pattern rule convention requirement decision issue bug fixed",
    )
)
_NEGATIONS = frozenset(
    re.findall(
        r"\w+",
        "not no never without none neither nor cannot except unless avoid stop instead only t",
    )
)


def detect_type(content: str) -> str:
    """The type that a text's own words speak of, the first ones if several do; else a pattern."""
    found = _TYPE_SIGN.search(content)
    return found.lastgroup or "pattern" if found else "pattern"


def is_same_statement(one: str, other: str) -> bool:
    """Whether the shorter of two like texts says nothing that the longer does not.

    Similarity cannot tell: "tests before lint" and "lint before tests" have 0.99. So all words
    of the shorter must come in the longer, in the same order, with the same negations.
    """
    first, second = (said_words(text) for text in (one, other))
    if [word for word in first if word in _NEGATIONS] != [w for w in second if w in _NEGATIONS]:
        return False
    shorter, longer = sorted((first, second), key=len)
    rest = iter(longer)
    return bool(shorter) and all(any(_is_form(word, o) for o in rest) for word in shorter)


def said_words(text: str) -> list[str]:
    """The words that carry what a text says, in order."""
    return [word for word in words(text.casefold()) if word not in _FILLERS]


def _is_form(one: str, other: str) -> bool:
    """Whether two words are one in two forms: token and tokens, auth and authentication."""
    short, long = sorted((one, other), key=len)
    stem = short.removesuffix("e")
    return long in (short, short + "s") or (
        len(stem) >= 4 and stem.isalpha() and long.startswith(stem)
    )

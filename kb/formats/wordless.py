"""Stretches of a text that hold no words to find: encoded data, minified code, rows of numbers.

They make no passages: a model sees noise in them, and nobody types such keywords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise

from kb.formats.outline import Range
from kb.text.terms import has_word, pictographs

SHORTEST_STRETCH = 200  # characters without a blank: beyond any name, below a pasted picture
SHORTEST_LINE = 500
FEWEST_LINES = 3  # of data that is broken into lines
# Share of the characters that belong to words. Of base64 it is .02, since a run of letters alone
# between two other signs is rare; of a long URL .5, of a row of numbers 0.
LEAST_WORDS = 0.1
# Of minified code. Prose has a blank in 6 characters, such code in 30 or more; one character in
# ten of it is a bracket, a semicolon or an equals sign, and of JSON or a row of values hardly one.
MOST_BLANKS = 0.05
LEAST_CODE_SIGNS = 0.06

_STRETCH = re.compile(rf"(?<!\S)\S{{{SHORTEST_STRETCH},}}")
_DATA_LINE = r"[ \t>]*[A-Za-z0-9+/=_-]{40,}[ \t\r]*\n"
_DATA_LINES = re.compile(
    rf"^(?:{_DATA_LINE}){{{FEWEST_LINES - 1},}}[ \t>]*[A-Za-z0-9+/=_-]+[ \t\r]*$", re.MULTILINE
)
# A run of letters between other signs, or anything that is not ASCII: other scripts, pictographs.
_WORDS = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{3,40}(?![A-Za-z0-9])|[^\x00-\x7f]+")
# Between blanks a run with digits in it is a name: `w3`, `utf8`.
_NAMES = re.compile(
    r"(?<![A-Za-z0-9])(?=[A-Za-z0-9]{2,40}(?![A-Za-z0-9]))[0-9]*[A-Za-z][A-Za-z0-9]*|[^\x00-\x7f]+"
)
_CODE_SIGNS = re.compile(r"[(){}=;]")
_BLANKS = re.compile(r"\s")


def wordless_ranges(text: str) -> list[Range]:
    """The stretches without words, in order; none touches another."""
    merged: list[Range] = []
    for start, end in sorted(_candidates(text)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def has_words(text: str) -> bool:
    """Whether a search can find a text by anything that stands in it."""
    return has_word(text) or bool(pictographs(text))


def _candidates(text: str) -> Iterator[Range]:
    # The lines that have room for a stretch: few, where every character would be asked.
    ends = accumulate(len(line) + 1 for line in text.split("\n"))
    lines = [
        (start, end - 1)
        for start, end in pairwise(chain((0,), ends))
        if end - 1 - start >= SHORTEST_STRETCH
    ]
    stretches = [
        match.span()
        for line in lines
        for match in _STRETCH.finditer(text, *line)
        if _has_few_words(match[0]) or _is_minified(match[0])
    ]
    yield from stretches
    # What stands beside a stretch on its line is judged without it.
    blanked = _blanked(text, stretches)
    for start, end in lines:
        if end - start >= SHORTEST_LINE:
            line = blanked[start:end]
            if _has_few_words(line, _NAMES) or _is_minified(line):
                yield start, end
    for match in _DATA_LINES.finditer(text):
        if _has_few_words(match[0]):
            yield match.span()


def _blanked(text: str, ranges: Sequence[Range]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in ranges:
        parts += [text[done:start], " " * (end - start)]
        done = end
    return "".join([*parts, text[done:]])


def _has_few_words(text: str, words: re.Pattern[str] = _WORDS) -> bool:
    signs = len(text) - len(_BLANKS.findall(text))
    if signs < SHORTEST_STRETCH:
        return False
    return sum(len(word) for word in words.findall(text)) < LEAST_WORDS * signs


def _is_minified(text: str) -> bool:
    blanks = len(_BLANKS.findall(text))
    signs = len(text) - blanks
    return (
        signs >= SHORTEST_LINE
        and blanks < MOST_BLANKS * signs
        and len(_CODE_SIGNS.findall(text)) >= LEAST_CODE_SIGNS * signs
    )

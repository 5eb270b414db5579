"""The sentence round a place in a text."""

from __future__ import annotations

import re
from itertools import pairwise

MAXIMUM_CONTEXT = 400  # characters of a sentence; of a longer one CONTEXT_MARGIN each side is kept
CONTEXT_MARGIN = 100

# The sign comes first: so the search goes from one to the next, in a fifth of the time.
_SENTENCE_END = re.compile(
    r"[.!?…。！？](?:(?<=[。！？])"
    r"|(?<!\be\.g.)(?<!\bi\.e.)(?<!\bcf.)(?<!\bvs.)(?<!\bal.)(?<!\bFig.)(?<!\bNo.)"
    r"[\"'”’)\]*_]*(?=\s+(?![a-z\s])|\s*\Z))"
)


def context_of(text: str, start: int, end: int, low: int, high: int) -> str:
    """The sentence of `text[low:high]` round `text[start:end]`, on one line; a long one is cut."""
    first = low
    for match in _SENTENCE_END.finditer(text, max(low, start - MAXIMUM_CONTEXT), start):
        # A full stop at the end of the range proves nothing: look behind it.
        if match.end() <= start and _SENTENCE_END.match(
            text, match.start(), start + MAXIMUM_CONTEXT
        ):
            first = match.end()
    # Behind a long sentence it does not matter where it ends.
    closing = _SENTENCE_END.search(text, end, min(high, end + MAXIMUM_CONTEXT + 1))
    last = closing.end() if closing else high
    if last - first > MAXIMUM_CONTEXT + (end - start):
        first = max(first, _word_edge(text, start - CONTEXT_MARGIN, start))
        last = min(last, max(end, text.rfind(" ", end, end + CONTEXT_MARGIN)))
        if last == end:
            last = min(high, end + CONTEXT_MARGIN)
    return " ".join(text[first:last].split())


def _word_edge(text: str, position: int, limit: int) -> int:
    if position <= 0:
        return 0
    space = text.find(" ", position, limit)
    return space + 1 if space >= 0 else position


def sentences(text: str) -> list[str]:
    """The sentences of a text on one line, each with its end mark."""
    flat = " ".join(text.split())
    ends = [0, *(match.end() for match in _SENTENCE_END.finditer(flat)), len(flat)]
    return [*filter(None, (flat[start:end].strip() for start, end in pairwise(ends)))]


def first_sentences(text: str, most: int) -> str:
    """The first sentences of a text, on one line of about `most` characters."""
    flat = " ".join(text.split())
    if len(flat) <= most:
        return flat
    ends = [match.end() for match in _SENTENCE_END.finditer(flat, 0, most)]
    if ends:
        return flat[: ends[-1]]
    cut = flat.rfind(" ", 0, most)
    return flat[: cut if cut > 0 else most].rstrip() + "..."


def cut_at_sentence(text: str, start: int, end: int, most: int) -> int:
    """Where `text[start:end]`, cut to so many characters, ends: behind a sentence, line or word."""
    if end - start <= most:
        return end
    limit = start + most
    ends = [match.end() for match in _SENTENCE_END.finditer(text, start, limit)]
    best = max(ends[-1] if ends else start, text.rfind("\n", start, limit))
    if best > start + most // 2:
        return best
    return max(best, text.rfind(" ", start, limit)) if best > start else limit

"""What makes a reply doubtful: absent words, another language, no likely row."""

from __future__ import annotations

from collections.abc import Sequence

from kb.models.choose import may_be_english
from kb.search.candidates import Candidates
from kb.search.evidence import absent_words
from kb.search.merge import Hit
from kb.search.query import says_little
from kb.search.ranking import RELEVANT
from kb.search.typos import FOREIGN_FROM
from kb.text.counted import some_of
from kb.text.terms import words

UNLIKELY = "No row reaches 0.7: there may be no answer here."
UNLIKELY_OF = 'No row for "{:.60}" reaches 0.7.'
NOT_ALL_COMPARED = "Very many passages may fit the operators: not all of them were compared."
MOSTLY = 0.5  # of a question's letters, which an English model can read
READS_ENGLISH = (
    "The file's model reads English: a translation of the query into English finds more."
)


def doubts(
    text: str, answers: Sequence[Candidates], hits: Sequence[Hit], *, is_alone: bool
) -> list[str]:
    """Sentences about the answers to a request, whose hits from all files are best first."""
    notices: list[str] = []
    if any(answer.words and answer.words.is_cut for answer in answers):
        notices.append(NOT_ALL_COMPARED)
    is_unlikely = not hits or hits[0].score < RELEVANT
    absent, _ = absent_words(answers)
    is_foreign = is_unlikely and _is_foreign(text, answers)
    if absent and not is_foreign:
        listed = [f'"{word}"' for word in absent]
        notices.append(f"No document has {some_of(listed)}.")
    if is_unlikely and hits:
        notices.append(UNLIKELY if is_alone else UNLIKELY_OF.format(text))
        if is_foreign and any(answer.nearest and answer.model.is_english for answer in answers):
            notices.append(READS_ENGLISH)
    return notices


def _is_foreign(text: str, answers: Sequence[Candidates]) -> bool:
    if min((answer.readable for answer in answers), default=1.0) < MOSTLY:
        return True
    typed = words(text)
    if len(typed) < FOREIGN_FROM or any(says_little(word) for word in typed if word.isascii()):
        return False
    return not may_be_english(text)

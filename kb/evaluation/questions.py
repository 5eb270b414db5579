"""Questions made from documents, whose right answers are known from how they were made.

Four kinds, each seeded, so that the same documents give the same questions:

- `identifier`: a name, option, error code, path or file name that at most three documents hold,
  as the whole query. One of them has to be found.
- `title`: the title of a page, of one or two words. That page has to be found.
- `near-miss`: words of one sentence with a rare word that another document holds in another
  matter. The sentence's document has to stand before that one.
- `unrelated`: a question about cooking, gardens, sailing and the like. Nothing has to be found.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from kb.disk.open_databases import opened, require_no_database
from kb.errors import SourceError
from kb.settings import PACKAGE

IDENTIFIER = re.compile(
    r"""(?<![\w./\\@\#:-])(?:
      --[a-z][a-z0-9]+(?:-[a-z0-9]+)*               # an option
    | [A-Za-z_][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+       # snake_case
    | [A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+             # CamelCase
    | [a-z]+(?:[A-Z][a-z0-9]+)+                     # camelCase
    | [A-Z]{1,4}[0-9]{2,5}                          # an error code
    | [A-Za-z_][\w-]*(?:\.[A-Za-z_]\w*)+            # a file name, or a dotted name
    | (?:[\w.-]+/)+[\w-]+\.[a-z]{1,5}               # a path
    )(?![\w/\\-])""",
    re.VERBOSE,
)
KINDS = ("identifier", "title", "near-miss", "unrelated")
MAX_HOLDING = 3  # documents that hold an identifier
MIN_NAME, MAX_NAME = 3, 60  # characters
RAREST_WORD = (2, 5)  # documents that hold a near-miss's word
SENTENCES_TRIED = 10
_WORD = re.compile(r"[^\W\d_]+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
MIN_PARAGRAPH = 15  # words
QUERY_WORDS = 6

# Nothing of a technical documentation: each form of a topic is asked of each of its subjects.
TOPICS = PACKAGE / "assets" / "unrelated-questions.json"


@dataclass(frozen=True, slots=True)
class Page:
    """What questions are made from."""

    path: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class MadeQuestion:
    """A question with the documents that answer it, and those that must stand behind them."""

    kind: str
    question: str
    documents: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()


def make_questions(pages: Sequence[Page], count: int, seed: int = 1) -> list[MadeQuestion]:
    """Up to `count` questions of each kind."""
    rng = random.Random(seed)
    return [
        *identifier_questions(pages, count, rng),
        *title_questions(pages, count, rng),
        *near_misses(pages, count, rng),
        *unrelated_questions(count, rng),
    ]


def write_questions(made: Iterable[MadeQuestion], file: Path) -> None:
    """Keep questions, a JSON object a line. Raises FileError for the knowledge base in use."""
    require_no_database(file)
    lines = (json.dumps(asdict(question), ensure_ascii=False) for question in made)
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_made_questions(file: Path) -> list[MadeQuestion]:
    """What `write_questions` wrote, [] for other questions. Raises SourceError for other lines."""
    made: list[MadeQuestion] = []
    with opened(file) as stream:
        lines = stream.read().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if row.get("kind") not in KINDS or "documents" not in row:
                return []
            documents, behind = tuple(row["documents"]), tuple(row.get("behind", ()))
            made.append(MadeQuestion(row["kind"], row["question"], documents, behind))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SourceError(f"{file}, line {number} is not a question") from None
    return made


def identifier_questions(
    pages: Sequence[Page], count: int, rng: random.Random
) -> list[MadeQuestion]:
    """Names that few documents contain, in their text or as the end of their path."""
    candidates = {match.group() for page in pages for match in IDENTIFIER.finditer(page.text)}
    names = sorted(name for name in candidates if MIN_NAME <= len(name) <= MAX_NAME)
    rng.shuffle(names)
    made: list[MadeQuestion] = []
    for name in names:
        # As a part of a longer name it is held too: `--since` in `--since-start` is not.
        as_typed = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])", re.IGNORECASE)
        holding = tuple(
            page.path
            for page in pages
            if as_typed.search(page.text) or f"/{page.path}".endswith(f"/{name}")
        )
        if 0 < len(holding) <= MAX_HOLDING:
            made.append(MadeQuestion("identifier", name, holding))
        if len(made) == count:
            break
    return made


def title_questions(pages: Sequence[Page], count: int, rng: random.Random) -> list[MadeQuestion]:
    titles = Counter(page.title.casefold() for page in pages)
    short = [
        page
        for page in pages
        if 1 <= len(page.title.split()) <= 2
        and _WORD.search(page.title)
        and titles[page.title.casefold()] == 1
    ]
    rng.shuffle(short)
    return [MadeQuestion("title", page.title, (page.path,)) for page in short[:count]]


def near_misses(pages: Sequence[Page], count: int, rng: random.Random) -> list[MadeQuestion]:
    """Words of one sentence, a rare one of which another document uses in another context."""
    words_of = {page.path: Counter(_words(page.text)) for page in pages}
    holding: dict[str, list[str]] = defaultdict(list)
    for path, counted in words_of.items():
        for word in counted:
            holding[word].append(path)
    texts = {page.path: page.text for page in pages}
    made: list[MadeQuestion] = []
    for page in rng.sample(list(pages), len(pages)) * 3:
        if len(made) == count:
            break
        if question := _near_miss(page, texts, holding, rng):
            made.append(question)
    return made


def _near_miss(
    page: Page, texts: Mapping[str, str], holding: Mapping[str, Sequence[str]], rng: random.Random
) -> MadeQuestion | None:
    sentences = [
        sentence
        for paragraph in re.split(r"\n\s*\n", page.text)
        if len(paragraph.split()) >= MIN_PARAGRAPH and not paragraph.startswith(("`", "|", " "))
        for sentence in _SENTENCE.split(paragraph)
    ]
    rng.shuffle(sentences)
    for sentence in sentences[:SENTENCES_TRIED]:
        words = list(dict.fromkeys(w for w in _words(sentence) if len(w) > 3))
        telling = [w for w in words if len(holding[w]) <= len(texts) // 3]
        rare = [
            w for w in telling if len(w) > 4 and RAREST_WORD[0] <= len(holding[w]) <= RAREST_WORD[1]
        ]
        if not rare or len(telling) < QUERY_WORDS:
            continue
        rare_word = rng.choice(rare)
        others = rng.sample([w for w in telling if w != rare_word], QUERY_WORDS - 1)
        question_words = [w for w in words if w == rare_word or w in others]
        behind = tuple(
            path
            for path in holding[rare_word]
            if path != page.path and _is_other_matter(texts[path], rare_word, others)
        )
        if behind:
            return MadeQuestion("near-miss", " ".join(question_words), (page.path,), behind)
    return None


def _is_other_matter(text: str, word: str, others: Iterable[str]) -> bool:
    paragraphs = [set(_words(part)) for part in re.split(r"\n\s*\n", text)]
    return all(len(words & set(others)) <= 1 for words in paragraphs if word in words)


def unrelated_questions(count: int, rng: random.Random) -> list[MadeQuestion]:
    made = [
        MadeQuestion("unrelated", form.format(subject))
        for topic in json.loads(TOPICS.read_bytes()).values()
        for subject, form in product(topic["subjects"], topic["forms"])
    ]
    rng.shuffle(made)
    return made[:count]


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]

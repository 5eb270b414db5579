"""Prompts: what people choose from a menu to have an assistant do, with the material at hand."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kb.errors import FileError, UsageError
from kb.search.files import SearchedFile
from kb.server.resources import TEXT_TYPE, document_uri, visible_collections
from kb.store.connection import Connection, Row
from kb.store.contents import documents_changed_since
from kb.text.nearest import nearest
from kb.text.times import stored_time
from kb.tools.call import Call
from kb.tools.session import Session

__all__ = ["PROMPTS", "Argument", "Prompt", "prompt_parts"]

MOST_CHANGED = 100  # documents that `what-changed` names
USUAL_DAYS = 7
_DAYS = re.compile(r"(\d{1,4})\s*d(ays?)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Part:
    """A text for the assistant; with a `uri` it is a part of that document."""

    text: str
    uri: str = ""
    mime_type: str = TEXT_TYPE


@dataclass(frozen=True, slots=True)
class Argument:
    """What somebody fills in."""

    name: str
    description: str
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as clients list it, and what makes its parts."""

    name: str
    title: str
    description: str
    arguments: tuple[Argument, ...]
    make: Callable[[Session, Mapping[str, str]], list[Part]]


def prompt_parts(session: Session, name: str, arguments: Mapping[str, str]) -> list[Part]:
    """The parts of a prompt.

    Raises:
        NotFoundError: there is no such collection, document or section.
        UsageError: there is no such prompt, or an argument is missing or unknown.
    """
    prompt = PROMPTS.get(name)
    if prompt is None:
        near = nearest(name, PROMPTS)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(PROMPTS)}."
        raise UsageError(f'Prompt "{name}" not found. {hint}')
    known = [argument.name for argument in prompt.arguments]
    for argument in prompt.arguments:
        if argument.is_required and not arguments.get(argument.name, "").strip():
            raise UsageError(f'The prompt "{name}" needs "{argument.name}": {argument.description}')
    for given in arguments:
        if given not in known:
            raise UsageError(f'The prompt "{name}" takes {", ".join(known)}, not "{given}".')
    return prompt.make(session, arguments)


def _research(session: Session, arguments: Mapping[str, str]) -> list[Part]:
    collection = arguments.get("collection", "").strip()
    where = f' in the collection "{collection}"' if collection else ""
    if collection:
        with session.database.read() as connection:
            session.names.collection(connection, collection)  # raises, with the near names
    return [
        Part(
            f"Research this question in the knowledge base{where}:\n\n{arguments['question']}\n\n"
            "1. Ask documents_search_batch with three to five phrasings of it: the words of the "
            "question, the words that a document would use, and its parts by themselves.\n"
            "2. Read round the best passages with documents_get_section before you rely on them; a "
            "relevanceScore of 0.7 or more means most likely relevant.\n"
            "3. Follow what they cite, and look with documents_find_related for what is close.\n"
            "4. Answer first, in a few sentences. Then give the findings, each with documentId and "
            "lines. Say where documents contradict each other, and which of them is newer.\n"
            "5. Say what was asked and not found. Do not fill such gaps from memory."
        )
    ]


def _summarise_section(session: Session, arguments: Mapping[str, str]) -> list[Part]:
    from kb.tools.document_types import SectionContent
    from kb.tools.documents import documents_get_section

    collection, document = arguments["collection"], arguments["document"]
    read = documents_get_section.function
    found = read(Call(session), collection, document, arguments["section"])
    assert isinstance(found, SectionContent)
    place = f"{document}, lines {found.start_line} to {found.end_line}"
    return [
        Part(found.content, document_uri(found.collection, document)),
        Part(
            f'Summarise the section "{found.section}" above ({place}): first its point in one '
            "sentence, then what a reader has to know to act on it, as a short list. Keep names, "
            "numbers and conditions exactly. Cite lines. Add nothing that it does not say; where "
            "it refers to something else, name that and do not guess what it holds."
        ),
    ]


def _what_changed(session: Session, arguments: Mapping[str, str]) -> list[Part]:
    since = _since(arguments.get("since", ""), datetime.now(UTC))
    wanted = arguments.get("collection", "").strip()
    if wanted:
        with session.read_collection(wanted) as (connection, row, file):
            changed = _changed_in(file, connection, [row], since)
    else:
        changed = []
        for file in session.files:
            # What cannot be read is told by the tools that the prompt leads to.
            with contextlib.suppress(FileError), file.database.read() as connection:
                rows = visible_collections(session, file, connection)
                changed += _changed_in(file, connection, rows, since)
    changed.sort(key=lambda row: (row["changed_at"], row["path"]), reverse=True)
    shown = changed[:MOST_CHANGED]
    if not shown:
        return [Part(f"No document of the knowledge base changed since {since}. Say so.")]
    lines = [
        f"- {row['changed_at']}  {row['collection']}: {row['path']} ({row['title']})"
        for row in shown
    ]
    more = f"\n(and more: these are the newest {len(shown)})" if len(changed) > len(shown) else ""
    return [
        Part(
            f"These documents of the knowledge base were written or changed since {since}, the "
            "newest first:\n\n" + "\n".join(lines) + more + "\n\nRead those that matter with "
            "documents_get_outline and documents_get_section, and tell what is new: by subject, "
            "not by file, the most important first, each with its documentId. The knowledge base "
            "has no earlier versions: where a text does not say itself what changed, say that it "
            "is new or revised, and no more."
        )
    ]


def _changed_in(
    file: SearchedFile, connection: Connection, rows: Sequence[Row], since: str
) -> list[Row]:
    """The documents of some collections that changed, with the name that each collection has."""
    return [
        {**one, "collection": file.names.called(row).collection}
        for row in rows
        for one in documents_changed_since(
            connection, row["collection_id"], since, MOST_CHANGED + 1
        )
    ]


def _since(text: str, now: datetime) -> str:
    """The beginning of a time, as the file writes times."""
    text = text.strip().lower()
    if _DATE.fullmatch(text):
        try:
            datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        except ValueError:
            raise UsageError(f'"since" is no day of the calendar: {text}') from None
        return f"{text}T00:00:00Z"
    if text and not (match := _DAYS.fullmatch(text)):
        raise UsageError('"since" is a date, such as 2026-01-31, or a number of days, such as 7d')
    days = int(match[1]) if text and match else USUAL_DAYS
    return stored_time(now - timedelta(days=days))


_COLLECTION = Argument("collection", "Only in this collection.")
PROMPTS = {
    prompt.name: prompt
    for prompt in (
        Prompt(
            "research",
            "Research a question",
            "Answer a question from the documents, with evidence and what was not found.",
            (Argument("question", "What you want to know.", True), _COLLECTION),
            _research,
        ),
        Prompt(
            "summarise-section",
            "Summarise a section",
            "The point of one section of a document and what follows from it.",
            (
                Argument("collection", "The collection the document is in.", True),
                Argument("document", "The document's id: its path in the collection.", True),
                Argument("section", "The heading of the section.", True),
            ),
            _summarise_section,
        ),
        Prompt(
            "what-changed",
            "What changed",
            "What is new in the documents since a day.",
            (
                Argument("since", "A date, such as 2026-01-31, or 7d (the default)."),
                _COLLECTION,
            ),
            _what_changed,
        ),
    )
}

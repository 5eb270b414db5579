"""Prompts: what people choose from a menu to have an assistant do, with the material for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import mcp_types as types

from kb.errors import UsageError
from kb.library import browsing
from kb.server.resources import TEXT_TYPE, document_uri
from kb.text.assets import asset
from kb.text.nearest import nearest
from kb.text.times import stored_time
from kb.tools.session import Session

MOST_CHANGED = 100  # documents that `what-changed` names
USUAL_DAYS = 7
_DAYS = re.compile(r"(\d{1,4})\s*d(ays?)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


Content = types.TextContent | types.EmbeddedResource
Maker = Callable[[Session, Mapping[str, str], str], list[Content]]


def make_prompt(session: Session, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
    """A prompt with the material for it.

    Raises:
        NotFoundError: there is no such collection, document or section.
        UsageError: there is no such prompt, or an argument is missing or unknown.
    """
    if name not in PROMPTS:
        near = nearest(name, PROMPTS)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(PROMPTS)}."
        raise UsageError(f'Prompt "{name}" not found. {hint}')
    prompt = PROMPTS[name]
    taken = prompt.arguments or []
    names = [argument.name for argument in taken]
    for argument in taken:
        if argument.required and not arguments.get(argument.name, "").strip():
            raise UsageError(f'The prompt "{name}" needs "{argument.name}": {argument.description}')
    for given in arguments:
        if given not in names:
            raise UsageError(f'The prompt "{name}" takes {", ".join(names)}, not "{given}".')
    parts = MAKERS[name](session, arguments, asset("prompts")[name]["text"])
    messages = [types.PromptMessage(role="user", content=part) for part in parts]
    return types.GetPromptResult(description=prompt.description, messages=messages)


def _research(session: Session, arguments: Mapping[str, str], text: str) -> list[Content]:
    collection = arguments.get("collection", "").strip()
    where = f' in the collection "{collection}"' if collection else ""
    if collection:
        with session.database.read() as connection:
            session.names.collection(connection, collection)  # raises with the nearest names
    return [_text(text.format(where=where, question=arguments["question"]))]


def _summarise_section(session: Session, arguments: Mapping[str, str], text: str) -> list[Content]:
    collection, document = arguments["collection"], arguments["document"]
    section = session.base.section(
        document, arguments["section"], collection=collection, max_tokens=session.reply_tokens
    )
    place = f"{document}, lines {section.start_line} to {section.end_line}"
    uri = document_uri(section.collection, document)
    contents = types.TextResourceContents(uri=uri, mime_type=TEXT_TYPE, text=section.content)
    return [
        types.EmbeddedResource(type="resource", resource=contents),
        _text(text.format(section=section.section, place=place)),
    ]


def _what_changed(session: Session, arguments: Mapping[str, str], text: str) -> list[Content]:
    since = _since(arguments.get("since", ""), datetime.now(UTC))
    collection = arguments.get("collection", "").strip()
    changed = browsing.changed_documents(session.base, collection, since, MOST_CHANGED + 1)
    shown = changed[:MOST_CHANGED]
    if not shown:
        return [_text(f"No document of the knowledge base changed since {since}. Say so.")]
    lines = [
        f"- {row['changed_at']}  {row['collection']}: {row['path']} ({row['title']})"
        for row in shown
    ]
    if len(changed) > len(shown):
        lines.append(f"(and more: these are the newest {len(shown)})")
    return [_text(text.format(since=since, lines="\n".join(lines)))]


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


def _since(text: str, now: datetime) -> str:
    """The beginning of a period, in the file's format of times."""
    text = text.strip().lower()
    if _DATE.fullmatch(text):
        try:
            datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        except ValueError:
            raise UsageError(f'"since" is not a day of the calendar: {text}') from None
        return f"{text}T00:00:00Z"
    if text and not (match := _DAYS.fullmatch(text)):
        raise UsageError('"since" is a date, such as 2026-01-31, or a number of days, such as 7d')
    return stored_time(now - timedelta(days=int(match[1]) if text and match else USUAL_DAYS))


MAKERS: dict[str, Maker] = {
    "research": _research,
    "summarise-section": _summarise_section,
    "what-changed": _what_changed,
}
PROMPTS = {
    name: types.Prompt(name=name, **{key: row[key] for key in row if key != "text"})
    for name, row in asset("prompts").items()
}

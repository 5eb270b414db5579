"""What the protocol offers beside tools: what a client can read by address, the project's context
and every document; prompts, which people choose from a menu to have an assistant do something, with
the material for it; completion, subscriptions, logs.

A message logged during a client's call is for that client alone; messages of other work are for
all. A client of the handshake era sets its level with logging/setLevel, one of the later protocol
with each request.

Clients that subscribe hear what changed in the file: lists, and single documents. Calls, watchers
and other processes write to it. A look at the file itself sees them all: first at its time, and
only if that moved at its documents.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args
from urllib.parse import quote, unquote

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
)

from kb.disk.holders import companion
from kb.errors import KbError, NotFoundError, ResourceNotFound, UsageError
from kb.library import browsing
from kb.library.reading import read_lines
from kb.server.clients import Client, Clients
from kb.server.wire import in_thread
from kb.text.assets import asset
from kb.text.counted import counted
from kb.text.nearest import nearest
from kb.text.suffixes import MARKDOWN_SUFFIXES
from kb.text.times import stored_time
from kb.tools.call import bounded
from kb.tools.session import Session

PAGE = 200  # documents of one answer
LAST_OFFSET = 10**9
JSON_TYPE, MARKDOWN_TYPE, TEXT_TYPE = "application/json", "text/markdown", "text/plain"
_FIXED: dict[str, tuple[str, str]] = asset("resources")["fixed"]  # address -> title, description
TEMPLATES = [types.ResourceTemplate(**row) for row in asset("resources")["templates"]]
MODULE_TEMPLATE = TEMPLATES[0].uri_template
_MODULE = "context://module/"
_DOCUMENT = "kb://"
_CURSOR = re.compile("(?:([0-9]{1,9})-)?([0-9]{1,19})")


def list_resources(session: Session, cursor: str = "") -> tuple[list[types.Resource], str]:
    """One page of resources, and where the next begins, "" after the last. Raises UsageError for a
    cursor that is not ours."""
    count = len(session.files)
    match = _CURSOR.fullmatch(cursor or "0")
    number, offset = (int(match[1] or 0), int(match[2])) if match else (0, -1)
    if not (0 <= offset <= LAST_OFFSET and 0 <= number < count):
        raise UsageError(f"the cursor {cursor!r} comes from no page of resources")
    fixed = [
        _resource(uri, uri.removeprefix("context://"), title, description, JSON_TYPE)
        for uri, (title, description) in _FIXED.items()
    ]
    listed, has_more = browsing.list_visible(session.base, number, offset, PAGE)
    resources = [
        _resource(
            document_uri(row["collection"], row["path"]),
            f"{row['collection']}/{row['path']}",
            *(row["title"], row["summary"], _mime_type(row["path"])),
        )
        for row in listed
    ]
    if has_more:
        more = _cursor(number, offset + PAGE)
    else:
        more = _cursor(number + 1, 0) if number + 1 < count else ""
    return (resources if number or offset else fixed + resources), more


def _cursor(number: int, offset: int) -> str:
    return f"{number}-{offset}" if number else str(offset)


def read_resource(session: Session, uri: str) -> tuple[str, str]:
    """The MIME type and the text at an address; raises ResourceNotFound."""
    # Only now: readers of a project's files are not imported before the client's first answers.
    from kb.project import overview

    try:
        if uri in _FIXED:
            session.flush()
            match uri.removeprefix("context://"):
                case "project/overview":
                    listed = session.base.list_collections()
                    shown = overview.project_overview(session.project, listed.collections)
                case "session/current":
                    shown = overview.current_session(session.database, session.log.current_id)
                case _:
                    shown = overview.recent_sessions(session.database)
            return JSON_TYPE, _bounded_json(session, shown)
        if uri.startswith(_MODULE):
            shown = overview.module_overview(session.project, unquote(uri.removeprefix(_MODULE)))
            return JSON_TYPE, _bounded_json(session, shown)
        if uri.startswith(_DOCUMENT):
            collection, _, document = uri.removeprefix(_DOCUMENT).partition("/")
            read = browsing.read_visible(session.base, unquote(collection), unquote(document))
            part = read_lines(read.text.removesuffix("\n"), 1, 0, session.reply_tokens)
            if not part.rest:
                return _mime_type(read.path), read.text
            rest = f"Read on with documents_get_document, {part.rest}." if read.is_listed else ""
            lines = counted(read.line_count, "line")
            beginning = f"[This is the beginning of {lines}. {rest}".rstrip()
            return _mime_type(read.path), f"{part.content}\n\n{beginning}]\n"
    except NotFoundError as error:
        raise ResourceNotFound(error.message, uri=uri, **error.details) from error
    addresses = ", ".join([*_FIXED, *(template.uri_template for template in TEMPLATES)])
    raise ResourceNotFound(f"Resource {uri} not found. There are: {addresses}.", uri=uri)


def document_uri(collection: str, document: str) -> str:
    return f"{_DOCUMENT}{quote(collection, safe='')}/{quote(document, safe='/')}"


def true_uri(session: Session, uri: str) -> str:
    """The address of a document under its collection's own name; other addresses unchanged."""
    if not uri.startswith(_DOCUMENT):
        return uri
    name, _, document = uri.removeprefix(_DOCUMENT).partition("/")
    collection = browsing.true_name(session.base, unquote(name))
    return document_uri(collection, unquote(document)) if collection else uri


def _resource(uri: str, name: str, title: str, text: str, mime_type: str) -> types.Resource:
    return types.Resource(
        uri=uri, name=name, title=title, description=text or None, mime_type=mime_type
    )


def _mime_type(path: str) -> str:
    return MARKDOWN_TYPE if path.lower().endswith(MARKDOWN_SUFFIXES) else TEXT_TYPE


def _bounded_json(session: Session, value: dict[str, Any]) -> str:
    # A third more for indentation.
    return json.dumps(bounded(value, session.reply_tokens * 3 // 4), ensure_ascii=False, indent=1)


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


Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

_NUMBERS: dict[Level, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO + 5,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL + 1,
    "emergency": logging.CRITICAL + 2,
}
_LEVELS: tuple[Level, ...] = get_args(Level)
MOST_WAITING = 1000
OURS = "kb"


@dataclass(frozen=True, slots=True)
class _Call:
    """A request under way, which its log belongs to."""

    client: Client
    channel: Any
    request_id: types.RequestId | None
    level: int | None  # as the request asks


_call: ContextVar[_Call | None] = ContextVar("call", default=None)


class ClientLogs(logging.Handler):
    """Sends records to the clients that want them, while `run` is running."""

    def __init__(self, clients: Clients) -> None:
        super().__init__(logging.DEBUG)
        self._clients = clients
        self._records: asyncio.Queue[tuple[_Call | None, logging.LogRecord]] = asyncio.Queue(
            MOST_WAITING
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = 0  # records that are not sent yet

    async def run(self) -> None:
        """Pass records on until cancelled."""
        self._loop = asyncio.get_running_loop()
        logger = logging.getLogger(OURS)
        # Handlers to stderr keep their level; more is for the clients alone.
        for handler in logging.getLogger().handlers:
            handler.setLevel(max(handler.level, logging.getLogger().level))
        logger.addHandler(self)
        try:
            while True:
                call, record = await self._records.get()
                # A client that does not read must not delay others.
                with anyio.move_on_after(SEND_SECONDS):
                    await self._pass(call, record)
                self._waiting -= 1
        finally:
            logger.removeHandler(self)
            logger.setLevel(logging.NOTSET)

    @contextmanager
    def during(self, client: Client, context: Any) -> Iterator[None]:
        """Records logged within, in threads started there too, are for this client alone."""
        name = (context.meta or {}).get(types.LOG_LEVEL_META_KEY)
        level = _NUMBERS[name] if name in _LEVELS else None
        if level is not None:
            self._require(level)
        token = _call.set(_Call(client, context.session, context.request_id, level))
        try:
            yield
        finally:
            _call.reset(token)

    async def sent(self) -> None:
        """Wait until all records are sent: the reply ends the stream that they go to."""
        with anyio.move_on_after(SEND_SECONDS):
            while self._waiting:
                await anyio.sleep(0.001)

    def set_level(self, client: Client, level: Level) -> None:
        """Send a client records of this level and above from now on."""
        client.log_level = _NUMBERS[level]
        self._require(client.log_level)

    def emit(self, record: logging.LogRecord) -> None:
        if self._loop is None:
            return
        with contextlib.suppress(RuntimeError):  # after the loop's end
            self._loop.call_soon_threadsafe(self._put, _call.get(), record)

    def _require(self, level: int) -> None:
        """Make the loggers emit records of this level, which they skip by default."""
        logger = logging.getLogger(OURS)
        logger.setLevel(min(level, logger.getEffectiveLevel()))

    def _put(self, call: _Call | None, record: logging.LogRecord) -> None:
        try:
            self._records.put_nowait((call, record))
            self._waiting += 1
        except asyncio.QueueFull:
            return  # no client reads as fast as this

    async def _pass(self, call: _Call | None, record: logging.LogRecord) -> None:
        names = [name for name in _LEVELS if _NUMBERS[name] <= record.levelno]
        level_name: Level = names[-1] if names else "debug"
        message = types.LoggingMessageNotification(
            params=types.LoggingMessageNotificationParams(
                level=level_name, logger=record.name, data=record.getMessage()
            )
        )
        if call is not None:
            level = call.client.log_level if call.level is None else call.level
            if level is not None and record.levelno >= level:
                await call.channel.send_notification(message, call.request_id)
            return
        for client in self._clients.all():
            if client.log_level is not None and record.levelno >= client.log_level:
                await client.channel.send_notification(message)


log = logging.getLogger("kb.server")

LOOK_SECONDS = 1.0
SEND_SECONDS = 1.0
# Looking at a hundred thousand documents takes .1 s, and may take a tenth of our time.
REST = 10

State = Mapping[tuple[str, str], bytes]  # collection and id of a document -> hash of its content


async def tell_changes(clients: Clients, bus: InMemorySubscriptionBus) -> None:
    """Look at the file from time to time, and tell listeners. Does not return."""
    stamp, state = _stamp(clients.host), await anyio.to_thread.run_sync(_state, clients.host)
    rest = LOOK_SECONDS
    while True:
        await anyio.sleep(rest)
        rest = LOOK_SECONDS
        now = _stamp(clients.host)
        if now == stamp:
            continue
        began = time.monotonic()
        new = await anyio.to_thread.run_sync(_state, clients.host)
        rest = max(LOOK_SECONDS, REST * (time.monotonic() - began))
        if new is None or state is None:
            state = new or state
            continue
        updated = [key for key, value in state.items() if new.get(key) != value]
        has_new_list = state.keys() != new.keys()
        stamp, state = now, new
        if has_new_list or updated:
            await _tell(clients, bus, updated, has_new_list=has_new_list)


async def _tell(
    clients: Clients,
    bus: InMemorySubscriptionBus,
    updated: Sequence[tuple[str, str]],
    *,
    has_new_list: bool,
) -> None:
    """Tell of documents whose text differs or is gone."""
    if has_new_list:
        await bus.publish(ResourcesListChanged())
    aliases = clients.host.names.aliases
    for collection, document in updated:
        also = [alias for alias, name in aliases.items() if name == collection]
        for name in (collection, *also):
            await bus.publish(ResourceUpdated(uri=document_uri(name, document)))
    for client in clients.all():
        if client.channel is None:
            continue
        # A client that does not read must not delay others.
        with anyio.move_on_after(SEND_SECONDS):
            if has_new_list:
                await client.channel.send_resource_list_changed()
            for place in updated:
                for uri in client.subscriptions.get(document_uri(*place), ()):
                    await client.channel.send_resource_updated(uri)


def _stamp(session: Session) -> tuple[tuple[int, int], ...]:
    """Changes with every write: times and sizes of the files and of their logs."""
    states = []
    files = (session.database.path, *session.knowledge.beside.paths)
    for name in (place for file in files for place in (file, companion(file, "-wal"))):
        try:
            state = os.stat(name)
        except OSError:
            continue
        states.append((state.st_mtime_ns, state.st_size))
    return tuple(states)


def _state(session: Session) -> State | None:
    """The documents that clients may list; None if the file cannot be read just now."""
    try:
        return browsing.hashes_of_documents(session.base)
    except KbError as error:
        log.info("changes cannot be seen: %s", error.message)
        return None


MOST_VALUES = 100  # of one completion: the protocol's limit
MOST_SUBSCRIPTIONS = 1000  # of one client, counting each spelling of an address


def add_features(
    server: Server[Any], clients: Clients, bus: InMemorySubscriptionBus, logs: ClientLogs
) -> None:
    """Prompts, which people choose from a menu; values for the arguments of prompts and templates,
    while they are typed; subscriptions to documents' changes, in the older protocol's way and in
    the later one's; and the log, for clients that ask for it."""

    async def list_prompts(_: Any, __: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=list(PROMPTS.values()))

    async def get_prompt(
        context: Any, parameters: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        session, arguments = clients.at(context).session, parameters.arguments or {}
        return await in_thread(make_prompt, session, parameters.name, arguments)

    async def complete(
        context: Any, parameters: types.CompleteRequestParams
    ) -> types.CompleteResult:
        reference = parameters.ref
        filled = parameters.context.arguments if parameters.context else None
        values, total = await in_thread(
            completions,
            clients.at(context).session,
            reference.name if isinstance(reference, types.PromptReference) else reference.uri,
            parameters.argument.name,
            parameters.argument.value,
            filled or {},
        )
        return types.CompleteResult(
            completion=types.Completion(values=values, total=total, has_more=total > len(values))
        )

    def refuse() -> None:
        raise UsageError(f"a client may subscribe to {MOST_SUBSCRIPTIONS} documents at most")

    async def subscribe(context: Any, parameters: types.SubscribeRequestParams) -> Any:
        client, address = clients.at(context), str(parameters.uri)
        uri = await anyio.to_thread.run_sync(true_uri, client.session, address)
        names = client.subscriptions.get(uri, set())
        count = sum(map(len, client.subscriptions.values()))
        if count >= MOST_SUBSCRIPTIONS and address not in names:
            await in_thread(refuse)
        client.subscriptions[uri] = names | {address}
        return types.EmptyResult()

    async def unsubscribe(context: Any, parameters: types.UnsubscribeRequestParams) -> Any:
        client, address = clients.at(context), str(parameters.uri)
        for uri in [uri for uri, names in client.subscriptions.items() if address in names]:
            client.subscriptions[uri].discard(address)
            if not client.subscriptions[uri]:
                del client.subscriptions[uri]
        return types.EmptyResult()

    async def set_level(context: Any, parameters: types.SetLevelRequestParams) -> Any:
        logs.set_level(clients.at(context), parameters.level)
        return types.EmptyResult()

    handlers: tuple[tuple[str, Any, Any], ...] = (
        ("prompts/list", types.PaginatedRequestParams, list_prompts),
        ("prompts/get", types.GetPromptRequestParams, get_prompt),
        ("completion/complete", types.CompleteRequestParams, complete),
        ("resources/subscribe", types.SubscribeRequestParams, subscribe),
        ("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe),
        ("subscriptions/listen", types.SubscriptionsListenRequestParams, ListenHandler(bus)),
        ("logging/setLevel", types.SetLevelRequestParams, set_level),
    )
    for method, parameters, handler in handlers:
        server.add_request_handler(method, parameters, handler)


def completions(
    session: Session, reference: str, argument: str, typed: str, others: Mapping[str, str]
) -> tuple[list[str], int]:
    """The values that contain what is typed, those that begin with it first, and their number. The
    `reference` is a prompt's name or a template's address; `others` are arguments filled in
    already."""
    if reference not in (*PROMPTS, *(template.uri_template for template in TEMPLATES)):
        return [], 0
    try:
        values = list(_completion_values(session, reference, argument, others))
    except KbError:  # the collection or document that was filled in does not exist
        return [], 0
    part = typed.casefold()
    fitting = [value for value in dict.fromkeys(values) if part in value.casefold()]
    fitting.sort(key=lambda value: not value.casefold().startswith(part))
    return fitting[:MOST_VALUES], len(fitting)


def _completion_values(
    session: Session, reference: str, argument: str, others: Mapping[str, str]
) -> Iterable[str]:
    if reference == MODULE_TEMPLATE:
        from kb.project.overview import module_names

        return module_names(session.project) if argument == "name" else ()
    collection = others.get("collection", "")
    if argument == "collection":
        return browsing.visible_names(session.base)
    if argument == "document":
        return browsing.visible_documents(session.base, collection)
    if argument == "section":
        return browsing.visible_headings(session.base, collection, others.get("document", ""))
    return ()

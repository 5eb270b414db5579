"""What the protocol offers beside tools and resources: prompts, completion, subscriptions, logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

from kb.errors import KbError, UsageError
from kb.library import browsing
from kb.server.client_logs import ClientLogs
from kb.server.clients import Clients
from kb.server.prompts import PROMPTS, make_prompt
from kb.server.refusals import in_thread
from kb.server.resources import MODULE_TEMPLATE, TEMPLATES, true_uri
from kb.tools.session import Session

MOST_VALUES = 100  # of one completion: the protocol's limit
MOST_SUBSCRIPTIONS = 1000  # of one client, counting each spelling of an address


def add_prompts(server: Server[Any], clients: Clients) -> None:
    """Prompts, which people choose from a menu."""

    async def list_prompts(_: Any, __: types.PaginatedRequestParams) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=list(PROMPTS.values()))

    async def get_prompt(
        context: Any, parameters: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        session, arguments = clients.at(context).session, parameters.arguments or {}
        return await in_thread(make_prompt, session, parameters.name, arguments)

    server.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, get_prompt)


def add_completion(server: Server[Any], clients: Clients) -> None:
    """Values for the arguments of prompts and templates, while they are typed."""

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

    server.add_request_handler("completion/complete", types.CompleteRequestParams, complete)


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


def add_subscriptions(server: Server[Any], clients: Clients, bus: InMemorySubscriptionBus) -> None:
    """Subscriptions to documents' changes, in the older protocol's way and in the later one's."""

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

    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)
    server.add_request_handler(
        "subscriptions/listen", types.SubscriptionsListenRequestParams, ListenHandler(bus)
    )


def add_logging(server: Server[Any], clients: Clients, logs: ClientLogs) -> None:
    """The log, for clients that ask for it."""

    async def set_level(context: Any, parameters: types.SetLevelRequestParams) -> Any:
        logs.set_level(clients.at(context), parameters.level)
        return types.EmptyResult()

    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)

"""What the protocol offers beside tools and resources: prompts, completion, subscriptions, logs."""

from __future__ import annotations

from typing import Any

import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

from kb.errors import UsageError
from kb.server.client_logs import ClientLogs
from kb.server.clients import Clients
from kb.server.completions import completions
from kb.server.prompts import PROMPTS, Part, prompt_parts
from kb.server.refusals import in_thread
from kb.server.resources import true_uri

__all__ = ["add_completion", "add_logging", "add_prompts", "add_subscriptions"]

MOST_SUBSCRIPTIONS = 1000  # of one client, each way in which it writes an address counted


def add_prompts(server: Server[Any], clients: Clients) -> None:
    """Prompts that people choose from a menu."""

    async def list_prompts(_: Any, __: types.PaginatedRequestParams) -> types.ListPromptsResult:
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(
                    name=prompt.name,
                    title=prompt.title,
                    description=prompt.description,
                    arguments=[
                        types.PromptArgument(
                            name=argument.name,
                            description=argument.description,
                            required=argument.is_required,
                        )
                        for argument in prompt.arguments
                    ],
                )
                for prompt in PROMPTS.values()
            ]
        )

    async def get_prompt(
        context: Any, parameters: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        session, name = clients.at(context).session, parameters.name
        parts = await in_thread(prompt_parts, session, name, parameters.arguments or {})
        return types.GetPromptResult(
            description=PROMPTS[name].description,
            messages=[types.PromptMessage(role="user", content=_content(part)) for part in parts],
        )

    server.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, get_prompt)


def add_completion(server: Server[Any], clients: Clients) -> None:
    """Values for the arguments of prompts and templates while they are typed."""

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


def add_subscriptions(server: Server[Any], clients: Clients, bus: InMemorySubscriptionBus) -> None:
    """Who wants to hear of a document's changes: by the older way, and the later protocol's."""

    async def subscribe(context: Any, parameters: types.SubscribeRequestParams) -> Any:
        client, asked = clients.at(context), str(parameters.uri)
        uri = await anyio.to_thread.run_sync(true_uri, client.session, asked)
        names = client.subscriptions.get(uri, set())
        count = sum(map(len, client.subscriptions.values()))
        if count >= MOST_SUBSCRIPTIONS and asked not in names:
            await in_thread(_refuse_subscription)
        client.subscriptions[uri] = names | {asked}
        return types.EmptyResult()

    async def unsubscribe(context: Any, parameters: types.UnsubscribeRequestParams) -> Any:
        client, asked = clients.at(context), str(parameters.uri)
        for uri in [uri for uri, names in client.subscriptions.items() if asked in names]:
            client.subscriptions[uri].discard(asked)
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


def _refuse_subscription() -> None:
    raise UsageError(f"a client may subscribe to {MOST_SUBSCRIPTIONS} documents at most")


def _content(part: Part) -> types.TextContent | types.EmbeddedResource:
    if not part.uri:
        return types.TextContent(type="text", text=part.text)
    contents = types.TextResourceContents(uri=part.uri, mime_type=part.mime_type, text=part.text)
    return types.EmbeddedResource(type="resource", resource=contents)

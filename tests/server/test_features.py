"""Prompts, completion, subscriptions and logs, through a client of each era of the protocol."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from support import Filler

from kb.server import features
from kb.server.mcp import make_server
from kb.tools.registry import call_tool, load_tools
from kb.tools.session import Session

T = TypeVar("T")
TOOLS = load_tools()
ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
GUIDE = "# Guide\n\n## Install on Linux\n\nRun the installer.\n\n## Install on a Mac\n\nDrag it.\n"
PATIENCE = 20  # seconds until something that does not come fails the test


def through(
    session: Session, use: Callable[[Client], Awaitable[T]], mode: Any, **options: Any
) -> T:
    """What `use` gives, with a client of a server in memory."""

    async def run() -> T:
        with anyio.fail_after(PATIENCE):
            async with Client(make_server(session, TOOLS), mode=mode, **options) as client:
                return await use(client)

    return anyio.run(run)


@ERAS
def test_prompts_are_listed_and_hold_the_material(mode: str, fill: Filler) -> None:
    kb = fill({"guide.md": GUIDE, "other.md": "# Other\n\nText.\n"})

    async def use(client: Client) -> None:
        listed = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        assert set(listed) == {"research", "summarise-section", "what-changed"}
        assert [one.name for one in listed["research"].arguments or [] if one.required] == [
            "question"
        ]
        named = {"collection": "docs", "document": "guide.md", "section": "install on linux"}
        section = await client.get_prompt("summarise-section", named)
        embedded, asked = [message.content for message in section.messages]
        assert embedded.resource.uri == "kb://docs/guide.md"
        assert embedded.resource.text == "## Install on Linux\n\nRun the installer."
        assert "lines 3 to 5" in asked.text
        research = await client.get_prompt("research", {"question": "Which mast?"})
        assert "Which mast?" in research.messages[0].content.text
        changed = await client.get_prompt("what-changed", {})
        assert "docs: guide.md (Guide)" in changed.messages[0].content.text
        assert "docs: other.md (Other)" in changed.messages[0].content.text
        later = await client.get_prompt("what-changed", {"since": "2999-01-01"})
        assert later.messages[0].content.text.startswith("No document")

    through(kb, use, mode)


@ERAS
@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("reserch", {}, "Did you mean research"),
        ("research", {}, 'needs "question"'),
        ("research", {"question": "a", "collection": "dosc"}, 'Did you mean "docs"'),
        ("research", {"question": "a", "quest": "b"}, 'not "quest"'),
        ("what-changed", {"since": "yesterday"}, "7d"),
        ("what-changed", {"since": "2026-02-31"}, "calendar"),
        (
            "summarise-section",
            {"collection": "docs", "document": "guide.md", "section": "Windows"},
            "Windows",
        ),
        ("research", {"question": " "}, "question"),
    ],
)
def test_a_prompt_that_cannot_be_made_says_why(
    mode: str, name: str, arguments: dict[str, str], said: str, fill: Filler
) -> None:
    async def use(client: Client) -> str:
        with pytest.raises(MCPError) as refused:
            await client.get_prompt(name, arguments)
        return refused.value.error.message

    assert said in through(fill({"guide.md": GUIDE}), use, mode)


@ERAS
def test_arguments_are_completed_while_they_are_typed(mode: str, fill: Filler) -> None:
    kb = fill({"guide.md": GUIDE, "how/guides.md": "# A", "zebra.md": "# B"})
    prompt = types.PromptReference(name="summarise-section")
    template = types.ResourceTemplateReference(uri="kb://{collection}/{+document}")

    async def use(client: Client) -> None:
        async def complete(reference: Any, name: str, value: str, **others: str) -> list[str]:
            argument = {"name": name, "value": value}
            return (await client.complete(reference, argument, others)).completion.values

        assert await complete(prompt, "collection", "DO") == ["docs"]
        assert await complete(prompt, "document", "gui", collection="docs") == [
            "guide.md",
            "how/guides.md",
        ]
        assert await complete(template, "document", "zeb") == ["zebra.md"]
        filled = {"collection": "docs", "document": "guide.md"}
        assert await complete(prompt, "section", "mac", **filled) == ["Install on a Mac"]
        assert await complete(prompt, "section", "", collection="docs", document="none") == []
        assert await complete(types.PromptReference(name="none"), "question", "a") == []

    through(kb, use, mode)


def test_many_completions_are_cut_and_counted(fill: Filler) -> None:
    kb = fill({f"page-{number:03}.md": "# A" for number in range(120)}, embed=False)
    template = types.ResourceTemplateReference(uri="kb://{collection}/{+document}")

    async def use(client: Client) -> types.Completion:
        return (await client.complete(template, {"name": "document", "value": "page"})).completion

    found = through(kb, use, "auto")
    assert (len(found.values), found.total, found.has_more) == (100, 120, True)


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
def test_subscriptions_of_a_client_are_bounded_however_it_writes_an_address(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "MOST_SUBSCRIPTIONS", 2)
    kb = fill({"guide.md": GUIDE})

    async def use(client: Client) -> None:
        for spelling in ("guide.md", "guide.md", "%67uide.md"):
            await client.subscribe_resource(f"kb://docs/{spelling}")
        with pytest.raises(MCPError, match="2 documents at most"):
            await client.subscribe_resource("kb://docs/g%75ide.md")

    through(kb, use, "legacy")


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
def test_a_client_of_the_handshake_hears_of_lists_and_of_its_documents(fill: Filler) -> None:
    kb = fill({"guide.md": GUIDE, "other.md": "# Other"})
    heard: list[Any] = []
    came = anyio.Event()

    async def hear(message: Any) -> None:
        heard.append(message)
        if isinstance(message, types.ResourceUpdatedNotification):
            came.set()

    async def use(client: Client) -> None:
        assert client.server_capabilities.resources is not None
        assert client.server_capabilities.resources.subscribe
        assert client.server_capabilities.resources.list_changed
        await client.subscribe_resource("kb://docs/guide.md")
        await client.subscribe_resource("kb://docs/other.md")
        await client.unsubscribe_resource("kb://docs/other.md")
        changed = {"guide.md": "# Guide\n\nNew.\n", "other.md": "# Other\n\nNew.", "new.md": "# N"}
        await anyio.to_thread.run_sync(lambda: fill(changed) and None)
        await came.wait()

    through(kb, use, "legacy", message_handler=hear)
    assert any(isinstance(one, types.ResourceListChangedNotification) for one in heard)
    updated = [
        one.params.uri for one in heard if isinstance(one, types.ResourceUpdatedNotification)
    ]
    assert updated == ["kb://docs/guide.md"]


def test_a_client_of_the_later_protocol_listens(fill: Filler) -> None:
    kb = fill({"guide.md": GUIDE, "other.md": "# Other"})

    async def use(client: Client) -> list[str]:
        heard: list[str] = []
        wanted = {"resources_list_changed": True, "resource_subscriptions": ["kb://docs/guide.md"]}
        async with client.listen(**wanted) as events:  # type: ignore[arg-type]
            await anyio.to_thread.run_sync(
                lambda: fill({"guide.md": "# New", "new.md": "# New", "other.md": "# New"}) and None
            )
            async for event in events:
                heard.append(f"{type(event).__name__} {getattr(event, 'uri', '')}".strip())
                if "ResourceUpdated" in heard[-1]:
                    return heard
        return heard

    heard = through(kb, use, "auto")
    assert "ResourcesListChanged" in heard
    assert heard[-1] == "ResourceUpdated kb://docs/guide.md"


@pytest.fixture
def _quiet() -> Any:
    """The loggers as they were."""
    yield
    logging.getLogger("kb").setLevel(logging.NOTSET)


@pytest.mark.usefixtures("_quiet")
@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
@ERAS
def test_the_log_of_its_calls_reaches_the_client_that_asked_for_it(mode: Any, fill: Filler) -> None:
    kb = fill({"guide.md": GUIDE})
    heard: list[tuple[str, str]] = []

    async def hear(message: types.LoggingMessageNotificationParams) -> None:
        heard.append((message.level, str(message.data)))

    async def use(client: Client) -> None:
        if mode == "legacy":
            await client.call_tool("documents_list_collections", {})
            assert heard == []  # nothing was asked for yet
            await client.set_logging_level("info")
        await client.call_tool("documents_search", {"query": "install"})
        with anyio.fail_after(PATIENCE):
            while not heard:
                await anyio.sleep(0.01)

    options = {} if mode == "legacy" else {"log_level": "info"}
    through(kb, use, mode, logging_callback=hear, **options)
    assert heard[0][0] == "info"
    assert heard[0][1].startswith("documents_search done in")


@pytest.mark.usefixtures("_quiet")
def test_who_asked_for_no_log_gets_none(fill: Filler) -> None:
    kb = fill({"guide.md": GUIDE})
    heard: list[Any] = []

    async def hear(message: Any) -> None:
        heard.append(message)

    async def use(client: Client) -> None:
        await client.call_tool("documents_search", {"query": "install"})

    for mode in ("legacy", "auto"):
        through(kb, use, mode, logging_callback=hear)
    assert heard == []


def test_a_prompt_sees_what_a_call_added(kb: Session) -> None:
    call_tool(kb, "search_add_document", {"doc_id": "note", "content": "A note on masts."})

    async def use(client: Client) -> str:
        return (await client.get_prompt("what-changed", {"since": "1d"})).messages[0].content.text

    assert "default: note" in through(kb, use, "auto")

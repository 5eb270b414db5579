"""The external family against a real server process through a real client, step by step."""

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from support import content_of

ROOT = Path(__file__).resolve().parents[2]
CONFIG_FILE = ".csharp-compounding-docs/config.json"
CONFIG = {
    "project_name": "test-project",
    "external_docs": {
        "path": "./docs",
        "include_patterns": ["**/*.md"],
        "exclude_patterns": ["**/node_modules/**"],
    },
}
TIMEOUT = 60  # only a guard


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for folder in ("docs", ".csharp-compounding-docs", ".kb"):
        (root / folder).mkdir(parents=True)
    (root / CONFIG_FILE).write_text(json.dumps(CONFIG))
    (root / "docs" / "api-guide.md").write_text("# API Guide\n\nHow to use our REST API.\n")
    (root / "docs" / "setup.md").write_text("# Setup Guide\n\nHow to set up the project.\n")
    return root


def run(project: Path, steps: Callable[[Client], Awaitable[None]], *options: str) -> None:
    async def talk() -> None:
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "kb", "serve", *options],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        with anyio.fail_after(TIMEOUT):
            async with Client(parameters) as client:
                await steps(client)

    anyio.run(talk)
    # The server is gone and left one file.
    names = sorted(file.name for file in (project / ".kb").iterdir())
    assert [name for name in names if name.startswith("kb.db")] == ["kb.db"]


async def content(client: Client, name: str, **arguments: Any) -> Any:
    return content_of(await client.call_tool(name, arguments))


async def search(client: Client, query: str, **arguments: Any) -> list[dict[str, Any]]:
    found = await content(client, "search_external_docs", query=query, **arguments)
    return found["results"]  # type: ignore[no-any-return]


def test_the_documented_steps_give_the_documented_results(project: Path) -> None:
    async def steps(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        tool = tools["search_external_docs"]
        assert tool.description.startswith(
            "Search external project documentation (read-only). "
            "Requires `external_docs` to be configured in project config."
        )
        assert tool.annotations.read_only_hint
        early = await content(client, "search_external_docs", query="REST API")
        assert (early["error"], early["code"]) == (True, "PROJECT_NOT_ACTIVATED")
        progress: list[tuple[float, float | None]] = []

        async def note(done: float, total: float | None, message: str | None) -> None:
            progress.append((done, total))

        activated = await client.call_tool("activate_project", {}, progress_callback=note)
        assert activated.structured_content["external_docs"]["added"] == 2
        assert progress
        assert progress == sorted(progress)
        result = await content(client, "search_external_docs", query="REST API", limit=5)
        assert result["results"][0].pop("relevance_score") >= 0.7
        assert result["results"][0] == {
            "path": "./docs/api-guide.md",
            "title": "API Guide",
            "summary": "How to use our REST API.",
            "char_count": 38,
            "start_line": 1,
            "end_line": 3,
        }
        assert (result["total_matches"], result["external_docs_path"]) == (1, "./docs")

    run(project, steps)


def test_results_follow_the_files_under_a_running_server(project: Path) -> None:
    docs = project / "docs"

    async def steps(client: Client) -> None:
        async def until(query: str, *paths: str) -> None:
            while True:
                rows = await search(client, query, min_relevance_score=0)
                if sorted(row["path"].removeprefix("./docs/") for row in rows) == list(paths):
                    return
                await anyio.sleep(0.05)

        await content(client, "activate_project")
        await until("guide", "api-guide.md", "setup.md")
        (docs / "deep").mkdir()
        (docs / "deep" / "tide.md").write_text("# Tide tables\n\nWhen the water comes.\n")
        await until("guide", "api-guide.md", "deep/tide.md", "setup.md")
        (docs / "setup.md").rename(docs / "start.md")
        await until("guide", "api-guide.md", "deep/tide.md", "start.md")
        (docs / "api-guide.md").unlink()
        await until("guide", "deep/tide.md", "start.md")
        (docs / "start.md").write_text("# Tide gauges\n\nRead the height of the water.\n")
        while (await search(client, "gauge", min_relevance_score=0))[0]["title"] != "Tide gauges":
            await anyio.sleep(0.05)

    run(project, steps)


def test_a_server_that_watches_follows_its_collections(project: Path) -> None:
    (project / "notes").mkdir()
    (project / "notes" / "a.md").write_text("# Alpha\n")

    async def steps(client: Client) -> None:
        (project / "notes" / "b.md").write_text("# Beta\n")
        while True:
            found = await content(client, "documents_list_collections")
            if found["collections"] == [{"collection": "notes", "documentCount": 2}]:
                return
            await anyio.sleep(0.05)

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "kb", "add", "notes", "--no-embed", "--quiet"]
    subprocess.run(command, cwd=project, env=environment, check=True)
    run(project, steps, "--watch")

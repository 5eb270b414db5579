"""The context family and the resources: a real server with a real client, and the command line."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from support import content_of

from kb.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 60  # only a guard


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / ".kb").mkdir(parents=True)
    (root / "auth").mkdir()
    (root / "auth" / "service.py").write_text("from auth.tokens import sign\n\nsign('jwt')\n")
    (root / "auth" / "tokens.py").write_text("def sign(text):\n    return text\n")
    (root / "pyproject.toml").write_text('[project]\nname = "shop"\n')
    return root


def test_a_session_with_a_real_client(project: Path) -> None:
    async def content(client: Client, name: str, **arguments: Any) -> Any:
        return content_of(await client.call_tool(name, arguments))

    async def resource(client: Client, uri: str) -> Any:
        return json.loads((await client.read_resource(uri)).contents[0].text)

    async def talk() -> None:
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "kb", "serve", "--tools", "context", "--rate-limit", "grep=2"],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        with anyio.fail_after(TIMEOUT):
            async with Client(parameters) as client:
                tools = (await client.list_tools()).tools
                names = {"context_search", "context_record", "read_file", "grep_codebase"}
                assert {tool.name for tool in tools} == names
                recorded = await content(
                    client, "context_record", content="We use JWT tokens in httpOnly cookies"
                )
                found = await content(
                    client, "context_search", query="where are the JWT tokens kept"
                )
                assert found["results"][0]["id"] == recorded["id"]
                session = found["results"][0]["session"]
                read = await content(client, "read_file", path="auth/service.py", includeDeps=True)
                assert [one["path"] for one in read["dependencies"]] == ["auth/tokens.py"]
                for _ in range(2):
                    assert (await content(client, "grep_codebase", pattern="sign"))["matches"]
                limited = await content(client, "grep_codebase", pattern="sign")
                assert limited["error"] == "Rate limit exceeded for grep_codebase"
                uris = {str(one.uri) for one in (await client.list_resources()).resources}
                assert "context://session/current" in uris
                templates = (await client.list_resource_templates()).resource_templates
                assert {one.uri_template for one in templates} == {
                    "context://module/{name}",
                    "kb://{collection}/{+document}",
                }
                current = await resource(client, "context://session/current")
                assert current["id"] == session
                assert current["client"]
                assert [file["path"] for file in current["filesRead"]] == ["auth/service.py"]
                overview = await resource(client, "context://project/overview")
                assert overview["stack"][0]["name"] == "shop"
                module = await resource(client, "context://module/auth")
                assert module["totalFiles"] == 2
                with pytest.raises(MCPError, match="not found"):
                    await client.read_resource("kb://none/x.md")

    anyio.run(talk)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code, capsys.readouterr().out


def test_the_command_line_records_recalls_greps_and_counts(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    code, out = run(capsys, "grep", "SIGN", "--glob", "**/tok*.py")
    assert (code, out) == (0, "auth/tokens.py:1:5:def sign(text):\n")
    assert run(capsys, "grep", "nothing")[0] == 1
    assert run(capsys, "grep", "[")[0] == 2
    code, out = run(capsys, "record", "Decided to keep tokens in cookies", "--module", "auth")
    assert code == 0
    assert out.startswith("recorded: decision of auth ")
    assert run(capsys, "record", "short")[0] == 2
    code, out = run(capsys, "recall", "where are tokens kept?", "--json")
    assert json.loads(out)["results"][0]["content"] == "Decided to keep tokens in cookies"
    code, out = run(capsys, "recall", "--module", "auth")
    assert "## auth\n\n### Decisions\n\n- Decided to keep tokens in cookies (" in out
    assert run(capsys, "recall", "--type", "rule")[0] == 1
    run(capsys, "tool", "read_file", '{"path": "auth/tokens.py"}')
    code, out = run(capsys, "status", "--json")
    assert json.loads(out)["topFiles"][0]["path"] == "auth/tokens.py"
    code, out = run(capsys, "status", "--calls", "--json")
    (row,) = json.loads(out)["calls"]
    assert (row["tool"], row["calls"], row["successRate"]) == ("read_file", 1, 1.0)


def test_activation_on_the_command_line_lasts(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    (project / "docs").mkdir()
    (project / "docs" / "a.md").write_text("# Tide tables\n\nWhen the water comes.\n")
    config = {"project_name": "shop", "external_docs": {"path": "docs"}}
    (project / ".kb" / "config.json").write_text(json.dumps(config))
    search = ("tool", "search_external_docs", '{"query": "tide tables"}')
    code, out = run(capsys, *search)
    assert (code, json.loads(out)["code"]) == (1, "PROJECT_NOT_ACTIVATED")
    assert run(capsys, "tool", "activate_project")[0] == 0
    code, out = run(capsys, *search)
    assert [row["path"] for row in json.loads(out)["results"]] == ["docs/a.md"]
    code, out = run(capsys, "status", "--json")
    (collection,) = json.loads(out)["collections"]
    assert run(capsys, "remove", collection["collection"])[0] == 0

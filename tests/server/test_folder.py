"""One server for a folder of files: each at its own address, for its own tokens."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from http_process import INITIALIZE, HttpServer
from mcp import Client
from server_process import HANGS, environment
from support import content_of
from test_authentication import bearer, made, revoked, with_client

OWNER = "correct-horse-battery-staple"
QUESTION = {"query": "vane", "limit": 1}


class FolderServer(HttpServer):
    def __init__(self, folder: Path, *more: str, **variables: str) -> None:
        super().__init__(None, "--db-folder", str(folder), *more, **variables)


@pytest.fixture
def team(tmp_path: Path, windrose_file: Path) -> Path:
    """A folder with two files: of the handbook, and of one note."""
    folder = tmp_path / "team"
    folder.mkdir()
    shutil.copy(windrose_file, folder / "handbook.db")
    note = json.dumps({"doc_id": "n", "content": "heliotrope vane"})
    command = [sys.executable, "-m", "kb", "--db", str(folder / "notes.db")]
    done = subprocess.run(
        [*command, "tool", "search_add_document", note], env=environment(), capture_output=True
    )
    assert done.returncode == 0, done.stderr
    return folder


def found(server: HttpServer, name: str, token: str = "", query: str = "vane") -> Any:
    """What a file answers: its status, and the documents."""
    asked = {"query": query, "limit": 3}
    headers = bearer(token) if token else {}
    status, _, text = server.request("POST", f"/{name}/api/search", asked, headers)
    return status, [row["documentId"] for row in json.loads(text)["rows"]] if status == 200 else []


def test_each_file_answers_at_its_address_and_for_its_own_tokens(team: Path) -> None:
    tokens = {name: made(team / f"{name}.db", "anna", "write") for name in ("handbook", "notes")}

    async def use(client: Client) -> None:
        answer = content_of(await client.call_tool("documents_search", QUESTION))
        documents.append(answer["results"][0]["documentId"])

    documents: list[str] = []
    with FolderServer(team) as server:
        for name, token in tokens.items():
            with_client(f"http://127.0.0.1:{server.port}/{name}/mcp", token, use)
        assert documents[0].endswith(".md")  # of the handbook, whichever ranks first
        assert documents[1:] == ["n"]
        for name, other in (("handbook", "notes"), ("notes", "handbook")):
            assert found(server, name, tokens[other]) == (401, [])
            assert found(server, name) == (401, [])
        assert found(server, "notes", tokens["notes"])[1] == ["n"]
        assert "n" not in found(server, "handbook", tokens["handbook"], "heliotrope")[1]
        _, errors = server.end()
    assert errors == ""
    assert sorted(os.listdir(team)) == ["handbook.db", "notes.db"]


def test_files_that_come_later_are_found_and_those_that_go_are_gone(team: Path) -> None:
    with FolderServer(team, KB_TOKEN=OWNER) as server:
        assert found(server, "late", OWNER)[0] == 404
        shutil.copy(team / "notes.db", team / "late.db")
        assert found(server, "late", OWNER) == (200, ["n"])
        (team / "late.db").unlink()
        assert found(server, "late", OWNER)[0] == 404
        shutil.copy(team / "handbook.db", team / "new.db")
        os.replace(team / "new.db", team / "notes.db")  # another one under the same name
        status, documents = found(server, "notes", OWNER)
        assert (status, len(documents), "n" in documents) == (200, 3, False)


def test_a_file_that_is_open_is_served_without_a_look_into_the_folder(team: Path) -> None:
    with FolderServer(team, KB_TOKEN=OWNER) as server:
        assert found(server, "notes", OWNER) == (200, ["n"])
        (team / "notes.db").rename(team.parent / "elsewhere.db")
        (team / "notes.db").symlink_to(team.parent / "elsewhere.db")  # a look would not find it
        assert found(server, "notes", OWNER) == (200, ["n"])


def test_who_shows_no_token_has_no_folder_read(team: Path) -> None:
    with FolderServer(team, KB_TOKEN=OWNER) as server:
        team.rename(team.parent / "away")
        assert found(server, "notes", OWNER)[0] == 503  # it cannot be read
        assert found(server, "notes")[0] == 401


@pytest.mark.parametrize("asks", [True, False], ids=["with a token", "without"])
def test_names_cannot_be_told_apart_without_a_valid_token(asks: bool, team: Path) -> None:
    for name in ("handbook", "notes"):
        made(team / f"{name}.db", "anna")
    (team / "broken.db").write_bytes(b"no database, but long enough to look at" * 100)
    shown: list[dict[str, str]] = [
        {},
        bearer("kb_wrong"),
        {"Authorization": "Basic a"},
        {"Cookie": "kb_token=kb_wrong"},
    ]
    with FolderServer(team, **({"KB_TOKEN": OWNER} if asks else {})) as server:
        for path in ("mcp", "mcp/", "api/search", "", "doc?id=x", "?token=kb_wrong"):
            for method in ("GET", "POST", "DELETE", "PUT", "OPTIONS"):
                for headers in shown:
                    answers = {
                        answer(server, method, f"/{name}/{path}", headers)
                        for name in ("handbook", "broken", "gone", "handbook.db", "a" * 3000, "%00")
                    }
                    assert len(answers) == 1, (method, path, headers)
                    assert next(iter(answers))[0] == 401


def answer(server: HttpServer, method: str, path: str, headers: dict[str, str]) -> Any:
    """All of an answer but when it was given."""
    status, found, text = server.request(method, path, QUESTION, headers)
    return status, tuple(sorted({**found, "date": ""}.items())), text


def test_a_damaged_file_is_told_and_the_others_answer(team: Path) -> None:
    (team / "broken.db").write_bytes(b"no database, but long enough to look at" * 100)
    with FolderServer(team, KB_TOKEN=OWNER) as server:
        status, _, text = server.request("POST", "/broken/mcp", INITIALIZE, bearer(OWNER))
        assert status == 503
        assert "others are served" in json.loads(text)["error"]["message"]
        assert found(server, "notes", OWNER) == (200, ["n"])
        listed = json.loads(server.request("GET", "/", None, bearer(OWNER))[2])["files"]
        assert [one["name"] for one in listed] == ["broken", "handbook", "notes"]
        assert "damaged or no SQLite file" in listed[0]["problem"]
        shutil.copy(team / "notes.db", team / "broken.db")
        assert found(server, "broken", OWNER) == (200, ["n"])
        _, errors = server.end()
    assert errors.count("damaged or no SQLite file") == 1


@pytest.mark.parametrize(
    "path",
    [
        "/../outside/mcp",
        "/%2e%2e%2foutside/mcp",
        "/..%2foutside/mcp",
        "//etc/passwd/mcp",
        "/handbook.db/mcp",
        "/link/mcp",
        "/.hidden/mcp",
        "/sub%2finner/mcp",
        "/sub/inner/mcp",
        "/./mcp",
        "/%00/mcp",
        "/HANDBOOK/mcp",
        "/mcp",
        "/",
    ],
)
def test_no_address_leads_out_of_the_folder(path: str, odd_server: HttpServer) -> None:
    token = {"Authorization": f"Bearer {OWNER}"}
    assert odd_server.request("POST", path, INITIALIZE, token)[0] == 404 or path == "/"
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        status, _, text = odd_server.request("POST", path, INITIALIZE, headers)
        assert status == 401
        assert "handbook" not in text


@pytest.fixture(scope="module")
def odd_server(windrose_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("folder") / "team"
    (folder / "sub").mkdir(parents=True)
    for place in ("handbook.db", "../outside.db", ".hidden.db", "sub/inner.db"):
        shutil.copy(windrose_file, folder / place)
    (folder / "link.db").symlink_to(folder.parent / "outside.db")
    with FolderServer(folder, KB_TOKEN=OWNER) as server:
        yield server


def test_a_file_of_a_folder_has_no_project_on_the_servers_disk(team: Path) -> None:
    (team / "secret.md").write_text("the other file is heliotrope")
    (team / "handbook").mkdir()
    (team / "handbook" / "beside.md").write_text("on the disk of the server")
    token = made(team / "handbook.db", "anna", "write")

    async def use(client: Client) -> None:
        for path in ("secret.md", "../team/secret.md", str(team / "secret.md"), "beside.md"):
            refused = await client.call_tool("read_file", {"path": path})
            assert refused.is_error
        stored = await client.call_tool("read_file", {"path": "how-to/calibrate the vane.md"})
        assert content_of(stored)["metadata"]["origin"] == "stored"
        grepped = content_of(await client.call_tool("grep_codebase", {"pattern": "heliotrope"}))
        assert grepped["totalMatches"] == 0
        activated = await client.call_tool("activate_project", {})
        assert content_of(activated)["code"] == "PERMISSION_DENIED"
        for uri in ("context://project/overview", "context://sessions/recent"):
            text = (await client.read_resource(uri)).contents[0].text
            assert "beside.md" not in text

    with FolderServer(team, "--root", str(team)) as server:
        with_client(f"http://127.0.0.1:{server.port}/handbook/mcp", token, use)
        revoked(team / "handbook.db", "anna")
        assert found(server, "handbook", token)[0] == 401


@pytest.mark.parametrize(
    "words",
    [
        ["--db-folder", "."],
        ["--db-folder", ".", "--http", "127.0.0.1:0", "--db", "x.db"],
        ["--db-folder", "nowhere", "--http", "127.0.0.1:0"],
        ["--access-log", "-"],
        ["--http", "127.0.0.1:0", "--log-queries"],
        ["--http", "127.0.0.1:0", "--access-log", "nowhere/x.log"],
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_refused_before_anything_is_served(
    words: list[str], tmp_path: Path
) -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "kb", "serve", *words],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANGS,
    )
    assert refused.returncode in (2, 3)
    assert len(refused.stderr.splitlines()) == 1

"""read_file, grep_codebase and the resources on a small project."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import HashEmbedder, call, failure

from kb.errors import ResourceNotFound, UsageError
from kb.ingest.embed import embed_pending
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.server.features import document_uri, list_resources, read_resource
from kb.store.database import Database
from kb.tools.session import Session, open_session

FILES = {
    "package.json": '{"name": "shop", "version": "1.2.0", "dependencies": {"jsonwebtoken": "9"}}',
    "src/server/auth/AuthService.ts": (
        "import { TokenManager } from './TokenManager';\n"
        "import { UserRepository } from '../users/UserRepository';\n"
        "import jwt from 'jsonwebtoken';\n\n"
        "// Generate JWT token\nfunction generateToken(payload) {\n"
        "  const token = jwt.sign(payload, SECRET);\n  return token;\n}\n"
    ),
    "src/server/auth/TokenManager.ts": "export class TokenManager {}\n",
    "src/server/users/UserRepository.ts": "export class UserRepository {}\n",
    "broken.py": "import (\n",
    "docs/guide.md": "# Guide\n\nHow jwt.sign is used.\n",
    "docs/a b#c.md": "# Odd name\n",
    ".gitignore": "dist/\n*.log\n",
    "debug.log": "jwt.sign",
    ".env": "SECRET=jwt.sign",
}
AUTH = "src/server/auth/AuthService.ts"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (root / "big.txt").write_bytes(b"x" * 1_100_000)
    return root


@pytest.fixture
def shop(project: Path, embedder: HashEmbedder) -> Iterator[Session]:
    """A knowledge base of the project with its docs as a collection."""
    with open_session(
        Database(project / ".kb" / "kb.db"), project=project, make_embedder=lambda _: embedder
    ) as knowledge:
        sync_collection(knowledge.database, register(knowledge.database, str(project / "docs")))
        embed_pending(knowledge.model)
        yield knowledge


def test_a_file_comes_with_what_it_is(shop: Session) -> None:
    result = call(shop, "read_file", path=AUTH)
    modified = result["metadata"].pop("lastModified")
    assert modified.endswith("Z")
    assert result == {
        "file": {
            "path": AUTH,
            "content": FILES[AUTH],
            "size": len(FILES[AUTH]),
            "lines": 9,
            "language": "typescript",
        },
        "dependencies": [],
        "metadata": {"module": "auth", "role": "core", "origin": "disk"},
    }


def test_imports_come_with_their_content(shop: Session) -> None:
    result = call(shop, "read_file", path=AUTH, includeDeps=True)
    assert result["dependencies"] == [
        {"path": path, "type": "import", "level": 1, "content": FILES[path]}
        for path in ("src/server/auth/TokenManager.ts", "src/server/users/UserRepository.ts")
    ]
    result = call(shop, "read_file", path=AUTH, includeDeps=True, maxDepth=0)
    assert result["dependencies"] == []


def test_a_range_of_lines_is_read(shop: Session) -> None:
    file = call(shop, "read_file", path=AUTH, startLine=5, endLine=6)["file"]
    assert file["content"] == "// Generate JWT token\nfunction generateToken(payload) {"
    assert (file["startLine"], file["endLine"], file["lines"]) == (5, 6, 9)
    assert failure(shop, "read_file", path=AUTH, startLine=10)["totalLines"] == 9
    assert "lies before" in failure(shop, "read_file", path=AUTH, startLine=3, endLine=2)["error"]


def test_a_reply_never_exceeds_its_budget(shop: Session, project: Path) -> None:
    shop.reply_tokens = 40
    result = call(shop, "read_file", path=AUTH, includeDeps=True)
    assert result["truncated"]
    assert result["file"]["content"].startswith("import { TokenManager }")
    assert f"startLine {result['file']['endLine'] + 1}" in result["notice"]
    assert all(one["truncated"] for one in result["dependencies"])


def test_a_line_longer_than_a_reply_is_read_in_parts(shop: Session, project: Path) -> None:
    text = "".join(f"{number}," for number in range(300)) + "\nlast"
    (project / "long.csv").write_text(text)
    shop.reply_tokens = 60
    parts: list[str] = []
    notice = "startLine 1"
    while notice:
        line = int(re.findall(r"startLine (\d+)", notice)[0])
        start = int((re.findall(r"startCharacter (\d+)", notice) or [0])[0])
        arguments = {"path": "long.csv", "startLine": line, "startCharacter": start}
        result = call(shop, "read_file", **arguments)
        joint = "" if start or not parts else "\n"
        parts.append(joint + result["file"]["content"])
        notice = result.get("notice", "")
    assert len(parts) > 2
    assert "".join(parts) == text


@pytest.mark.parametrize(
    ("path", "error", "code"),
    [
        ("invalid/path.ts", "File not found", "FILE_NOT_FOUND"),
        ("/etc/passwd", "Absolute paths not allowed", "PERMISSION_DENIED"),
        ("../../../etc/passwd", "Path traversal not allowed", "PERMISSION_DENIED"),
        (".env", "Permission denied", "PERMISSION_DENIED"),
        ("big.txt", "File too large", "FILE_TOO_LARGE"),
        ("logo.png", "Cannot show a binary file", "FILE_SYSTEM_ERROR"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_path(
    shop: Session, path: str, error: str, code: str
) -> None:
    result = failure(shop, "read_file", path=path)
    assert result["error"].startswith(error)
    assert (result["code"], result["path"]) == (code, path)


def test_a_syntax_error_matters_only_with_imports(shop: Session) -> None:
    assert call(shop, "read_file", path="broken.py")["file"]["content"] == "import (\n"
    result = failure(shop, "read_file", path="broken.py", includeDeps=True)
    assert (result["error"], result["path"]) == ("Failed to parse imports", "broken.py")
    assert result["details"]


def test_each_read_counts_on_its_file(shop: Session) -> None:
    for _ in range(3):
        call(shop, "read_file", path=AUTH, includeDeps=True)
    failure(shop, "read_file", path="none.ts")
    shop.flush()
    with shop.database.read() as connection:
        (row,) = connection.rows("file_accesses")
    assert (row["path"], row["module"], row["access_count"]) == (AUTH, "auth", 3)


def test_matches_come_with_place_and_context(shop: Session) -> None:
    result = call(shop, "grep_codebase", pattern=r"jwt\.sign", filePattern="**/*.ts")
    assert isinstance(result.pop("searchTime"), int)
    assert result == {
        "matches": [
            {
                "file": AUTH,
                "line": 7,
                "column": 17,
                "text": "  const token = jwt.sign(payload, SECRET);",
                "context": {
                    "before": ["// Generate JWT token", "function generateToken(payload) {"],
                    "after": ["  return token;", "}"],
                },
            }
        ],
        "pattern": r"jwt\.sign",
        "totalMatches": 1,
        "filesSearched": 3,
        "searched": "disk",
    }


def test_hidden_and_ignored_files_are_not_searched(shop: Session) -> None:
    found = call(shop, "grep_codebase", pattern="JWT.SIGN")
    assert [match["file"] for match in found["matches"]] == ["docs/guide.md", AUTH]
    assert call(shop, "grep_codebase", pattern="JWT.SIGN", caseSensitive=True)["matches"] == []
    found = call(shop, "grep_codebase", pattern="import", limit=1)
    assert (len(found["matches"]), found["totalMatches"]) == (1, 4)


def test_no_match_is_no_error_and_a_bad_pattern_is(shop: Session) -> None:
    result = call(shop, "grep_codebase", pattern="nonexistent")
    assert (result["matches"], result["totalMatches"]) == ([], 0)
    assert result["message"] == "No matches found for pattern 'nonexistent'"
    error = failure(shop, "grep_codebase", pattern="[invalid(")
    assert (error["error"], error["pattern"]) == ("Invalid regex pattern", "[invalid(")
    assert error["code"] == "INVALID_PATTERN"


def test_a_copied_file_alone_answers(
    shop: Session, project: Path, tmp_path: Path, embedder: HashEmbedder
) -> None:
    shop.close()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(project / ".kb" / "kb.db", elsewhere / "kb.db")
    shutil.rmtree(project)
    with open_session(
        Database(elsewhere / "kb.db"), project=elsewhere, make_embedder=lambda _: embedder
    ) as kb:
        found = call(kb, "grep_codebase", pattern=r"jwt\.sign")
        assert [(match["file"], match["line"]) for match in found["matches"]] == [
            ("docs/guide.md", 3)
        ]
        assert found["searched"] == "stored"
        assert "not here" in found["notice"]
        for path in ("guide.md", "docs/guide.md"):
            result = call(kb, "read_file", path=path)
            assert result["file"]["content"] == FILES["docs/guide.md"]
            assert result["metadata"]["origin"] == "stored"
            assert "not here" in result["notice"]
        assert failure(kb, "read_file", path="../guide.md")["code"] == "PERMISSION_DENIED"
        missing = failure(kb, "read_file", path="docs/giude.md")
        assert (missing["error"], missing["code"]) == ("File not found", "FILE_NOT_FOUND")
        assert missing["suggestions"][0] == "docs/guide.md"
        assert "not here" in missing["notice"]
        assert json.loads(read_resource(kb, "context://project/overview")[1])["notice"]


def read_json(kb: Session, uri: str) -> dict[str, Any]:
    mime_type, text = read_resource(kb, uri)
    assert mime_type == "application/json"
    content: dict[str, Any] = json.loads(text)
    return content


def test_the_overview_tells_stack_modules_and_key_files(shop: Session) -> None:
    call(shop, "read_file", path=AUTH)
    call(shop, "context_record", content="We use JWT tokens in cookies", module="auth")
    shop.flush()
    overview = read_json(shop, "context://project/overview")
    assert overview["name"] == "shop"
    assert overview["stack"] == [
        {
            "manifest": "package.json",
            "language": "JavaScript",
            "name": "shop",
            "version": "1.2.0",
            "dependencies": ["jsonwebtoken"],
        }
    ]
    auth = next(module for module in overview["modules"] if module["name"] == "auth")
    assert (auth["files"], auth["discoveries"]) == (2, 1)
    assert [file["path"] for file in overview["keyFiles"]] == [AUTH]
    assert overview["collections"] == [{"collection": "docs", "kind": "documents", "documents": 2}]
    assert ".env" not in json.dumps(overview)


def test_a_module_shows_its_files_and_discoveries(shop: Session) -> None:
    call(shop, "context_record", content="We use JWT tokens in cookies", module="auth")
    module = read_json(shop, "context://module/auth")
    assert {file["path"] for file in module["files"]} == {
        AUTH,
        "src/server/auth/TokenManager.ts",
    }
    assert module["discoveries"][0]["content"] == "We use JWT tokens in cookies"
    with pytest.raises(ResourceNotFound, match="Did you mean auth"):
        read_resource(shop, "context://module/auht")


def test_the_session_is_a_resource(shop: Session) -> None:
    assert read_json(shop, "context://session/current")["session"] == "none"
    shop.log.begin("client 1.0")
    call(shop, "read_file", path=AUTH)
    call(shop, "grep_codebase", pattern="token")
    recorded = call(shop, "context_record", content="We use JWT tokens in cookies")
    session = read_json(shop, "context://session/current")
    assert [file["path"] for file in session["filesRead"]] == [AUTH]
    assert [query["query"] for query in session["queries"]] == ["token"]
    assert [one["id"] for one in session["discoveries"]] == [recorded["id"]]
    (recent,) = read_json(shop, "context://sessions/recent")["sessions"]
    assert (recent["id"], recent["queries"]) == (session["id"], 1)


def test_every_document_has_an_address(shop: Session) -> None:
    resources, more = list_resources(shop)
    assert more == ""
    uris = [resource.uri for resource in resources]
    assert uris[3:] == ["kb://docs/a%20b%23c.md", "kb://docs/guide.md"]
    for resource in resources:
        assert read_resource(shop, resource.uri)[1]
    assert read_resource(shop, "kb://DOCS/guide.md") == ("text/markdown", FILES["docs/guide.md"])
    assert document_uri("a/b", "c d/e.md") == "kb://a%2Fb/c%20d/e.md"


@pytest.mark.parametrize(
    "uri",
    ["", "kb://", "kb://docs", "kb://docs/", "kb://none/x", "kb://docs/../.env", "context://x",
     "file:///etc/passwd", "kb://docs/%00", "context://module/"],
)  # fmt: skip
def test_what_is_not_there_is_a_clean_error(shop: Session, uri: str) -> None:
    with pytest.raises(ResourceNotFound):
        read_resource(shop, uri)


def test_long_lists_come_in_pages(shop: Session, project: Path) -> None:
    for number in range(250):
        (project / "docs" / f"n{number:03}.md").write_text(f"# {number}\n")
    with shop.database.read() as connection:
        docs = shop.names.collection(connection, "docs")
    sync_collection(shop.database, docs)
    first, cursor = list_resources(shop)
    second, more = list_resources(shop, cursor)
    assert len({one.uri for one in first + second}) == 3 + 252
    assert more == ""
    with pytest.raises(UsageError):
        list_resources(shop, "x")


def test_of_an_import_the_names_come_that_the_lines_use(shop: Session, project: Path) -> None:
    (project / "wind.py").write_text("from vane import turn, lower\n\n\nturn(1)\n")
    filler = f'"""{"Vanes. " * 100}"""\n'
    turn = 'def turn(degrees):\n    """Turn it."""'
    text = f"{filler}\n\n{turn}\n    return degrees\n\n\ndef lower():\n    return 1\n"
    (project / "vane.py").write_text(text)
    read = call(shop, "read_file", path="wind.py", includeDeps=True, startLine=4)
    [dependency] = read["dependencies"]
    assert dependency == {
        "path": "vane.py",
        "type": "import",
        "level": 1,
        "content": turn,
        "truncated": True,
    }
    whole = call(shop, "read_file", path="wind.py", includeDeps=True)["dependencies"][0]
    assert whole["content"] == f"{turn}\n…\ndef lower():"
    assert call(shop, "read_file", path="vane.py")["file"]["content"] == text


def test_many_matches_come_without_context_unless_it_is_asked_for(
    shop: Session, project: Path
) -> None:
    (project / "many.txt").write_text("above\nneedle\n" * 11)
    few = call(shop, "grep_codebase", pattern="needle", limit=10)["matches"]
    assert few[1]["context"] == {"before": ["needle", "above"], "after": ["above", "needle"]}
    many = call(shop, "grep_codebase", pattern="needle")["matches"]
    assert {json.dumps(row["context"]) for row in many} == {'{"before": [], "after": []}'}
    assert [row["line"] for row in many] == [*range(2, 23, 2)]
    wide = call(shop, "grep_codebase", pattern="needle", contextLines=1)["matches"]
    assert wide[1]["context"] == {"before": ["above"], "after": ["above"]}
    none = call(shop, "grep_codebase", pattern="needle", limit=1, contextLines=0)["matches"]
    assert none[0]["context"] == {"before": [], "after": []}


def test_a_search_of_discoveries_keeps_the_length_that_is_asked_for(shop: Session) -> None:
    places = ("harbour", "runway", "summit", "desert", "glacier", "lighthouse")
    for place in places:
        content = f"The {place} has a sensor. " + f"Crew {place} oils its {place} hinge. " * 12
        call(shop, "context_record", content=content, type="pattern", module=place)
    request = {"query": "sensor hinge", "limit": 20}
    whole = call(shop, "context_search", **request)
    assert len(whole["results"]) == len(places)
    for most in (500, 1000, 2000):
        part = call(shop, "context_search", **request, maxCharacters=most)
        assert len(json.dumps(part, ensure_ascii=False, separators=(",", ":"))) <= most
        *full, last = part["results"]
        assert full == whole["results"][: len(full)]
        assert last["id"] == whole["results"][len(full)]["id"]
        if last.get("truncated"):
            assert last["content"].endswith(". …")
        assert part["truncated"] is True
        assert f"{most:,} characters hold {len(full) + 1} of 6 rows" in part["notice"]
    same = call(shop, "context_search", **request, maxCharacters=40_000)
    assert [row["id"] for row in same["results"]] == [row["id"] for row in whole["results"]]
    assert "notice" not in same
    refused = failure(shop, "context_search", query="sensor hinge", maxCharacters=499)
    assert "500 to 40,000" in refused["error"]

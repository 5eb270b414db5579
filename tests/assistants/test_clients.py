"""Where clients keep their settings, and with which command they start the server."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kb.assistants.catalog import (
    ASSISTANTS,
    Machine,
    is_ours,
    program,
    project_file,
    shared_program,
    user_file,
)
from kb.assistants.install import erase_lines, installed, write_lines
from kb.assistants.launch import NoAnswer, Place, server_command, start_once

HOME = Path("/home/mira")


@pytest.mark.parametrize(
    ("name", "linux", "darwin", "win32"),
    [
        ("claude-code", ".claude.json", ".claude.json", ".claude.json"),
        (
            "claude-desktop",
            ".config/Claude/claude_desktop_config.json",
            "Library/Application Support/Claude/claude_desktop_config.json",
            "AppData/Roaming/Claude/claude_desktop_config.json",
        ),
        ("cursor", ".cursor/mcp.json", ".cursor/mcp.json", ".cursor/mcp.json"),
        (
            "vscode",
            ".config/Code/User/mcp.json",
            "Library/Application Support/Code/User/mcp.json",
            "AppData/Roaming/Code/User/mcp.json",
        ),
        ("codex", ".codex/config.toml", ".codex/config.toml", ".codex/config.toml"),
        ("gemini", ".gemini/settings.json", ".gemini/settings.json", ".gemini/settings.json"),
        (
            "zed",
            ".config/zed/settings.json",
            ".config/zed/settings.json",
            "AppData/Roaming/Zed/settings.json",
        ),
        (
            "opencode",
            ".config/opencode/opencode.json",
            ".config/opencode/opencode.json",
            ".config/opencode/opencode.json",
        ),
    ],
)
def test_each_system_has_its_places(name: str, linux: str, darwin: str, win32: str) -> None:
    for platform, expected in (("linux", linux), ("darwin", darwin), ("win32", win32)):
        machine = Machine(platform, HOME, {})
        assert user_file(ASSISTANTS[name], machine) == HOME / expected


def test_on_the_far_end_of_a_remote_window_the_file_is_that_of_its_server(tmp_path: Path) -> None:
    machine = Machine("linux", tmp_path, {})
    own, remote = tmp_path / ".config" / "Code" / "User", tmp_path / ".vscode-server/data/User"
    remote.mkdir(parents=True)
    assert user_file(ASSISTANTS["vscode"], machine) == remote / "mcp.json"
    own.mkdir(parents=True)
    assert user_file(ASSISTANTS["vscode"], machine) == own / "mcp.json"
    (remote / "mcp.json").touch()
    assert user_file(ASSISTANTS["vscode"], machine) == remote / "mcp.json"


def test_variables_of_the_clients_move_their_files() -> None:
    machine = Machine(
        "linux",
        HOME,
        {
            "XDG_CONFIG_HOME": "/xdg",
            "CLAUDE_CONFIG_DIR": "/claude",
            "CODEX_HOME": "/codex",
            "GEMINI_CLI_HOME": "/gemini",
        },
    )
    found = {name: str(user_file(assistant, machine)) for name, assistant in ASSISTANTS.items()}
    assert found["claude-code"] == "/claude/.claude.json"
    assert found["codex"] == "/codex/config.toml"
    assert found["gemini"] == "/gemini/.gemini/settings.json"
    assert found["zed"] == "/xdg/zed/settings.json"
    assert found["opencode"] == "/xdg/opencode/opencode.json"


def test_a_packaged_claude_desktop_of_windows_has_its_own_place(tmp_path: Path) -> None:
    roaming = tmp_path / "AppData" / "Roaming" / "Claude" / "claude_desktop_config.json"
    roaming.parent.mkdir(parents=True)
    roaming.write_text("{}")
    machine = Machine("win32", tmp_path, {})
    assert user_file(ASSISTANTS["claude-desktop"], machine) == roaming
    package = tmp_path / "AppData" / "Local" / "Packages" / "Claude_pzs8sxrjxfjjc"
    package.mkdir(parents=True)
    expected = package / "LocalCache" / "Roaming" / "Claude" / "claude_desktop_config.json"
    assert user_file(ASSISTANTS["claude-desktop"], machine) == expected


def test_the_file_that_is_there_is_the_one_that_is_meant(tmp_path: Path) -> None:
    assert project_file(ASSISTANTS["opencode"], tmp_path) == tmp_path / "opencode.json"
    (tmp_path / "opencode.jsonc").write_text("{}")
    assert project_file(ASSISTANTS["opencode"], tmp_path) == tmp_path / "opencode.jsonc"
    assert project_file(ASSISTANTS["claude-desktop"], tmp_path) is None


def test_the_command_says_which_project_where_the_folder_does_not() -> None:
    place = Place(Path("/p"))
    found = {
        name: server_command(assistant, ["/bin/kb"], place)
        for name, assistant in ASSISTANTS.items()
    }
    plain = ["/bin/kb", "serve"]
    assert found["claude-code"] == found["codex"] == found["gemini"] == plain
    assert found["zed"] == found["opencode"] == plain
    assert found["cursor"] == [*plain, "--root", "${workspaceFolder}"]
    assert found["vscode"] == found["claude-desktop"] == [*plain, "--root", "/p"]
    own = Place(Path("/p"), [Path("/x.db"), Path("/y.db")], is_project_file=True)
    assert server_command(ASSISTANTS["vscode"], ["/bin/kb"], own) == [
        "/bin/kb",
        "--db",
        "/x.db",
        "--db",
        "/y.db",
        "serve",
    ]


def test_the_program_is_named_by_an_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "bin" / "kb"
    script.parent.mkdir()
    target = tmp_path / "venv-1.0" / "kb"
    target.parent.mkdir()
    target.touch()
    script.symlink_to(target)
    assert program(str(script), "/usr/bin/python3") == [str(script)]
    monkeypatch.chdir(tmp_path)
    assert program("bin/kb", "/usr/bin/python3") == [str(script)]
    script.with_name("kbfile").symlink_to(target)
    target.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent))
    assert program("kbfile", "/usr/bin/python3") == [str(script.with_name("kbfile"))]
    module = program("/lib/python3/kb/__main__.py", "/venv/bin/python")
    assert module == ["/venv/bin/python", "-P", "-m", "kb"]


def test_a_project_shares_a_command_without_a_path_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    own = [str(tmp_path / "kb")]
    python = "/venv/bin/python"
    assert shared_program(own, python) == ["uvx", "kbfile"]
    script = tmp_path / "kb"
    script.touch(0o755)
    assert shared_program(own, python) == ["kb"]
    assert shared_program([str(tmp_path / "python"), "-P", "-m", "kb"], python) == ["kb"]
    # Another program of that name is on the path, such as the one that Debian has.
    assert shared_program(["/opt/kb/bin/kb"], python) == ["uvx", "kbfile"]
    script.rename(tmp_path / "kbfile")
    assert shared_program(own, python) == ["kbfile"]
    inside, outside = tmp_path / "notes" / "own.db", Path("/elsewhere/x.db")
    place = Place(tmp_path, [inside, outside], is_project_file=True)
    command = server_command(ASSISTANTS["vscode"], ["kb"], place)
    assert command == ["kb", "--db", "notes/own.db", "--db", "/elsewhere/x.db", "serve"]


def test_a_program_that_is_run_from_a_cache_is_started_by_its_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("uvx", "pipx"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o755)
    cached = "/home/mira/.cache/uv/archive-v0/abc/bin"
    monkeypatch.setenv("PATH", "")
    assert program(f"{cached}/kb", f"{cached}/python") == [f"{cached}/python", "-P", "-m", "kb"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program(f"{cached}/kb", f"{cached}/python") == [str(tmp_path / "uvx"), "kbfile"]
    run = "/home/mira/.local/pipx/.cache/abc/bin"
    assert program(f"{run}/kb", f"{run}/python") == [str(tmp_path / "pipx"), "run", "kbfile"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["/usr/bin/kb", "serve"], True),
        (["C:\\Users\\mira\\kbfile.exe", "--db", "x", "serve"], True),
        (["/usr/bin/python3", "-P", "-m", "kb", "serve"], True),
        (["/usr/bin/uvx", "kbfile", "serve"], True),
        (["/usr/bin/keyboard", "serve"], False),
        (["/usr/bin/kb"], False),
        (["/usr/bin/other", "serve", "kb"], False),
        ([], False),
    ],
)
def test_a_command_of_ours_is_known(command: list[str], expected: bool) -> None:
    assert is_ours(command) is expected


PROGRAM = [sys.executable, "-P", "-m", "kb"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["claude-code", "claude-desktop"])
def test_the_server_answers_where_the_client_starts_it(name: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    assistant, place = ASSISTANTS[name], Place(project)
    command = server_command(assistant, PROGRAM, place)
    entry = {"command": command[0], "args": command[1:], "env": {"KB_NOTHING": "1"}}
    answer = start_once(assistant, entry, place)
    assert (answer.name, answer.tools > 10) == ("kb", True)
    assert not list(project.iterdir())  # looking makes no knowledge base


def test_a_server_that_does_not_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    assistant, place = ASSISTANTS["claude-code"], Place(tmp_path)
    failing = "import sys; print('first'); sys.exit('no such thing')"
    for command, expected in (
        ([sys.executable, "-c", failing], "no such thing"),
        (["/nowhere/kb", "serve"], "/nowhere/kb"),
        (["no-such-kb", "serve"], "no program to start: no-such-kb serve"),
    ):
        with pytest.raises(NoAnswer, match=expected):
            start_once(assistant, {"command": command[0], "args": command[1:]}, place)


@pytest.mark.parametrize("environment", [{"KB_DB": 1}, "KB_DB=x", ["x"]])
def test_an_odd_environment_is_told(environment: object, tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": ["serve"], "env": environment}
    with pytest.raises(NoAnswer, match="environment variables"):
        start_once(ASSISTANTS["claude-code"], entry, Place(tmp_path))


@pytest.mark.parametrize("arguments", [None, "serve", 7, {}])
def test_odd_arguments_are_none(arguments: object, tmp_path: Path) -> None:
    path = tmp_path / ".mcp.json"
    path.write_text(json.dumps({"mcpServers": {"kb": {"command": "kb", "args": arguments}}}))
    assert installed(ASSISTANTS["claude-code"], path) == {}


@pytest.mark.parametrize("before", ["", "# Agents\n", "# Agents", "# Agents\r\n\r\n- be brief\r\n"])
def test_instructions_come_once_and_go_without_a_trace(before: str, tmp_path: Path) -> None:
    path = tmp_path / "AGENTS.md"
    if before:
        path.write_bytes(before.encode())
    assert write_lines(path)
    text = path.read_bytes().decode()
    assert text.startswith(before)
    assert "documents_search" in text
    assert "\n" not in text.replace("\r\n", "") or "\r" not in text
    assert not write_lines(path)
    path.write_bytes(text.replace("cite", "name").encode())
    assert write_lines(path)  # an older wording is brought up to date
    assert path.read_bytes().decode() == text
    assert erase_lines(path)
    assert (path.read_bytes().decode() if path.exists() else "") == before
    assert not erase_lines(path)

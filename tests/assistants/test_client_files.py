"""The configuration files of clients: one entry comes and goes, all else stays byte for byte."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import ROOT

from kb.assistants.catalog import ASSISTANTS, Assistant, command_of, make_entry, servers_keys
from kb.assistants.config_file import BACKUP_SUFFIX, look_up
from kb.assistants.install import (
    ABSENT,
    ADDED,
    CHANGED,
    REMOVED,
    UNCHANGED,
    apply,
    plan_install,
    plan_uninstall,
)
from kb.errors import ConfigurationError, UsageError

FOLDER = ROOT / "fixtures" / "clients"
SOUND = sorted((FOLDER / "sound").iterdir())
BROKEN = sorted((FOLDER / "broken").iterdir())
WITHOUT_KB = [file for file in SOUND if "old" not in file.name]
COMMAND = ["/opt/kb tools/bin/kb", "serve", "--root", "/home/mira/größe"]
CRLF: Callable[[bytes], bytes] = lambda data: data.replace(b"\n", b"\r\n")  # noqa: E731
VARIANTS: dict[str, Callable[[bytes], bytes]] = {
    "as it is": bytes,
    "CRLF": CRLF,
    "with a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
}


def assistant_of(file: Path) -> Assistant:
    return ASSISTANTS[file.name.split("--")[0]]


def values(assistant: Assistant, path: Path) -> Any:
    return assistant.format.read(path.read_bytes().decode("utf-8-sig"))


def install(assistant: Assistant, path: Path, command: list[str] = COMMAND) -> str:
    change = plan_install(assistant, path, "kb", command)
    apply(change)
    return change.status


def uninstall(assistant: Assistant, path: Path) -> str:
    change = plan_uninstall(assistant, path, "kb")
    apply(change)
    return change.status


@pytest.fixture
def place(tmp_path: Path) -> Callable[[Path, str], Path]:
    """Put a file where its client would have it."""

    def copy(file: Path, variant: str = "as it is") -> Path:
        path = tmp_path / "client" / file.name.split("--")[1]
        path.parent.mkdir()
        path.write_bytes(VARIANTS[variant](file.read_bytes()))
        return path

    return copy


def test_there_are_thirty_files_and_every_client_has_some() -> None:
    assert len(SOUND) >= 30
    assert {assistant_of(file).name for file in SOUND} == set(ASSISTANTS)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("file", WITHOUT_KB, ids=lambda file: file.name)
def test_installing_adds_one_entry_and_uninstalling_brings_the_file_back(
    file: Path, variant: str, place: Callable[[Path, str], Path]
) -> None:
    assistant, path = assistant_of(file), place(file, variant)
    before = path.read_bytes()
    expected = values(assistant, path)
    keys = servers_keys(assistant, expected)

    assert install(assistant, path) == ADDED
    after = values(assistant, path)
    assert look_up(after, [*keys, "kb"]) == make_entry(assistant, COMMAND, keys)
    assert command_of(look_up(after, [*keys, "kb"])) == COMMAND
    (path.parent / f"{path.name}{BACKUP_SUFFIX}").read_bytes()
    servers = expected
    for key in keys:
        servers = servers.setdefault(key, {})
    servers["kb"] = make_entry(assistant, COMMAND, keys)
    assert after == expected

    assert install(assistant, path) == UNCHANGED
    assert uninstall(assistant, path) == REMOVED
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    assert uninstall(assistant, path) == ABSENT


@pytest.mark.parametrize("file", WITHOUT_KB, ids=lambda file: file.name)
def test_installing_only_puts_characters_in(file: Path, place: Callable[[Path, str], Path]) -> None:
    assistant, path = assistant_of(file), place(file, "CRLF")
    before = path.read_bytes()
    install(assistant, path)
    rest = iter(path.read_bytes())
    assert all(byte in rest for byte in before)


@pytest.mark.parametrize("file", WITHOUT_KB, ids=lambda file: file.name)
def test_what_was_written_after_the_installation_stays(
    file: Path, place: Callable[[Path, str], Path]
) -> None:
    assistant, path = assistant_of(file), place(file, "as it is")
    install(assistant, path)
    text = path.read_text()
    note = "# mine\n" if path.suffix == ".toml" else "// mine\n"
    path.write_text(note + text)
    expected = assistant.format.read(file.read_text())
    assert uninstall(assistant, path) == REMOVED
    assert path.read_text().startswith(note)
    assert values(assistant, path) == expected
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("file", [file for file in SOUND if "old" in file.name], ids=str)
def test_an_older_entry_of_ours_gets_the_new_command_and_keeps_what_else_it_says(
    file: Path, place: Callable[[Path, str], Path]
) -> None:
    assistant, path = assistant_of(file), place(file, "as it is")
    expected = values(assistant, path)
    entry = look_up(expected, [*assistant.keys, "kb"])
    entry |= {"command": COMMAND[0], "args": COMMAND[1:]}
    assert install(assistant, path) == CHANGED
    assert values(assistant, path) == expected
    assert install(assistant, path) == UNCHANGED
    assert uninstall(assistant, path) == REMOVED
    del look_up(expected, assistant.keys)["kb"]
    assert look_up(values(assistant, path), assistant.keys) == look_up(expected, assistant.keys)


def test_the_comment_of_another_table_stays_in_front_of_it(
    place: Callable[[Path, str], Path],
) -> None:
    path = place(FOLDER / "sound" / "codex--older-kb.toml", "as it is")
    uninstall(ASSISTANTS["codex"], path)
    assert path.read_text() == '\n# the other one\n[mcp_servers.time]\ncommand = "uvx"\n'


@pytest.mark.parametrize("file", BROKEN, ids=lambda file: file.name)
def test_a_broken_file_is_refused_with_the_place_and_stays_as_it_is(
    file: Path, place: Callable[[Path, str], Path]
) -> None:
    assistant, path = assistant_of(file), place(file, "as it is")
    line, column = map(int, file.stem.rsplit("--", 1)[1].split("-"))
    with pytest.raises(ConfigurationError) as caught:
        plan_install(assistant, path, "kb", COMMAND)
    assert str(caught.value).startswith(f"{path}, line {line}, column {column}: ")
    assert (caught.value.details["line"], caught.value.details["column"]) == (line, column)
    assert path.read_bytes() == file.read_bytes()
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("assistant", ASSISTANTS.values(), ids=lambda assistant: assistant.name)
def test_a_missing_file_and_its_folder_are_made_and_go_again(
    assistant: Assistant, tmp_path: Path
) -> None:
    path = tmp_path / "config" / "deeper" / "file"
    path.parent.parent.mkdir()
    assert uninstall(assistant, path) == ABSENT
    assert install(assistant, path) == ADDED
    assert command_of(look_up(values(assistant, path), [*assistant.keys, "kb"])) == COMMAND
    assert os.listdir(path.parent) == ["file"]
    assert uninstall(assistant, path) == REMOVED
    assert os.listdir(tmp_path / "config") == []


def test_a_file_that_kb_made_stays_when_others_wrote_into_it(tmp_path: Path) -> None:
    assistant, path = ASSISTANTS["cursor"], tmp_path / "mcp.json"
    install(assistant, path)
    path.write_text(path.read_text().replace('"kb": {', '"a": {"command": "a"},\n    "kb": {'))
    uninstall(assistant, path)
    assert path.read_text() == '{\n  "mcpServers": {\n    "a": {"command": "a"}\n  }\n}\n'


def test_a_server_of_another_program_keeps_its_name(tmp_path: Path) -> None:
    assistant, path = ASSISTANTS["cursor"], tmp_path / "mcp.json"
    text = '{"mcpServers": {"kb": {"command": "/usr/bin/keyboard", "args": ["--daemon"]}}}'
    path.write_text(text)
    with pytest.raises(UsageError, match=r"keyboard --daemon.*--name"):
        plan_install(assistant, path, "kb", COMMAND)
    with pytest.raises(UsageError, match="left as it is"):
        plan_uninstall(assistant, path, "kb")
    assert path.read_text() == text
    apply(plan_install(assistant, path, "notes", COMMAND))
    assert set(values(assistant, path)["mcpServers"]) == {"kb", "notes"}


def test_a_link_stays_a_link_and_its_file_keeps_its_rights(tmp_path: Path) -> None:
    assistant = ASSISTANTS["zed"]
    real = tmp_path / "dotfiles" / "zed.json"
    real.parent.mkdir()
    real.write_text('{"vim_mode": true}\n')
    real.chmod(0o640)
    link = tmp_path / "settings.json"
    link.symlink_to(real)
    install(assistant, link)
    assert link.is_symlink()
    assert "kb" in values(assistant, real)["context_servers"]
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    backup = tmp_path / "dotfiles" / f"zed.json{BACKUP_SUFFIX}"
    assert backup.read_text() == '{"vim_mode": true}\n'
    assert stat.S_IMODE(backup.stat().st_mode) == 0o640
    uninstall(assistant, link)
    assert link.is_symlink()
    assert real.read_text() == '{"vim_mode": true}\n'
    assert os.listdir(real.parent) == ["zed.json"]


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "mcp.json"
    link.symlink_to(tmp_path / "gone.json")
    with pytest.raises(ConfigurationError, match="which does not exist"):
        plan_install(ASSISTANTS["cursor"], link, "kb", COMMAND)


@pytest.mark.parametrize("protected", ["mcp.json", "."])
def test_what_is_read_only_is_refused_and_stays(tmp_path: Path, protected: str) -> None:
    folder = tmp_path / "cursor"
    folder.mkdir()
    path = folder / "mcp.json"
    path.write_text("{}")
    (folder / protected).chmod(0o555 if protected == "." else 0o444)
    with pytest.raises(ConfigurationError, match=r"read-only.*--print"):
        plan_install(ASSISTANTS["cursor"], path, "kb", COMMAND)
    (folder / protected).chmod(0o755)
    assert path.read_text() == "{}"
    assert os.listdir(folder) == ["mcp.json"]


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot read"):
        plan_install(ASSISTANTS["cursor"], tmp_path, "kb", COMMAND)


def test_a_file_that_changes_between_reading_and_writing_is_left(tmp_path: Path) -> None:
    assistant, path = ASSISTANTS["claude-code"], tmp_path / ".claude.json"
    path.write_text('{"numStartups": 1}')
    change = plan_install(assistant, path, "kb", COMMAND)
    path.write_text('{"numStartups": 2}')
    with pytest.raises(ConfigurationError, match="try again"):
        apply(change)
    assert path.read_text() == '{"numStartups": 2}'


def test_a_plan_writes_nothing_and_shows_the_difference(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{\n  "mcpServers": {}\n}\n')
    shown = plan_install(ASSISTANTS["cursor"], path, "kb", COMMAND).difference()
    assert '-  "mcpServers": {}\n' in shown
    assert '+    "kb": {\n' in shown
    assert path.read_text() == '{\n  "mcpServers": {}\n}\n'
    assert sorted(os.listdir(tmp_path)) == ["home", "mcp.json"]

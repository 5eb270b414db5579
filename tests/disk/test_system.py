"""The ways of other systems, as far as Linux can take them; docs/install.md says what that is."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path, PureWindowsPath

import pytest
from server_process import Process
from support import ROOT, git

from kb.disk import system
from kb.disk.read import read_bytes
from kb.disk.write import replace_file
from kb.sources.address import is_absolute, is_remote, kept, located
from kb.sources.bundle import Target
from kb.text.file_names import on_disk, storable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="plays the others on Linux")
HANGS = 120


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "O_BINARY", 0, raising=False)


class Machine:
    """kb in a folder, as it runs on another system."""

    def __init__(self, name: str, folder: Path) -> None:
        self.command = [str(ROOT / "tests" / "on_system.py"), name, "kb"]
        self.folder = folder

    def run(self, *arguments: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, *self.command, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            capture_output=True,
            encoding="utf-8",
            timeout=HANGS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(params=["darwin", "win32"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "cats.md").write_bytes(b"# Kittens\r\n\r\nA young walrus sleeps.\r\n\r\n## Rest\r\n")
    (docs / "smile.md").write_text("# Smile\n\nA seal 日本 😀 laughs.\n", encoding="utf-8")
    harbour = ROOT / "fixtures" / "formats" / "harbour.docx"
    (docs / harbour.name).write_bytes(harbour.read_bytes())
    return Machine(request.param, tmp_path)


# As a whole


@pytest.mark.slow
def test_commands_and_the_server_do_without_what_a_system_lacks(machine: Machine) -> None:
    machine.run("add", "docs", "--no-embed")
    machine.run("sync", "--no-embed")
    (machine.folder / "docs" / "more.md").write_text("# More\n\nA narwhal.\n")
    machine.run("sync", "--no-embed")  # a file of the second process and one of the converter
    listed = json.loads(machine.run("list", "docs", "--json"))
    names = {row["id"] for row in listed["documents"]}
    assert names == {"cats.md", "smile.md", "more.md", "harbour.docx"}
    machine.run("pack", "docs", "-o", "all.tar.gz")
    machine.run("pack", "docs", "-o", "all.tar.gz")  # over the one that is there
    machine.run("copy", "other.db")
    match = {"pattern": "walrus"}
    found = json.loads(machine.run("tool", "grep_codebase", json.dumps(match)))
    assert [(row["file"], row["line"]) for row in found["matches"]] == [("docs/cats.md", 3)]
    read = json.loads(machine.run("tool", "read_file", '{"path": "docs/cats.md"}'))
    assert read["file"]["content"].startswith("# Kittens\n")
    with Process(*machine.command, "serve", folder=machine.folder) as server:
        server.handshake()
        server.call("documents_search", {"query": "narwhal"}, 1)
        row = server.reply()["result"]["structuredContent"]["results"][0]
        code, _, _ = server.end()
    assert (row["documentId"], code) == ("more.md", 0)


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["win32"], indirect=True)
def test_a_repository_is_fetched_without_groups_of_processes(machine: Machine) -> None:
    git(machine.folder / "docs", "init", "--quiet")
    git(machine.folder / "docs", "add", ".")
    git(machine.folder / "docs", "commit", "--quiet", "-m", "all")
    url = f"git+file://{machine.folder}/docs"
    machine.run("add", url, "--no-embed", XDG_CACHE_HOME=str(machine.folder / "cache"))
    assert "walrus" in machine.run("search", "walrus", "--json")


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["win32"], indirect=True)
def test_a_server_ends_when_its_console_is_closed(machine: Machine) -> None:
    machine.run("add", "docs", "--no-embed")
    command = (*machine.command, "serve", "--http", "127.0.0.1:0")
    with Process(*command, folder=machine.folder) as server:
        server.wait_for_error_line("http://")
        server.popen.send_signal(signal.SIGUSR2)  # in the place of SIGBREAK
        assert server.popen.wait(HANGS) == 0


@pytest.mark.slow
def test_a_console_without_the_letters_gets_them_escaped(machine: Machine) -> None:
    machine.run("add", "docs", "--no-embed")
    cp1252 = {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    assert r"A seal \u65e5\u672c \U0001f600 laughs." in machine.run("search", "seal", **cp1252)
    answer = json.loads(machine.run("search", "seal", "--json", **cp1252))
    assert "日本 😀" in answer["results"][0]["content"]


# Names


@pytest.mark.parametrize(
    ("path", "stored"),
    [(r"C:\project\docs", "C:/project/docs"), (r"\\server\share\docs", "//server/share/docs")],
)
def test_paths_of_windows_are_stored_with_slashes(
    path: str, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sep", "\\")
    assert storable(PureWindowsPath(path)) == stored
    assert PureWindowsPath(on_disk(stored)) == PureWindowsPath(path)
    assert is_absolute(stored)
    assert not is_remote(stored)
    project = stored.rpartition("/")[0]
    assert kept(stored, project) == "./docs"
    assert located("./docs", project) == stored


def test_a_backslash_stays_a_letter_where_it_is_one() -> None:
    assert on_disk(storable("a\\b\\x41\\xe9.md")) == "a\\b\\x41\\xe9.md"


ODD_NAMES = (
    *("notes.md:stream", "dot.", "blank ", "con.md", "folder/AUX", "lpt1.txt", "what?.md"),
    *("folder./a.md", "tab\t.md"),
)


def test_windows_writes_no_file_under_a_name_that_means_another(
    windows: None, tmp_path: Path
) -> None:
    target = Target(tmp_path, "bundle")
    for name in (*ODD_NAMES, "console.md", ".github/a b.md", "lpt.md"):
        with target.noting(name):
            target.write(name, io.BytesIO(b"text"), 0)
    assert [path for path, _ in target.problems] == list(ODD_NAMES)
    assert all("no file can have this name on Windows" in why for _, why in target.problems)
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")}
    assert written == {"console.md", ".github/a b.md", "lpt.md"}


def test_other_systems_take_these_names(tmp_path: Path) -> None:
    target = Target(tmp_path, "bundle")
    for name in ODD_NAMES:
        target.write(name, io.BytesIO(b"text"), 0)
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == len(ODD_NAMES)


def test_a_member_is_not_written_over_one_that_differs_in_case(tmp_path: Path) -> None:
    target = Target(tmp_path, "bundle")
    target.write("README.md", io.BytesIO(b"first"), 0)
    # As a folder looks where case does not matter.
    (tmp_path / "readme.md").symlink_to("README.md")
    with target.noting("readme.md"):
        target.write("readme.md", io.BytesIO(b"second"), 0)
    assert [path for path, _ in target.problems] == ["readme.md"]
    assert (tmp_path / "README.md").read_bytes() == b"first"
    target.write("README.md", io.BytesIO(b"third"), 0)  # a tar's later edition
    assert (tmp_path / "README.md").read_bytes() == b"third"


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["win32"], indirect=True)
def test_a_member_that_windows_cannot_have_is_told_and_the_rest_is_added(machine: Machine) -> None:
    with tarfile.open(machine.folder / "b.tar", "w") as archive:
        for name in ("a.md", "what?.md", "c.md"):
            archive.addfile(tarfile.TarInfo(name))
    done = subprocess.run(
        [sys.executable, *machine.command, "add", "b.tar", "--no-embed"],
        cwd=machine.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=HANGS,
    )
    assert "what?.md" in done.stderr
    listed = json.loads(machine.run("list", "b.tar", "--json"))
    assert {row["id"] for row in listed["documents"]} == {"a.md", "c.md"}


# Files


def test_a_file_that_is_open_elsewhere_is_replaced_once_it_is_closed(
    windows: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, refusals = os.replace, [1, 2, 3]

    def held_for_a_moment(source: Path, target: Path) -> None:
        if refusals:
            refusals.pop()
            raise PermissionError(13, "The process cannot access the file")
        original(source, target)

    monkeypatch.setattr(os, "replace", held_for_a_moment)
    file = tmp_path / "a.json"
    file.write_text("old")
    replace_file(file, "new")
    assert file.read_text() == "new"
    monkeypatch.setattr(sys, "platform", "linux")
    refusals.append(1)
    with pytest.raises(PermissionError):  # where it is a matter of rights, nothing is waited for
        replace_file(file, "newer")
    assert (file.read_text(), list(tmp_path.glob(".kb-*"))) == ("new", [])


def test_a_folder_that_became_a_link_is_noticed_where_folders_cannot_be_held(
    windows: None, tmp_path: Path
) -> None:
    inner, outside = tmp_path / "inner", tmp_path / "outside"
    for folder in (inner, outside):
        folder.mkdir()
        (folder / "a.md").write_text(folder.name)
    with system.place_beneath(tmp_path, ("inner", "a.md")) as (place, below):
        assert (place, below) == (inner / "a.md", None)

    def swap() -> None:
        with system.place_beneath(tmp_path, ("inner", "a.md")):
            inner.rename(tmp_path / "before")
            inner.symlink_to(outside)

    with pytest.raises(OSError, match="become a link"):
        swap()


def test_a_link_is_not_read_in_a_files_place(windows: None, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text")
    (tmp_path / "link.md").symlink_to("a.md")
    assert read_bytes(tmp_path / "a.md", 10) == b"text"
    with pytest.raises(OSError, match="link"):
        read_bytes(tmp_path / "link.md", 10)


# Streams


def test_a_console_of_windows_gets_text_by_its_own_stream(windows: None) -> None:
    ours, theirs = os.openpty()
    with open(theirs, "w", encoding="utf-8") as terminal, open(ours, "rb"):
        assert system.console_of(terminal) is terminal.buffer.raw  # type: ignore[attr-defined]
    assert system.console_of(io.TextIOWrapper(io.BytesIO())) is None
    assert system.console_of(None) is None

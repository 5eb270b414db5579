"""What a command cannot print it says, and a signal leaves the file whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, WINDROSE

HANGS = 60

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the shell's redirections are POSIX's")
full_disk = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "café.md").write_text("# Café\n\nA walrus.\n", encoding="utf-8")
    shell = Shell(tmp_path)
    assert shell("add docs --no-embed").returncode == 0
    return shell


class Shell:
    """kb by way of the shell, whose redirections are of interest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self, arguments: str, redirection: str = "", stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", f'exec "{sys.executable}" -m kb --db k.db {arguments} {redirection}'],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=HANGS,
        )


@pytest.mark.parametrize("arguments", ["list", "--json status", "--help", "tool none '{}'"])
@pytest.mark.parametrize(
    ("redirection", "why"),
    [
        (">&-", "it is closed"),
        pytest.param(">/dev/full", "no space left on device", marks=full_disk),
    ],
)
def test_what_stdout_does_not_take_is_a_failure(
    arguments: str, redirection: str, why: str, shell: Shell
) -> None:
    ended = shell(arguments, redirection)
    assert ended.stderr.endswith(f"kb: cannot write to stdout: {why}\n")
    assert ended.returncode == 3


@pytest.mark.parametrize("redirection", ["2>&-", pytest.param("2>/dev/full", marks=full_disk)])
def test_what_stderr_does_not_take_changes_no_result(redirection: str, shell: Shell) -> None:
    assert shell("search nothing", redirection).returncode == 1
    assert shell("nonsense", redirection).returncode == 2
    ended = shell("sync --no-embed", redirection)
    assert (ended.returncode, ended.stdout) == (0, "docs: 1 unchanged (1 document)\n")


def test_a_closed_stdin_is_an_empty_one(shell: Shell) -> None:
    ended = shell("tool documents_list_collections -", "<&-")
    assert json.loads(ended.stdout)["collections"]
    assert shell("record -", "<&- >&- 2>&-").returncode == 2


@pytest.mark.parametrize(
    ("redirection", "why"),
    [(">&-", "Bad file"), pytest.param(">/dev/full", "No space", marks=full_disk)],
)
def test_a_server_whose_replies_cannot_be_written_says_so(
    redirection: str, why: str, shell: Shell
) -> None:
    ended = shell("serve", redirection, stdin='{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert ended.returncode == 3
    assert ended.stderr.startswith(f"kb.server: replies cannot be written: {why}")
    assert len(ended.stderr.splitlines()) == 1


def test_names_are_the_same_in_a_locale_without_their_letters(shell: Shell) -> None:
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    assert shell("sync --no-embed", **plain).stdout == "docs: 1 unchanged (1 document)\n"
    assert shell("get café.md", **plain).stdout.startswith("# Caf\\xe9\n")
    assert shell("get docs/café.md", **plain).returncode == 0
    found = json.loads(shell("search Café --json", **plain).stdout)["results"]
    assert [row["documentId"] for row in found] == ["café.md"]
    read = shell('tool read_file \'{"path": "docs/café.md"}\'', **plain).stdout
    assert json.loads(read)["file"]["path"] == "docs/café.md"


WAITING = """
import sys
from kb.cli.streams import ending_on_signals
from kb.store.database import Database
with ending_on_signals(), Database("k.db") as database, database.batch():
    with database.write() as connection:
        connection.run("trim_tool_calls")
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_file_alone_and_whole(number: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITING],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as popen:
        assert popen.stdout is not None
        assert popen.stdout.readline() == "ready\n"
        assert (tmp_path / "k.db-wal").exists()
        popen.send_signal(number)
        assert popen.wait(HANGS) == 128 + number
    assert {entry.name for entry in tmp_path.iterdir() if entry.is_file()} == {"k.db"}


IN_A_DESTRUCTOR = """
import signal, sys, time
from kb.cli.streams import ending_on_signals
class Freed:
    def __del__(self):
        signal.raise_signal(int(sys.argv[1]))
with ending_on_signals():
    Freed()
    while True:
        time.sleep(0.01)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_in_a_destructor_is_not_lost(number: signal.Signals) -> None:
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            "import signal; signal.signal(signal.SIGINT, "
            "signal.default_int_handler)" + IN_A_DESTRUCTOR,
            str(int(number)),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=HANGS,
    )
    assert "Exception ignored" not in ended.stderr
    assert ended.returncode in (128 + number, -number)


def test_hanging_up_below_nohup_changes_nothing(tmp_path: Path) -> None:
    quiet = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    with subprocess.Popen(
        [sys.executable, "-c", quiet + WAITING],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as popen:
        assert popen.stdout is not None
        assert popen.stdout.readline() == "ready\n"
        popen.send_signal(signal.SIGHUP)
        popen.communicate("")
        assert popen.returncode == 0


def read_all(terminal: int) -> str:
    """What a program prints on a terminal, till it has ended."""
    parts = []
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # Linux says so at the end
            part = b""
        if not part:
            return b"".join(parts).decode()
        parts.append(part)


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["for a person", "JSON"])
def test_an_answer_by_words_comes_before_the_embedding(options: list[str], tmp_path: Path) -> None:
    terminal, other_end = os.openpty()
    command = [sys.executable, "-m", "kb", "--db", str(tmp_path / "k.db"), *options]
    command += ["search", "calibrate the vane", "--from", str(WINDROSE), "--limit", "1"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=other_end, stderr=subprocess.PIPE)
    os.close(other_end)
    printed = read_all(terminal)
    os.close(terminal)
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 0, said
    is_for_a_person = not options
    assert ("for a better answer" in said.decode()) == is_for_a_person
    assert printed.count("calibrate the vane.md") == (2 if is_for_a_person else 1)


@pytest.mark.parametrize("module", ["kb.cli.main", "argparse", "kb.cli.streams"])
def test_ctrl_c_while_modules_are_loaded_prints_no_traceback(module: str) -> None:
    code = (
        "import os, runpy, signal, sys\n"
        # What a shell starts in the background gets a SIGINT that is ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class CtrlC:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, CtrlC())\n"
        "runpy.run_module('kb', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


@pytest.mark.parametrize(("option", "code"), [("--version", 0), ("--nothing", 2)])
def test_what_is_left_to_do_at_the_end_is_done(option: str, code: int) -> None:
    """A command ends before Python takes its modules apart, but not before exit functions."""
    program = (
        "import atexit, sys, threading\n"
        "from kb.__main__ import main\n"
        "atexit.register(print, 'at exit')\n"
        f"sys.argv = ['kb', {option!r}]\n"
    )
    done = subprocess.run([sys.executable, "-c", program + "main()"], capture_output=True, cwd=ROOT)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (code, b"at exit")
    thread = (
        "def last():\n"
        "    threading.main_thread().join()\n"
        "    print('the last thread')\n"
        "threading.Thread(target=last).start()\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", program + thread], capture_output=True, cwd=ROOT)
    assert done.returncode == code
    assert {b"at exit", b"the last thread"} <= set(done.stdout.splitlines())


def test_modules_of_the_working_folder_are_not_run(shell: Shell) -> None:
    for name in ("yaml.py", "apsw.py", "signal.py", "argparse.py"):
        (shell.folder / name).write_text("raise SystemExit('a stranger was run')\n")
    done = shell("search walrus")
    assert done.returncode == 0, done.stderr
    assert "walrus" in done.stdout


def test_without_docstrings_tools_are_refused_and_searches_go_on(shell: Shell) -> None:
    assert shell("search walrus", PYTHONOPTIMIZE="2").returncode == 0
    done = shell("tools", PYTHONOPTIMIZE="2")
    assert done.returncode == 3
    assert "unset PYTHONOPTIMIZE" in done.stderr

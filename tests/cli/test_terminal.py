"""What people see: on a terminal of 80 columns, with colour, links and rendered Markdown."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from support import ROOT

from kb.cli.browse import EDITORS

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs a pseudo terminal")
COLUMNS = 80
LINK = re.compile(r"\x1b\]8;[^;]*;([^\x1b]+)\x1b\\(.*?)\x1b\]8;;\x1b\\", re.DOTALL)
Show = Callable[..., str]


def plain(written: str) -> str:
    """Without colours and links."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", re.sub(r"\x1b\]8;[^\x1b]*\x1b\\", "", written))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with documents of which two have several rows."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    docs = folder / "docs"
    (docs / "guide").mkdir(parents=True)
    calm = "The air is still and nothing else is said. " * 30
    (docs / "wind.md").write_text(
        f"---\ntags: [a]\n---\n# Wind\n\nA quartz sensor.\n\n## Gusts\n\n{calm}\n\n## Ice\n\n"
        f"Quartz cracks; see [the gauge](guide/rain.md).\n\n{calm}\n"
    )
    (docs / "guide" / "rain.md").write_text("# Rain\n\nThe marble gauge has a quartz clock.\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def show(project: Path) -> Show:
    """Run a command on a terminal; what it writes there."""

    def run(*arguments: str, code: int = 0, columns: int = COLUMNS) -> str:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        with subprocess.Popen(
            [sys.executable, "-m", "kb", *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
        ) as popen:
            os.close(slave)
            written = b""
            while True:
                try:
                    data = os.read(master, 65536)
                except OSError:  # how Linux says that the other end is closed
                    break
                if not data:
                    break
                written += data
        os.close(master)
        assert popen.returncode == code, written
        return written.decode().replace("\r\n", "\n")

    return run


@pytest.fixture
def filled(show: Show) -> Show:
    show("add", "docs", "--no-embed")
    return show


def test_adding_shows_a_progress_bar_with_rate_and_time_left(show: Show) -> None:
    added = show("add", "docs", "--no-embed")
    assert re.search(r"documents.*2/2.*\d\.\d/s.*\d:\d\d:\d\d", added, re.DOTALL)
    assert "docs: 2 added" in added
    assert "/s" not in show("add", "docs", "--no-embed", "--quiet")


def test_rows_stand_under_their_document_with_score_bar_and_word(filled: Show) -> None:
    lines = plain(filled("search", "quartz")).splitlines()
    heads = [line for line in lines if line.startswith("docs/")]
    assert sorted(heads) == ["docs/guide/rain.md  Rain", "docs/wind.md  Wind"]
    rows = [line for line in lines if re.match(r"  [█░]{5} 0\.\d\d (very )?likely +\d", line)]
    assert len(rows) == 3
    assert any(line.endswith("  Ice") for line in rows)
    under_wind = lines[lines.index("docs/wind.md  Wind") + 1 :]
    assert under_wind[0] in rows


def test_documents_come_in_the_order_of_their_best_row_and_json_in_that_of_scores(
    filled: Show, project: Path
) -> None:
    found = json.loads(
        subprocess.run(
            [sys.executable, "-m", "kb", "--json", "search", "quartz"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        ).stdout
    )["results"]
    scores = [row["relevanceScore"] for row in found]
    assert scores == sorted(scores, reverse=True)
    assert not {"place", "file", "lines", "location", "marks", "changedSinceSync"} & found[0].keys()
    documents = list(dict.fromkeys(f"docs/{row['documentId']}" for row in found))
    lines = plain(filled("search", "quartz")).splitlines()
    assert [line.split("  ")[0] for line in lines if line.startswith("docs/")] == documents


def test_places_are_links_to_the_file(filled: Show, project: Path) -> None:
    links = LINK.findall(filled("search", "marble"))
    file = (project / "docs" / "guide" / "rain.md").as_uri()
    assert [(address, plain(text)) for address, text in links] == [
        (file, "docs/guide/rain.md"),
        (file, "1-3"),
    ]


@pytest.mark.parametrize(
    ("editor", "wanted"),
    [
        ("vscode", "vscode://file{path}:8"),
        ("idea", "idea://open?file={path}&line=8"),
        ("my://edit?{line}@{path}", "my://edit?8@{path}"),
    ],
)
def test_places_open_the_line_in_the_editor_that_is_named(
    editor: str, wanted: str, filled: Show, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KB_EDITOR", editor)
    links = LINK.findall(filled("search", "gusts"))
    path = str(project / "docs" / "wind.md")
    assert wanted.format(path=path, line=8) in [address for address, _ in links]


def test_there_are_no_links_where_none_are_wanted_or_the_file_is_gone(
    filled: Show, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KB_EDITOR", "none")
    assert "\x1b]8" not in filled("search", "marble")
    monkeypatch.setenv("KB_EDITOR", "edlin")
    assert 'KB_EDITOR is "edlin"' in plain(filled("search", "marble"))
    monkeypatch.delenv("KB_EDITOR")
    shutil.rmtree(project / "docs")
    assert "\x1b]8" not in filled("search", "marble")


def test_pipes_get_neither_links_nor_colour_nor_groups(filled: Show) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kb", "search", "quartz"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    assert "\x1b" not in done.stdout + done.stderr
    assert len(re.findall(r"^docs/\S+:\d+-\d+  0\.\d\d  ", done.stdout, re.MULTILINE)) == 3


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_plain_terminals_get_plain_text(
    term: str, filled: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    if term == "xterm":
        monkeypatch.setenv("NO_COLOR", "1")
    written = filled("search", "quartz")
    assert not re.search(r"\x1b\[3\d", written)
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert re.search(r"  [#.]{5} 0\.\d\d", plain(filled("search", "quartz")))


def test_markdown_is_rendered_unless_lines_or_the_source_are_asked_for(filled: Show) -> None:
    shown = plain(filled("get", "wind.md"))
    assert "# Wind" not in shown
    assert "tags" not in shown
    assert re.search(r"^ +Wind +$", shown, re.MULTILINE)
    assert "## Ice" not in plain(filled("section", "wind.md", "Ice"))
    assert "# Wind" in filled("get", "wind.md", "--raw")
    assert filled("get", "wind.md:4") == "# Wind\n"
    assert "## Ice" in filled("section", "wind.md", "Ice", "--raw")


def test_several_documents_are_told_apart(filled: Show) -> None:
    shown = plain(filled("get", "wind.md:4", "rain.md"))
    assert re.search(r"^docs/wind\.md ─+$", shown, re.MULTILINE)
    assert re.search(r"^docs/guide/rain\.md ─+$", shown, re.MULTILINE)


def test_nothing_that_a_document_holds_steers_the_terminal(show: Show, project: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J quicksilver \x9b31m"
    (project / "docs" / "evil.md").write_text(f"# E{evil}\n\nText {evil}\n\n    code {evil}\n")
    (project / "docs" / "evil.txt").write_text(f"plain {evil}\n")
    show("add", "docs", "--no-embed")
    for arguments in (
        ["search", "quicksilver"],
        ["get", "evil.md"],
        ["get", "evil.md", "--raw"],
        ["get", "evil.txt"],
        ["get", "evil.md:3"],
        ["section", "evil.md", "E"],
        ["outline", "evil.md"],
        ["list", "docs"],
        ["grep", "quicksilver"],
    ):
        written = show(*arguments)
        assert not re.search(r"\x1b\]0|\x1b\[2J|\x07|\x9b", written), arguments


@pytest.mark.parametrize(
    "arguments",
    ["search quartz --explain", "list", "list docs", "cite wind.md", "tools", "status", "doctor"],
)
def test_everything_fits_80_columns(arguments: str, filled: Show, project: Path) -> None:
    long = project / "docs" / ("a-name-that-is-rather-long-for-a-file-" * 3 + ".md")
    long.write_text(f"# {'A title of many words ' * 8}\n\nquartz [link](wind.md)\n")
    filled("sync", "--no-embed")
    lines = plain(filled(*arguments.split())).splitlines()
    # Paths stay whole, so that they can be clicked and copied: the terminal wraps them.
    # So do notices, which are one line wherever they go.
    long_lines = [line for line in lines if len(line) > COLUMNS and not line.startswith("kb: ")]
    assert all("/" in line for line in long_lines), long_lines
    if arguments.split()[0] in ("list", "cite", "tools"):
        assert not long_lines


def test_status_is_a_table_with_bars(filled: Show) -> None:
    shown = plain(filled("status"))
    assert re.search(r"^docs +documents +2 +\d+  ░{8}   0% +\d{4}-", shown, re.MULTILINE)
    assert "run `kb sync`" in shown


def test_notices_and_errors_have_one_look(filled: Show) -> None:
    notice = filled("search", "zzzz", code=1)
    error = filled("get", "nothing.md", code=1)
    wrong = filled("serach", code=2)
    assert "\x1b[33mkb:\x1b[0m nothing found" in notice
    assert error.startswith("\x1b[1;31mkb:\x1b[0m ")
    assert wrong.startswith("\x1b[1;31mkb:\x1b[0m there is no command")


def test_rich_is_not_imported_in_a_pipe(filled: Show) -> None:
    code = (
        "import sys\nfrom kb.cli.main import main\n"
        "try: main({arguments})\n"
        "except SystemExit: print('rich' in sys.modules, file=sys.stderr)"
    )
    for arguments in (["search", "quartz"], ["list"], ["status"], ["--help"]):
        done = subprocess.run(
            [sys.executable, "-c", code.format(arguments=arguments)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        assert done.stderr.splitlines()[-1] == "False", arguments


def test_editors_have_a_place_for_the_file() -> None:
    assert all("{path}" in form for name, form in EDITORS.items() if name != "none")


def test_on_a_narrow_terminal_the_status_keeps_names_whole(filled: Show) -> None:
    lines = plain(filled("status", columns=60)).splitlines()
    (row,) = (line for line in lines if re.match(r"docs +2 ", line))
    assert re.fullmatch(r"docs +2 +\d+ +\d+% +\d{4}-\d\d-\d\d", row.rstrip())
    assert re.search(r"2 documents, [\d,]+ characters", " ".join(lines))

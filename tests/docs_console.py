"""Run the console blocks of a page: each command, and what it prints where the page shows that."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"\s+# exit code (\d+)$")
# What a command says of its progress when it takes longer, as on a busy machine.
_PROGRESS = re.compile(
    r"^kb: .*, (?:about [\d.]+ (?:s|min|h) more|which takes a while)\n", re.MULTILINE
)
ANYTHING = "..."  # alone on a line: any lines; within one: any characters


@dataclass(frozen=True, slots=True)
class Shown:
    """A command with what the page says it prints."""

    command: str
    code: int
    output: list[str]


def shown_in(page: Path) -> Iterator[Shown]:
    """The commands of a page, in order."""
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            first, *output = part.rstrip("\n").split("\n")
            while _is_open(first):
                first += "\n" + output.pop(0)
            code = match[1] if (match := _CODE.search(first)) else "0"
            yield Shown(_CODE.sub("", first), int(code), output)


def _is_open(command: str) -> bool:
    """Whether a quotation goes on in the next line."""
    try:
        shlex.split(command)
    except ValueError:
        return True
    return False


def run(command: str, folder: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as somebody would type it, in a shell without settings."""
    programs = Path(sys.executable).parent
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "COLUMNS": "80",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
        timeout=300,
    )


def fits(output: list[str], printed: str) -> bool:
    """Whether what was printed is what a page shows."""
    lines = [
        "(?:.*\n)*?" if line == ANYTHING else re.escape(line).replace(r"\.\.\.", ".*") + "\n"
        for line in output
    ]
    text = printed if printed.endswith("\n") or not printed else f"{printed}\n"
    text = _PROGRESS.sub("", text)
    return re.fullmatch("".join(lines), text) is not None

"""`kb datasette`: the file in Datasette, with search, labels and questions.

Every command loads this module for its options: what starts programs is imported where it is used.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb import PACKAGE
from kb.cli import render
from kb.cli.arguments import CARE, Parser, positive
from kb.errors import FileError

if TYPE_CHECKING:
    from kb.tools.session import Session

PROGRAM = "datasette"
PORT = 8001


def add_options(add: Callable[..., Parser]) -> None:
    """The command with its options."""
    sub = add(
        "datasette",
        "datasette.datasette",
        "browse the file's tables with Datasette, searched, labelled and linked",
        group=CARE,
        example="kb datasette --print",
    )
    sub.add_argument(
        "--print",
        action="store_true",
        dest="show",
        help="print the command that starts it, and do not",
    )
    sub.add_argument(
        "--port", type=positive, default=PORT, metavar="N", help=f"where it listens ({PORT})"
    )
    sub.add_argument("--open", action="store_true", help="open the browser too")


def datasette(kb: Session, options: argparse.Namespace) -> int:
    """Write what Datasette is to know, and start it or say how."""
    file = Path(kb.database.path).absolute()
    # The name is one that the .gitignore beside the file leaves out.
    metadata_file = file.with_name(f"{file.name}.datasette.json")
    try:
        metadata_file.write_text(json.dumps(metadata(file.stem), indent=2), encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write {metadata_file}: {error.strerror}") from error
    program = _program()
    command = [
        *(program or ["uvx", "--from", f"{PROGRAM}<1", PROGRAM]),
        *("serve", str(file), "--metadata", str(metadata_file)),
        *(["--config", str(metadata_file)] if program and _has_config(program) else []),
        *("--port", str(options.port)),
        *(["--open"] if options.open else []),
    ]
    if options.show:
        result = {"metadata": str(metadata_file), "command": command}
        render.text(result, shlex.join(command), options)
        return 0
    if program is None:
        raise FileError(
            "Datasette is not installed: `pipx install datasette` does it, or run "
            f"{shlex.join(command)}"
        )
    kb.close()
    import subprocess

    return subprocess.run(command, check=False).returncode


def metadata(name: str) -> dict[str, Any]:
    """The metadata of a file that Datasette calls so."""
    import yaml

    text = (PACKAGE / "assets" / "datasette.yaml").read_text(encoding="utf-8")
    told: dict[str, Any] = yaml.safe_load(text)
    own = {key: told.pop(key) for key in ("tables", "queries")}
    return {**told, "databases": {name: own}}


def _has_config(program: Sequence[str]) -> bool:
    """Whether it is a Datasette from 1.0 on, which takes questions out of its configuration alone.

    Before, an option of that name meant something else.
    """
    import subprocess

    done = subprocess.run(
        [*program, "--version"], capture_output=True, encoding="utf-8", check=False
    )
    version = re.search(r"version (\d+)\.", done.stdout)
    return version is not None and int(version[1]) >= 1


def _program() -> list[str] | None:
    """How Datasette is started: as a program, or out of this environment."""
    import shutil

    beside = shutil.which(PROGRAM, path=str(Path(sys.executable).parent))
    found = shutil.which(PROGRAM) or beside
    return [found] if found else None

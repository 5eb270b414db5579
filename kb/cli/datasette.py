"""`kb datasette`: the file in Datasette, with search, labels and questions."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from kb.cli import render
from kb.cli.arguments import Parser, positive
from kb.errors import FileError
from kb.settings import PACKAGE
from kb.tools.session import Session

PROGRAM = "datasette"
PORT = 8001


def datasette_options(parser: Parser) -> None:
    parser.example = "kb datasette --print"
    parser.flag("--print", "print the command that starts it, and do not", dest="show")
    parser.option("--port", "N", f"where it listens ({PORT})", type=positive, default=PORT)
    parser.flag("--open", "open the browser too")


def datasette(session: Session, options: argparse.Namespace) -> int:
    """Write Datasette's configuration, and start it or print how."""
    file = Path(session.database.path).absolute()
    # The .gitignore beside the file covers this name.
    metadata_file = file.with_name(f"{file.name}.datasette.json")
    try:
        metadata_file.write_text(json.dumps(metadata(file.stem), indent=2), encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write {metadata_file}: {error.strerror}") from error
    beside = shutil.which(PROGRAM, path=str(Path(sys.executable).parent))  # of this environment
    program = shutil.which(PROGRAM) or beside
    command = [
        *([program] if program else ["uvx", "--from", f"{PROGRAM}<1", PROGRAM]),
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
    session.close()
    return subprocess.run(command, check=False).returncode


def metadata(name: str) -> dict[str, Any]:
    """The metadata of a file by its name in Datasette."""
    text = (PACKAGE / "assets" / "datasette.yaml").read_text(encoding="utf-8")
    general: dict[str, Any] = yaml.safe_load(text)
    of_file = {key: general.pop(key) for key in ("tables", "queries")}
    return {**general, "databases": {name: of_file}}


def _has_config(program: str) -> bool:
    """Whether it is Datasette 1.0 or later, which reads queries from its configuration alone. To
    earlier ones the option means something else."""
    done = subprocess.run(
        [program, "--version"], capture_output=True, encoding="utf-8", check=False
    )
    version = re.search(r"version (\d+)\.", done.stdout)
    return version is not None and int(version[1]) >= 1

"""Addresses that a terminal opens when somebody clicks a place: the file, or the line in an editor.

`KB_EDITOR` names an editor or gives an address of its own, with `{path}` and `{line}` in it.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

__all__ = ["EDITORS", "VARIABLE", "address", "template"]

VARIABLE = "KB_EDITOR"
NO_LINKS = "none"
_JETBRAINS = "://open?file={path}&line={line}"
EDITORS = {
    "file": "file://{path}",
    **{
        name: f"{name}://file{{path}}:{{line}}"
        for name in ("vscode", "vscode-insiders", "vscodium", "cursor", "windsurf", "zed")
    },
    **{name: f"{name}{_JETBRAINS}" for name in ("idea", "pycharm", "webstorm", "goland")},
    "sublime": "subl://open?url=file://{path}&line={line}",
    "textmate": "txmt://open?url=file://{path}&line={line}",
    "macvim": "mvim://open?url=file://{path}&line={line}",
    NO_LINKS: "",
}


def template() -> tuple[str, str]:
    """The form of the addresses, "" for none, and what is wrong with the setting."""
    wanted = os.environ.get(VARIABLE, "")
    if "{path}" in wanted and "://" in wanted:
        return wanted, ""
    if wanted in EDITORS:
        return EDITORS[wanted], ""
    problem = (
        f'{VARIABLE} is "{wanted}": it names an editor ({", ".join(EDITORS)}) or an address with '
        "{path} and {line} in it"
        if wanted
        else ""
    )
    return EDITORS["file"], problem


def address(form: str, file: Path, line: int) -> str:
    """Where a click leads; "" where there are to be no links."""
    path = quote(os.fsencode(file.absolute().as_posix()), safe="/:")
    if not path.startswith("/"):
        path = f"/{path}"  # a drive's letter
    return form.replace("{path}", path).replace("{line}", str(line))

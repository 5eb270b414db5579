"""The assistants that kb installs into, one record each in `kb/assets/assistants.toml`, and the
command that starts kb: this very program from anywhere, or kb on any machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from kb.assistants import jsonc, toml
from kb.assistants.config_file import look_up
from kb.text.assets import asset

PROJECT, HOME = "project", "home"


@dataclass(frozen=True, slots=True)
class Assistant:
    """Where a client keeps its servers, and how it writes one down and starts it."""

    name: str  # on the command line
    title: str  # for people
    # The first that exists, else the first whose folder does; see `Machine.path`.
    user_files: Sequence[str]
    keys: Sequence[str]  # above the servers
    format: ModuleType
    project_files: Sequence[str] = ()  # likewise, from the project's root
    extra: Mapping[str, Any] = field(default_factory=dict)  # what an entry holds beside the command
    is_one_list: bool = False  # command and arguments are one list
    other_keys: Sequence[str] = ()  # where a later version of the client keeps its servers
    # Where the servers of the user's file start, and what stands for the open folder there.
    starts_in: Literal["project", "home", "root"] = "project"
    open_folder: str = ""
    instructions: str = "AGENTS.md"  # what its assistant reads before it begins
    then: str = "start it anew"  # makes it read the file
    then_in_project: str = ""  # what else it needs before it uses a project's file


FORMATS: dict[str, ModuleType] = {"json": jsonc, "toml": toml}
ASSISTANTS = {
    name: Assistant(name, **{**row, "format": FORMATS[row.get("format", "json")]})
    for name, row in asset("assistants").items()
}


@dataclass(frozen=True, slots=True)
class Machine:
    """Whose settings are meant; tests have others."""

    platform: str = sys.platform
    home: Path = field(default_factory=Path.home)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def path(self, template: str) -> Path | None:
        """The file that a template means here; None if it means none on this system."""
        name, _, rest = template.removeprefix("{").partition("}")
        if (folder := self._folder(name)) is None:
            return None
        first, *others = Path(rest.lstrip("/")).parts
        if "*" in first:
            matches = sorted(folder.glob(first)) if folder.is_dir() else []
            return matches[0].joinpath(*others) if matches else None
        return folder.joinpath(first, *others)

    def _folder(self, name: str) -> Path | None:
        windows = self.platform == "win32"
        roaming = self._set("APPDATA", self.home / "AppData" / "Roaming")
        config = self._set("XDG_CONFIG_HOME", self.home / ".config")
        settings = {"win32": roaming, "darwin": self.home / "Library" / "Application Support"}
        local = self._set("LOCALAPPDATA", self.home / "AppData" / "Local")
        return {
            "home": self.home,
            "config": config,
            "settings": settings.get(self.platform, config),
            "windows settings": roaming if windows else None,
            "windows packages": local / "Packages" if windows else None,
            "claude": self._set("CLAUDE_CONFIG_DIR", self.home),
            "codex": self._set("CODEX_HOME", self.home / ".codex"),
            "gemini": self._set("GEMINI_CLI_HOME", self.home),
        }[name]

    def _set(self, variable: str, otherwise: Path) -> Path:
        value = self.environment.get(variable)
        return Path(value) if value else otherwise


def user_file(assistant: Assistant, machine: Machine) -> Path:
    """The user's own configuration of a client, which may be missing."""
    places = [(name, path) for name in assistant.user_files if (path := machine.path(name))]
    for template, path in places:
        if "*" in template:  # an application that is installed this way looks nowhere else
            return path
    return _first_there([path for _, path in places])


def project_file(assistant: Assistant, project: Path) -> Path | None:
    """A project's configuration of a client; None if the client has none."""
    if not assistant.project_files:
        return None
    return _first_there([project / name for name in assistant.project_files])


def _first_there(paths: Sequence[Path]) -> Path:
    beside = [path for path in paths if path.parent.is_dir()]
    return next((path for path in paths if path.exists()), (beside or paths)[0])


def files_of(assistant: Assistant, project: Path) -> dict[str, Path]:
    """The configurations that a client reads, by whose they are."""
    files = {"user": user_file(assistant, Machine()), PROJECT: project_file(assistant, project)}
    return {scope: path for scope, path in files.items() if path is not None}


def make_entry(assistant: Assistant, command: Sequence[str], keys: Sequence[str]) -> dict[str, Any]:
    """A client's entry for the server."""
    extra = dict(assistant.extra)
    if assistant.is_one_list:
        if list(keys) == assistant.other_keys:
            extra.pop("enabled", None)
        return {**extra, "command": list(command)}
    before = {name: value for name, value in extra.items() if name == "type"}
    after = {name: value for name, value in extra.items() if name != "type"}
    return {**before, "command": command[0], "args": list(command[1:]), **after}


def command_of(entry: Any) -> list[str]:
    """The command of any client's entry, or []."""
    if not isinstance(entry, Mapping):
        return []
    command, arguments = entry.get("command"), entry.get("args")
    if not isinstance(command, list):
        command = [command, *(arguments if isinstance(arguments, list) else ())]
    return [part for part in command if isinstance(part, str)]


def servers_keys(assistant: Assistant, values: Mapping[str, Any]) -> Sequence[str]:
    """The keys above the servers in this very file."""
    inner = look_up(values, assistant.other_keys) if assistant.other_keys else None
    return (
        assistant.other_keys
        if isinstance(inner, Mapping) and "command" not in inner
        else assistant.keys
    )


PROGRAM_NAMES = ("kb", "kbfile")
DISTRIBUTION = "kbfile"
# Runners that keep a package, without installing it, where it may be gone tomorrow: then the runner
# is the command.
_RUNNERS = {
    ("uv", "archive-v0"): ("uvx", DISTRIBUTION),
    ("uv", "builds-v0"): ("uvx", DISTRIBUTION),
    ("pipx", ".cache"): ("pipx", "run", DISTRIBUTION),
}


def program(argument: str | None = None, executable: str | None = None) -> list[str]:
    """The absolute command, without arguments, of the program `argument` (by default sys.argv[0]).
    Links are not followed: `~/.local/bin/kb` stays right when an upgrade moves its target."""
    called = Path(argument if argument is not None else sys.argv[0])
    python = executable or sys.executable
    for (name, folder), (runner, *rest) in _RUNNERS.items():
        if {name, folder} <= set(Path(python).parts) and (path := shutil.which(runner)):
            return [os.path.abspath(path), *rest]
    if called.stem in PROGRAM_NAMES and called.suffix in ("", ".exe"):
        if called.is_file():
            return [os.path.abspath(called)]
        if path := shutil.which(called.name):
            return [os.path.abspath(path)]
    # -P: a folder named kb in the working folder is not this program.
    return [python, "-P", "-m", "kb"]


def shared_program(command: Sequence[str], executable: str | None = None) -> list[str]:
    """The command for a file that a project shares, without anything of this machine in it: the
    program's name if it is on the path, else uv, which fetches it. `command` is of `program`."""
    folders = {os.path.dirname(executable or sys.executable), os.path.dirname(command[0])}
    for name in PROGRAM_NAMES:
        path = shutil.which(name)
        if path and os.path.dirname(os.path.abspath(path)) in folders:
            return [name]
    return ["uvx", DISTRIBUTION]


def is_ours(command: Sequence[str]) -> bool:
    """Whether a command starts kb, this one or another installation."""
    names = [Path(part.replace("\\", "/")).name.removesuffix(".exe") for part in command]
    if "serve" not in names:
        return False
    return any(name in PROGRAM_NAMES for name in names[: names.index("serve")])

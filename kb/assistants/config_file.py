"""One configuration file of a client: read, and replaced atomically, with a backup; and what the
editors of both formats share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kb.disk.system import is_marked_read_only
from kb.disk.write import replacing
from kb.errors import ConfigurationError


class Malformed(Exception):
    """A file that cannot be edited, and why, with the place; both numbers from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.column = column


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """The place of a character as editors count: both numbers from 1."""
    before = text[:position].replace("\r\n", "\n").replace("\r", "\n")
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def look_up(values: Any, keys: Sequence[str]) -> Any:
    """What is under keys, or None."""
    for key in keys:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def says_the_same(
    read: Callable[[str], dict[str, Any]],
    before: str,
    after: str,
    keys: Sequence[str],
    value: Any,
    *,
    is_step: bool = False,
) -> bool:
    """Whether an edited text means the same except for `value` under `keys` (None: nothing there);
    for a step of an edit it suffices that something else is there than before."""
    try:
        values, expected = read(after), read(before)
    except Malformed:
        return False
    present = look_up(values, keys)
    is_right = present != look_up(expected, keys) if is_step else present == value
    return is_right and _without(values, keys) == _without(expected, keys)


def _without(values: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """What is not under keys; empty objects count as absent."""
    kept = {}
    for key, inner in values.items():
        if keys and key == keys[0]:
            if len(keys) == 1:
                continue
            inner = _without(inner, keys[1:]) if isinstance(inner, dict) else inner
        elif isinstance(inner, dict):
            inner = _without(inner, ())
        if inner != {}:
            kept[key] = inner
    return kept


BACKUP_SUFFIX = ".before-kb"
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class ConfigText:
    """A file as it was read."""

    path: Path  # as named
    data: bytes | None  # None: there is no file

    @property
    def text(self) -> str:
        """Its text without a byte order mark; raises Malformed if it is not UTF-8."""
        try:
            return (self.data or b"").decode().removeprefix(_BOM)
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode()
            raise Malformed("it is not UTF-8", *line_and_column(before, len(before))) from error

    def encoded(self, text: str) -> bytes:
        """Another text in this file's encoding."""
        return (_BOM + text if (self.data or b"").startswith(_BOM.encode()) else text).encode()


def read(path: Path) -> ConfigText:
    """The file, which may be missing; raises ConfigurationError if it cannot be read."""
    try:
        return ConfigText(path, path.read_bytes())
    except FileNotFoundError:
        if path.is_symlink():
            why = "which does not exist: remove the link or bring the file back"
            raise _refused(path, f"{path} is a link to {os.readlink(path)}, {why}") from None
        return ConfigText(path, None)
    except OSError as error:
        raise _refused(path, f"cannot read {path}: {error.strerror or error}") from error


def text_of(file: ConfigText) -> str:
    """The text of a file; raises ConfigurationError, with the place, if it is not UTF-8."""
    with placed(file.path):
        return file.text


@contextlib.contextmanager
def placed(path: Path) -> Iterator[None]:
    """Turn the editors' errors into one with the file's name and the place."""
    try:
        yield
    except Malformed as error:
        raise ConfigurationError(
            f"{path}, line {error.line}, column {error.column}: {error.reason}; the file was left "
            "as it is: mend it and try again",
            path=str(path),
            line=error.line,
            column=error.column,
        ) from error


def require_writable(path: Path) -> None:
    """Raise ConfigurationError if the file or its folder is read-only: replacing would evade it."""
    place = _real(path)
    while not place.exists():
        place = place.parent
    folder = place if place.is_dir() else place.parent
    if folder == place and place == _real(path):
        raise _refused(path, f"{path} is a folder: it should be a file")
    for item in dict.fromkeys((place, folder)):
        # The superuser may write everywhere, but what is marked read-only is meant to stay.
        if is_marked_read_only(item) or not os.access(item, os.W_OK):
            how = "make it writable, or put the lines in yourself (--print shows them)"
            raise _refused(path, f"{item} is read-only and was left as it is: {how}")


def replace(old: ConfigText, data: bytes, *, model: Path | None = None) -> None:
    """Replace the file's content atomically, if it still is what was read, else ConfigurationError.
    Follows links, and keeps permissions or takes those of another file, `model`."""
    try:
        _real(old.path).parent.mkdir(parents=True, exist_ok=True)
        with replacing(old.path, model=model) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if read(old.path).data != old.data:
                why = f"{old.path} was changed by another program meanwhile: try again"
                raise _refused(old.path, why)
    except OSError as error:
        why = f"cannot write {old.path}: {error.strerror or error}"
        raise _refused(old.path, why) from error


def delete(old: ConfigText) -> None:
    """Remove a file that became empty, and its folder if that contained nothing else."""
    try:
        old.path.unlink()
    except OSError as error:
        why = f"cannot remove {old.path}: {error.strerror or error}"
        raise _refused(old.path, why) from error
    with contextlib.suppress(OSError):  # not empty
        old.path.parent.rmdir()


def backup_path(path: Path) -> Path:
    """Where the copy of a file is: beside the file itself, not beside a link to it."""
    real = _real(path)
    return real.with_name(real.name + BACKUP_SUFFIX)


def keep_backup(old: ConfigText) -> Path | None:
    """Keep the previous content, with the file's permissions; None if there was none."""
    if old.data is None:
        return None
    path = backup_path(old.path)
    replace(read(path), old.data, model=_real(old.path))
    return path


def _refused(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(why, path=str(path))


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))

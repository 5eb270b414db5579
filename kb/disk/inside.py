"""Which files of a project a tool may read, and reading one without leaving the project.

A path that a client sends is judged twice: as text, before the disk is touched, and as the place
that it leads to once all links are followed. Both must be inside and hold no hidden name.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

from kb.disk.globs import composed
from kb.disk.open_databases import OpenDatabaseError, opened
from kb.disk.secret import SECRET_FOLDERS, folded, is_secret, plain_name
from kb.disk.system import place_beneath
from kb.errors import FileNotFound, FileTooLarge, PermissionDenied, SourceError
from kb.text.file_names import on_disk, storable, without_bytes
from kb.text.nearest import nearest

MAXIMUM_BYTES = 1024 * 1024

# What no tool shows: folders at any depth. Of files there are more (`is_hidden_from_tools`).
_UNSHOWN_FOLDERS = (".git", "node_modules")
HIDDEN_FOLDERS = (*_UNSHOWN_FOLDERS, *SECRET_FOLDERS)

# A path is unfolded until it stays the same; nobody encodes a real name this often.
_UNFOLDINGS_AT_MOST = 8

_ABSOLUTE = "Absolute paths not allowed"
_TRAVERSAL = "Path traversal not allowed"
_DENIED = "Permission denied"


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A file as it was when it was read."""

    path: str  # relative to the root, links followed, "/" on every system, `storable`
    data: bytes
    modified: float  # seconds since 1970, UTC


# A search asks for each file of a project, and the next one for the same again.
@lru_cache(maxsize=50_000)
def is_hidden_from_tools(path: str) -> bool:
    """Whether any part of a relative path has a name that tools do not show."""
    path = path.replace("\\", "/")
    return is_secret(path) or any(plain_name(name) in _UNSHOWN_FOLDERS for name in path.split("/"))


def resolve_inside(root: Path, path: str) -> Path:
    """Where a path from a client leads: a regular file inside the project.

    Raises:
        PermissionDenied: the path is absolute, leads out of the project, or is written so that
            it could for a less strict reader; or one of its names is hidden.
        FileNotFound: there is no regular file there.
    """
    folder = os.path.realpath(root)
    name = _name_on_disk(folder, path)
    # Bytes that are no text are letters of a name, nothing more.
    refusal = _refusal(path if name == path else without_bytes(path))
    if refusal is not None:
        message, reason = refusal
        raise PermissionDenied(message, path=path, reason=reason)
    try:
        name = as_listed(folder, name)
        target = Path(os.path.realpath(os.path.join(folder, name)))
    except OSError as error:
        raise _not_found(folder, path) from error
    # Compared part by part: `/proj_secret` begins with `/proj` but is outside it.
    if not target.is_relative_to(folder):
        raise PermissionDenied(_DENIED, path=path, reason="a link leads out of the project")
    if is_hidden_from_tools(target.relative_to(folder).as_posix()):
        raise PermissionDenied(_DENIED, path=path, reason="a link leads to a hidden file")
    try:
        is_regular = stat.S_ISREG(os.lstat(target).st_mode)
    except PermissionError as error:
        raise PermissionDenied(_DENIED, path=path) from error
    except OSError as error:
        raise _not_found(folder, path) from error
    if not is_regular:
        raise FileNotFound("File not found", path=path, reason="this is not a regular file")
    return target


def read_inside(root: Path, path: str, maximum: int = MAXIMUM_BYTES) -> ProjectFile:
    """Read a file of the project.

    Raises:
        PermissionDenied, FileNotFound: as `resolve_inside`.
        FileTooLarge: it holds more than `maximum` bytes.
        SourceError: it is a database that this process has open.
    """
    target = resolve_inside(root, path)
    folder = Path(os.path.realpath(root))
    relative = target.relative_to(folder)
    try:
        data, status = read_beneath(folder, relative.parts, maximum)
    except FileNotFoundError as error:
        raise _not_found(str(folder), path) from error
    except OpenDatabaseError as error:
        raise SourceError(f"Cannot show a binary file: {error}", path=path) from error
    except OSError as error:  # also: a part of it has become a link since
        raise PermissionDenied(_DENIED, path=path) from error
    if len(data) > maximum:
        size = max(status.st_size, len(data))
        raise FileTooLarge("File too large", path=path, size=size, maximumSize=maximum)
    return ProjectFile(storable(relative.as_posix()), data, status.st_mtime)


def read_beneath(folder: Path, parts: Sequence[str], maximum: int) -> tuple[bytes, os.stat_result]:
    """Up to `maximum` + 1 bytes of a regular file, by names from a real folder, along no link.

    Raises OSError if it cannot be read, is not a regular file, or one of its parts is a link.
    """
    with (
        place_beneath(folder, parts) as (name, below),
        opened(name, follow=False, folder=below) as stream,
    ):
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        return stream.read(maximum + 1), status


def as_listed(folder: str, path: str) -> str:
    """A relative path with its names as the folders list them, where the disk takes other Unicode
    forms, or capitals and small letters, for the same name. Raises OSError if a folder cannot be
    listed."""

    def lies_there(name: str) -> bool:
        return os.path.lexists(os.path.join(folder, name))

    exists = lies_there(path)
    if not lies_there(path.swapcase()) if exists else path.isascii():
        return path
    at, names = folder, []
    for part in path.split("/"):
        entries = os.listdir(at)
        alike = [entry for entry in entries if _key(entry, exists) == _key(part, exists)]
        names.append(alike[0] if part not in entries and len(alike) == 1 else part)
        at = os.path.join(at, names[-1])
    return "/".join(names)


def _key(name: str, ignores_case: bool) -> str:
    return composed(name).casefold() if ignores_case else composed(name)


def _name_on_disk(folder: str, path: str) -> str:
    """The path, or the file's name that `storable` wrote like that, if it exists."""
    name = on_disk(path)
    try:
        return name if name != path and os.path.lexists(os.path.join(folder, name)) else path
    except ValueError:  # a NUL
        return path


def _refusal(path: str) -> tuple[str, str] | None:
    """The message and reason for refusing a path, in any reading of it, without a look."""
    form = path
    for _ in range(_UNFOLDINGS_AT_MOST):
        refusal = _refusal_as_written(form)
        if refusal is not None:
            return refusal
        plain = form
        if "%" in form:
            plain = re.sub(r"(?i)%u([0-9a-f]{4})", lambda match: chr(int(match[1], 16)), form)
            plain = unquote(plain, errors="replace")
        if "\N{REPLACEMENT CHARACTER}" in plain and "\N{REPLACEMENT CHARACTER}" not in form:
            return _TRAVERSAL, "percent-encoded bytes that are not valid UTF-8"
        plain = folded(plain)
        if plain == form:
            return None
        form = plain
    return _TRAVERSAL, "encoded over and over"


def _refusal_as_written(path: str) -> tuple[str, str] | None:
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in path):
        return _DENIED, "control characters in the path"
    path = path.strip()
    # A drive letter, a home folder, or an address such as file:///.
    if re.match(r"[/\\~]|[A-Za-z]:|[A-Za-z][A-Za-z0-9+.-]+:[/\\]", path):
        return _ABSOLUTE, "give the path relative to the project's root"
    # Three dots and more are parents' parents on some systems, and no one's file.
    if any(re.fullmatch(r" *\.[ .]*\. *", name) for name in re.split(r"[/\\]", path)):
        return _TRAVERSAL, "give the path from the project's root without .."
    if "\\" in path:
        return _DENIED, "write / between the names of a path"
    if is_hidden_from_tools(path):
        return _DENIED, "this name is hidden from tools"
    return None


def _not_found(folder: str, path: str) -> FileNotFound:
    """The error, with existing names that resemble the missing one."""
    parent, slash, name = path.rpartition("/")
    names: list[str] = []
    with contextlib.suppress(OSError):  # also: the folder is being replaced at this moment
        place = Path(os.path.realpath(os.path.join(folder, parent)))
        inside = place.is_relative_to(folder)
        if inside and not is_hidden_from_tools(place.relative_to(folder).as_posix()):
            names = os.listdir(place)
    near = nearest(name, [storable(entry) for entry in names if not is_hidden_from_tools(entry)])
    details = {"suggestions": [parent + slash + entry for entry in near]} if near else {}
    return FileNotFound("File not found", path=path, **details)

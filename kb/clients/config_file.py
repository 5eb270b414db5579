"""One configuration file of a client: read, replaced at once, with a copy of what was before."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kb.clients.texts import Malformed, line_and_column
from kb.errors import ConfigurationError

BACKUP_SUFFIX = ".before-kb"
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class ConfigText:
    """A file as it was read."""

    path: Path  # as named
    data: bytes | None  # None: there is no file

    @property
    def text(self) -> str:
        """Its text, without a byte order mark.

        Raises:
            Malformed: it is not UTF-8.
        """
        try:
            return (self.data or b"").decode().removeprefix(_BOM)
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode()
            raise Malformed("it is not UTF-8", *line_and_column(before, len(before))) from error

    def encoded(self, text: str) -> bytes:
        """Another text as this file would hold it."""
        has_mark = (self.data or b"").startswith(_BOM.encode())
        return (_BOM + text if has_mark else text).encode()


def read(path: Path) -> ConfigText:
    """The file, which need not be there.

    Raises:
        ConfigurationError: it is there and cannot be read.
    """
    try:
        return ConfigText(path, path.read_bytes())
    except FileNotFoundError:
        if path.is_symlink():
            raise ConfigurationError(
                f"{path} is a link to {os.readlink(path)}, which is not there: remove the link "
                "or bring the file back",
                path=str(path),
            ) from None
        return ConfigText(path, None)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path}: {error.strerror or error}", path=str(path)
        ) from error


def text_of(file: ConfigText) -> str:
    """The text of a file, or an error with the place.

    Raises:
        ConfigurationError: it is not UTF-8.
    """
    with placed(file.path):
        return file.text


@contextlib.contextmanager
def placed(path: Path) -> Iterator[None]:
    """Turn the editors' complaints into an error with the file's name and the place."""
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
    """Refuse a file that its owner has protected; replacing it would go round that.

    Raises:
        ConfigurationError: it is read-only, or its folder is.
    """
    place = _real(path)
    while not place.exists():
        place = place.parent
    folder = place if place.is_dir() else place.parent
    if folder == place and place == _real(path):
        raise ConfigurationError(f"{path} is a folder: it should be a file", path=str(path))
    for one in dict.fromkeys((place, folder)):
        # The superuser may write everywhere; what is marked read-only is meant to stay.
        is_marked = os.name == "posix" and not one.stat().st_mode & stat.S_IWUSR
        if is_marked or not os.access(one, os.W_OK):
            raise ConfigurationError(
                f"{one} is read-only and was left as it is: make it writable, or put the lines "
                "in yourself (--print shows them)",
                path=str(path),
            )


def replace(old: ConfigText, data: bytes) -> None:
    """Put other bytes in the file's place at once, if it still is what was read.

    Links are followed, permissions are kept.

    Raises:
        ConfigurationError: it was changed meanwhile, or cannot be written.
    """
    target = _real(old.path)
    temporary = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if old.data is None:
            temporary.chmod(0o666 & ~_umask())
        else:
            _copy_rights(target, temporary)
        if read(old.path).data != old.data:
            raise ConfigurationError(
                f"{old.path} was changed by another program meanwhile: try again",
                path=str(old.path),
            )
        temporary.replace(target)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {old.path}: {error.strerror or error}", path=str(old.path)
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def delete(old: ConfigText) -> None:
    """Remove a file that holds nothing any more, and its folder if that was all there was."""
    try:
        old.path.unlink()
    except OSError as error:
        raise ConfigurationError(
            f"cannot remove {old.path}: {error.strerror or error}", path=str(old.path)
        ) from error
    with contextlib.suppress(OSError):  # not empty
        old.path.parent.rmdir()


def backup_path(path: Path) -> Path:
    """Where the copy of a file lies: beside the file itself, not beside a link to it."""
    real = _real(path)
    return real.with_name(real.name + BACKUP_SUFFIX)


def keep_backup(old: ConfigText) -> Path | None:
    """Keep what was before, with the file's own permissions. None where there was nothing."""
    if old.data is None:
        return None
    path = backup_path(old.path)
    replace(read(path), old.data)
    _copy_rights(_real(old.path), path)
    return path


def _copy_rights(source: Path, target: Path) -> None:
    state = source.stat()
    target.chmod(stat.S_IMODE(state.st_mode))
    if os.name == "posix":
        with contextlib.suppress(OSError):
            os.chown(target, state.st_uid, state.st_gid)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

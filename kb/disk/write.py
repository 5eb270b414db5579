"""Files that kb writes: whole or not at all, and open to nobody who could not read them before."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from kb.disk.system import give_to_owner_of, replace

PRIVATE = 0o600
ORDINARY = 0o666  # less what the user's umask takes away


@contextlib.contextmanager
def replacing(
    place: Path, *, model: Path | None = None, is_private: bool = False
) -> Iterator[BinaryIO]:
    """A stream whose content takes a file's place at once, unless the block fails.

    Links are followed, and a file that is there hands on its permissions and its owner.

    Args:
        model: the file whose permissions and owner the new one has instead.
        is_private: nobody else may read it, whoever could before.

    Raises:
        OSError: it cannot be written.
    """
    target = Path(os.path.realpath(place))
    part = target.with_name(f".kb-{os.getpid()}-{threading.get_ident()}.part")
    model = model or target
    old = model.stat() if model.exists() and not is_private else None
    mode = PRIVATE if old or is_private else ORDINARY
    try:
        part.unlink(missing_ok=True)  # of a process that was killed
        with open(part, "xb", opener=partial(os.open, mode=mode)) as stream:
            yield stream
        if old is not None:
            part.chmod(stat.S_IMODE(old.st_mode))
            give_to_owner_of(part, old)
        replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def replace_file(place: Path, content: bytes | str, *, is_private: bool = False) -> None:
    """As `replacing`, with the whole content at once."""
    with replacing(place, is_private=is_private) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def create_like(path: Path, model: Path) -> None:
    """Make an empty file with the rights of another. Raises OSError, also if it exists."""
    mode = stat.S_IMODE(model.stat().st_mode) & ORDINARY | PRIVATE
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))

"""Where what was fetched is kept for the next time: folders of the user's cache."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

from kb.settings import user_cache

__all__ = ["cache_folder"]

KEPT_SECONDS = 90 * 86_400  # since something was used last


def cache_folder(kind: str) -> Path:
    """The folder of one kind of source, which other users of the machine cannot read.

    Whatever has not been used for `KEPT_SECONDS`, by its time, is deleted from it first. A folder
    that cannot be made is returned all the same: without it everything is fetched, or nothing can
    be, as its user has it.
    """
    folder = user_cache() / kind
    oldest = time.time() - KEPT_SECONDS
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):
                if entry.stat().st_mtime < oldest:
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return folder

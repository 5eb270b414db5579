"""Pages that were fetched go into the archive of captured pages as well, where there is one.

The archive's layout is `<md5 of the address>/content.md` with `metadata.json` beside it; the
archive's own sync takes them in from there.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path

from kb.formats.archive import CONTENT_FILE, METADATA_FILE
from kb.sources.folder import SourceFile
from kb.store.documents import NewDocument

__all__ = ["VARIABLE", "archive_page"]

VARIABLE = "URL_CONTENT_ARCHIVE_PATH"
log = logging.getLogger("kb.captures")


def archive_page(file: SourceFile, new: NewDocument) -> None:
    """Write a fetched page into the archive that the environment names; else do nothing."""
    folder = os.environ.get(VARIABLE)
    if not (folder and file.url):
        return
    root = Path(folder).expanduser()
    place = root / hashlib.md5(file.url.encode(), usedforsecurity=False).hexdigest()
    about = {"url": file.url, "title": new.parsed.title, "timestamp": file.captured}
    try:
        if not root.is_dir():
            raise FileNotFoundError(f"{root} is no folder")
        place.mkdir(exist_ok=True)
        _replace(place / CONTENT_FILE, new.text)
        _replace(place / METADATA_FILE, json.dumps(about, ensure_ascii=False, indent=2) + "\n")
    except OSError as error:  # the document itself is stored all the same
        log.warning("%s could not be put into the archive of pages: %s", file.url, error)


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)

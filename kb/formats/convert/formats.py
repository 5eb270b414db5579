"""The formats that are converted: their suffixes, the module for each and what it needs."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from posixpath import splitext

__all__ = ["ARTICLE", "FORMATS", "INSTALL", "Format", "format_of"]

INSTALL = "pip install 'kbfile[formats]'"


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file."""

    name: str  # as people call it
    module: str  # in this package; its `convert(data, name)` does the work
    suffixes: tuple[str, ...]
    needs: tuple[str, ...] = ()  # modules of the extra

    @property
    def is_available(self) -> bool:
        """Whether everything that it needs is installed."""
        return all(map(_is_installed, self.needs))


_HTML = ("selectolax", "html_to_markdown")

FORMATS = (
    Format("PDF", "pdf", (".pdf",), ("pypdfium2",)),
    Format("Word", "word", (".docx",), ("mammoth", *_HTML)),
    Format("PowerPoint", "slides", (".pptx",), ("pptx",)),
    Format("Excel", "sheets", (".xlsx", ".xlsm"), ("python_calamine",)),
    Format("HTML", "page", (".html", ".htm", ".xhtml"), _HTML),
    Format("web page", "article", (), (*_HTML, "readability")),
    Format("EPUB", "book", (".epub",), _HTML),
    Format("Jupyter notebook", "notebook", (".ipynb",), ("nbformat",)),
    Format("mail", "mail", (".eml",), _HTML),
    Format("manual page", "manual", ()),
)
# A page that was fetched; in a file it is HTML.
ARTICLE = next(one for one in FORMATS if one.module == "article")
_BY_SUFFIX = {suffix: one for one in FORMATS for suffix in one.suffixes}
_MANUAL = FORMATS[-1]

# `ls.1`, `printf.3posix.gz`: taken in folders of manual pages only, since `app.log.1` and
# `libx.so.1` look the same.
_MANUAL_NAME = re.compile(r"[^/]+\.[1-9][a-z]{0,8}(?:\.gz)?\Z")
_MANUAL_FOLDER = re.compile(r"(?:man[1-9]?[a-z]*|manpages?|manual)\Z", re.IGNORECASE)


def format_of(path: str, *, by_name: bool = False) -> Format | None:
    """The format of a file by its path; None for one that needs no conversion.

    Args:
        by_name: whether somebody named this very file or its ending, so that `ls.1` is taken
            for a manual page wherever it lies.
    """
    above, _, name = path.rpartition("/")  # every file of a folder is asked about: no Path here
    known = _BY_SUFFIX.get(splitext(name)[1].lower())
    if known is None and _MANUAL_NAME.match(name):
        folder = above.rpartition("/")[2]
        return _MANUAL if by_name or _MANUAL_FOLDER.match(folder) else None
    return known


@cache
def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False

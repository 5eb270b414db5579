"""The formats that are converted: their suffixes, modules and requirements."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from posixpath import splitext

INSTALL = "pip install 'kbfile[formats]'"
INSTALL_OCR = "pip install 'kbfile[ocr]'"
RAPIDOCR = "rapidocr"


@dataclass(frozen=True, slots=True)
class Format:
    name: str  # for people
    module: str  # in this package; its `convert(data, name)` does the work
    suffixes: tuple[str, ...]
    needs: tuple[str, ...] = ()  # modules of the extra

    @property
    def is_available(self) -> bool:
        return all(map(_is_installed, self.needs))


_HTML = ("selectolax", "html_to_markdown")
_SHEETS = ("python_calamine", "lxml", "xlrd")

FORMATS = (
    Format("PDF", "pdf", (".pdf",), ("pypdfium2", "liteparse")),
    Format("Word", "word", (".docx", ".docm"), ("mammoth", "officemath2latex", *_HTML)),
    Format("PowerPoint", "slides", (".pptx", ".pptm"), ("pptx", "officemath2latex")),
    Format("Excel", "sheets", (".xlsx", ".xlsm", ".xlsb", ".xls"), _SHEETS),
    Format("OpenDocument", "opendocument", (".odt", ".ott", ".ods", ".odp"), (*_SHEETS, *_HTML)),
    Format("RTF", "rtf", (".rtf",), ("striprtf",)),
    Format("HTML", "page", (".html", ".htm", ".xhtml"), _HTML),
    Format("EPUB", "book", (".epub",), _HTML),
    Format("Jupyter notebook", "notebook", (".ipynb",), ("nbformat",)),
    Format("mail", "mail", (".eml",), _HTML),
    Format("Outlook mail", "mail", (".msg",), ("oxmsg", *_HTML)),
    Format("manual page", "manual", ()),
)
_BY_SUFFIX = {suffix: kind for kind in FORMATS for suffix in kind.suffixes}
MANUAL = FORMATS[-1]
HTML = _BY_SUFFIX[".html"]

# `ls.1`, `printf.3posix.gz`: only in folders of manual pages, since `app.log.1` looks the same.
_MANUAL_NAME = re.compile(r"[^/]+\.[1-9][a-z]{0,8}(?:\.gz)?\Z")
_MANUAL_FOLDER = re.compile(r"(?:man[1-9]?[a-z]*|manpages?|manual)\Z", re.IGNORECASE)


def format_of(path: str, *, by_name: bool = False) -> Format | None:
    """The format of a file by its path; None if it needs no conversion. `by_name`: somebody named
    this file or its ending, so `ls.1` is a manual page wherever it lies."""
    above, _, name = path.rpartition("/")  # without a Path: this runs for every file
    kind = _BY_SUFFIX.get(splitext(name)[1].lower())
    if kind is None and _MANUAL_NAME.match(name):
        return MANUAL if by_name or _MANUAL_FOLDER.match(above.rpartition("/")[2]) else None
    return kind


def can_recognise(engine: str) -> bool:
    """Whether RAPIDOCR is installed, or tesseract for languages (`rus+eng`); "" needs nothing."""
    return not engine or _is_installed(RAPIDOCR if engine == RAPIDOCR else "tesserocr")


@cache
def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False

"""Formats that are zip archives: Office files, with their formulas, and EPUB."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from kb.formats.convert.result import ConverterError

_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
OFFICE_MATH = f"{_M}oMath"  # the element of one formula
W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"  # Word's elements
MAXIMUM_UNPACKED = 500_000_000  # bytes of all members
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # Office before 2007, and today's with a password

# Namespaces of Office's "strict" files, which most readers do not know.
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")


class Package:
    """The members of such a file; ConverterError if it is another, encrypted, or too large."""

    def __init__(self, data: bytes, kind: str) -> None:
        if data.startswith(OLE):
            raise ConverterError(
                f"is not a current {kind} file: it is protected by a password, or was saved "
                "by an office program before 2007; save it again"
            )
        try:
            self._data = io.BytesIO(data)
            self._archive = zipfile.ZipFile(self._data)
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            raise ConverterError(f"is damaged or not in {kind} format") from error
        members = self._archive.infolist()
        size = sum(member.file_size for member in members)
        if size > MAXIMUM_UNPACKED:
            raise ConverterError(
                f"unpacks to {size / 1e6:.0f} MB, more than the limit of "
                f"{MAXIMUM_UNPACKED / 1e6:.0f} MB"
            )
        self.names = {member.filename for member in members}

    def read(self, name: str) -> bytes:
        """A member's bytes, b"" if missing; ConverterError if it is damaged or encrypted."""
        if name not in self.names:
            return b""
        with unpacking():
            data = self._archive.read(name)
        is_xml = name.endswith((".xml", ".rels"))
        return _STRICT.sub(rb"http://schemas.openxmlformats.org/\1/2006/", data) if is_xml else data

    def file(self) -> io.BytesIO:
        """The whole, as other readers know it: only a strict file is packed anew."""
        with unpacking():
            roots = [self._archive.read(name) for name in self.names & {"_rels/.rels"}]
        if not any(map(_STRICT.search, roots)):
            return self._data
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name in sorted(self.names):
                archive.writestr(name, self.read(name))
        return file

    def xml(self, name: str) -> ElementTree.Element | None:
        """A member's root element, None if missing; ConverterError if it is not XML."""
        data = self.read(name)
        if not data:
            return None
        try:
            return ElementTree.fromstring(data)
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            raise ConverterError(f"is damaged: {name} is not XML ({error})") from error

    def properties(self) -> dict[str, str]:
        """What an Office file says about itself: title, author, created, modified."""
        names = {"title": "title", "creator": "author", "created": "created"}
        root = self.xml("docProps/core.xml")
        return named_texts(root if root is not None else (), names | {"modified": "modified"})


@contextmanager
def unpacking() -> Iterator[None]:
    """ConverterError for a member that is damaged or encrypted, whoever reads it."""
    try:
        yield
    except (zipfile.BadZipFile, RuntimeError, OSError, EOFError, zlib.error) as error:
        raise ConverterError(f"is damaged or encrypted: {error}") from error


def integer(text: str | None, default: int = 0) -> int:
    """The count that an attribute holds; `default` if it is missing, or something else."""
    return int(text) if text and re.fullmatch(r"\d{1,9}", text) else default


def named_texts(elements: Iterable[Element], names: Mapping[str, str]) -> dict[str, str]:
    """The first text of each named element, in any namespace, by its new name."""
    texts: dict[str, str] = {}
    for element in elements:
        key = names.get(element.tag.rpartition("}")[2], "")
        if key and (text := " ".join((element.text or "").split())):
            texts.setdefault(key, text)
    return texts


def latex(formula: Any) -> str:
    """A formula as LaTeX between Markdown's marks; changes the lxml element."""
    import officemath2latex

    for properties in formula.iter(f"{_M}dPr", f"{_M}accPr"):
        for sign in list(properties):
            # The library knows these defaults only if they are omitted.
            if sign.get(f"{_M}val") in ("(", ")", "\u0302"):
                properties.remove(sign)
    text = " ".join(officemath2latex.process_math_node(formula).split())
    text = text.replace("\\|", "\\Vert ").replace("|", "\\vert ")  # a bar would end a table's cell
    above = formula.getparent()
    mark = "$$" if above is not None and above.tag == f"{_M}oMathPara" else "$"
    return f"{mark}{text}{mark}" if text else ""

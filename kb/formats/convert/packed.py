"""Formats that are zip archives: Office files and EPUB."""

from __future__ import annotations

import io
import zipfile
from xml.etree import ElementTree

from kb.formats.convert.result import ConverterError

__all__ = ["Package"]

MAXIMUM_UNPACKED = 500_000_000  # bytes of all members
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # Office before 2007, and today's with a password


class Package:
    """The members of such a file."""

    def __init__(self, data: bytes, kind: str) -> None:
        """Open it.

        Raises:
            ConverterError: it is no such file, encrypted, or would grow too large.
        """
        if data.startswith(_OLE):
            raise ConverterError(
                f"is no {kind} file of today's form: it is protected by a password, or was saved "
                "by an office program before 2007; save it anew"
            )
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            raise ConverterError(f"is damaged or no {kind} file") from error
        members = self._archive.infolist()
        size = sum(member.file_size for member in members)
        if size > MAXIMUM_UNPACKED:
            raise ConverterError(
                f"unpacks to {size / 1e6:.0f} MB, more than the limit of "
                f"{MAXIMUM_UNPACKED / 1e6:.0f} MB"
            )
        self.names = {member.filename for member in members}

    def read(self, name: str) -> bytes:
        """A member's bytes; b"" when there is none.

        Raises:
            ConverterError: it is damaged or encrypted.
        """
        if name not in self.names:
            return b""
        try:
            return self._archive.read(name)
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError) as error:
            raise ConverterError(f"is damaged or encrypted: {error}") from error

    def xml(self, name: str) -> ElementTree.Element | None:
        """A member's root element; None when there is none.

        Raises:
            ConverterError: it is no XML.
        """
        data = self.read(name)
        if not data:
            return None
        try:
            return ElementTree.fromstring(data)
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            raise ConverterError(f"is damaged: {name} is no XML ({error})") from error

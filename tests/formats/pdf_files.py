"""Small PDF files built by code: text where it is put, and lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Rule", "Text", "pdf"]

_FONTS = ("Helvetica", "Helvetica-Bold", "Courier")


@dataclass(frozen=True)
class Text:
    """A piece of text; points from the lower left of a page of 595 by 842."""

    x: float
    y: float
    text: str
    size: float = 11
    font: str = "Helvetica"

    def __str__(self) -> str:
        code = self.text.encode("cp1252").hex()
        font = _FONTS.index(self.font)
        return f"BT /F{font} {self.size} Tf 1 0 0 1 {self.x} {self.y} Tm <{code}> Tj ET"


@dataclass(frozen=True)
class Rule:
    """A thin line from one point to another."""

    x1: float
    y1: float
    x2: float
    y2: float

    def __str__(self) -> str:
        return f"0.5 w {self.x1} {self.y1} m {self.x2} {self.y2} l S"


def pdf(pages: Sequence[Sequence[Text | Rule]], title: str = "") -> bytes:
    """A file of pages, each with what is drawn on it in this order."""
    fonts = " ".join(f"/F{i} {3 + i} 0 R" for i in range(len(_FONTS)))
    first = 3 + len(_FONTS)
    kids = " ".join(f"{first + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>".encode(),
    ]
    for name in _FONTS:
        font = f"<</Type/Font/Subtype/Type1/BaseFont/{name}/Encoding/WinAnsiEncoding>>"
        objects.append(font.encode())
    for number, page in enumerate(pages):
        content = "\n".join(map(str, page)).encode()
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Resources<</Font<<{fonts}>>>>"
            f"/Contents {first + 2 * number + 1} 0 R>>".encode()
        )
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(content), content))
    objects.append(b"<</Title<feff%s>>>" % title.encode("utf-16-be").hex().encode())
    file = b"%PDF-1.4\n"
    for number, body in enumerate(objects, start=1):
        file += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    # Without a table of its objects a reader looks for them: that much is enough.
    return file + b"trailer<</Root 1 0 R/Info %d 0 R>>\n%%%%EOF\n" % len(objects)

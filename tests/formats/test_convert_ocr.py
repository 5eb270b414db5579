"""Pages that are pictures are read where somebody asked for it; columns one after the other."""

from __future__ import annotations

import importlib.util
import io

import pypdfium2
import pytest
from support import ROOT

from kb.errors import ConversionError
from kb.formats.convert.formats import format_of
from kb.formats.convert.pdf_lines import Line, in_reading_order
from kb.formats.convert.process import Converter

HAS_OCR = importlib.util.find_spec("rapidocr") is not None


def scanned(page: int) -> bytes:
    """A page of a fixture as a slightly skewed picture, in a PDF."""
    document = pypdfium2.PdfDocument(ROOT / "fixtures" / "formats" / "harbour.pdf")
    picture = document[page].render(scale=150 / 72).to_pil().convert("L")
    file = io.BytesIO()
    picture.rotate(0.7, fillcolor=255).save(file, "PDF", resolution=150)
    return file.getvalue()


def test_a_scan_is_refused_with_what_would_read_it() -> None:
    kind = format_of("a.pdf")
    assert kind is not None
    with Converter() as converter, pytest.raises(ConversionError, match="--ocr"):
        converter.convert(kind, "a.pdf", scanned(0))


@pytest.mark.slow
@pytest.mark.skipif(not HAS_OCR, reason="the extra `ocr` is not installed")
def test_a_scan_is_read_where_it_was_asked_for() -> None:
    kind = format_of("a.pdf")
    assert kind is not None
    with Converter() as converter:
        converted = converter.convert(kind, "a.pdf", scanned(2), ocr="rapidocr")
    assert "Bow line and stern line first" in converted.text
    assert "Cedar" in converted.text
    assert converted.notices[0].startswith("text recognised on 1 page in ")
    assert [origin.label for origin in converted.origins] == ["1"]


def column(left: int, width: int, words: str, tops: range) -> list[Line]:
    return [
        Line(f"{words} number {top}", 1, 10, False, False, left, top, left + width) for top in tops
    ]


def test_two_and_three_columns_are_read_one_after_the_other_between_what_spans_them() -> None:
    title = Line("A title over all columns", 1, 10, False, False, 50, 800, 500)
    middle = Line("A line between the zones", 1, 10, False, False, 50, 600, 500)
    three = [column(50 + 160 * n, 140, f"Column {n}", range(780, 610, -14)) for n in range(3)]
    two = [column(50 + 240 * n, 220, f"Half {n}", range(580, 400, -14)) for n in range(2)]
    wanted = [title, *three[0], *three[1], *three[2], middle, *two[0], *two[1]]
    mixed = sorted(wanted, key=lambda line: (-line.top, line.left))
    assert in_reading_order(mixed) == wanted


def test_cells_beside_each_other_are_read_row_by_row() -> None:
    rows = [
        Line(text, 1, 10, False, False, 50 + 120 * n, top, 90 + 120 * n)
        for top in range(700, 600, -14)
        for n, text in enumerate(("Birch", "8 m", "70 m"))
    ]
    assert in_reading_order(rows) == rows

"""Recognises the text of scanned pages: by rapidocr, or by tesseract in named languages.

rapidocr includes models for Latin letters, Chinese and Japanese; tesseract reads other scripts in
languages that the system installs. Both take seconds a page, and run only on request.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from glob import glob
from typing import Any

import pypdfium2

from kb.formats.convert.formats import INSTALL_OCR, RAPIDOCR
from kb.formats.convert.pdf_lines import Line, in_reading_order
from kb.formats.convert.result import ConverterError
from kb.formats.convert.worker import renew_processor_time
from kb.text.counted import counted

MOST_PAGES = 200  # of a file
DOTS = 200 / 72  # a point
MOST_DOTS = 3000  # on a page's longer side
LEAST_SURE = 0.5  # of a line's text
_SIZE = 10.0  # points of all type: boxes say too little of it to find headings
_TRAINED = ("/usr/share/tesseract-ocr/*/tessdata", "/usr/*/share/tessdata", "/usr/share/tessdata")

_HYPHEN = re.compile(r"(?<=[^\W\d_])-\Z")
_Piece = tuple[float, float, float, str]  # left, top and right of a text, in dots


def recognise(
    document: pypdfium2.PdfDocument, indices: Sequence[int], engine: str
) -> tuple[dict[int, list[Line]], str]:
    """The lines of pages by their index, and a remark; `engine` as in `can_recognise`."""
    started = time.monotonic()
    try:
        read = _rapidocr() if engine == RAPIDOCR else _tesseract(engine)
    except ImportError as error:
        raise ConverterError(
            f"holds pictures of its pages, and `{INSTALL_OCR}` adds what reads them"
        ) from error
    pages = {}
    for index in indices[:MOST_PAGES]:
        renew_processor_time()  # each page has its own share
        page = document[index]
        height = page.get_height()
        scale = min(DOTS, MOST_DOTS / max(page.get_size()))
        lines = [
            Line(
                *(_HYPHEN.sub("\u00ad", text.strip()), index + 1, _SIZE, False, False),
                *(round(left / scale), round(height - top / scale), round(right / scale)),
            )
            for left, top, right, text in read(page.render(scale=scale).to_pil().convert("RGB"))
        ]
        pages[index] = in_reading_order([line for line in lines if line.text])
        page.close()
    rest = f" (the first of {len(indices)})" if len(indices) > MOST_PAGES else ""
    seconds = time.monotonic() - started
    return pages, f"text recognised on {counted(len(pages), 'page')}{rest} in {seconds:.0f} s"


def _rapidocr() -> Callable[[Any], Iterator[_Piece]]:
    from rapidocr import RapidOCR

    engine: Any = RapidOCR(params={"Global.log_level": "critical"})

    def read(picture: Any) -> Iterator[_Piece]:
        result = engine(picture)
        if result.boxes is None:
            return
        for box, text, sure in zip(result.boxes, result.txts, result.scores, strict=True):
            if sure >= LEAST_SURE:
                xs, ys = zip(*box.tolist(), strict=True)
                yield min(xs), sum(ys[:2]) / 2, max(xs), text

    return read


def _tesseract(languages: str) -> Callable[[Any], Iterator[_Piece]]:
    import tesserocr

    for folder in (folder for pattern in _TRAINED for folder in sorted(glob(pattern))):
        if set(languages.split("+")) <= set(tesserocr.get_languages(folder)[1]):
            break
    else:
        raise ConverterError(
            f"holds pictures of its pages, and tesseract has not all of the languages {languages}: "
            "install them, such as tesseract-ocr-rus"
        )
    engine = tesserocr.PyTessBaseAPI(path=folder, lang=languages)

    def read(picture: Any) -> Iterator[_Piece]:
        engine.SetImage(picture)
        engine.Recognize()
        for line in tesserocr.iterate_level(engine.GetIterator(), tesserocr.RIL.TEXTLINE):
            box = line.BoundingBox(tesserocr.RIL.TEXTLINE)
            if box and line.Confidence(tesserocr.RIL.TEXTLINE) >= 100 * LEAST_SURE:
                yield box[0], box[1], box[2], line.GetUTF8Text(tesserocr.RIL.TEXTLINE)

    return read

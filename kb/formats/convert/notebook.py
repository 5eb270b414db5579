"""Jupyter notebooks: the cells in order, code with the text that it printed."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import nbformat

from kb.formats.convert.plain import fenced
from kb.formats.convert.result import Converted, ConverterError, Origin
from kb.text.decode import NoTextError, decode

MOST_OUTPUT = 2_000  # characters of one output
_DATA = re.compile(r"\(\s*<?data:[^)\s]*>?\s*\)|(?<=src=[\"'])data:[^\"']*")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")


def convert(data: bytes, name: str) -> Converted:
    """Markdown cells unchanged, code in fences; pictures and other data are left out."""
    book = _book(data)
    metadata = _mapping(book.get("metadata"))
    language = _mapping(metadata.get("language_info")).get("name")
    language = str(language or _mapping(metadata.get("kernelspec")).get("language") or "")
    lines: list[str] = []
    origins: list[Origin] = []
    for number, cell in enumerate(book["cells"], start=1):
        shown = list(_cell_lines(cell, language))
        if shown:
            origins.append(Origin(len(lines) + 1, "cell", str(number)))
            lines += [*shown, ""]
    title = str(metadata.get("title") or "")
    return Converted("\n".join(lines).rstrip("\n") + "\n" if lines else "", title, tuple(origins))


def _book(data: bytes) -> Mapping[str, Any]:
    """The notebook in the newest form, or as it is if it breaks rules that do not matter here."""
    try:
        text = decode(data).text
    except NoTextError as error:
        raise ConverterError(f"is not a notebook: {error}") from error
    try:
        plain = json.loads(text)
    except ValueError as error:
        raise ConverterError(f"is damaged or not a notebook ({type(error).__name__})") from error
    book, cells = plain, _cells(plain)
    # Without a version nbformat assumes its first, whose cells had no source.
    if "nbformat" in _mapping(plain) or not any("source" in cell for cell in cells or ()):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # old notebooks lack ids and the like
                book = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
            cells = _cells(book)
        # nbformat raises whatever its parts do, for versions and missing keys.
        except Exception as error:
            if cells is None:
                name = type(error).__name__
                raise ConverterError(f"is damaged or not a notebook ({name})") from error
    return {**_mapping(book), "cells": cells or []}


def _cells(book: Any) -> list[Mapping[str, Any]] | None:
    cells = _mapping(book).get("cells")
    return [cell for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _cell_lines(cell: Mapping[str, Any], language: str) -> Iterator[str]:
    source = _text(cell.get("source")).strip("\n")
    kind = cell.get("cell_type")
    if kind == "markdown":
        yield from _closed(_DATA.sub("()", source)) if source.strip() else ()
        return
    if source.strip():
        yield from fenced(source.split("\n"), language if kind == "code" else "")
    outputs = cell.get("outputs") if kind == "code" else ()
    for output in outputs if isinstance(outputs, list) else ():
        output = _mapping(output)
        if output.get("output_type") == "stream":
            text = _COLOUR.sub("", _text(output.get("text")))
        elif output.get("output_type") == "error":
            text = f"{output.get('ename', '')}: {output.get('evalue', '')}"
        else:
            text = _text(_mapping(output.get("data")).get("text/plain"))
        if not text.strip():
            continue
        if len(text) > MOST_OUTPUT:
            text = text[:MOST_OUTPUT] + "\n..."
        yield ""
        yield from fenced(text.strip("\n").split("\n"), "text")


def _text(value: Any) -> str:
    text = "".join(map(str, value)) if isinstance(value, list) else str(value or "")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _closed(text: str) -> Iterator[str]:
    """The lines of a cell, with a closing fence if one is open."""
    fence = ""
    for line in text.split("\n"):
        yield line
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
    if fence:
        yield fence

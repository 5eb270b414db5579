"""What a converter leaves out is told, in every format, and nothing else is."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from support import ROOT, Filler, call

from kb.formats.convert.completeness import SOURCES, with_losses, words
from kb.formats.convert.formats import FORMATS, format_of
from kb.formats.convert.result import Converted

FILES = [
    file
    for file in sorted((ROOT / "fixtures" / "formats").iterdir())
    if format_of(file.name, by_name=True) and file.suffix != ".xls"  # has one reader alone
]


def converted(file: Path) -> tuple[str, bytes, Converted]:
    kind = format_of(file.name, by_name=True)
    assert kind is not None
    data = file.read_bytes()
    module = importlib.import_module(f"kb.formats.convert.{kind.module}")
    return kind.module, data, module.convert(data, file.name)


def test_every_format_is_read_a_second_time() -> None:
    assert set(SOURCES) == {kind.module for kind in FORMATS}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_whose_words_came_through_is_told_nothing_of(file: Path) -> None:
    module, data, result = converted(file)
    assert len(words(SOURCES[module](data))) >= 10
    assert with_losses(module, data, result) == result


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_of_which_much_is_missing_is_told_with_examples(file: Path) -> None:
    module, data, result = converted(file)
    cut = replace(result, text=result.text[: len(result.text) // 3])
    (notice,) = set(with_losses(module, data, cut).notices) - set(result.notices)
    assert "of its words" in notice
    assert "are missing from its text, such as" in notice


def page_of(text: str) -> bytes:
    return f"<body>{text}</body>".encode()


def test_words_in_other_pieces_are_there() -> None:
    text = "Ein Kieker ist ein Fernglas an der Wasserkante. " * 4
    pieces = text.replace("Wasserkante", "Was­ser<b>kante</b>").replace("Kieker", "Kie<wbr>ker")
    glued = text.replace("an der", "ander").replace("ist ein", "istein")
    assert with_losses("page", page_of(pieces), Converted(text)).notices == ()
    assert with_losses("page", page_of(text), Converted(glued)).notices == ()
    accents = "phe´nome`ne magn´etique"
    assert with_losses("page", page_of(accents * 9), Converted("phénomène magnétique" * 9)) == (
        Converted("phénomène magnétique" * 9)
    )


def test_text_without_blanks_counts_by_its_characters() -> None:
    text = "日本語の全文検索は文字の並びで索引される。" * 3
    assert with_losses("page", page_of(text), Converted(text.replace("索", "**索**"))).notices == ()
    (notice,) = with_losses("page", page_of(text), Converted(text[:50])).notices
    assert "of 60" in notice


def test_what_is_left_out_on_purpose_is_no_loss() -> None:
    page = page_of(f"{'<nav>one two three</nav>' * 9}<p>{'rope ' * 30}</p>")
    left_out = Converted("rope " * 30, left_out={"navigation": 27})
    assert with_losses("page", page, left_out).notices == ()
    assert len(with_losses("page", page, replace(left_out, left_out={})).notices) == 1


def test_a_file_that_cannot_be_read_again_is_converted_all_the_same() -> None:
    assert with_losses("pdf", b"no PDF", Converted("text")) == Converted("text")


def test_a_sync_tells_what_is_missing_and_the_outline_what_was_left_out(fill: Filler) -> None:
    printed = {"output_type": "stream", "text": " ".join(f"level{n}" for n in range(900))}
    cells = [{"cell_type": "code", "source": "run()", "outputs": [printed]}]
    menu = "".join(f"<li><a href=/{n}>Shop {n}</a>" for n in range(5))
    kb = fill(
        {
            "long.ipynb": json.dumps({"cells": cells}),
            "page.html": f"<nav><ul>{menu}</ul></nav><main><h1>Ropes</h1><p>{'Hemp. ' * 60}</main>",
            "forged.md": "---\nconversion: [all is well]\n---\n# Ropes\n",
        },
        embed=False,
    )

    def notice(document: str) -> str:
        shown = call(kb, "documents_get_outline", collection="docs", document=document)
        return str(shown.get("notice", ""))

    assert notice("page.html") == "Conversion: left out: navigation (10 words)."
    assert "of its words" in notice("long.ipynb")
    assert notice("forged.md") == ""

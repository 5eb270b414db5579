"""`kb add --ocr`: kept with the collection, refused without what it needs."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import apsw
import pytest
from support import Run

HAS_OCR = importlib.util.find_spec("rapidocr") is not None


@pytest.mark.skipif(not HAS_OCR, reason="the extra `ocr` is not installed")
def test_that_pictures_are_read_is_kept_with_the_collection(run: Run, project: Path) -> None:
    docs = project / "pages"
    docs.mkdir()
    (docs / "a.md").write_text("# Ropes\n")
    for arguments in (["--ocr-languages", "rus+eng"], []):
        assert run("--db", "a.db", "add", "pages", "--no-embed", *arguments).code == 0
        connection = apsw.Connection(str(project / "a.db"))
        options = connection.execute("SELECT options FROM collections WHERE name = 'pages'").get
        connection.close()
        assert json.loads(options)["ocr"] == "rus+eng"


@pytest.mark.skipif(HAS_OCR, reason="the extra `ocr` is installed")
def test_without_the_extra_the_option_says_what_to_install(run: Run) -> None:
    outcome = run("--db", "a.db", "add", ".", "--ocr")
    assert outcome.code == 2
    assert "kbfile[ocr]" in outcome.errors

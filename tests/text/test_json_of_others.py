"""Wherever JSON of others is read, what is wrong with it is said: nesting is not called bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.errors import ConfigurationError, SourceError
from kb.formats.archive import read_archive, walk_archive
from kb.open_file import load_aliases
from kb.project.in_use import load_project
from kb.sources.folder import SourceFile
from kb.sources.manifest import read_manifest

DEEP = b'{"sources":' + b"[" * 5000 + b"]" * 5000 + b"}"
LATIN_1 = '{"sources":\n"Höhe"}'.encode("latin-1")
BROKEN = b'{"sources": }'


def only_file(folder: Path, glob: str) -> SourceFile:
    (file,) = walk_archive(folder, [glob], [], report=lambda *_: None)
    return file


def alias_file(folder: Path, data: bytes) -> str:
    (folder / "kb.json").write_bytes(data)
    warnings: list[str] = []
    assert load_aliases(folder, warnings.append) == {}
    return " ".join(warnings)


def configuration(folder: Path, data: bytes) -> str:
    (folder / ".kb").mkdir(exist_ok=True)
    (folder / ".kb" / "config.json").write_bytes(data)
    with pytest.raises(ConfigurationError) as failure:
        load_project(str(folder), start=folder)
    return failure.value.message


def manifest(folder: Path, data: bytes) -> str:
    (folder / "manifest.json").write_bytes(data)
    return " ".join(problem for _, problem in read_manifest(folder / "manifest.json").problems)


def metadata_of_a_page(folder: Path, data: bytes) -> str:
    page = folder / ("a" * 32)
    page.mkdir()
    (page / "content.md").write_text("# A page\n")
    (page / "metadata.json").write_bytes(data)
    return read_archive(only_file(folder, "**/*.md")).notice


def research_result(folder: Path, data: bytes) -> str:
    result = folder / "queries" / "1"
    result.mkdir(parents=True)
    (result / "result.json").write_bytes(data)
    file = only_file(folder, "**/*.json")
    with pytest.raises(SourceError) as failure:
        read_archive(file)
    return failure.value.message


@pytest.mark.parametrize(
    "read", [alias_file, configuration, manifest, metadata_of_a_page, research_result]
)
@pytest.mark.parametrize(
    ("data", "told"),
    [(DEEP, "more than 100 deep"), (LATIN_1, "UTF-8"), (BROKEN, "Expecting value: line 1")],
    ids=["deep", "bytes", "broken"],
)
def test_what_is_wrong_is_told(
    data: bytes, told: str, read: Callable[[Path, bytes], str], tmp_path: Path
) -> None:
    if read is research_result and data is LATIN_1:
        pytest.skip("a document's text is read in whatever encoding it has")
    message = read(tmp_path, data)
    assert told in message
    assert sum(part in message for part in ("100 deep", "UTF-8", "Expecting")) == 1


def test_nan_in_metadata_is_nothing(tmp_path: Path) -> None:
    page = tmp_path / ("b" * 32)
    page.mkdir()
    (page / "content.md").write_text("# A page\n")
    (page / "metadata.json").write_text(json.dumps({"title": "T", "score": float("nan")}))
    assert read_archive(only_file(tmp_path, "**/*.md")).metadata == {"title": "T", "score": None}

"""The tables that come with the package hold whole words."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kb
from kb.text.assets import asset

NAMES = sorted(file.stem for file in Path(kb.__file__).parent.glob("assets/*.toml"))


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from texts(part)


@pytest.mark.parametrize("name", NAMES)
def test_no_word_of_a_list_is_broken_at_a_line_s_end(name: str) -> None:
    assert not [text for text in texts(asset(name)) if "-\n" in text]


def test_there_are_tables() -> None:
    assert {"grammars", "manuals", "page-parts", "source-files", "texts"} <= set(NAMES)

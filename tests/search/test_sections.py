"""A section is found by what people have in hand: heading, path, anchor, link."""

from __future__ import annotations

import pytest
from support import Filler, call

from kb.errors import KbError
from kb.formats.anchors import written_anchors
from kb.tools.session import Session

PAGE = """\
# Handbook

## Fonts

First.

## The `kb add` command and [links](x.md) {#adding}

Adding.

## Fonts

Second.

### Größe & Gewicht

Size. ^size

## Install

### Linux

With apt.

<a id="mac-os"></a>

### macOS

With brew.

## Fonts

Third.
"""


@pytest.fixture
def page(fill: Filler) -> Session:
    return fill(
        {
            "page.md": PAGE,
            "page.adoc": "= T\n\n[[here]]\n== One\n\nx\n\n[#there]\n== Two\n\ny\n",
            "page.org": "* One\n:PROPERTIES:\n:CUSTOM_ID: here\n:END:\nx\n* Two\ny\n",
            "page.rst": "T\n=\n\n.. _some label:\n\nOne\n---\n\nx\n\nTwo & more\n----------\n\ny\n",
        },
        embed=False,
    )


def found(kb: Session, section: str, document: str = "page.md") -> tuple[str, int]:
    answer = call(
        kb, "documents_get_section", collection="docs", document=document, section=section
    )
    return answer["section"], answer["startLine"]


@pytest.mark.parametrize(
    ("wanted", "heading", "line"),
    [
        ("fonts-1", "Fonts", 11),
        ("fonts_1", "Fonts", 11),
        ("#fonts-2", "Fonts", 31),
        ("page.md#fonts_2", "Fonts", 31),
        ("adding", "The kb add command and links", 7),
        ("#adding", "The kb add command and links", 7),
        ("the-kb-add-command-and-links", "The kb add command and links", 7),
        ("The `kb add` command and [links](x.md) {#adding}", "The kb add command and links", 7),
        ("The **kb add** command and links", "The kb add command and links", 7),
        ("größe--gewicht", "Größe & Gewicht", 15),
        ("#gr%C3%B6%C3%9Fe--gewicht", "Größe & Gewicht", 15),
        ("groe-gewicht", "Größe & Gewicht", 15),
        ("Install#Linux", "Linux", 21),
        ("mac-os", "macOS", 27),
        ("^size", "Größe & Gewicht", 15),
        ("#^size", "Größe & Gewicht", 15),
    ],
)
def test_anchors_markup_and_links_lead_to_the_section(
    page: Session, wanted: str, heading: str, line: int
) -> None:
    assert found(page, wanted) == (heading, line)


def test_exact_matches_come_before_anchors(fill: Filler) -> None:
    kb = fill(
        {"page.md": "# P\n\n## Fonts\n\na\n\n## Fonts\n\nb\n\n## Fonts 1\n\nc\n"}, embed=False
    )
    assert found(kb, "fonts-1") == ("Fonts 1", 11)


def test_a_part_of_a_heading_comes_after_an_anchor(fill: Filler) -> None:
    kb = fill({"page.md": "# P\n\n## About x here\n\na\n\n## B {#x}\n\nb\n"}, embed=False)
    assert found(kb, "x") == ("B", 7)


@pytest.mark.parametrize(
    ("document", "wanted", "heading"),
    [
        ("page.adoc", "here", "One"),
        ("page.adoc", "#there", "Two"),
        ("page.org", "here", "One"),
        ("page.rst", "some label", "One"),
        ("page.rst", "two-more", "Two & more"),
    ],
)
def test_anchors_of_other_markups_are_known(
    page: Session, document: str, wanted: str, heading: str
) -> None:
    assert found(page, wanted, document)[0] == heading


@pytest.mark.parametrize("wanted", ["#", "#nowhere", "^", "#^none", "{#}", "fonts-9"])
def test_what_names_nothing_is_told(page: Session, wanted: str) -> None:
    with pytest.raises((KbError, AssertionError), match="not found"):
        found(page, wanted)


def test_a_heading_of_open_tags_takes_linear_time() -> None:
    heading = "# " + "<a id=" * 100_000 + '<a class="x" name="end">'
    assert list(written_anchors([heading], 1)) == ["end"]

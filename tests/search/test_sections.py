"""A section is found by what people have in hand: heading, path, anchor, link."""

from __future__ import annotations

import re

import pytest
from support import Filler, call

from kb.errors import KbError
from kb.formats.sites import written_anchors
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


TERMS = """\
# Tool

Tool {#why}
: For wind.

## Options

`-n`
`--dry-run`
:   Shows it alone.

`-N`, `--no-act`
:   Does not.

`-m <text>`, `--message=<text>`
:   With a text.

    `short`
    :   One line.

`run(task, *, debug=None)`
:   Runs.

Behind the list.

## Tool

Again.
"""


@pytest.mark.parametrize(
    ("wanted", "heading", "line"),
    [
        ("--dry-run", "-n, --dry-run", 8),
        ("-n", "-n, --dry-run", 8),
        ("-N", "-N, --no-act", 12),
        ("--message", "-m <text>, --message=<text>", 15),
        ("-m", "-m <text>, --message=<text>", 15),
        ("run", "run(task, *, debug=None)", 21),
        ("Options > short", "short", 18),
        ("why", "Tool", 3),
        ("tool-1", "Tool", 26),  # renderers give terms no anchor
        ("dry", "-n, --dry-run", 8),
    ],
)
def test_terms_are_found_by_each_of_their_names(
    fill: Filler, wanted: str, heading: str, line: int
) -> None:
    kb = fill({"page.md": TERMS}, embed=False)
    assert found(kb, wanted) == (heading, line)


def test_the_section_of_a_term_is_its_definition(fill: Filler) -> None:
    kb = fill({"page.md": TERMS}, embed=False)
    there = {"collection": "docs", "document": "page.md"}
    term = call(kb, "documents_get_section", **there, section="-m")
    assert (term["level"], term["startLine"], term["endLine"]) == (3, 15, 19)
    for below in (True, False):
        options = call(
            kb, "documents_get_section", **there, section="Options", includeSubsections=below
        )
        assert (options["startLine"], options["endLine"]) == (6, 24)
    outline = call(kb, "documents_get_outline", **there)["outline"]
    assert [(one["level"], one["line"]) for one in outline] == [
        *((1, 1), (2, 3), (2, 6), (3, 8), (3, 12), (3, 15), (3, 21), (2, 26))
    ]


@pytest.mark.parametrize("wanted", ["#", "#nowhere", "^", "#^none", "{#}", "fonts-9"])
def test_what_names_nothing_is_told(page: Session, wanted: str) -> None:
    with pytest.raises((KbError, AssertionError), match="not found"):
        found(page, wanted)


def test_a_heading_of_open_tags_takes_linear_time() -> None:
    heading = "# " + "<a id=" * 100_000 + '<a class="x" name="end">'
    assert list(written_anchors([heading], 1)) == ["end"]


def test_of_a_long_section_its_subsections_are_given_to_choose_from(fill: Filler) -> None:
    parts = "".join(f"## Part {number}\n\n{'word ' * 1000}\n\n" for number in range(1, 4))
    long = f"# Deep\n\n{'word ' * 4000}\n"
    kb = fill({"page.md": f"# Big\n\nBeginning.\n\n{parts}{long}"}, embed=False)
    there = {"collection": "docs", "document": "page.md"}
    big = call(kb, "documents_get_section", **there, section="Big")
    assert (big["content"], big["startLine"], big["endLine"]) == ("# Big\n\nBeginning.", 1, 3)
    assert big["subsections"] == [
        {"section": "Part 1", "level": 2, "startLine": 5, "endLine": 7},
        {"section": "Part 2", "level": 2, "startLine": 9, "endLine": 11},
        {"section": "Part 3", "level": 2, "startLine": 13, "endLine": 15},
    ]
    assert big["truncated"]
    assert "read a subsection" in big["notice"]
    # What has none comes whole, as do shorter sections, and as the library gives it.
    assert len(call(kb, "documents_get_section", **there, section="Deep")["content"]) > 20_000
    part = call(kb, "documents_get_section", **there, section="Part 2")
    assert "truncated" not in part
    assert kb.base.section("page.md", "Big").end_line == 15


def test_of_very_many_subsections_the_first_are_listed_and_the_rest_named(fill: Filler) -> None:
    parts = "".join(f"## Part {number}\n\n{'word ' * 50}\n\n" for number in range(1, 101))
    kb = fill({"page.md": f"# Big\n\n{parts}"}, embed=False)
    there = {"collection": "docs", "document": "page.md"}
    big = call(kb, "documents_get_section", **there, section="Big")
    [next_line] = re.findall(r"startLine (\d+)", big["notice"])
    rest = call(kb, "documents_get_outline", **there, startLine=int(next_line))["outline"]
    names = [row["section"] for row in big["subsections"]] + [row["text"] for row in rest]
    assert names == [f"Part {number}" for number in range(1, 101)]

"""Files in other formats become Markdown; the fixtures were made by pandoc and LibreOffice."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selectolax.lexbor import LexborHTMLParser
from support import ROOT

from kb.errors import ConversionError
from kb.formats.convert.formats import FORMATS, format_of
from kb.formats.convert.nesting import DEEPEST, shallow
from kb.formats.convert.process import Converter
from kb.formats.convert.result import Converted
from kb.formats.outline import ParsedDocument
from kb.formats.parse import parse_converted

FIXTURES = ROOT / "fixtures" / "formats"
HEADINGS = [
    (1, "Harbour manual"),
    (2, "Arrival"),
    (3, "Pilot ladder"),
    (2, "Mooring"),
    (2, "Tide service"),
    (2, "Departure"),
]


@pytest.fixture(scope="module")
def converter() -> Iterator[Converter]:
    with Converter() as one:
        yield one


@pytest.fixture
def convert(converter: Converter) -> Callable[[str, bytes], Converted]:
    """Convert bytes as a file of some name."""

    def converted(name: str, data: bytes) -> Converted:
        kind = format_of(name, by_name=True)
        assert kind is not None
        return converter.convert(kind, name, data)

    return converted


def read(converter: Converter, name: str) -> tuple[Converted, ParsedDocument]:
    kind = format_of(name, by_name=True)
    assert kind is not None
    converted = converter.convert(kind, name, (FIXTURES / name).read_bytes())
    return converted, parse_converted(converted, name)


def repacked(name: str, old: str, new: str) -> bytes:
    """A fixture that is a zip archive, with other words in all its members."""
    changed = io.BytesIO()
    with zipfile.ZipFile(FIXTURES / name) as source, zipfile.ZipFile(changed, "w") as target:
        for member in source.namelist():
            target.writestr(member, source.read(member).replace(old.encode(), new.encode()))
    return changed.getvalue()


def outline(parsed: ParsedDocument) -> list[tuple[int, str]]:
    return [(section.level, section.heading) for section in parsed.sections]


def place_at(converted: Converted, text: str) -> tuple[str, str]:
    """Kind and label of the place in which a text stands."""
    line = next(n for n, line in enumerate(converted.text.split("\n"), 1) if text in line)
    place = [place for place in converted.origins if place.line <= line][-1]
    return place.kind, place.label


def section(converted: Converted, parsed: ParsedDocument, heading: str) -> str:
    found = next(section for section in parsed.sections if section.heading == heading)
    return "\n".join(converted.text.split("\n")[found.start_line - 1 : found.body_end_line])


@pytest.mark.parametrize("suffix", ["docx", "html", "pdf", "ipynb", "odt", "rtf"])
def test_headings_keep_their_levels(converter: Converter, suffix: str) -> None:
    _, parsed = read(converter, f"harbour.{suffix}")
    assert outline(parsed) == HEADINGS
    assert parsed.title == "Harbour manual"


def test_a_book_has_its_own_title_and_the_headings_of_its_chapters(converter: Converter) -> None:
    converted, parsed = read(converter, "harbour.epub")
    assert parsed.title == "Harbour manual"
    assert outline(parsed)[-len(HEADINGS) :] == HEADINGS
    assert converted.metadata["author"] == "Port authority"


def test_a_manual_page_is_called_by_name_and_section(converter: Converter) -> None:
    _, parsed = read(converter, "harbour.1")
    assert parsed.title == "harbour(1)"
    below = [(level + 1 if level < 3 else 3, text) for level, text in HEADINGS]
    assert outline(parsed) == [(1, "harbour(1)"), *below]


@pytest.mark.parametrize("suffix", ["docx", "html", "epub", "pptx", "1", "odt", "odp", "rtf"])
def test_tables_keep_rows_and_header(converter: Converter, suffix: str) -> None:
    converted, parsed = read(converter, f"harbour.{suffix}")
    table = section(converted, parsed, "Mooring")
    rows = [
        [c.strip() for c in line.strip("|").split("|")] for line in table.split("\n") if "|" in line
    ]
    assert rows[0] == ["Berth", "Depth", "Largest vessel"]
    assert ["Cedar", "11.5 m", "190 m"] in rows
    assert any(block.kind == "table" for block in parsed.blocks)


@pytest.mark.parametrize("suffix", ["docx", "html", "epub", "1", "pdf", "odt"])
def test_code_stays_code(converter: Converter, suffix: str) -> None:
    converted, parsed = read(converter, f"harbour.{suffix}")
    assert "```\n$ tide --station birch\nbirch 2.41 m rising\n```" in converted.text
    assert any(block.kind == "fence" for block in parsed.blocks)


@pytest.mark.parametrize("suffix", ["docx", "html", "epub", "pptx", "ipynb", "odt", "odp", "rtf"])
def test_links_are_found(converter: Converter, suffix: str) -> None:
    _, parsed = read(converter, f"harbour.{suffix}")
    assert "https://harbour.example/office" in [link.url for link in parsed.links]


def test_pages_are_told(converter: Converter) -> None:
    converted, _ = read(converter, "harbour.pdf")
    assert place_at(converted, "port authority keeps") == ("page", "1")
    assert place_at(converted, "The ladder hangs") == ("page", "2")
    assert place_at(converted, "Ask for clearance") == ("page", "5")


@pytest.mark.parametrize("suffix", ["pptx", "odp"])
def test_slides_are_told_and_the_first_one_names_the_document(
    converter: Converter, suffix: str
) -> None:
    converted, parsed = read(converter, f"harbour.{suffix}")
    assert parsed.title == "Harbour manual"
    assert outline(parsed)[0] == (1, "Harbour manual")
    assert (2, "Mooring") in outline(parsed)
    assert place_at(converted, "Cedar") == ("slide", "4")


@pytest.mark.parametrize("suffix", ["xlsx", "xls", "ods"])
def test_sheets_are_told_and_every_piece_of_a_long_table_has_its_header(
    converter: Converter, suffix: str
) -> None:
    converted, parsed = read(converter, f"harbour.{suffix}")
    assert outline(parsed) == [(2, "Berths"), (2, "Fees")]
    assert place_at(converted, "Berth 60") == ("sheet", "Berths")
    assert place_at(converted, "Pilotage") == ("sheet", "Fees")
    tables = [block for block in parsed.blocks if block.kind == "table"]
    lines = converted.text.split("\n")
    assert len(tables) > 3
    for block in tables[:-1]:
        assert lines[block.start_line - 1] == "| Berth | Depth | Largest vessel | Bollards |"
    assert "Harbour fees of the year" in section(converted, parsed, "Fees")
    assert "| Waste | cubic metre | 35.5 |" in converted.text


def test_cells_are_told_and_pictures_left_out(converter: Converter) -> None:
    converted, _ = read(converter, "harbour.ipynb")
    assert place_at(converted, "The ladder hangs") == ("cell", "1")
    assert place_at(converted, "level = 2.41") == ("cell", "2")
    assert "```python\nlevel = 2.41\n" in converted.text
    assert "```text\n2.41 m rising\n```" in converted.text
    assert "iVBOR" not in converted.text


def test_mail_shows_who_wrote_what_and_names_what_is_attached(converter: Converter) -> None:
    converted, parsed = read(converter, "harbour.eml")
    assert parsed.title == "Harbour manual, third edition"
    assert "From: Ada Brandt <ada@harbour.example>" in converted.text
    assert "tide service moved to channel 14" in converted.text
    assert "Attachments: harbour.md" in converted.text
    # The line above a signature is no heading.
    assert outline(parsed) == [(1, "Harbour manual, third edition")]


# What is not made by these tools


def test_text_of_a_page_is_not_taken_for_markdown(
    convert: Callable[[str, bytes], Converted],
) -> None:
    page = (
        "<title>T</title><body><h1>The __init__ and &lt;b&gt;</h1>"
        "<p>First\n# no heading\n- no list\n===</p><p># neither</p>"
        "<p>&lt;script&gt; begins nothing</p><h2 id=next>After</h2></body>"
    )
    parsed = parse_converted(convert("a.html", page.encode()), "a.html")
    assert outline(parsed) == [(1, "The __init__ and <b>"), (2, "After")]


def test_navigation_and_scripts_are_left_out(convert: Callable[[str, bytes], Converted]) -> None:
    page = (
        "<title>Wind - Handbook</title><body><header>Site</header><nav><a href=x>Menu</a></nav>"
        "<main><h1>Wind<a class=headerlink href='#wind'>¶</a></h1><p>"
        + "Gusts are strong. " * 20
        + "</p><script>alert(1)</script></main><footer>Imprint</footer></body>"
    )
    converted = convert("wind.html", page.encode())
    assert converted.title == "Wind"
    assert converted.text.startswith("# Wind\n")
    for word in ("Site", "Menu", "Imprint", "alert", "¶"):
        assert word not in converted.text


def test_a_title_above_what_is_called_the_content_is_kept(
    convert: Callable[[str, bytes], Converted],
) -> None:
    page = (
        "<title>wind(1)</title><body><div id=header><h1>wind(1)</h1><h2>NAME</h2><p>w</p></div>"
        f"<div id=content><h2>OPTIONS</h2><p>{'Some text here. ' * 30}</p></div></body>"
    )
    parsed = parse_converted(convert("a.html", page.encode()), "a.html")
    assert outline(parsed) == [(1, "wind(1)"), (2, "NAME"), (2, "OPTIONS")]


def test_a_page_is_read_in_the_encoding_it_declares(
    convert: Callable[[str, bytes], Converted],
) -> None:
    page = '<meta charset="koi8-r"><body><h1>Ветер</h1></body>'
    assert convert("a.html", page.encode("koi8-r")).text == "# Ветер\n"


def test_a_compressed_manual_page_in_mdoc_is_read(
    convert: Callable[[str, bytes], Converted],
) -> None:
    page = """.Dd May 1, 2026
.Dt TIDE 8
.Os
.Sh NAME
.Nm tide
.Nd tell the level
.Sh OPTIONS
.Bl -tag -width Ds
.It Fl s Ar station
Ask this
.Ar station .
.It Fl v | Fl -verbose
Say more.
.El
"""
    converted = convert("tide.8.gz", gzip.compress(page.encode()))
    assert converted.title == "tide(8)"
    assert "-s station\n:   Ask this station." in converted.text
    assert "tide – tell the level" in converted.text


LIST = """\
<h1>Tool</h1>
<dl>
<dt id="n">-n</dt> <dt><p>--dry <b>run</b></p></dt>
<dd>
  <p>Shows it.</p>
  <pre>$ tool

# no heading</pre>
  <ul><li>a</li><li>b <dl><dt>In an item</dt><dd>said of it<p>and more</p></dd></dl></li></ul>
  <dl><dt>Inside
    of it</dt><dd><pre>code
 : y</pre>Last, with <a href="a.html">a link</a>.</dd></dl>
</dd>
<dt>Nothing said</dt><dd></dd>
<dt><h2>Heading</h2></dt><dd>text</dd>
</dl>
<p>After.</p>
"""


def test_a_definition_list_of_a_page_stays_one(convert: Callable[[str, bytes], Converted]) -> None:
    converted = convert("a.html", LIST.encode())
    assert (
        converted.text
        == """\
# Tool

-n
--dry **run**
:   Shows it.

    ```
    $ tool

    # no heading
    ```

    - a
    - b

      In an item
      :   said of it

          and more

    Inside of it
    :   ```
        code
         : y
        ```

        Last, with [a link](a.html).

Nothing said

## Heading

text

After.
"""
    )
    parsed = parse_converted(converted, "a.html")
    assert outline(parsed) == [
        (1, "Tool"),
        (2, "-n, --dry run"),
        (3, "In an item"),
        (3, "Inside of it"),
        (2, "Heading"),
    ]
    assert [(link.url, link.context) for link in parsed.links] == [
        ("a.html", "Last, with [a link](a.html).")
    ]


MANUAL = """\
.TH TOOL 1
.SH OPTIONS
.TP
.B \\-a
.TP
.B \\-b
Two names.
.IP
Goes on.
.RS
.TP
.B deep
Inside.
.RE
.IP \\-c
.nf
code
.fi
.PP
No definition.
.PP
\\-v, \\-\\-verbose
.RS 4
As DocBook writes it.
.sp
More.
.RE
.PP
An example:
.RS
.nf
$ tool
.fi
.RE
.SH END
Text.
"""


def test_tagged_paragraphs_of_a_manual_page_are_definitions(
    convert: Callable[[str, bytes], Converted],
) -> None:
    converted = convert("tool.1", MANUAL.encode())
    assert (
        converted.text
        == """\
# tool(1)

## OPTIONS

-a
-b
:   Two names.

    Goes on.

    deep
    :   Inside.

-c
:   ```
    code
    ```

No definition.

-v, --verbose
:   As DocBook writes it.

    More.

An example:

```
$ tool
```

## END

Text.
"""
    )
    headings = ["OPTIONS", "-a, -b", "deep", "-c", "-v, --verbose", "END"]
    assert [text for _, text in outline(parse_converted(converted, "tool.1"))[1:]] == headings


def test_lists_of_tags_in_mdoc_are_definitions(convert: Callable[[str, bytes], Converted]) -> None:
    page = """.Dd May 1, 2026
.Dt TOOL 1
.Sh OPTIONS
.Bl -tag -width Ds
.It Fl a
First.
.Pp
More.
.Bl -tag
.It deep
Inside.
.El
.Pp
Still of the first.
.It Fl b
Second.
.El
.Pp
After.
"""
    assert convert("tool.1", page.encode()).text.endswith("""\
## OPTIONS

-a
:   First.

    More.

    deep
    :   Inside.

    Still of the first.

-b
:   Second.

After.
""")


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (".nf\nkb sync", "```\nkb sync\n```\n"),
        (".TS\nl l.\nBerth\tDepth\n1\t62", "| Berth | Depth |\n| --- | --- |\n| 1 | 62 |\n"),
        (".TP\n.B \\-v\nSay more.", "-v\n:   Say more.\n"),
        (".ABC unknown macros\nText.", "Text.\n"),
    ],
)
def test_what_a_manual_page_leaves_open_ends_with_it(
    convert: Callable[[str, bytes], Converted], code: str, shown: str
) -> None:
    text = convert("tide.8", f".TH TIDE 8\n.SH USE\n{code}\n".encode()).text
    assert text == f"# TIDE(8)\n\n## USE\n\n{shown}".replace("TIDE", "tide")


def test_brackets_of_the_page_s_own_are_shown(convert: Callable[[str, bytes], Converted]) -> None:
    page = ".Dd May 1, 2026\n.Dt TIDE 8\n.Sh USE\n.Eo <<\n.Ar x\n.Ec >>\n"
    assert "<< x >>" in convert("tide.8", page.encode()).text


def test_a_caption_in_a_sheet_is_no_markup(convert: Callable[[str, bytes], Converted]) -> None:
    for caption in ("```", "# Fees"):
        changed = repacked("harbour.xlsx", "Harbour fees of the year", caption)
        converted = convert("a.xlsx", changed)
        parsed = parse_converted(converted, "a.xlsx")
        assert outline(parsed) == [(2, "Berths"), (2, "Fees")]
        assert parsed.blocks[-1].kind == "table"


@pytest.mark.parametrize("charset", ["undefined", "idna", "no-such", "hex"])
def test_an_encoding_that_cannot_be_right_is_not_used(
    convert: Callable[[str, bytes], Converted], charset: str
) -> None:
    for declared in (charset, "utf-16", "UTF-16LE"):
        page = f'<meta charset="{declared}"><main><p>Übermut, kurz.</p></main>'
        assert "Übermut" in convert("a.html", page.encode()).text
    head = f"From: a@b.example\nContent-Type: text/plain; charset={charset}\n\n"
    assert "Übermut" in convert("a.eml", f"{head}Übermut, kurz.\n".encode()).text


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind.suffixes], ids=lambda k: k.name)
def test_a_file_that_is_none_of_its_kind_is_told(converter: Converter, kind: object) -> None:
    name = f"x{kind.suffixes[0]}"  # type: ignore[attr-defined]
    # Nearly any text is a page or a mail.
    is_text = name in ("x.html", "x.eml")
    data = b"\x00\x01\x02" * 100 if is_text else b"This is no such file.\n"
    with pytest.raises(ConversionError):
        converter.convert(kind, name, data)  # type: ignore[arg-type]


def test_old_and_encrypted_office_files_are_told(
    convert: Callable[[str, bytes], Converted],
) -> None:
    with pytest.raises(ConversionError, match="password"):
        convert("a.docx", bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600))


def test_a_notebook_of_the_first_kind_is_read(convert: Callable[[str, bytes], Converted]) -> None:
    old = {
        "metadata": {"name": ""},
        "nbformat": 3,
        "nbformat_minor": 0,
        "worksheets": [
            {
                "cells": [
                    {"cell_type": "heading", "level": 2, "metadata": {}, "source": ["Old"]},
                    {
                        "cell_type": "code",
                        "collapsed": False,
                        "input": ["1 + 1"],
                        "language": "python",
                        "metadata": {},
                        "outputs": [],
                        "prompt_number": 1,
                    },
                ],
                "metadata": {},
            }
        ],
    }
    converted = convert("old.ipynb", json.dumps(old).encode())
    assert outline(parse_converted(converted, "old.ipynb")) == [(2, "Old")]
    assert "1 + 1" in converted.text


def test_a_notebook_without_what_does_not_matter_is_read(
    convert: Callable[[str, bytes], Converted],
) -> None:
    cells = [{"cell_type": "markdown", "source": ["# Wind"]}, {"cell_type": "code", "source": "1"}]
    for book in ({"cells": cells}, {"cells": cells, "metadata": "x", "nbformat": 4}):
        assert convert("a.ipynb", json.dumps(book).encode()).text == "# Wind\n\n```\n1\n```\n"


def test_a_link_that_is_no_address_costs_itself(
    converter: Converter, convert: Callable[[str, bytes], Converted]
) -> None:
    odd = '<base href="https://[::1/"><main><p>Wind <a href="http://a]b/">here</a>.</p></main>'
    kind = format_of("a.html")
    assert kind is not None
    page = converter.convert(kind, "https://a.example/", odd.encode())
    assert "Wind" in page.text
    changed = repacked("harbour.epub", "</body>", '<a href="http://[::1/">odd</a></body>')
    assert "odd" in convert("a.epub", changed).text


def test_a_chapter_of_a_book_is_found_by_whatever_names_it(
    convert: Callable[[str, bytes], Converted],
) -> None:
    members = {
        "chapter%201.xhtml": "OPS/chapter 1.xhtml",
        "../text/b.xhtml": "text/b.xhtml",
        "./c.xhtml#top": "OPS/c.xhtml",
        "/OPS/d.xhtml": "OPS/d.xhtml",
        "e%20.xhtml": "OPS/e%20.xhtml",
        "i%CC%82.xhtml": "OPS/\u00ee.xhtml",
        "G.xhtml": "OPS/g.xhtml",
        **{f"gone{n}.xhtml": "" for n in range(6)},
    }
    kind = 'media-type="application/xhtml+xml"'
    items = "".join(f'<item id="i{n}" href="{name}" {kind}/>' for n, name in enumerate(members))
    order = "".join(f'<itemref idref="i{n}"/>' for n in range(len(members)))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("META-INF/container.xml", '<c><rootfile full-path="OPS/a.opf"/></c>')
        archive.writestr("OPS/a.opf", f"<p><manifest>{items}</manifest><spine>{order}</spine></p>")
        for number, name in enumerate(filter(None, members.values())):
            archive.writestr(name, f"<html><body><p>Rope {number}</p></body></html>")
    converted = convert("a.epub", file.getvalue())
    assert converted.text.split() == " ".join(f"Rope {n}" for n in range(7)).split()
    gone = ", ".join(f"OPS/gone{n}.xhtml" for n in range(5))
    assert converted.notices == (f"chapters that it does not hold: {gone} and 1 more",)


def test_a_narrow_encoding_stands_for_the_wide_one_that_programs_write(
    convert: Callable[[str, bytes], Converted],
) -> None:
    for declared, encoding, text in (
        ("iso-8859-1", "cp1252", "“5 €”"),
        ("us-ascii", "cp1252", "Curaçao – 5 €"),
        ("us-ascii", "utf-8", "Größe – 5 €"),
        ("gb2312", "gb18030", "鎔 and 〇"),
        ("shift_jis", "cp932", "①②"),
    ):
        page = f'<meta charset="{declared}"><body><p>{text}</p>'.encode(encoding)
        assert convert("a.html", page).text == f"{text}\n"
        mail = f"Subject: A\nContent-Type: text/plain; charset={declared}\n\n{text}\n"
        assert text in convert("a.eml", mail.encode(encoding)).text
    assert convert("a.rtf", rb"{\rtf1 \u61623? one \u-3844? two}").text == "• one ✓ two\n"


def test_text_in_elements_of_any_depth_is_protected_by_what_it_stands_in(
    convert: Callable[[str, bytes], Converted],
) -> None:
    deep = "<span>a" * 100_000  # its own limit of processor time would end a search upwards
    page = f"<main><h2><b>x_y_z</b></h2><pre><b>p_q_r</b></pre><p>{deep}</p></main>"
    text = convert("a.html", page.encode()).text
    assert "## **x\\_y\\_z**" in text
    assert "p_q_r" in text


def _text(page: str) -> str:
    root = LexborHTMLParser(page).root
    assert root is not None
    return "".join(root.text().split())


def _depth(page: str) -> int:
    root = LexborHTMLParser(page).root
    assert root is not None
    waiting, deepest = [(root, 1)], 0
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting += [(below, depth + 1) for below in node.iter()]
    return deepest


@pytest.mark.parametrize(
    "unit",
    [
        "<div>a",
        "<span>",
        "<ul><li>a",
        "<table><tr><td>a",
        "<p><div>",
        "<li><section>",
        "<b><div></b>",
        "<dl><dt>a<dd>b",
        "<div><table><tr><td></div>",
        "<td><table></td>",
        "<tr><td><font>a<td><span>b",
        "<svg><div/>",
        "<ruby><rb>a<rt>b",
        "<object><p>",
        "<my-element>",
        "<svg><style><g></style>",
    ],
)
def test_what_lies_deeper_than_browsers_go_loses_its_tags_and_no_text(unit: str) -> None:
    page = f"<body><main>{unit * 3000}</main> end"
    shown = shallow(page)
    assert _depth(shown) < 3 * DEEPEST < _depth(page)
    assert _text(shown) == _text(page)


@pytest.mark.parametrize(
    "unit",
    [
        "<p>a",
        "<ul><li>a<li>b</ul>",
        "<h2>a</h2>",
        "<h2>a",
        "<dt>a<dd>b",
        "<tr><td><span>a<td>b",
        "<a name=b>",
        "<br><img src=c>",
        "<script>'<div>'</script>",
        "<!-- <div> -->",
        "<b>a</b><i>c</i>",
        "<section><p>a<p>b</section>",
        "<svg><path d=''/></svg>",
        "</div>",
        "<option>a",
    ],
)
def test_a_long_page_is_left_as_it_is(unit: str) -> None:
    page = f"<body><table>{unit * 3000}</table>"
    assert shallow(page) == page


def test_an_odd_output_costs_itself(convert: Callable[[str, bytes], Converted]) -> None:
    outputs = [None, {"output_type": "display_data", "data": None}, {"data": {"text/plain": "42"}}]
    cells = [
        {"cell_type": "code", "source": "a", "outputs": None},
        {"cell_type": "code", "source": "b", "outputs": outputs},
    ]
    book = {"cells": cells}  # without a version nbformat took all code for gone
    text = convert("a.ipynb", json.dumps(book).encode()).text
    assert text == "```\na\n```\n\n```\nb\n```\n\n```text\n42\n```\n"


def test_a_nul_in_a_notebook_is_replaced(convert: Callable[[str, bytes], Converted]) -> None:
    book = {"cells": [{"cell_type": "markdown", "source": "Wind \0 tide"}]}
    assert convert("a.ipynb", json.dumps(book).encode()).text == "Wind \ufffd tide\n"


def test_half_a_character_in_a_notebook_is_replaced(
    convert: Callable[[str, bytes], Converted],
) -> None:
    book = {"cells": [{"cell_type": "markdown", "source": ["# Wind \ud800"]}]}
    book["metadata"] = {"title": "\udfff"}
    converted = convert("a.ipynb", json.dumps(book).encode())
    assert (converted.text, converted.title) == ("# Wind ?\n", "?")


def test_an_open_fence_in_a_cell_ends_with_the_cell(
    convert: Callable[[str, bytes], Converted],
) -> None:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "id": "a", "source": "```\nopen"},
        {"cell_type": "markdown", "metadata": {}, "id": "b", "source": "# Next"},
    ]
    book = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    converted = convert("a.ipynb", json.dumps(book).encode())
    assert outline(parse_converted(converted, "a.ipynb")) == [(1, "Next")]


def test_styles_of_the_document_s_own_stand_in_the_outline(
    convert: Callable[[str, bytes], Converted],
) -> None:
    source = zipfile.ZipFile(FIXTURES / "harbour.docx")
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w") as new:
        for name in source.namelist():
            data = source.read(name).decode() if name.endswith(".xml") else source.read(name)
            if name == "word/document.xml":
                data = data.replace('w:val="Heading3"', 'w:val="Ours"')
            if name == "word/styles.xml":
                own = (
                    '<w:style w:type="paragraph" w:styleId="Ours"><w:name w:val="Our heading"/>'
                    '<w:basedOn w:val="Heading3"/></w:style></w:styles>'
                )
                data = data.replace("</w:styles>", own)
            new.writestr(name, data)
    parsed = parse_converted(convert("a.docx", changed.getvalue()), "a.docx")
    assert outline(parsed) == HEADINGS


def test_names_of_manual_pages_count_in_their_folders_only() -> None:
    assert format_of("man1/ls.1") is format_of("docs/man/printf.3posix.gz") is FORMATS[-1]
    assert format_of("logs/app.log.1") is None
    assert format_of("lib/libx.so.1") is None
    assert format_of("ls.1", by_name=True) is FORMATS[-1]
    assert format_of("a.md", by_name=True) is None
    assert format_of("REPORT.PDF") is FORMATS[0]


def test_fixture_files_are_small() -> None:
    for file in FIXTURES.iterdir():
        assert file.stat().st_size < 64_000, file
    assert Path(FIXTURES / "harbour.md").exists()

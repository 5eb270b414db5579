"""What a PDF shows becomes text as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pdf_files import Rule, Text, pdf

from kb.formats.convert.formats import format_of
from kb.formats.convert.process import Converter
from kb.formats.convert.result import Converted

KIND = format_of("a.pdf")


@pytest.fixture(scope="module")
def converter() -> Iterator[Converter]:
    with Converter() as one:
        yield one


def convert(converter: Converter, *pages: list[Text | Rule], title: str = "") -> Converted:
    assert KIND is not None
    return converter.convert(KIND, "a.pdf", pdf(pages, title))


def test_an_accent_that_stands_alone_is_joined_to_its_letter(converter: Converter) -> None:
    # As TeX sets them: the accent first and the letter under it, a capital's accent raised.
    page = [
        Text(50, 700, "magn"),
        Text(79.5, 700, "´"),
        Text(78.2, 700, "etisme, na"),
        Text(130.2, 700, "¨"),
        Text(128.9, 700, "ele x^2 ~/b"),
        Text(50, 660, "Etude"),
        Text(52.5, 662.5, "´"),
    ]
    text = convert(converter, page).text
    assert "magnétisme, naële x^2 ~/b" in text
    assert "Étude" in text
    assert "´" not in text


def test_a_page_of_nothing_but_running_lines_keeps_them(converter: Converter) -> None:
    page = [Text(50, 800, "Harbour office"), Text(50, 40, "Confidential")]
    converted = convert(converter, page, page, page, page)
    assert converted.text.count("Harbour office\n\nConfidential") == 4


@pytest.mark.parametrize(
    "stated",
    [
        "(anonymous)",
        "Microsoft Word - Fees 2026",
        "fees_v2",
        "C:\\tmp\\x1",
        "fees.docx",
        "Contents",
    ],
)
def test_what_a_program_writes_as_title_is_none(converter: Converter, stated: str) -> None:
    page = [Text(50, 760, "Harbour fees", 24), *(Text(50, 700 - 14 * i, "Text") for i in range(9))]
    assert convert(converter, page, title=stated).title == "Harbour fees"
    assert convert(converter, page, title="Fees of TCP/IP").title == "Fees of TCP/IP"


def test_what_is_filled_into_a_form_is_read(converter: Converter) -> None:
    look = b"BT /F0 11 Tf 2 5 Td (Ada Lovelace) Tj ET"
    field = (
        b"90 0 obj <</Type/Annot/Subtype/Widget/FT/Tx/T(name)/V(Ada Lovelace)/F 4"
        b"/Rect[150 695 300 715]/AP<</N 91 0 R>>>> endobj\n"
        b"91 0 obj <</Type/XObject/Subtype/Form/BBox[0 0 150 20]/Resources<</Font<</F0 3 0 R>>>>"
        b"/Length %d>>stream\n%s\nendstream endobj\n" % (len(look), look)
    )
    file = pdf([[Text(50, 700, "Name of the ship's owner:")]])
    file = file.replace(b"/Catalog", b"/Catalog/AcroForm<</Fields[90 0 R]>>")
    file = file.replace(b"/Resources", b"/Annots[90 0 R]/Resources", 1)
    file = file.replace(b"trailer", field + b"trailer")
    assert KIND is not None
    assert "Ada Lovelace" in converter.convert(KIND, "form.pdf", file).text


BERTHS = [
    ["Berth", "Depth", "Largest", "Remark"],
    ["Alder", "6.2 m", "70 m", "no crane"],
    ["Birch", "8.0 m", "", "two cranes"],
    ["Cedar", "11.5 m", "190 m", ""],
    ["Dogwood", "4.0 m", "35 m", "boats only"],
]


def drawn(rows: list[list[str]], top: float, *, ruled: bool) -> list[Text | Rule]:
    """A table with columns of 110 points and rows of 20."""
    page: list[Text | Rule] = []
    for number, row in enumerate(rows):
        y = top - 20 * number
        page += [Text(56 + 110 * c, y, cell) for c, cell in enumerate(row) if cell]
    if ruled:
        bottom = top + 15 - 20 * len(rows)
        page += [Rule(50, top + 15 - 20 * n, 490, top + 15 - 20 * n) for n in range(len(rows) + 1)]
        page += [Rule(50 + 110 * c, top + 15, 50 + 110 * c, bottom) for c in range(5)]
    return page


@pytest.mark.parametrize("ruled", [True, False], ids=["ruled", "by blanks"])
def test_a_table_keeps_its_cells_the_empty_ones_too(converter: Converter, ruled: bool) -> None:
    before = [Text(50, 760 - 14 * i, "The harbour has these berths for ships.") for i in range(4)]
    after = [Text(50, 540 - 14 * i, "Ask the office before you come in.") for i in range(4)]
    page = [*before, *drawn(BERTHS, 660, ruled=ruled), *after]
    text = convert(converter, page).text
    table = "\n".join(["| " + " | ".join(row) + " |" for row in BERTHS])
    head, _, rest = table.partition("\n")
    assert f"{head}\n| --- | --- | --- | --- |\n{rest}" in text
    assert text.index("these berths") < text.index("Alder") < text.index("Ask the office")
    assert text.count("Alder") == 1


def test_a_table_s_head_is_no_title_and_its_caption_stays(converter: Converter) -> None:
    page: list[Text | Rule] = [Text(56, 690, "Table 7: Berths of the year")]
    for piece in drawn(BERTHS, 660, ruled=True):
        is_head = isinstance(piece, Text) and piece.y == 660
        page.append(Text(piece.x, piece.y, piece.text, 14) if is_head else piece)  # type: ignore[union-attr]
    page += [Text(50, 540 - 14 * i, "Ask the office before you come in.") for i in range(9)]
    converted = convert(converter, page)
    assert converted.title == ""
    assert "Table 7: Berths of the year\n" in converted.text
    assert "#" not in converted.text


def test_rules_make_a_table_of_code_and_of_lines_that_go_on_in_their_cell(
    converter: Converter,
) -> None:
    rows = [["Command", "What it does for a ship"]]
    rows += [[f"fee --berth {n}", f"says what berth {n} costs in"] for n in range(4)]
    page: list[Text | Rule] = []
    for number, (command, effect) in enumerate(rows):
        y = 700 - 34 * number
        page += [Text(56, y, command, 10, "Courier"), Text(206, y, effect, 10, "Courier")]
        page += [Text(206, y - 12, "a night, and in a week.", 10, "Courier")] * bool(number)
        page += [Rule(50, y + 13, 450, y + 13)]
    page += [Rule(x, 713, x, 543) for x in (50, 200, 450)] + [Rule(50, 543, 450, 543)]
    text = convert(converter, page).text
    assert "| fee --berth 2 | says what berth 2 costs in a night, and in a week. |" in text
    assert text.count("berth 2") == 2


def test_a_cell_over_two_columns_is_told_once_and_rows_without_rules_stay_rows(
    converter: Converter,
) -> None:
    spanning = [
        *drawn(BERTHS, 660, ruled=True),
        Text(56, 680, "Berths of the year"),
        Rule(50, 695, 490, 695),
    ]
    spanning += [Rule(50, 695, 50, 675), Rule(490, 695, 490, 675)]
    assert "| Berths of the year |  |  |  |" in convert(converter, spanning).text
    framed = [*drawn(BERTHS, 660, ruled=False), Rule(160, 675, 160, 575)]
    framed += [Rule(50, y, 490, y) for y in (675, 655, 575)]
    assert "| Alder | 6.2 m | 70 m | no crane |" in convert(converter, framed).text


def test_code_in_columns_is_no_table(converter: Converter) -> None:
    code = [["cp a b", "# copies"], ["rm a", "# removes"], ["mv a b", "# renames"]]
    page = [
        Text(56 + 150 * column, 700 - 14 * row, text, 10, "Courier")
        for row, line in enumerate(code)
        for column, text in enumerate(line)
    ]
    assert "|" not in convert(converter, page).text


def test_a_table_of_contents_is_none(converter: Converter) -> None:
    page: list[Text | Rule] = []
    for row in range(8):
        y = 700 - 16 * row
        dots = Text(200, y, ". " * 30)
        page += [Text(56, y, f"{row} Part of berths"), dots, Text(480, y, str(row * 7 + 3))]
    page += [Text(50, 400 - 14 * i, "Text of the page that goes on.") for i in range(4)]
    assert "|" not in convert(converter, page).text


def test_a_word_broken_at_a_line_s_end_is_joined_and_a_hyphen_of_its_own_stays(
    converter: Converter,
) -> None:
    lines = [
        "The harbour keeps its har-",
        "bour books, and the tide gauge of the low-",
        "water quay is read by the pilot. At low water",
        "no vessel of the inter-",
        "national lines comes in.",
    ]
    text = convert(converter, [Text(50, 700 - 14 * i, line) for i, line in enumerate(lines)]).text
    for word in ("its harbour books", "low-water quay", "international lines"):
        assert word in text


def test_running_heads_of_several_lines_go_and_what_stands_once_stays(converter: Converter) -> None:
    def page(number: int) -> list[Text | Rule]:
        head = [f"Harbour office {number}", "Third edition", "Confidential", f"Part {number % 2}"]
        names = ("Alder", "Birch", "Cedar", "Dogwood", "Elm", "Fir")
        body = [f"Line {i} of text on {names[number]}" for i in range(30)]
        heads: list[Text | Rule] = [Text(50, 800 - 11 * i, one, 9) for i, one in enumerate(head)]
        return heads + [Text(50, 720 - 16 * i, one) for i, one in enumerate(body)]

    text = convert(converter, *(page(number) for number in range(6))).text
    for line in ("Harbour office", "Third edition", "Confidential", "Part 1"):
        assert line not in text
    assert text.count("Line 0 of text") == text.count("Line 29 of text") == 6


@pytest.mark.parametrize("columns", [2, 3])
def test_columns_that_were_written_across_are_read_one_by_one(
    converter: Converter, columns: int
) -> None:
    width = 520 // columns
    page = [
        Text(40 + width * column, 700 - 14 * row, f"Column {column} in its row {row}", 9)
        for row in range(20)
        for column in range(columns)
    ]
    lines = convert(converter, page).text.split("\n")
    wanted = [f"Column {c} in its row {row}" for c in range(columns) for row in range(20)]
    assert [line for line in lines if line] == wanted


def test_notes_on_a_page_are_kept_and_marked_text_is_there_once(converter: Converter) -> None:
    assert KIND is not None
    note = "<</Type/Annot/Subtype/{}/Rect[9 9 90 90]/Contents({})>>"
    notes = note.format("Text", "Why hemp?") + note.format("FreeText", "# Ask Ada")
    notes += note.format("Highlight", "Old ropes") + note.format("Link", "A page")
    data = pdf([[Text(72, 700, "Old ropes are sold.")]])
    data = data.replace(b"/MediaBox", f"/Annots[{notes}]/MediaBox".encode())
    assert converter.convert(KIND, "a.pdf", data).text == (
        "Old ropes are sold.\n\nComments:\n\n- Why hemp?\n- \\# Ask Ada\n"
    )

"""Office files keep what their programs show."""

from __future__ import annotations

import datetime
import io
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pptx
import pytest
from lxml import etree
from office_files import docx, package
from outlook_file import msg, old_msg
from pptx.chart.data import CategoryChartData, XyChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.opc.package import Part
from pptx.opc.packuri import PackURI

from kb.errors import ConversionError
from kb.formats.convert.formats import format_of
from kb.formats.convert.process import Converter
from kb.formats.convert.result import Converted
from kb.formats.convert.sheets import displayed, is_of_numbers, shown_number

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"
Convert = Callable[[str, bytes], Converted]


@pytest.fixture(scope="module")
def convert() -> Iterator[Convert]:
    with Converter() as converter:

        def converted(name: str, data: bytes) -> Converted:
            kind = format_of(name)
            assert kind is not None
            return converter.convert(kind, name, data)

        yield converted


# Word


def test_a_style_of_word_without_a_kind_is_one_of_paragraphs(convert: Convert) -> None:
    style = f'<w:styles xmlns:w="{WORD}"><w:style w:styleId="A"><w:name w:val="heading 1"/>'
    style += "</w:style><w:style>"  # nameless
    paragraph = f"<w:p><w:pPr><w:pStyle w:val='A'/></w:pPr>{words('Ropes')}</w:p>"
    body = f'<w:document xmlns:w="{WORD}"><w:body>{paragraph}</w:body></w:document>'
    members = {"word/document.xml": body, "word/styles.xml": f"{style}</w:style></w:styles>"}
    data = package("word/document.xml", members, {"styles": "styles.xml"})
    assert convert("a.docx", data).text == "# Ropes\n"
    with pytest.raises(ConversionError, match="is damaged: "):
        convert("a.docx", docx("<w:p><w:i/ ></w:p>"))


def words(text: str) -> str:
    return f"<w:r><w:t xml:space='preserve'>{text}</w:t></w:r>"


def equation(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


HALF = f"<m:f><m:num>{equation('a')}</m:num><m:den>{equation('2')}</m:den></m:f>"
BRACKETED = (
    '<m:d><m:dPr><m:begChr m:val="("/><m:endChr m:val=")"/></m:dPr>'
    f"<m:e>{equation('t|x')}</m:e></m:d>"
)


def test_formulas_of_word_are_latex(convert: Convert) -> None:
    inline = f"<w:p>{words('So ')}<m:oMath>{HALF}</m:oMath>{words(' of it.')}</w:p>"
    block = f"<w:p><m:oMathPara><m:oMath>{BRACKETED}</m:oMath></m:oMathPara></w:p>"
    cell = f"<w:tc><w:p><m:oMath>{BRACKETED}</m:oMath></w:p></w:tc>"
    table = f"<w:tbl>{f'<w:tr>{cell}{cell}</w:tr>' * 2}</w:tbl>"
    text = convert("a.docx", docx(f"{inline}{block}{table}")).text
    assert r"So $\frac{a}{2}$ of it." in text
    assert r"$$\left( t\mid x\right)$$" in text
    assert r"| $\left( t\mid x\right)$ | $\left( t\mid x\right)$ |" in text


def test_a_table_of_word_with_one_row_stays_a_table(convert: Convert) -> None:
    cells = "".join(f"<w:tc><w:p>{words(text)}</w:p></w:tc>" for text in ("Name", "Ada"))
    body = f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>"
    assert "| Name | Ada |" in convert("a.docx", docx(body)).text


def test_comments_of_word_are_kept_and_marked(convert: Convert) -> None:
    body = f"<w:p>{words('Rope')}<w:r><w:commentReference w:id='0'/></w:r>{words(' of hemp')}</w:p>"
    comment = f"<w:comment w:id='0' w:initials='AB'><w:p>{words('Not nylon?')}</w:p></w:comment>"
    text = convert("a.docx", docx(body, comment)).text
    assert text == "Rope [comment AB1] of hemp\n\nComment [AB1]\n\nNot nylon?\n"


def test_tracked_changes_are_taken_as_accepted(convert: Convert) -> None:
    moved = f"<w:moveFrom>{words('moved')}</w:moveFrom><w:moveTo>{words('here')}</w:moveTo>"
    deleted = "<w:del><w:r><w:delText>old</w:delText></w:r></w:del>"
    body = f"<w:p>{deleted}<w:ins>{words('new ')}</w:ins>{moved}</w:p>"
    assert convert("a.docx", docx(body)).text == "new here\n"


def test_text_boxes_and_fields_of_word_are_read(convert: Convert) -> None:
    box = f"<wps:txbx><w:txbxContent><w:p>{words('In a box')}</w:p></w:txbxContent></wps:txbx>"
    drawing = f"<w:drawing>{box}</w:drawing>"
    choice = f"<mc:AlternateContent><mc:Choice>{drawing}</mc:Choice></mc:AlternateContent>"
    field = f"<w:fldSimple w:instr='SEQ'>{words('7')}</w:fldSimple>"
    for holder in (drawing, choice):
        body = f"<w:p>{words('Figure ')}{field}<w:r>{holder}</w:r></w:p>"
        assert convert("a.docx", docx(body)).text == "Figure 7\n\nIn a box\n"


def test_the_main_part_of_a_word_file_has_any_name(convert: Convert) -> None:
    file = docx(f"<w:p>{words('Found')}</w:p>", main="word/document2.xml")
    assert convert("a.docx", file).text == "Found\n"
    with pytest.raises(ConversionError, match="is not a Word file"):
        convert("a.docx", package("word/none.xml", {}, {}))


W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def numbered(text: str, style: str = "", place: str = "") -> str:
    level, _, number = place.partition(" ")
    own = f"<w:ilvl w:val='{level}'/><w:numId w:val='{number}'/>" if place else ""
    about = f"<w:pStyle w:val='{style}'/>" * bool(style) + f"<w:numPr>{own}</w:numPr>" * bool(place)
    return f"<w:p><w:pPr>{about}</w:pPr>{words(text)}</w:p>"


def list_level(number: int, form: str, text: str, style: str = "") -> str:
    styled = f"<w:pStyle w:val='{style}'/>" * bool(style)
    return (
        f"<w:lvl w:ilvl='{number}'><w:start w:val='1'/><w:numFmt w:val='{form}'/>{styled}"
        f"<w:lvlText w:val='{text}'/></w:lvl>"
    )


def test_word_s_automatic_numbers_stand_in_the_text(convert: Convert) -> None:
    clauses = [("decimal", "%1.", "H1"), ("decimal", "%1.%2", "H2"), ("lowerRoman", "(%3)", "")]
    kinds = (
        [list_level(i, *kind) for i, kind in enumerate(clauses)],
        [list_level(0, "decimal", "%1."), list_level(1, "bullet", "•")],
    )
    numbering = "".join(
        f"<w:abstractNum w:abstractNumId='{i}'>{''.join(kind)}</w:abstractNum>"
        for i, kind in enumerate(kinds)
    ) + "".join(
        f"<w:num w:numId='{i + 1}'><w:abstractNumId w:val='{i}'/></w:num>" for i in range(2)
    )
    styles = "".join(
        f"<w:style w:type='paragraph' w:styleId='H{n}'><w:name w:val='heading {n}'/><w:pPr>"
        f"<w:numPr><w:numId w:val='1'/></w:numPr><w:outlineLvl w:val='{n - 1}'/></w:pPr></w:style>"
        for n in (1, 2)
    )
    body = (
        numbered("Scope", "H1")
        + numbered("Price", "H1")
        + numbered("Sum", "H2")
        + numbered("Tax", "", "2 1")
        + numbered("Ask", "", "0 2")
        + f"<w:p>{words('Then')}</w:p>"
        + numbered("Wait", "", "0 2")
        + numbered("Rain", "", "1 2")
        + numbered("Interest", "H2")
    )
    members = {
        "word/document.xml": f"<w:document {W}><w:body>{body}</w:body></w:document>",
        "word/numbering.xml": f"<w:numbering {W}>{numbering}</w:numbering>",
        "word/styles.xml": f"<w:styles {W}>{styles}</w:styles>",
    }
    related = {"numbering": "numbering.xml", "styles": "styles.xml"}
    text = convert("a.docx", package("word/document.xml", members, related)).text
    assert [line for line in text.splitlines() if line] == [
        *("# 1. Scope", "# 2. Price", "## 2.1 Sum", "- * 1. (i) Tax", "1. Ask", "Then"),
        *("2. Wait", "   - Rain", "## 2.2 Interest"),
    ]


# Excel

SHEET = """<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r=
"http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheetData>
<row r="2"><c r="B2" t="inlineStr"><is><t>Code</t></is></c><c r="C2" t="inlineStr"><is><r><t>By </t>
</r><r><t>share</t></r></is></c><c r="D2" t="inlineStr"><is><t>Rate</t></is></c>
<c r="E2" t="inlineStr"><is><t>Sum</t></is>
</c><c r="F2" t="inlineStr"><is><t>Seen</t></is></c></row>
<row r="3"><c r="B3" s="1"><v>417</v></c><c r="C3" s="2"><v>0.25</v></c><c r="D3" t="e"><f>1/0</f>
<v>#DIV/0!</v></c><c r="E3"><f>SUM(B3:B9)</f></c><c r="F3" s="3"><v>46024</v></c></row>
</sheetData><hyperlinks><hyperlink ref="B2" r:id="r1"/></hyperlinks></worksheet>"""
STYLES = """<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">
<numFmts><numFmt numFmtId="164" formatCode="000000"/><numFmt numFmtId="165" formatCode="dd/mm/yy"/>
</numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="164"/><xf numFmtId="9"/><xf numFmtId="165"/>
</cellXfs></styleSheet>"""

COMMENTS = """<comments xmlns="x"><commentList><comment ref="C3"><text><t>[Threaded] Why?
</t></text></comment><comment ref="B9"><text><r><t>Bel</t></r><r><t>ow</t></r></text></comment>
</commentList></comments>"""
CONVERSATION = """<ThreadedComments xmlns="x"><threadedComment ref="C3"><text>Why?</text>
</threadedComment><threadedComment ref="C3"><text>Law.</text></threadedComment>
</ThreadedComments>"""


def strict(data: bytes) -> bytes:
    """An Office file in the namespaces of ISO 29500's strict form."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as changed, zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            usual = rb"http://schemas\.openxmlformats\.org/([a-zA-Z]+ml|officeDocument)/2006/"
            member = re.sub(usual, rb"http://purl.oclc.org/ooxml/\1/", archive.read(name))
            changed.writestr(name, member)
    return file.getvalue()


def test_cells_show_what_excel_shows(convert: Convert) -> None:
    book = (
        '<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r='
        '"http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets>'
        '<sheet name="Fees" sheetId="1" r:id="r0"/></sheets></workbook>'
    )
    link = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="r1" TargetMode="External" Target="https://harbour.example/c" Type="x"/>'
        '<Relationship Id="r2" Target="../comments1.xml" Type="x"/>'
        '<Relationship Id="r3" Target="../threadedComments/t.xml" Type="x"/></Relationships>'
    )
    sheets = {"xl/worksheets/a.xml": SHEET, "xl/worksheets/_rels/a.xml.rels": link}
    comments = {"xl/comments1.xml": COMMENTS, "xl/threadedComments/t.xml": CONVERSATION}
    members = {"xl/workbook.xml": book, "xl/styles.xml": STYLES, **sheets, **comments}
    related = {"worksheet": "worksheets/a.xml", "styles": "styles.xml"}
    data = package("xl/workbook.xml", members, related)
    converted = convert("a.xlsx", data)
    assert converted.text == (
        "## Fees\n\n| [Code](<https://harbour.example/c>) | By share | Rate | Sum | Seen |\n"
        "| --- | --- | --- | --- | --- |\n| 000417 | 25% [comment: Why?; Law.] | #DIV/0! | "
        "=SUM(B3:B9) | 02/01/26 |\n\n[comment: Below]\n"
    )
    assert converted.notices == (
        "formulas without a value, which are shown themselves: 1; open the file in an office "
        "program and save it",
    )
    assert convert("a.xlsx", strict(data)) == converted


@pytest.mark.parametrize(
    ("value", "code", "shown"),
    [
        (417, "000000", "000417"),
        (0.2567, "0.0 %", "25.7 %"),
        (1234567.891, "#,##0.00", "1,234,567.89"),
        (-5, "#,##0;(#,##0)", "(5)"),
        (-5.5, "0.00", "-5.50"),
        (1234.5, "[$€-407] #,##0.00", "€ 1,234.50"),
        (12345, "0.00E+00", "1.23E+04"),
        (0.5, "#.##", ".5"),
        (3, "0.##", "3"),
        (0.005, "0%", "1%"),
        (0.285, "0%", "29%"),
        (2.5, "0", "3"),
        (1e300, "0", f"{1e300:.0f}"[:1] + "0" * 300),
        (5551234567, "(###) ###-####", "(555) 123-4567"),
        (1234567, "#,##0,", "1,235"),
        (0, '0;-0;"none"', "none"),
        (49301, '"D-"00000', "D-49301"),
        (-12.5, r'_-* #,##0.00\ "kr"_-;-* #,##0.00\ "kr"_-', "-12.50 kr"),
        (5, "[Red]0;[Blue]-0", "5"),
    ],
)
def test_a_number_is_shown_by_its_format(value: float, code: str, shown: str) -> None:
    assert is_of_numbers(code)
    assert shown_number(value, code) == shown


@pytest.mark.parametrize("code", ["General", "dd.mm.yyyy", "@", "# ?/?", "[h]:mm", 'mmm" 0 "yy'])
def test_dates_fractions_and_text_are_no_numbers(code: str) -> None:
    assert not is_of_numbers(code)


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("dd/mm/yyyy hh:mm", "25/07/2008 15:04"),
        ("[$-809]d\\-mmm\\-yy;@", "25-Jul-08"),
        ("dddd, d mmmm yyyy", "Friday, 25 July 2008"),
        ('yyyy"年"m"月"d"日"', "2008年7月25日"),
        ("h:mm:ss.00 AM/PM", "3:04:09.25 PM"),
        ("m/d {mm:ss}", "7/25 {04:09}"),
    ],
)
def test_a_date_is_shown_by_its_format(code: str, shown: str) -> None:
    assert displayed(datetime.datetime(2008, 7, 25, 15, 4, 9, 250_000), code) == shown


@pytest.mark.parametrize("code", ["", "[$-407]d. mmmm yyyy", "[$-F800]dddd", "ge.m.d", "[h]:mm"])
def test_a_date_whose_text_depends_on_the_machine_stays_a_date(code: str) -> None:
    moment = datetime.datetime(2008, 7, 25, 15, 4)
    assert displayed(moment, code) == moment


def test_a_time_stays_a_time_where_a_date_is_to_be_shown() -> None:
    assert displayed(datetime.time(15, 4), "d.m.yy") == datetime.time(15, 4)
    assert displayed(datetime.time(15, 4), "h:mm") == "15:04"
    assert displayed(datetime.time(), "h:mm") == "0:00"
    assert displayed(datetime.time(), "[h]:mm") == datetime.time()


def test_zero_as_a_date_is_the_day_that_excel_shows() -> None:
    assert displayed(datetime.time(), "dd/mm/yy") == "00/01/00"
    assert displayed(datetime.time(), "d mmm yyyy hh:mm") == "0 Jan 1900 00:00"


HARBOUR_XLS = Path(__file__).parents[2] / "fixtures/formats/harbour.xls"


def test_an_old_sheet_costs_no_more_for_a_cell_far_away(convert: Convert) -> None:
    # With all cells between them, three sheets like this one exceed the time for a file.
    last = bytes.fromhex("3c00 0300 0f00 22000000")
    data = HARBOUR_XLS.read_bytes()
    assert data.count(last) == 1
    text = convert("a.xls", data.replace(last, bytes.fromhex("ffff ff00 0f00 22000000"))).text
    assert "| Berth 60 | 20 | 180 m |" in text
    assert "\n8\n" in text


def test_a_sheet_from_before_workbooks_is_read(convert: Convert) -> None:
    records = {0x209: bytes.fromhex("0000 1000 0000"), 0x243: bytes(12)}
    data = b"".join(struct.pack("<HH", op, len(body)) + body for op, body in records.items())
    for row, text in enumerate((b"Berth", b"Depth")):
        label = struct.pack("<HHHH", row, 0, 0, len(text)) + text
        data += struct.pack("<HH", 0x204, len(label)) + label
    converted = convert("a.xls", data + struct.pack("<HH", 0x0A, 0))
    assert converted.text == "## Sheet 1\n\nBerth\n\nDepth\n"


def test_what_an_old_workbook_breaks_costs_its_formats_alone(convert: Convert) -> None:
    data = HARBOUR_XLS.read_bytes()
    dates = bytes.fromhex("22 00 02 00 00 00")  # whether years count from 1900
    assert data.count(dates) == 1
    converted = convert("a.xls", data.replace(dates, dates[:4] + b"\xff\0"))
    assert converted.text.startswith("## Berths\n\n| Berth | Depth |")
    assert "| Berth 1 | 5.25 | 62 m |" in converted.text
    assert converted.notices == (
        "numbers are shown without their formats, which cannot be read: AssertionError",
    )
    sheet = data.index(bytes.fromhex("85 00")) + 4  # where it begins
    with pytest.raises(ConversionError, match=r"^is protected|^cannot be converted: "):
        convert("a.xls", data[:sheet] + b"\x83\xff\0\0" + data[sheet + 4 :])


# PowerPoint


def test_words_of_a_slide_stay_apart_and_keep_their_links(convert: Convert) -> None:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[5])
    slide.shapes.title.text = "Fees\vof 2026"
    box = slide.shapes.add_group_shape().shapes.add_textbox(0, 0, 9999, 9999)
    paragraph = box.text_frame.paragraphs[0]
    paragraph.add_run().text = "Berth"
    paragraph.add_line_break()
    paragraph.add_run().text = "Pilot"
    math = f'<a:m xmlns:a="x" xmlns:m="{MATH}"><m:oMath>{HALF}</m:oMath></a:m>'
    paragraph._p.append(etree.fromstring(math))
    cells = slide.shapes.add_table(2, 1, 0, 99999, 9999, 9999).table
    cells.cell(0, 0).text = "Waste\vwater"
    run = cells.cell(1, 0).text_frame.paragraphs[0].add_run()
    run.text = "Office"
    run.hyperlink.address = "https://harbour.example/o"
    slide.notes_slide.notes_text_frame.text = "Ask\vAda"
    comment = b"<cmLst xmlns='x'><cm><text>Too dear?</text></cm></cmLst>"
    part = Part(PackURI("/ppt/comments/a.xml"), "application/xml", slide.part.package, comment)
    slide.part.relate_to(part, "http://schemas.microsoft.com/office/relationships/comments")
    file = io.BytesIO()
    presentation.save(file)
    converted = convert("a.pptx", file.getvalue())
    assert convert("a.pptx", strict(file.getvalue())) == converted
    assert converted.text == (
        "# Fees of 2026\n\nBerth Pilot$\\frac{a}{2}$\n\n| Waste water |\n| --- |\n"
        "| [Office](<https://harbour.example/o>) |\n\nNotes:\n\nAsk\nAda\n\n"
        "Comments:\n\n- Too dear?\n"
    )


DRAWING = "http://schemas.openxmlformats.org/drawingml/2006"


def test_what_one_part_of_a_slide_lacks_costs_no_other(convert: Convert) -> None:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    run = slide.shapes.add_textbox(0, 0, 9999, 9999).text_frame.paragraphs[0].add_run()
    run.text = "Back"
    run.hyperlink.address = "https://harbour.example/"
    run.font._element[0].set(f"{{{OFFICE_RELATIONS}}}id", "")  # of an action
    data = CategoryChartData()
    data.categories = ["2025", "2026"]
    data.add_series("Berths", (7.5, None))
    place = (0, 99_999, 9999, 9999)
    chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *place, data).chart
    chart.part._element[:] = etree.fromstring(
        etree.tostring(chart.part._element).replace(b"c:barChart", b"c:bar3DChart")
    )[:]
    graphic = slide.shapes.add_chart(XL_CHART_TYPE.PIE, *place, data)
    model = f"<m xmlns:a='{DRAWING}/main'><pt><a:p><a:r><a:t>Mast</a:t></a:r></a:p></pt></m>"
    uri = PackURI("/ppt/diagrams/data1.xml")
    part = Part(uri, "application/xml", slide.part.package, model.encode())
    key = slide.part.relate_to(part, f"{OFFICE_RELATIONS}/diagramData")
    relation = f"<d:relIds xmlns:d='{DRAWING}/diagram' xmlns:r='{OFFICE_RELATIONS}' r:dm='{key}'/>"
    inside = graphic._element.find(".//{*}graphicData")
    inside.set("uri", f"{DRAWING}/diagram")
    inside[:] = [etree.fromstring(relation)]
    file = io.BytesIO()
    presentation.save(file)
    assert convert("a.pptx", file.getvalue()).text == (
        "## Slide 1\n\nBack\n\n|  | Berths |\n| --- | --- |\n| 2025 | 7.5 |\n| 2026 |  |\n\n"
        "- Mast\n"
    )


def test_a_point_of_a_chart_has_its_own_place_and_all_levels_of_its_name(convert: Convert) -> None:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    points = XyChartData()
    for name, first in (("Neap", 1), ("Spring", 5)):
        series = points.add_series(name)
        series.add_data_point(first, 10 * first)
        series.add_data_point(first + 1, 10 * first + 10)
    levels = CategoryChartData()
    for year in ("2025", "2026"):
        above = levels.add_category(year)
        for half in ("H1", "H2"):
            above.add_sub_category(half)
    levels.add_series("Berths", (1, 2, 3, 4))
    place = (0, 0, 9999, 9999)
    slide.shapes.add_chart(XL_CHART_TYPE.XY_SCATTER, *place, points)
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *place, levels)
    file = io.BytesIO()
    presentation.save(file)
    text = convert("a.pptx", file.getvalue()).text
    assert "|  | Neap |\n| --- | --- |\n| 1 | 10 |\n| 2 | 20 |\n" in text
    assert "|  | Spring |\n| --- | --- |\n| 5 | 50 |\n| 6 | 60 |\n" in text
    assert "| 2025 H1 | 1 |\n| H2 | 2 |\n| 2026 H1 | 3 |\n| H2 | 4 |\n" in text


@pytest.mark.parametrize("name", ["ppt/slides/slide1.xml", "docProps/thumbnail.jpeg"])
def test_a_damaged_member_is_told_as_such(convert: Convert, name: str) -> None:
    presentation = pptx.Presentation()
    presentation.slides.add_slide(presentation.slide_layouts[5])
    file = io.BytesIO()
    presentation.save(file)
    with zipfile.ZipFile(file) as archive:
        start = archive.getinfo(name).header_offset + 30 + len(name)
    data, encrypted = file.getvalue(), bytearray(file.getvalue())
    for place in (start - 24 - len(name), data.rfind(name.encode()) - 38):
        encrypted[place] |= 1
    garbled = data[:start] + bytes(byte ^ 0x5A for byte in data[start : start + 20])
    for bytes_ in (garbled + data[len(garbled) :], bytes(encrypted)):
        with pytest.raises(ConversionError, match="is damaged or encrypted: "):
            convert("a.pptx", bytes_)
    with pytest.raises(ConversionError, match=r"PowerPoint file: file 'a\.pptx' is not"):
        convert("a.pptx", docx(""))


# OpenDocument, RTF, Outlook

ODF = " ".join(
    f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{space}:1.0"'
    for short, space in {
        "office": "office",
        "text": "text",
        "table": "table",
        "draw": "drawing",
        "style": "style",
    }.items()
)
ODF += ' xmlns:xlink="http://www.w3.org/1999/xlink"'


def opendocument(kind: str, body: str, styles: str = "", **members: str) -> bytes:
    content = (
        f"<office:document-content {ODF}>{styles}<office:body><office:{kind}>{body}</office:{kind}>"
        "</office:body></office:document-content>"
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in {"content.xml": content, **members}.items():
            archive.writestr(name, text)
    return file.getvalue()


def test_notes_comments_boxes_and_formulas_of_a_text_stay_and_deletions_go(
    convert: Convert,
) -> None:
    note = "<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>Of hemp"
    note += "</text:p></text:note-body></text:note>"
    comment = "<office:annotation><text:p>Not nylon?</text:p></office:annotation>"
    box = "<draw:frame><draw:text-box><text:p>In a box</text:p></draw:text-box></draw:frame>"
    formula = '<draw:frame><draw:object xlink:href="./Object 1"/></draw:frame>'
    body = (
        "<text:tracked-changes><text:p>old</text:p></text:tracked-changes>"
        "<text:list><text:list-item><text:h text:outline-level='2'>Ropes</text:h></text:list-item>"
        f"</text:list><text:p>Rope{note}<text:s text:c='2'/>and{comment} {formula}{box}</text:p>"
    )
    math = "<math xmlns='m'><mi>x</mi><annotation>no</annotation></math>"
    file = opendocument("text", body, **{"Object 1/content.xml": math})
    assert convert("a.odt", file).text == (
        "## Ropes\n\nRope[1] and[2] x\n\nIn a box\n\nNotes:\n\n1. Of hemp\n2. Comment: Not nylon?\n"
    )


def test_cells_show_what_calc_shows(convert: Convert) -> None:
    cell = "<table:table-cell office:value='{}'>{}</table:table-cell>"
    p = "<text:p>{}</text:p>"
    comment = "<office:annotation><text:p>Why?</text:p></office:annotation>"
    empty = "<table:table-cell table:number-columns-repeated='{}'/>"
    row = "<table:table-row>{}</table:table-row>"
    rows = (
        row.format(
            cell.format("", p.format("Code")) + empty.format(2) + cell.format("", p.format("Share"))
        )
        + row.format(
            cell.format(417, p.format("000417"))
            + empty.format(2)
            + cell.format(0.25, comment + p.format("25 %"))
        )
        + row.format(cell.format(418, ""))
        + "<table:table-row table:number-rows-repeated='1048574'>"
        + f"{empty.format(16384)}</table:table-row>"
    )
    table = f"<table:table table:name='Fees'>{rows}</table:table>"
    text = convert("a.ods", opendocument("spreadsheet", table)).text
    assert text == (
        "## Fees\n\n| Code | Share |\n| --- | --- |\n| 000417 | 25 % [comment: Why?] |\n"
        "| 418 |  |\n"
    )


@pytest.mark.parametrize("number", ["²", "many", "-1", "9" * 5000])
def test_what_is_not_a_number_costs_no_text(convert: Convert, number: str) -> None:
    cell = f"<table:table-cell table:number-columns-repeated='{number}'><text:p>A</text:p>"
    rows = f"<table:table-row>{cell}</table:table-cell></table:table-row>"
    heading = f"<text:h text:outline-level='{number}'>B</text:h>"
    body = f"{heading}<text:p>C<text:s text:c='{number}'/>D</text:p>"
    texts = (
        convert("a.ods", opendocument("spreadsheet", f"<table:table>{rows}</table:table>")),
        convert("a.odt", opendocument("text", body)),
    )
    assert [re.findall("[A-D]", text.text) for text in texts] == [["A"], ["B", "C", "D"]]


def test_a_text_with_a_password_is_told(convert: Convert) -> None:
    manifest = {"META-INF/manifest.xml": "<manifest><encryption-data/></manifest>"}
    with pytest.raises(ConversionError, match="password"):
        convert("a.odt", opendocument("text", "", **manifest))


def test_rtf_keeps_headings_tables_links_and_notes(convert: Convert) -> None:
    source = (
        rb"{\rtf1\ansi{\info{\title Ropes of 2026}{\author Ada}}"
        rb"{\stylesheet{\s7\outlinelevel1 Our heading;}}"
        rb"{\pard\s7 Ropes\par}{\pard Of h\'e9mp{\footnote\pard Not | nylon}, see "
        rb'{\field{\*\fldinst HYPERLINK "https://harbour.example/r"}{\fldrslt there}}.\par}'
        rb"{\trowd\intbl Berth\cell Depth\cell\row}{\trowd\intbl A|B\cell 7\cell\row}"
        rb"{\pard \bullet\tab one\par}}"
    )
    converted = convert("a.rtf", source)
    assert (converted.title, converted.metadata) == ("Ropes of 2026", {"author": "Ada"})
    assert converted.text == (
        "## Ropes\n\nOf hémp[1], see [there](<https://harbour.example/r>).\n\n"
        "| Berth | Depth |\n| --- | --- |\n| A\\|B | 7 |\n\n- one\n\nNotes:\n\n1. Not | nylon\n"
    )


def test_rtf_keeps_text_boxes_and_comments_and_passes_over_binary_data(convert: Convert) -> None:
    picture = rb"{\pict{\*\picprop{\sp{\sn a}{\sv b}}}\pngblip\bin4 }}{\ 89ab}"
    shape = rb"{\shp{\*\shpinst\shpleft1{\sp{\sn posh}{\sv 0}}{\shptxt Boxed\par}}"
    shape += rb"{\shprslt{\*\do{\dptxbxtext Boxed\par}}}}"
    comment = rb"{\*\atnid A}{\atnauthor Ada}{\*\annotation{\*\atnref 1}Why?}"
    source = (
        rb"{\rtf1\ansi One" + picture + rb" two\binfsxn0 " + shape + rb"three" + comment + b".}"
    )
    assert convert("a.rtf", source).text == (
        "One two\n\nBoxed\n\nthree[1].\n\n\nNotes:\n\n1. Comment: Why?\n"
    )


def test_rtf_tells_an_escaped_backslash_from_a_control_word(convert: Convert) -> None:
    source = (
        rb"{\rtf1 C:\\bin64 and C:\\do, word{\plain\super 2}{\footnote\super 1\nosupersub  Why}"
    )
    assert convert("a.rtf", source + rb"\outlinelevel .}").text == (
        "C:\\bin64 and C:\\do, word^2[1].\n\n\nNotes:\n\n1. 1 Why\n"
    )


@pytest.mark.parametrize(
    ("head", "text", "encoding"),
    [
        (r"\mac", "naïve café", "mac_roman"),
        (r"\ansi\ansicpg10000", "naïve café", "mac_roman"),
        (r"\pc", "naïve", "cp437"),
        (r"\pca", "Ñandú", "cp850"),
        (r"\ansi\ansicpg1251", "Привет", "cp1251"),
    ],
)
def test_rtf_is_read_in_its_encoding(convert: Convert, head: str, text: str, encoding: str) -> None:
    escaped = "".join(f"\\'{byte:02x}" for byte in text.encode(encoding))
    assert convert("a.rtf", rf"{{\rtf1{head} {escaped}\par}}".encode()).text == f"{text}\n"


RAISED = (
    ("It is E = mc", "2"),
    (", 20 cm", "2"),
    (" at 10", "6"),
    (" Pa, on the 1", "st"),
    (" of the word", "2"),
    (" here.", "3,4"),
)
SHOWN = "It is E = mc², 20 cm² at 10^6 Pa, on the 1st of the word^2 here.^3,4"


def raised_in_word() -> bytes:
    up = "<w:r><w:rPr><w:vertAlign w:val='superscript'/></w:rPr><w:t>{}</w:t></w:r>"
    return docx(f"<w:p>{''.join(words(text) + up.format(mark) for text, mark in RAISED)}</w:p>")


def raised_in_powerpoint() -> bytes:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    paragraph = slide.shapes.add_textbox(0, 0, 9999, 9999).text_frame.paragraphs[0]
    for text, mark in RAISED:
        paragraph.add_run().text = text
        raised = paragraph.add_run()
        raised.text = mark
        raised.font._element.set("baseline", "30000")
    file = io.BytesIO()
    presentation.save(file)
    return file.getvalue()


def raised_in_writer() -> bytes:
    style = '<style:style style:name="T1"><style:text-properties style:text-position="super 58%"/>'
    up = "<text:span text:style-name='T1'>{}</text:span>"
    body = f"<text:p>{''.join(text + up.format(mark) for text, mark in RAISED)}</text:p>"
    return opendocument("text", body, f"<office:styles>{style}</style:style></office:styles>")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.html", "".join(f"{text}<sup>{mark}</sup>" for text, mark in RAISED).encode()),
        ("a.docx", raised_in_word()),
        ("a.odt", raised_in_writer()),
        ("a.pptx", raised_in_powerpoint()),
        (
            "a.rtf",
            ("{\\rtf1 " + "".join(rf"{a}{{\super {b}}}" for a, b in RAISED) + "\\par}").encode(),
        ),
    ],
)
def test_raised_text_is_no_part_of_the_word_before(
    convert: Convert, name: str, data: bytes
) -> None:
    assert convert(name, data).text.split("\n", 2 if name == "a.pptx" else 0)[-1].strip() == SHOWN


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("<i>x</i><sup>2</sup>", "*x*²"),
        ("s<sup>-1</sup>, e<sup>-x</sup>, 2<sup>n+1</sup>", "s⁻¹, e^-x, 2^(n+1)"),
        ("XIX<sup>e</sup>, n<sup>o</sup> 3", "XIXe, no 3"),
        ("<b>word</b><span><sup>1</sup></span>", "**word**^1"),
        ("x<sup>2<sup>y</sup></sup>", "x^2^y"),
        ("12.5<sup>a</sup>", "12.5^a"),
        ('word<sup><a href="#n">1</a></sup>', "word[1](#n)"),
        ('word<a href="#n"><sup>1</sup></a>', "word[1](#n)"),
        ("word [<sup>1</sup>] and <sup>7</sup>Li, ropes<sup>®</sup>", "word [1] and 7Li, ropes®"),
        ("<code>2<sup>32</sup></code>, H<sub>2</sub>O", "`2^32`, H2O"),
    ],
)
def test_raised_text_of_a_page(convert: Convert, page: str, shown: str) -> None:
    assert convert("a.html", f"<p>{page}</p>".encode()).text.strip() == shown


def test_a_mail_of_outlook_is_read_as_mail(convert: Convert) -> None:
    texts = {0x37: "Ropes", 0x1000: "Hemp.\r\n", 0xC1A: "Ada", 0xC1F: "ada@harbour.example"}
    converted = convert("a.msg", msg({**texts, 0xE04: "Pilots"}, ("ropes.pdf",)))
    assert converted.text == (
        "# Ropes\n\nFrom: Ada <ada@harbour.example>\\\nTo: Pilots\\\n\nHemp.\n\n"
        "Attachments: ropes.pdf\n"
    )


@pytest.mark.parametrize(
    ("page", "encoding", "text"),
    [
        (950, "cp950", "港口的繩索"),
        (874, "cp874", "เชือก"),
        (20127, "cp1252", "Harbour’s ropes"),
        (1251, "cp1251", "Канаты"),
    ],
)
def test_an_old_mail_of_outlook_is_read_in_its_code_page(
    convert: Convert, page: int, encoding: str, text: str
) -> None:
    converted = convert("a.msg", old_msg({0x37: text, 0x1000: f"{text}."}, page, encoding))
    assert converted.text == f"# {text}\n\n\n{text}.\n"

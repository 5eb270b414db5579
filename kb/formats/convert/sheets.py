"""Spreadsheets: a heading for each sheet, and its tables with their header.

calamine reads the values. Number formats, errors, links and formulas without a value are read
from the workbook's XML and laid over them. xlrd reads workbooks from before 2007.
"""

from __future__ import annotations

import datetime
import io
import posixpath
import re
from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import reduce
from itertools import zip_longest
from typing import Any

import python_calamine
import xlrd
from lxml import etree

from kb.formats.convert.packed import OLE, Package
from kb.formats.convert.plain import cell_text, protected, table_lines
from kb.formats.convert.result import Converted, ConverterError, Origin

MOST_CHARACTERS = 5_000_000  # of a workbook

_RELATED = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_CELL = re.compile(r"([A-Z]+)(\d+)")


def convert(data: bytes, name: str) -> Converted:
    """All sheets in order; a formula shows its last calculated value."""
    notices: list[str] = []
    if data.startswith(OLE):
        text, origins = sheet_lines(_old_sheets(data), notices)
        return Converted(text, origins=origins, notices=tuple(notices))
    package = Package(data, "Excel")
    try:
        workbook = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
    except python_calamine.CalamineError as error:
        raise ConverterError(f"is damaged or not an Excel file: {error}") from error
    overlay = _Overlay(package)
    sheets = []
    for sheet_name in workbook.sheet_names:
        try:
            sheet = workbook.get_sheet_by_name(sheet_name)
            rows: list[list[Any]] = sheet.to_python(skip_empty_area=True)
        except python_calamine.CalamineError as error:
            notices.append(f'the sheet "{sheet_name}" cannot be read: {error}')
            continue
        overlay.lay_over(rows, sheet_name, sheet.start or (0, 0))
        sheets.append((sheet_name, rows))
    if overlay.without_value:
        notices.append(
            f"formulas without a value, which are shown themselves: {overlay.without_value}; open "
            "the file in an office program and save it"
        )
    text, origins = sheet_lines(sheets, notices)
    properties = package.properties()
    title = properties.pop("title", "")
    return Converted(text, title, origins, properties, tuple(notices))


def _old_sheets(data: bytes) -> list[tuple[str, list[list[Any]]]]:
    try:
        book = xlrd.open_workbook(file_contents=data, formatting_info=True)
    except (xlrd.XLRDError, xlrd.compdoc.CompDocError) as error:
        raise ConverterError(f"is protected by a password or damaged: {error}") from error

    def display(cell: xlrd.sheet.Cell) -> Any:
        if cell.ctype == xlrd.XL_CELL_ERROR:
            return xlrd.error_text_from_code.get(cell.value, "")
        if cell.ctype == xlrd.XL_CELL_BOOLEAN:
            return bool(cell.value)
        code = book.format_map[book.xf_list[cell.xf_index].format_key].format_str
        if cell.ctype == xlrd.XL_CELL_NUMBER:
            return shown_number(cell.value, code) if is_of_numbers(code) else cell.value
        if cell.ctype != xlrd.XL_CELL_DATE:
            return cell.value
        if "[h" in code.lower():
            return datetime.timedelta(days=cell.value)
        try:
            moment = xlrd.xldate_as_datetime(cell.value, book.datemode)
        except (ValueError, OverflowError):
            return cell.value
        return moment if cell.value >= 1 else moment.time()

    return [(sheet.name, [list(map(display, row)) for row in sheet.get_rows()]) for sheet in book]


def sheet_lines(
    sheets: Sequence[tuple[str, Sequence[Sequence[Any]]]], notices: list[str]
) -> tuple[str, tuple[Origin, ...]]:
    """Sheets by name as Markdown, and where each begins; `notices` takes what is left out."""
    lines: list[str] = []
    origins: list[Origin] = []
    characters = 0
    for sheet_name, rows in sheets:
        tables = list(_tables(rows))
        if not tables:
            continue
        origins.append(Origin(len(lines) + 1, "sheet", sheet_name))
        lines += [f"## {' '.join(sheet_name.split())}", ""]
        for table in tables:
            for line in _lines(table):
                characters += len(line) + 1
                if characters > MOST_CHARACTERS:
                    break
                lines.append(line)
            lines.append("")
        if characters > MOST_CHARACTERS:
            notices.append(
                f"only the first {MOST_CHARACTERS:,} characters were read, up to the sheet "
                f'"{sheet_name}"'
            )
            break
    return "\n".join(lines).rstrip("\n") + "\n" if lines else "", tuple(origins)


class _Overlay:
    def __init__(self, package: Package) -> None:
        self.without_value = 0  # formulas that were never calculated
        self._package = package
        self._codes = self._number_formats()
        book = package.xml("xl/workbook.xml")
        targets = self._targets("xl/workbook.xml")
        self._sheets = {
            sheet.get("name", ""): targets.get(sheet.get(_RELATED, ""), "")
            for sheet in (book.iterfind("{*}sheets/{*}sheet") if book is not None else ())
        }

    def lay_over(self, rows: list[list[Any]], sheet_name: str, start: tuple[int, int]) -> None:
        path = self._sheets.get(sheet_name, "")
        links = {}
        targets = self._targets(path)
        events = etree.iterparse(
            io.BytesIO(self._package.read(path)),
            tag=("{*}c", "{*}hyperlink"),
            recover=True,
            resolve_entities=False,
        )
        for _, element in events if path in self._package.names else ():
            address = targets.get(element.get(_RELATED, ""))
            may_differ = (  # from the value
                (len(element) and element[0].tag.endswith("}f"))
                or element.get("s") in self._codes
                or element.get("t") in ("e", "inlineStr")
            )
            if address or may_differ:
                row, column = _index(element.get("r") or element.get("ref") or "")
                row, column = row - start[0], column - start[1]
                if 0 <= row < len(rows) and 0 <= column < len(rows[row]):
                    if address:
                        links[row, column] = address
                    else:
                        rows[row][column] = self._shown(element, rows[row][column])
            element.clear()
        for (row, column), address in links.items():
            text = str(_shown(rows[row][column])).strip()
            rows[row][column] = f"[{text}](<{address}>)" if text else ""

    def _shown(self, cell: etree._Element, value: Any) -> Any:
        written = cell.findtext("{*}v") or ""
        formula = cell.findtext("{*}f")
        if formula and not written and cell.get("t") != "str":
            self.without_value += 1
            return f"={formula}"
        if cell.get("t") == "e":
            return written
        if cell.get("t") == "inlineStr":  # calamine loses blanks between parts in several fonts
            return "".join([part.text or "" for part in cell.iterfind("{*}is/{*}r/{*}t")]) or value
        code = self._codes.get(cell.get("s", ""))
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return shown_number(value, code) if code and is_number else value

    def _number_formats(self) -> dict[str, str]:
        """The codes that format numbers, by the index of a cell's style."""
        styles = self._package.xml("xl/styles.xml")
        if styles is None:
            return {}
        codes = BUILT_IN | {
            int(style.get("numFmtId", 0)): style.get("formatCode", "")
            for style in styles.iterfind("{*}numFmts/{*}numFmt")
        }
        used = enumerate(styles.iterfind("{*}cellXfs/{*}xf"))
        chosen = {str(i): codes.get(int(style.get("numFmtId", 0)), "") for i, style in used}
        return {index: code for index, code in chosen.items() if is_of_numbers(code)}

    def _targets(self, path: str) -> dict[str, str]:
        """Where a member's relationships lead: to members and addresses."""
        folder, name = posixpath.split(path)
        root = self._package.xml(f"{folder}/_rels/{name}.rels")
        targets = {}
        for relation in root if root is not None else ():
            target = relation.get("Target", "")
            if relation.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            targets[relation.get("Id", "")] = target
        return targets


def _index(name: str) -> tuple[int, int]:
    """Row and column, from 0, of a cell such as `C7`; -1 for other names."""
    match = _CELL.match(name)
    if match is None:
        return -1, -1
    return int(match[2]) - 1, reduce(lambda sum_, a: sum_ * 26 + ord(a) - 64, match[1], 0) - 1


def _tables(rows: Sequence[Sequence[Any]]) -> Iterator[list[list[str]]]:
    """The rows in groups between empty rows, without a group's empty columns."""
    group: list[list[str]] = []
    for row in [*rows, []]:
        values = [cell_text(_shown(value)) for value in row]
        if any(values):
            group.append(values)
        elif group:
            columns = [column for column in zip_longest(*group, fillvalue="") if any(column)]
            yield [list(row) for row in zip(*columns, strict=True)]
            group = []


def _lines(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Single cells above a table are its caption; one or two cells are plain text."""
    start = 0
    is_list = len(table) > 2 and len(table[0]) == 1
    while not is_list and start < len(table) and sum(map(bool, table[start])) == 1:
        yield protected("".join(table[start]))
        yield ""
        start += 1
    yield from table_lines(table[start:])


def _shown(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return f"{value:.15g}".replace("e", "E")
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date()
    if isinstance(value, datetime.timedelta):
        minutes, seconds = divmod(round(value.total_seconds()), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    return value


# Numbers as a spreadsheet shows them: by Excel's format codes (ECMA-376, part 1, 18.8.31). These
# are named by number alone.
BUILT_IN = {
    1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00E+00",
    37: "#,##0;(#,##0)", 38: "#,##0;(#,##0)", 39: "#,##0.00;(#,##0.00)", 40: "#,##0.00;(#,##0.00)",
    48: "##0.0E+0",
}  # fmt: skip

MOST_DIGITS = 400  # of a number before its point: floats end at 10 to the 308th
_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"?|\\(?P<escaped>.)|\[\$(?P<currency>[^\]-]*)[^\]]*\]'  # shown as it is
    r"|[_*].|\[[^\]]*\]"  # widths, colours and conditions
    r"|(?P<run>[0#?][0#?.,]*(?:E[+-][0#?]+)?|\.[0#?]+)|(?P<plain>.)",
    re.DOTALL,
)
_SECTION = re.compile(r'(?:"[^"]*"?|\\.|\[[^\]]*\]|[^;"\\\[])+')


def is_of_numbers(code: str) -> bool:
    """Whether a code formats numbers, not dates, fractions or text."""
    tokens = list(_TOKEN.finditer(code))
    plain = "".join(token["plain"] or "" for token in tokens)
    return any(token["run"] for token in tokens) and not re.search("[ymdhs/@]", plain, re.I)


def shown_number(value: float, code: str) -> str:
    """A number formatted by a code that `is_of_numbers`."""
    sections = _SECTION.findall(code)
    chosen = 1 if value < 0 and len(sections) > 1 else 2 if not value and len(sections) > 2 else 0
    tokens = list(_TOKEN.finditer(sections[chosen]))
    # Excel uses fifteen decimal digits, and rounds halves up.
    size = abs(Decimal(f"{value:.15g}")) * 100 ** sum(token["plain"] == "%" for token in tokens)
    runs = [i for i, token in enumerate(tokens) if token["run"]]
    shown = dict.fromkeys(runs, "")
    if len(runs) == 1:
        shown[runs[0]] = _digits(size, tokens[runs[0]]["run"])
    else:  # one number with blanks, slashes and the like between its digits
        digits = f"{size:.0f}".zfill(sum(tokens[i]["run"].count("0") for i in runs))
        for i in reversed(runs):
            length = len(tokens[i]["run"]) if i != runs[0] else len(digits)
            digits, shown[i] = digits[:-length], digits[-length:]
    text = "".join(
        shown[i] if i in shown else next(filter(None, token.groups()), "")
        for i, token in enumerate(tokens)
    )
    return f"-{text}" if value < 0 and chosen == 0 and re.search("[1-9]", text) else text


def _digits(size: Decimal, run: str) -> str:
    run, _, exponent = run.partition("E")
    whole, _, fraction = run.rstrip(",").partition(".")
    size /= 1000 ** (len(run) - len(run.rstrip(",")))
    if exponent:
        shown = f"{float(size):.{len(fraction)}E}"
    else:
        with localcontext(prec=MOST_DIGITS):
            size = size.quantize(Decimal(1).scaleb(-len(fraction)), ROUND_HALF_UP)
        shown = f"{size:{',' if ',' in whole else ''}f}"
    integer, point, decimals = shown.partition(".")
    optional = len(fraction) - len(fraction.rstrip("#?"))
    while optional and not exponent and decimals.endswith("0"):
        decimals, optional = decimals[:-1], optional - 1
    least = whole.count("0")
    integer = integer.zfill(least) if least or integer != "0" else ""
    return integer + (point + decimals if decimals else "")

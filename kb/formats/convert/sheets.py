"""Spreadsheets: a heading for each sheet, and its tables with their header.

calamine reads the values. Number formats, errors, links and formulas without a value are read
from the workbook's XML and laid over them. xlrd reads workbooks from before 2007.
"""

from __future__ import annotations

import datetime
import io
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import lru_cache, reduce
from itertools import zip_longest
from string import ascii_letters
from typing import Any

import python_calamine
import xlrd
from lxml import etree

from kb.formats.convert.packed import OLE, Package, integer
from kb.formats.convert.plain import cell_text, protected, table_lines
from kb.formats.convert.result import Converted, ConverterError, Origin

_OLDEST = (b"\x09\0", b"\x09\2", b"\x09\4")  # sheets from before 1993, which have no container
MOST_CHARACTERS = 5_000_000  # of a workbook

_RELATED = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_CELL = re.compile(r"([A-Z]+)(\d+)")
_COMMENTS = re.compile(r"xl/(?:threaded)?comments.*\.xml", re.IGNORECASE)


def convert(data: bytes, name: str) -> Converted:
    """All sheets in order; a formula shows its last calculated value."""
    notices: list[str] = []
    if data.startswith((OLE, *_OLDEST)):
        text, origins = sheet_lines(_old_sheets(data, notices), notices)
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


def _old_sheets(data: bytes, notices: list[str]) -> list[tuple[str, list[list[Any]]]]:
    try:
        book = xlrd.open_workbook(file_contents=data, formatting_info=True, ragged_rows=True)
    # On odd formulas and damage xlrd raises whatever happens.
    except Exception as error:  # noqa: BLE001
        reason = str(error) or type(error).__name__
        try:
            values = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
        except python_calamine.CalamineError:
            raise ConverterError(f"is protected by a password or damaged: {reason}") from error
        notices.append(f"numbers are shown without their formats, which cannot be read: {reason}")
        return [(name, values.get_sheet_by_name(name).to_python()) for name in values.sheet_names]

    def display(cell: xlrd.sheet.Cell) -> Any:
        if cell.ctype == xlrd.XL_CELL_ERROR:
            return xlrd.error_text_from_code.get(cell.value, "")
        if cell.ctype == xlrd.XL_CELL_BOOLEAN:
            return bool(cell.value)
        key = book.xf_list[cell.xf_index].format_key
        written = book.format_map.get(key) if key not in OF_THE_MACHINE else None
        code = (written.format_str if written else "") or ""
        if cell.ctype != xlrd.XL_CELL_DATE:
            return displayed(cell.value, code)
        try:
            moment = xlrd.xldate_as_datetime(cell.value, book.datemode)
        except (ValueError, OverflowError):
            return cell.value
        if "[h" in code.lower():
            return datetime.timedelta(days=cell.value)
        return displayed(moment if cell.value >= 1 else moment.time(), code)

    sheets = []
    for sheet in book:
        rows = [list(map(display, row)) for row in sheet.get_rows()]
        for (row, column), note in sorted(sheet.cell_note_map.items()):
            add_comment(rows, row, column, note.text)
        sheets.append((sheet.name, rows))
    return sheets


def add_comment(rows: list[list[Any]], row: int, column: int, comment: str) -> None:
    """Put a comment beside what its cell shows, or below all for a cell without a value."""
    if 0 <= row < len(rows) and 0 <= column < len(rows[row]):
        rows[row][column] = f"{_shown(rows[row][column])} [comment: {comment}]".strip()
    else:
        rows += [], [f"[comment: {comment}]"]


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
        for cell, comment in self._comments(targets.values()).items():
            row, column = _index(cell)
            add_comment(rows, row - start[0], column - start[1], comment)

    def _comments(self, members: Iterable[str]) -> dict[str, str]:
        """Each cell's comment; of a conversation, which is there twice, the one in its parts."""
        comments: dict[str, str] = {}
        for member in sorted(filter(_COMMENTS.fullmatch, members)):
            root = self._package.xml(member)
            texts: dict[str, list[str]] = {}
            for element in root.iter() if root is not None else ():
                if cell := element.get("ref"):
                    texts.setdefault(cell, []).append("".join(element.itertext()).strip())
            comments |= {cell: "; ".join(parts) for cell, parts in texts.items()}
        return comments

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
        return displayed(value, self._codes.get(cell.get("s", ""), ""))

    def _number_formats(self) -> dict[str, str]:
        """The codes that format numbers and dates, by the index of a cell's style."""
        styles = self._package.xml("xl/styles.xml")
        if styles is None:
            return {}
        codes = BUILT_IN | {
            integer(style.get("numFmtId")): style.get("formatCode", "")
            for style in styles.iterfind("{*}numFmts/{*}numFmt")
        }
        used = enumerate(styles.iterfind("{*}cellXfs/{*}xf"))
        chosen = {str(i): codes.get(integer(style.get("numFmtId")), "") for i, style in used}
        return {i: code for i, code in chosen.items() if re.search("[0#?ymdhs]", code, re.I)}

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


# Numbers and dates as a spreadsheet shows them: by Excel's format codes (ECMA-376, part 1,
# 18.8.31). These are named by number alone.
BUILT_IN = {
    1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00E+00",
    15: "d-mmm-yy", 16: "d-mmm", 17: "mmm-yy", 18: "h:mm AM/PM", 19: "h:mm:ss AM/PM", 20: "h:mm",
    21: "h:mm:ss", 37: "#,##0;(#,##0)", 38: "#,##0;(#,##0)", 39: "#,##0.00;(#,##0.00)",
    40: "#,##0.00;(#,##0.00)", 45: "mm:ss", 46: "[h]:mm:ss", 47: "mm:ss.0", 48: "##0.0E+0",
}  # fmt: skip
OF_THE_MACHINE = (14, 22)  # dates in the order of whoever looks at them: written by ISO 8601

MOST_DIGITS = 400  # of a number before its point: floats end at 10 to the 308th
_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"?|\\(?P<escaped>.)|\[\$(?P<currency>[^\]-]*)[^\]]*\]'  # shown as it is
    r"|(?P<date>AM/PM|A/P|y+|m+|d+|h+|s+(?:\.0+)?|\[(?:h+|m+|s+)\])"
    r"|[_*].|\[[^\]]*\]"  # widths, colours and conditions
    r"|(?P<run>[0#?][0#?.,]*(?:E[+-][0#?]+)?|\.[0#?]+)|(?P<plain>.)",
    re.DOTALL | re.IGNORECASE,
)
_SECTION = re.compile(r'(?:"[^"]*"?|\\.|\[[^\]]*\]|[^;"\\[])+')
# Names in other languages than English (by Windows' numbers), or in the machine's.
_FOREIGN = re.compile(
    r"\[\$[^\]-]*-(?!(?:[0-9A-F]*[048C])?09\b|en\b).*(?:mmm|ddd|AM/PM)", re.IGNORECASE | re.DOTALL
)
# For `str.format` with a moment, its microseconds and the hour of twelve; `n` are minutes.
_DATE_PARTS = {
    "y": "{0:%y}", "yy": "{0:%y}", "yyyy": "{0.year}", "m": "{0.month}", "mm": "{0.month:02}",
    "mmm": "{0:%b}", "mmmm": "{0:%B}", "d": "{0.day}", "dd": "{0.day:02}", "ddd": "{0:%a}",
    "dddd": "{0:%A}", "h": "{0.hour}", "hh": "{0.hour:02}", "n": "{0.minute}",
    "nn": "{0.minute:02}", "s": "{0.second}", "ss": "{0.second:02}", "am/pm": "{0:%p}",
}  # fmt: skip


class _DayZero(datetime.time):
    """Number 0 as a date: Excel's day before 1 January 1900."""

    year, month, day = 1900, 1, 0


def displayed(value: Any, code: str) -> Any:
    """A number, date or time as text by its format code; else, and where the code leaves it to the
    reader's machine, the value itself."""
    if isinstance(value, int | float) and not isinstance(value, bool) and is_of_numbers(code):
        return shown_number(value, code)
    if not code or not isinstance(value, datetime.date | datetime.time):
        return value
    if value == datetime.time():
        value = _DayZero()
    elif not isinstance(value, datetime.datetime | datetime.time):
        value = datetime.datetime.combine(value, datetime.time())
    try:
        twelve = value.hour % 12 or 12
        return _date_pattern(code).format(value, f"{value.microsecond:06}", twelve) or value
    except AttributeError:  # a time, where the code has a date
        return value


@lru_cache(maxsize=256)
def _date_pattern(code: str) -> str:
    """A date's code for `str.format`; "" where that depends on the machine or has other parts."""
    pattern: list[str] = []
    last, month = "", 0  # the part before, and where the last month stands
    for token in _TOKEN.finditer(_SECTION.findall(code)[0]):
        part, _, fraction = (token["date"] or "").lower().partition(".")
        if part in ("m", "mm") and last.startswith("h"):
            part = "n" * len(part)
        elif part in ("m", "mm"):
            month = len(pattern)
        elif part in ("s", "ss") and last in ("m", "mm"):
            pattern[month] = _DATE_PARTS["n" * len(last)]
        elif part not in ("", *_DATE_PARTS) or (token["plain"] or "-") in ascii_letters:
            return ""
        last = part or last
        literal = next(filter(None, token.groups()), "")
        pattern.append(_DATE_PARTS.get(part) or literal.replace("{", "{{").replace("}", "}}"))
        pattern += [f".{{1:.{len(fraction)}}}"] if fraction else []
    text = "" if _FOREIGN.search(code) else "".join(pattern)
    return text.replace("{0.hour", "{2") if "%p" in text else text


@lru_cache(maxsize=256)
def is_of_numbers(code: str) -> bool:
    """Whether a code formats numbers, not dates, fractions or text."""
    tokens = list(_TOKEN.finditer(code))
    is_other = any(token["date"] or token["plain"] in ("/", "@") for token in tokens)
    return not is_other and any(token["run"] for token in tokens)


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

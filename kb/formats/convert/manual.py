"""Manual pages, in the macros man(7) and mdoc(7).

Sections become headings, tagged paragraphs definitions, examples code. Bold and italic are dropped,
so that text can be copied as it is.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from kb.formats.convert.definition_list import DefinitionLines
from kb.formats.convert.plain import cell_text, fenced, protected, table_lines
from kb.formats.convert.result import Converted, ConverterError
from kb.formats.convert.roff import Reader, arguments, logical_lines, plain
from kb.formats.outline import one_line
from kb.text.decode import NoTextError, decode

MAXIMUM_BYTES = 20_000_000
_GZIP = b"\x1f\x8b"


def convert(data: bytes, name: str) -> Converted:
    """The page under its name with the section in parentheses."""
    source = source_of(data)
    if link := re.match(r"\s*\.so\s+(\S+)\s*\Z", source):
        return Converted(f"This page is the same as {link[1]}.\n")
    page = _Page()
    for macro, rest in logical_lines(source):
        page.take(macro, rest)
    page.end()
    if not page.title:
        raise ConverterError("is not a manual page: it has neither .TH nor .Dt")
    text = "\n".join(page.output.lines).strip("\n")
    return Converted(f"# {protected(page.title)}\n\n{text}\n", page.title)


def source_of(data: bytes) -> str:
    if data.startswith(_GZIP):
        unpacker = zlib.decompressobj(wbits=31)
        try:
            data = unpacker.decompress(data, MAXIMUM_BYTES)
        except zlib.error as error:
            raise ConverterError("is damaged: it cannot be unpacked") from error
        if unpacker.unconsumed_tail:
            raise ConverterError(f"unpacks to more than {MAXIMUM_BYTES / 1e6:.0f} MB")
    try:
        return decode(data).text
    except NoTextError as error:
        raise ConverterError(f"is not a manual page: {error}") from error


_ALTERNATING = {"BI", "BR", "IB", "IR", "RB", "RI"}
_FONTS = {"B", "I", "R", "SM", "SB", *_ALTERNATING}
_AT_THE_MARGIN = {"PP", "P", "LP", "HP"}
_INSETS = {"RS", "INDENT", "list"}
_INSET_ENDS = {"RE", "UNINDENT"}
_PARAGRAPHS = {*_AT_THE_MARGIN, *_INSETS, *_INSET_ENDS, "sp", "Sp", "Pp", "Lp", "YS"}
# A line that may be a term if what follows is indented.
_TERM = re.compile(r".{0,200}(?:[^\s.:,;!?]|\.\.\.)\Z", re.DOTALL)
_LITERAL_BEGINS = {"nf", "EX", "Vb", "CS", "DS"}
_LITERAL_ENDS = {"fi", "EE", "Ve", "CE", "DE"}


@dataclass(slots=True)
class _Page:
    title: str = ""
    output: DefinitionLines = field(default_factory=DefinitionLines)
    _may_be_term: bool = False  # the last paragraph
    _paragraph: list[str] = field(default_factory=list)
    _literal: list[str] | None = None
    _tag: str | None = None  # "" while the line with the tag is awaited
    _heading: str | None = None  # marks of a heading whose text is on the next line
    _table: list[str] | None = None
    _joins: bool = False  # the next text follows the last one without a blank
    _link: str | None = None  # the address of a link whose text is being read
    _mdoc: Reader = field(default_factory=Reader)

    def take(self, macro: str, rest: str) -> None:
        if self._table is not None:
            self._take_table(macro, rest)
        elif self._mdoc.knows(macro):
            self._take_mdoc(macro, rest)
        elif not macro:
            self._add(plain(rest) if self._literal is not None else plain(rest).rstrip())
        else:
            self._take_macro(macro, rest)

    def end(self) -> None:
        if self._table is not None:
            self._end_table(self._table)
        self._end_literal()
        self._end_paragraph()

    def _end_paragraph(self) -> None:
        text = [line for line in self._paragraph if line.strip()]
        self._paragraph = []
        if self._literal is not None:
            return
        if self._tag:
            self.output.add_term(protected(self._tag))
        if text or self._tag:
            self._may_be_term = not self._tag and len(text) == 1 and bool(_TERM.match(text[0]))
        self._tag = None
        self.output.add([protected(line) for line in text])

    def _take_macro(self, macro: str, rest: str) -> None:
        if macro in _FONTS:
            if words := arguments(rest):
                self._add(plain(_joined(macro, words)))
        elif macro == "TH":
            words = [plain(word) for word in arguments(rest)]
            if len(words) > 1 and not self.title:
                self.title = f"{words[0].lower() if words[0].isupper() else words[0]}({words[1]})"
        elif macro in ("SH", "SS"):
            self._head("##" if macro == "SH" else "###", " ".join(map(plain, arguments(rest))))
        elif macro in ("TP", "TQ"):
            if macro == "TQ" and self._tag and not self._paragraph:
                self._tag += ", "  # one more tag for the same text
                return
            self._end_paragraph()
            self._tag = ""
        elif macro == "IP":
            self._indented(arguments(rest))
        elif macro in _PARAGRAPHS:
            if self._literal is not None:
                self._literal.append("")
            else:
                self._end_paragraph()
                self._set_in(macro)
        elif macro in _LITERAL_BEGINS:
            self._begin_literal()
        elif macro in _LITERAL_ENDS:
            self._end_literal()
        elif macro == "TS":
            self._end_paragraph()
            self._table = []
        elif macro in ("UR", "MT"):
            self._link = plain(rest.strip())
        elif macro in ("UE", "ME"):
            address, self._link = self._link, None
            if address:
                shown = address if "@" in address else f"<{address}>"
                self._add(shown + plain(rest.strip()))
        elif macro in ("URL", "MTO"):  # as Asciidoctor writes links
            address, text, behind = (*map(plain, arguments(rest)), "", "", "")[:3]
            self._add(f"{text} <{address}>{behind}" if text else f"<{address}>{behind}")
        elif macro in ("SY", "OP"):
            words = [plain(word) for word in arguments(rest)]
            if macro == "SY":
                self._end_paragraph()
            self._add(f"[{' '.join(words)}]" if macro == "OP" else " ".join(words))
        elif macro == "br":
            self._paragraph.append("")
            self._joins = False
        # Anything else is the page's own macro, or a request without text.

    def _set_in(self, macro: str) -> None:
        """Change the margin as a macro between paragraphs says."""
        if macro in _INSETS:
            if self._may_be_term and macro != "list":
                self.output.make_term()  # as DocBook and Asciidoctor write definition lists
            self.output.begin_inset()
        elif macro in _INSET_ENDS:
            self.output.end_inset()
        elif macro in _AT_THE_MARGIN:
            self.output.end_definition()
        if macro not in ("sp", "Sp", "Pp"):
            self._may_be_term = False

    def _head(self, marks: str, text: str) -> None:
        self._end_literal()
        self._end_paragraph()
        if not text.strip():
            self._heading = marks
            return
        self._heading = None
        self.output.end_insets()
        self.output.add([f"{marks} {one_line(text)}"])

    def _indented(self, words: list[str]) -> None:
        self._end_paragraph()
        tag = plain(words[0]).strip() if words else ""
        if tag:
            self.output.end_definition()
        if tag in ("•", "·", "o", "*", "-", "—", "○"):
            self._begin_item("-")
        elif re.fullmatch(r"\d+[.)]", tag):
            self._begin_item(tag)
        elif tag:
            self._tag = tag

    def _begin_item(self, mark: str) -> None:
        self._paragraph, self._joins = [f"{mark} "], True

    def _add(self, text: str) -> None:
        if self._literal is not None:
            self._literal.append(text)
        elif self._heading is not None and text.strip():
            self._head(self._heading, text)
        elif self._tag is not None and (not self._tag or self._tag.endswith(", ")):
            self._tag += one_line(text)
        elif not text.strip():
            self._end_paragraph()
        elif self._paragraph and self._paragraph[-1]:
            self._paragraph[-1] += ("" if self._joins else " ") + text.strip()
            self._joins = False
        else:
            self._paragraph.append(text.strip())

    def _begin_literal(self) -> None:
        if self._literal is None:
            self._end_paragraph()
            self._literal = []

    def _end_literal(self) -> None:
        code, self._literal = self._literal or [], None
        filled = [number for number, line in enumerate(code) if line.strip()]
        if filled:
            self.output.add(fenced(code[filled[0] : filled[-1] + 1]))
            self._may_be_term = False

    def _take_table(self, macro: str, rest: str) -> None:
        assert self._table is not None
        if macro == "TE":
            self._end_table(self._table)
        elif not macro or macro in _FONTS:
            self._table.append(_joined(macro, arguments(rest)) if macro else rest)

    def _end_table(self, source: list[str]) -> None:
        self._table = None
        self.output.add(table_lines(list(_table_rows(source))))
        self._may_be_term = False

    def _take_mdoc(self, macro: str, rest: str) -> None:
        for kind, text in self._mdoc.take(macro, rest):
            if kind == "title":
                self.title = self.title or text
            elif kind in ("##", "###"):
                self._head(kind, text)
            elif kind == "paragraph":
                if self._literal is None:
                    self._end_paragraph()
            elif kind in ("list", "end list"):
                self._end_paragraph()
                self._set_in("list" if kind == "list" else "RE")
            elif kind == "tag":
                self._end_paragraph()
                self._tag = text or None
            elif kind == "item":
                self._end_paragraph()
                self._begin_item("-")
            elif kind == "tag goes on":
                self._tag = f"{self._tag or ''} {text}".strip()
            elif kind == "literal":
                self._begin_literal()
            elif kind == "end literal":
                self._end_literal()
            else:
                self._add(text)


def _joined(macro: str, words: list[str]) -> str:
    return ("" if macro in _ALTERNATING else " ").join(words)


def _table_rows(source: list[str]) -> Iterator[list[str]]:
    """The rows of a tbl(1) table, which follow the formats and their full stop."""
    option = re.match(r".*tab\s*\((.)\).*;\s*\Z", source[0] if source else "")
    separator = option[1] if option else "\t"
    start = next((n for n, line in enumerate(source, 1) if line.rstrip().endswith(".")), 0)
    cell: list[str] | None = None
    row: list[str] = []
    for line in source[start:]:
        if cell is not None:
            if not line.startswith("T}"):
                cell.append(line)
                continue
            row.append(cell_text(plain(" ".join(cell))))
            cell = None
            fields = line[2:].lstrip(separator).split(separator) if line[2:] else []
        else:
            if re.fullmatch(r"[_=\s]*", line):
                continue
            fields = line.split(separator)
        for text in fields:
            if text.strip() == "T{":
                cell = []
            else:
                row.append(cell_text(plain(text)))
        if cell is None and row:
            yield row
            row = []

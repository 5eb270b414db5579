"""Manual pages, in the macros man(7) and mdoc(7).

Below the macros are escapes, special characters and arguments. Sections become headings, tagged
paragraphs definitions, examples code. Bold and italic are dropped, so that text can be copied as it
is.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from kb.formats.convert.definition_list import DefinitionLines
from kb.formats.convert.plain import cell_text, fenced, protected, table_lines
from kb.formats.convert.result import Converted, ConverterError
from kb.formats.outline import one_line
from kb.text.assets import asset
from kb.text.decode import NoTextError, decode

_ESCAPE = re.compile(
    r"""\\(?:
      f(?:\[[^\]]*\]|\(..|.)                              # font
    | [sS](?:[+-]?\d|\([+-]?\d\d|\[[^\]]*\]|'[^']*')        # size
    | [mMgFkVYO](?:\[[^\]]*\]|\(..|.)                     # colour and the like
    | \*(?:\[(?P<string>[^\]]*)\]|\((?P<string2>..)|(?P<string1>.))
    | n[+-]?(?:\[[^\]]*\]|\(..|.)                         # number register
    | \((?P<two>..) | \[(?P<name>[^\]]*)\] | C'(?P<quoted>[^']*)'
    | N'(?P<code>\d+)'
    | [hvwxXDlLbAoRZH]'(?P<drawn>[^']*)'
    | z. | [&)%:|^/,{}acdrtup!?]
    | (?P<character>[-~ 0.`'_e\\"E])
    | .
    )""",
    re.VERBOSE | re.DOTALL,
)
_SIMPLE = {"-": "-", "~": " ", " ": " ", "0": " ", ".": ".", "`": "`", "'": "'", "_": "_"}
_SIMPLE |= {"e": "\\", "E": "\\", "\\": "\\", '"': ""}


@cache
def _characters() -> dict[str, str]:
    pairs = re.split(r"  |\n", asset("manuals")["characters"].strip())
    return dict(pair.split(" ") for pair in pairs)


def plain(text: str) -> str:
    """The text without escapes, its special characters as Unicode."""
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    if match["character"] is not None:
        return _SIMPLE[match["character"]]
    name = match["two"] or match["name"] or match["quoted"]
    if name and re.fullmatch(r"u[0-9A-Fa-f]{4,6}(?:_[0-9A-Fa-f_]+)?", name):
        codes = [int(code, 16) for code in name[1:].split("_")]
    elif name:
        return _characters().get(name, "")
    elif match["code"]:
        codes = [int(match["code"])]
    else:
        name = match["string"] or match["string2"] or match["string1"] or ""
        return str(asset("manuals")["strings"].get(name, ""))
    return "".join(chr(code) for code in codes if code < 0x110000)


_ARGUMENT = re.compile(r'"((?:[^"]|"")*)(?:"|\Z)|((?:[^ \t\\]|\\.)+)', re.DOTALL)


def arguments(text: str) -> list[str]:
    """The arguments of a macro call, still with their escapes."""
    pairs = (match.groups() for match in _ARGUMENT.finditer(text))
    return [word if quoted is None else quoted.replace('""', '"') for quoted, word in pairs]


_COMMENT = re.compile(r'(?<!\\)(?:\\\\)*\\["#].*')
_REQUEST = re.compile(r"[.'][ \t]*(?P<name>[^\s\\]*)[ \t]*(?P<rest>.*)")


def logical_lines(source: str) -> Iterator[tuple[str, str]]:
    """(macro name, arguments) or ("", text) for each line, without comments, definitions, ignored
    parts and branches for printers: of `.ie n A` and `.el B` it gives A."""
    # A backslash at its end continues a line.
    lines = iter(re.sub(r"(?<!\\)\\(?:\n|\Z)", "", source).split("\n"))
    for line in lines:
        yield from _logical(line, lines)


def _logical(line: str, lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    line = _COMMENT.sub("", line)
    if not line.startswith((".", "'")):
        yield "", line
        return
    request = _REQUEST.match(line)
    name, rest = (request["name"], request["rest"]) if request else ("", "")
    if name in ("de", "de1", "am", "ig", "am1"):
        end = "".join(rest.split()[name != "ig" :][:1]) or "."
        next((other for other in lines if other.startswith((f".{end}", f"'{end}"))), None)
    elif name in ("if", "ie"):
        yield from _branch(rest, lines, name == "ie")
    elif name == "el":
        list(_block(rest, lines))
    elif name:
        yield name, rest


def _branch(rest: str, lines: Iterator[str], has_else: bool) -> Iterator[tuple[str, str]]:
    """The line or block of a condition that holds on a terminal."""
    body = re.sub(r"\A!?(?:'[^']*'[^']*'|\([^)]*\)|\S+)[ \t]*", "", rest)
    if not rest.startswith("n"):
        list(_block(body, lines))
        line = next(lines, None) if has_else else None  # the else branch
        if line is None:
            return
        request = _REQUEST.match(line)
        if request is None or request["name"] != "el":
            yield from _logical(line, lines)
            return
        body = request["rest"]
    for line in _block(body, lines):
        yield from _logical(line, lines)


def _block(body: str, lines: Iterator[str]) -> Iterator[str]:
    r"""The lines of a branch: the rest of its line, or all between `\{` and `\}`."""
    start = body.find("\\{")
    if start < 0:
        if body:
            yield body
        return
    depth = 1
    line: str | None = body[start + 2 :].lstrip("\\")
    while line is not None:
        depth += line.count("\\{") - line.count("\\}")
        if depth <= 0:
            if rest := line[: line.rfind("\\}")].rstrip(".' "):
                yield rest
            return
        if line.strip():
            yield line
        line = next(lines, None)


# The macros of mdoc(7), which say what a word means, as events for the page

Event = tuple[str, str]

_TABLE = asset("manuals")["mdoc"]
_BRACKETS: dict[str, str] = _TABLE["brackets"]  # by macro, what precedes and follows its text
_ENCLOSING = {f"{name}q": pair for name, pair in _BRACKETS.items()} | {"Op": "[]", "Ql": "‘’"}
_OPENING = {f"{name}o": pair[0] for name, pair in {**_BRACKETS, "O": "[]"}.items()}
_CLOSING = {f"{name}c": pair[1] for name, pair in {**_BRACKETS, "O": "[]"}.items()}
_PLAIN = set(_TABLE["plain"].split())
_SYSTEMS: dict[str, str] = _TABLE["systems"]
_BLOCKS = set(_TABLE["blocks"].split())
_OTHERS = set("Nm Fl Fn Xr Ns Ap Pf".split())
_INLINE = {*_ENCLOSING, *_OPENING, *_CLOSING, *_PLAIN, *_SYSTEMS, *_OTHERS}
_BEFORE = {"(", "["}
_BEHIND = {".", ",", ";", ":", "?", "!", ")", "]"}


@dataclass(slots=True)
class Reader:
    """Tracks the name of what is described, and the open lists."""

    is_mdoc: bool = False
    _name: str = ""
    _lists: list[str] = field(default_factory=list)
    _literal: list[bool] = field(default_factory=list)
    _is_in_tag: bool = False  # between Xo and Xc, which carry a tag over several lines
    _is_spaced: bool = True  # until `.Sm off`

    def knows(self, macro: str) -> bool:
        """Whether a macro is one of mdoc's; none is before `.Dd` or `.Dt`."""
        if macro in ("Dd", "Dt"):
            self.is_mdoc = True
        return self.is_mdoc and (macro in _BLOCKS or macro in _INLINE)

    def take(self, macro: str, rest: str) -> Iterator[Event]:
        """What a line means for the page."""
        words = arguments(rest)
        if macro in _BLOCKS:
            yield from self._block(macro, words)
            if macro != "Sm":
                self._is_in_tag = macro == "It" and "Xo" in words
        else:
            yield ("tag goes on" if self._is_in_tag else "text"), self._inline([macro, *words])
        if macro == "Xc" or "Xc" in words:
            self._is_in_tag = False

    def _block(self, macro: str, words: list[str]) -> Iterator[Event]:
        if macro == "Dt" and words:
            section = words[1] if len(words) > 1 else "1"
            yield "title", f"{words[0].lower()}({section})"
        elif macro in ("Sh", "Ss"):
            self._lists.clear()
            yield ("##" if macro == "Sh" else "###"), self._inline(words)
        elif macro in ("Pp", "Lp", "Rs", "Re"):
            yield "paragraph", ""
        elif macro == "Nd":
            yield "text", f"– {self._inline(words)}"
        elif macro == "Bl":
            self._lists.append(words[0].lstrip("-") if words else "item")
            yield "list", ""
        elif macro == "El":
            if self._lists:
                self._lists.pop()
            yield "end list", ""
        elif macro == "It":
            yield from self._item(words)
        elif macro == "Bd":
            is_literal = any(word in ("-literal", "-unfilled") for word in words)
            self._literal.append(is_literal)
            yield ("literal" if is_literal else "paragraph"), ""
        elif macro == "Ed":
            is_literal = self._literal.pop() if self._literal else False
            yield ("end literal" if is_literal else "paragraph"), ""
        elif macro in ("Dl", "D1"):
            yield "literal", ""
            yield "text", self._inline(words)
            yield "end literal", ""
        elif macro == "Sm":
            self._is_spaced = words[:1] != ["off"] if words else not self._is_spaced

    def _item(self, words: list[str]) -> Iterator[Event]:
        kind = self._lists[-1] if self._lists else "tag"
        if kind in ("bullet", "dash", "hyphen", "enum", "item"):
            yield "item", ""
            if words:
                yield "text", self._inline(words)
        elif kind == "column":
            yield "paragraph", ""
            cells = " ".join("\t" if word == "Ta" else word for word in words).split("\t")
            yield "text", " — ".join(self._inline(cell.split()) for cell in cells)
        else:
            yield "tag", self._inline(words)

    def _inline(self, words: Iterable[str]) -> str:
        text = ""
        closing: list[str] = []
        glue = True  # whether the next word follows without a blank
        waiting = deque(words)

        def add(word: str, *, before: bool = False, behind: bool = False) -> None:
            nonlocal text, glue
            text += word if glue or behind or not text else f" {word}"
            glue = before or not self._is_spaced

        def take_word() -> str:
            return plain(waiting.popleft()) if waiting else ""

        while waiting:
            word = waiting.popleft()
            follows = waiting[0] if waiting else ""
            if word == "Ns":
                glue = True
            elif word == "Ap":
                add("'", before=True, behind=True)
            elif word == "Pf":
                add(take_word(), before=True)
            elif word == "Nm":
                name = "" if follows in _INLINE | _BEHIND else take_word()
                self._name = self._name or name
                add(name or self._name)
            elif word == "Fl":
                if follows and follows not in _INLINE | _BEHIND | {"|"}:
                    add(f"-{take_word()}")
                else:
                    add("-", before=follows in _INLINE and follows != "Ns")
            elif word == "Xr" and waiting:
                name = take_word()
                is_section = bool(waiting) and waiting[0][:1].isdigit()
                add(f"{name}({waiting.popleft()})" if is_section else name)
            elif word == "Fn" and waiting:
                add(f"{take_word()}({', '.join(map(plain, waiting))})")
                waiting.clear()
            elif word in _ENCLOSING:
                closing.append(_ENCLOSING[word][1])
                add(_ENCLOSING[word][0], before=True)
            elif word in _OPENING:
                add(_OPENING[word], before=True)
            elif word in _CLOSING:
                add(_CLOSING[word], behind=True)
            elif word in _SYSTEMS:
                add(_SYSTEMS[word])
            elif word in _PLAIN:
                if word == "Ar" and (not waiting or follows in _INLINE | _BEHIND):
                    add("file ...")
            elif word in _BEFORE:
                add(word, before=True)
            elif word in _BEHIND:
                if not waiting:  # after the closing brackets
                    text += "".join(reversed(closing))
                    closing.clear()
                add(word, behind=True)
            else:
                add(plain(word))
        return text + "".join(reversed(closing))


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
            if macro == "TE":
                self._end_table(self._table)
            elif not macro or macro in _FONTS:
                self._table.append(_joined(macro, arguments(rest)) if macro else rest)
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

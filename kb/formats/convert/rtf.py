"""RTF: striprtf gives the words; inserted marks say what they belong to."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from striprtf.striprtf import rtf_to_text

from kb.formats.convert.plain import cell_text, protected, superscript, table_lines
from kb.formats.convert.result import Converted, ConverterError
from kb.formats.outline import one_line

# Private-use characters, which striprtf keeps.
_HEADING = "\ue000"  # and a digit for its level
_ROW, _CELL, _ROW_END = "\ue001\ue002\ue003"
_LINK, _LINK_END = "\ue004\ue005"
_NOTE, _NOTE_END = "\ue006\ue007"
_RAISED, _RAISED_END = "\ue008\ue009"
_MARKS = {"trowd": _ROW, "cell": _CELL, "row": _ROW_END, "nestcell": " ", "footnote": _NOTE}
_MARKS["annotation"] = f"{_NOTE}Comment: "
_MARKS |= dict.fromkeys(("super", "nosupersub", "plain"), _RAISED_END)

_STYLE = re.compile(r"\{\\s(\d+)\b[^{}]*?\\outlinelevel([0-5])\b")
_WORD = re.compile(
    r"[{}]|(?:\\\*)?\\(?P<word>[a-z]+)(?P<number>-?\d+)? ?"
    r'|HYPERLINK\s+"(?P<address>[^"{}\\]*)"|\\[^a-z]'
)
_INFO = re.compile(r"\{\\(title|author) ([^{}\\]*)")
_TABLE = re.compile(f"{_ROW}.*?{_ROW_END}", re.DOTALL)
_BULLET = re.compile(r"\s*(?:[•◦▪–·]|(\d+[.)]))\t")


# Binary data, whose braces count for nothing; control words that begin like it hold no text.
_BINARY = re.compile(r"(?<!\\)(?:\\\\)*(\\bin(?:(\d{1,9}) ?|[a-z]*-?\d* ?))")
# What surrounds a text box, whose text striprtf leaves out.
_SHAPE = re.compile(r"(?:\\\*)?\\(?:shpinst|shpgrp|shp|do)(?![a-z])")
_BOX = re.compile(r"\\(?:shptxt|dptxbxtext)(?![a-z])")
_CHARSET = re.compile(r"\\(mac|pca?)(?![a-z])|\\ansicpg(?=10000\b)")
_ENCODINGS = {None: "mac_roman", "mac": "mac_roman", "pc": "cp437", "pca": "cp850"}
_HEAD = 200  # characters that may name the encoding


def plain_text(source: str) -> str:
    """The words of RTF in the file's encoding."""
    charset = _CHARSET.search(source, 0, _HEAD)
    encoding = _ENCODINGS[charset[1]] if charset else "cp1252"
    source = source.replace("\\ansicpg10000", "")  # which striprtf takes for UTF-8
    text: str = rtf_to_text(source, encoding, "replace")  # type: ignore[no-untyped-call]
    return text


def source_of(data: bytes) -> str:
    """RTF without binary data, with its text boxes as paragraphs."""
    source = data.decode("latin-1")
    parts: list[str] = []
    position = 0
    for binary in _BINARY.finditer(source):
        if binary.start() >= position:
            parts.append(source[position : binary.start(1)])
            position = binary.end() + int(binary[2] or 0)
    source = " ".join([*parts, source[position:]]).replace("\\\\", r"\'5c")  # no control word
    return _BOX.sub(r"\\par", _SHAPE.sub("", source))


def convert(data: bytes, name: str) -> Converted:
    source = source_of(data)
    if not source.lstrip("\ufeff \r\n").startswith("{\\rtf"):
        raise ConverterError("is not an RTF file")
    text = plain_text("".join(_marked(source)))
    notes: list[str] = []

    def noted(note: re.Match[str]) -> str:
        notes.append(protected(one_line(re.sub("[\ue000-\ue009]", "", note[1]))))
        return f"[{len(notes)}]"

    text = re.sub(f"{_NOTE}(.*?){_NOTE_END}", noted, text, flags=re.DOTALL)
    raised = f"(.{{0,3}}){_RAISED}([^\ue000-\ue005\ue008\n]*?){_RAISED_END}"
    text = re.sub(raised, lambda run: run[1] + superscript(run[1], run[2]), text)
    lines = list(_lines(re.sub(f"[{_RAISED}{_RAISED_END}]", "", text)))
    if notes:
        lines += ["", "Notes:", "", *(f"{n}. {note}" for n, note in enumerate(notes, start=1))]
    metadata = {key: value.strip() for key, value in _INFO.findall(source) if value.strip()}
    title = metadata.pop("title", "")
    return Converted("\n".join(lines).rstrip("\n") + "\n", title, metadata=metadata)


def _marked(source: str) -> Iterator[str]:
    styles: dict[str, str] = dict(_STYLE.findall(source))
    groups: list[str] = []  # the mark with which each open group ends
    address = ""
    position = 0
    for match in _WORD.finditer(source):
        word, number = match["word"], match["number"] or ""
        mark = _MARKS.get(word or "", "")
        if match[0] == "{":
            groups.append("")
        elif match[0] == "}":
            mark = groups.pop() if groups else ""
        elif match["address"] is not None:
            address = match["address"]
        elif word == "fldrslt" and address and groups:
            groups[-1] = f"{_LINK_END}{address}{_LINK_END}"
            mark, address = _LINK, ""
        elif word in ("footnote", "annotation") and groups:
            groups[-1] = _NOTE_END
        elif word == "super" and number != "0" and groups:
            mark, groups[-1] = _RAISED, _RAISED_END + groups[-1].lstrip(_RAISED_END)
        elif mark == _RAISED_END and groups and groups[-1].startswith(mark):
            groups[-1] = groups[-1][1:]
        elif mark == _RAISED_END:
            mark = ""
        elif word == "outlinelevel" and number in tuple("012345"):
            mark = f"{_HEADING}{int(number) + 1}"
        elif word == "s" and number in styles:
            mark = f"{_HEADING}{int(styles[number]) + 1}"
        if mark:
            yield source[position : match.start()]
            yield "".join(f"{{\\uc0\\u{(ord(c) + 0x8000) % 0x10000 - 0x8000} }}" for c in mark)
            # striprtf omits notes, and writes its own separators between cells.
            yield "" if word in ("footnote", "annotation", "cell", "nestcell", "row") else match[0]
            position = match.end()
    yield source[position:]


def _lines(text: str) -> Iterator[str]:
    position = 0
    rows: list[list[str]] = []
    for row in itertools.chain(_TABLE.finditer(text), [None]):
        between = text[position : row.start() if row else len(text)]
        if rows and (between.strip() or row is None):
            yield from table_lines(rows)
            yield ""
            rows = []
        yield from _paragraphs(between)
        if row:
            cells = row[0].strip(_ROW + _ROW_END).split(_CELL)[:-1]
            rows.append([cell_text(_linked(cell)) for cell in cells])
            position = row.end()


def _paragraphs(text: str) -> Iterator[str]:
    in_list = False
    for line in text.split("\n"):
        level = re.search(f"{_HEADING}([1-6])", line)
        bullet = _BULLET.match(line)
        text_of_line = one_line(_linked(protected(line[bullet.end() :] if bullet else line)))
        if not text_of_line:
            continue
        if in_list and not bullet:
            yield ""
        in_list = bool(bullet)
        if bullet:
            yield f"{bullet[1] or '-'} {text_of_line}"
        else:
            yield from (f"{'#' * int(level[1])} {text_of_line}" if level else text_of_line, "")


def _linked(text: str) -> str:
    text = re.sub(f"{_HEADING}[1-6]|[{_ROW}{_ROW_END}]", "", text)
    link = f"{_LINK}(.*?){_LINK_END}(.*?){_LINK_END}"
    return re.sub(link, lambda match: f"[{match[1].strip()}](<{match[2]}>)", text, flags=re.DOTALL)

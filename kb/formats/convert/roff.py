"""The language of manual pages below their macros: escapes, special characters, arguments."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from kb.text.assets import asset

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

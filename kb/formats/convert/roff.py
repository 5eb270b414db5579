"""The language of manual pages below their macros: escapes, special characters, arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

__all__ = ["arguments", "logical_lines", "plain"]

# Names of `\(xx` and `\[name]`, as far as manual pages use them.
_CHARACTERS = {
    "em": "—",
    "en": "–",
    "hy": "-",
    "mi": "-",
    "pl": "+",
    "bu": "•",
    "ci": "○",
    "sq": "□",
    "co": "©",
    "rg": "®",
    "tm": "™",
    "de": "°",
    "mu": "×",
    "di": "÷",
    "+-": "±",
    "<=": "≤",
    ">=": "≥",
    "!=": "≠",
    "==": "≡",
    "~=": "≈",
    "->": "→",
    "<-": "←",
    "<>": "↔",
    "ua": "↑",
    "da": "↓",
    "lq": "“",
    "rq": "”",
    "oq": "‘",
    "cq": "’",
    "aq": "'",
    "dq": '"',
    "bq": "‚",
    "Bq": "„",
    "Fo": "«",
    "Fc": "»",
    "ga": "`",
    "aa": "´",
    "ha": "^",
    "ti": "~",
    "rs": "\\",
    "sl": "/",
    "br": "|",
    "ba": "|",
    "or": "|",
    "at": "@",
    "sh": "#",
    "Do": "$",
    "Eu": "€",
    "Po": "£",
    "ct": "¢",
    "Ye": "¥",
    "ss": "ß",
    "SS": "§",
    "sc": "§",
    "ps": "¶",
    "dd": "‡",
    "dg": "†",
    "12": "½",
    "14": "¼",
    "34": "¾",
    "S1": "¹",
    "S2": "²",
    "S3": "³",
    "no": "¬",
    "lB": "[",
    "rB": "]",
    "lC": "{",
    "rC": "}",
    "la": "⟨",
    "ra": "⟩",
    "fm": "′",
    "sd": "″",
    "*a": "α",
    "*b": "β",
    "*g": "γ",
    "*d": "δ",
    "*e": "ε",
    "*l": "λ",
    "*m": "μ",
    "*p": "π",
    "*s": "σ",
    "*w": "ω",
    "*W": "Ω",
    "*D": "Δ",
    "*S": "Σ",
    "if": "∞",
    "sr": "√",
    "is": "∫",
    "AE": "Æ",
    "ae": "æ",
    "OE": "Œ",
    "oe": "œ",
    "/O": "Ø",
    "/o": "ø",
    "oA": "Å",
    "oa": "å",
    ":a": "ä",
    ":o": "ö",
    ":u": "ü",
    ":A": "Ä",
    ":O": "Ö",
    ":U": "Ü",
    ":e": "ë",
    ":i": "ï",
    "'a": "á",
    "'e": "é",
    "'i": "í",
    "'o": "ó",
    "'u": "ú",
    "'E": "É",
    "`a": "à",
    "`e": "è",
    "`u": "ù",
    "^a": "â",
    "^e": "ê",
    "^i": "î",
    "^o": "ô",
    "^u": "û",
    "~n": "ñ",
    ",c": "ç",
    "vs": "š",
    "vc": "č",
    "vz": "ž",
    "CR": "↵",
    "OK": "✓",
    "lh": "☜",
    "rh": "☞",
}
# Strings that the macro packages define.
_STRINGS = {"R": "®", "Tm": "™", "lq": "“", "rq": "”", 'L"': "“", 'R"': "”", "C+": "C++"}
_STRINGS |= {"--": "—", "PI": "π", "Lt": "<", "Gt": ">", "Le": "≤", "Ge": "≥", "Am": "&", "q": '"'}

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


def plain(text: str) -> str:
    """The text without escapes, its special characters as Unicode."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    if found["character"] is not None:
        return _SIMPLE[found["character"]]
    name = found["two"] or found["name"] or found["quoted"]
    if name:
        if re.fullmatch(r"u[0-9A-Fa-f]{4,6}(?:_[0-9A-Fa-f_]+)?", name):
            return "".join(
                chr(int(code, 16)) for code in name[1:].split("_") if int(code, 16) < 0x110000
            )
        return _CHARACTERS.get(name, "")
    if found["code"]:
        return chr(int(found["code"])) if int(found["code"]) < 0x110000 else ""
    string = found["string"] or found["string2"] or found["string1"]
    return _STRINGS.get(string, "") if string else ""


_ARGUMENT = re.compile(r'"((?:[^"]|"")*)(?:"|\Z)|((?:[^ \t\\]|\\.)+)', re.DOTALL)


def arguments(text: str) -> list[str]:
    """The arguments of a macro call, still with their escapes."""
    return [
        found[1].replace('""', '"') if found[1] is not None else found[2]
        for found in _ARGUMENT.finditer(text)
    ]


_COMMENT = re.compile(r'(?<!\\)(?:\\\\)*\\["#].*')
_REQUEST = re.compile(r"[.'][ \t]*(?P<name>[^\s\\]*)[ \t]*(?P<rest>.*)")


def logical_lines(source: str) -> Iterator[tuple[str, str]]:
    """(macro name, its arguments) or ("", text) for each line of a page.

    Comments, definitions of macros and ignored parts are left out, and so are branches for
    printers: of `.ie n A` and `.el B` comes A.
    """
    lines = iter(_joined(source))
    for line in lines:
        yield from _logical(line, lines)


def _logical(line: str, lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    line = _COMMENT.sub("", line)
    if not line.startswith((".", "'")):
        yield "", line
        return
    found = _REQUEST.match(line)
    name, rest = (found["name"], found["rest"]) if found else ("", "")
    if name in ("de", "de1", "am", "ig", "am1"):
        words = rest.split()
        end = (
            words[1]
            if name != "ig" and len(words) > 1
            else words[0]
            if name == "ig" and words
            else "."
        )
        _skip(lines, lambda other: other.startswith((f".{end}", f"'{end}")))
    elif name in ("if", "ie"):
        yield from _branch(rest, lines, name == "ie")
    elif name == "el":
        _drop_branch(rest, lines)
    elif name:
        yield name, rest


def _branch(rest: str, lines: Iterator[str], has_else: bool) -> Iterator[tuple[str, str]]:
    """The line or block of a condition if it holds on a terminal."""
    holds = rest.startswith("n")
    body = re.sub(r"\A!?(?:'[^']*'[^']*'|\([^)]*\)|\S+)[ \t]*", "", rest)
    if not holds:
        _drop_branch(body, lines)
        if not has_else:
            return
        body = ""
        for line in lines:  # the other branch holds then
            found = _REQUEST.match(line)
            if found and found["name"] == "el":
                body = found["rest"]
                break
            yield from _logical(line, lines)
            return
    for line in _block(body, lines):
        yield from _logical(line, lines)


def _drop_branch(body: str, lines: Iterator[str]) -> None:
    for _ in _block(body, lines):
        pass


def _block(body: str, lines: Iterator[str]) -> Iterator[str]:
    """The lines of a branch: the rest of its line, or all between `\\{` and `\\}`."""
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
            rest = line[: line.rfind("\\}")].rstrip(".' ")
            if rest:
                yield rest
            return
        if line.strip():
            yield line
        line = next(lines, None)


def _skip(lines: Iterator[str], is_end: Callable[[str], bool]) -> None:
    for line in lines:
        if is_end(line):
            return


def _joined(source: str) -> Iterator[str]:
    """Lines, with those put together that end in a backslash."""
    held = ""
    for line in source.split("\n"):
        if line.endswith("\\") and not line.endswith("\\\\"):
            held += line[:-1]
            continue
        yield held + line
        held = ""
    if held:
        yield held

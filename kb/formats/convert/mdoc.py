"""The macros of mdoc(7), which say what a word means, as events for the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kb.formats.convert.roff import arguments, plain

__all__ = ["Reader"]

Event = tuple[str, str]

# Macros round a text: what stands before and behind it.
_ENCLOSING = {
    "Op": ("[", "]"),
    "Bq": ("[", "]"),
    "Brq": ("{", "}"),
    "Pq": ("(", ")"),
    "Aq": ("<", ">"),
    "Dq": ("“", "”"),
    "Qq": ('"', '"'),
    "Sq": ("‘", "’"),
    "Ql": ("‘", "’"),
}
_OPENING = {"Oo": "[", "Bo": "[", "Bro": "{", "Po": "(", "Ao": "<", "Do": "“", "Qo": '"', "So": "‘"}
_CLOSING = {"Oc": "]", "Bc": "]", "Brc": "}", "Pc": ")", "Ac": ">", "Dc": "”", "Qc": '"', "Sc": "’"}
_PLAIN = {"Ar", "Cm", "Ic", "Pa", "Ev", "Va", "Vt", "Fa", "Ft", "Fd", "Sx", "Sy", "Em", "Li", "Dv"}
_PLAIN |= {"Er", "No", "Tn", "An", "Lk", "Mt", "St", "Ad", "Ms", "Cd", "Xo", "Xc", "Ta", "Bf", "Ef"}
_PLAIN |= {"Fo", "Fc", "In", "Hf", "%A", "%T", "%B", "%J", "%D", "%R", "%V", "%N", "%P", "%O", "%U"}
_PLAIN |= {"Eo", "Ec"}  # what they enclose is shown with the brackets that they name
_SYSTEMS = {"Ux": "UNIX", "Bx": "BSD", "Fx": "FreeBSD", "Nx": "NetBSD", "Ox": "OpenBSD"}
_SYSTEMS |= {"Dx": "DragonFly", "Bsx": "BSD/OS", "At": "AT&T UNIX"}
_BLOCKS = {"Dd", "Dt", "Os", "Sh", "Ss", "Pp", "Bl", "El", "It", "Bd", "Ed", "Dl", "D1", "Nd", "Rs"}
_BLOCKS |= {"Re", "Lp", "Bk", "Ek", "Sm", "Rv", "Ex", "Lb"}
_OTHERS = {"Nm", "Fl", "Fn", "Xr", "Ns", "Ap", "Pf"}
_INLINE = {*_ENCLOSING, *_OPENING, *_CLOSING, *_PLAIN, *_SYSTEMS, *_OTHERS}
_BEFORE = {"(", "["}
_BEHIND = {".", ",", ";", ":", "?", "!", ")", "]"}


@dataclass(slots=True)
class Reader:
    """Knows the name of what is described, and which lists are open."""

    is_mdoc: bool = False
    _name: str = ""
    _lists: list[str] = field(default_factory=list)
    _literal: list[bool] = field(default_factory=list)
    _is_in_tag: bool = False  # between Xo and Xc, which carry a tag over several lines
    _is_spaced: bool = True  # until `.Sm off`

    def knows(self, macro: str) -> bool:
        """Whether a macro is one of mdoc's; before `.Dd` or `.Dt` none is."""
        if macro in ("Dd", "Dt"):
            self.is_mdoc = True
        return self.is_mdoc and (macro in _BLOCKS or macro in _INLINE)

    def take(self, macro: str, rest: str) -> Iterator[Event]:
        """What one line means for the page."""
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
            yield ("section" if macro == "Sh" else "subsection"), self._inline(words)
        elif macro in ("Pp", "Lp"):
            yield "paragraph", ""
        elif macro == "Nd":
            yield "text", f"– {self._inline(words)}"
        elif macro == "Bl":
            self._lists.append(words[0].lstrip("-") if words else "item")
            yield "paragraph", ""
        elif macro == "El":
            if self._lists:
                self._lists.pop()
            yield "paragraph", ""
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
        elif macro in ("Rs", "Re"):
            yield "paragraph", ""
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

    def _inline(self, words: list[str]) -> str:
        """A line of words, some of which are macros, as text."""
        text = ""
        closing: list[str] = []
        glue = True  # whether the next word follows without a blank
        index = 0

        def add(word: str, *, before: bool = False, behind: bool = False) -> None:
            nonlocal text, glue
            text += word if glue or behind or not text else f" {word}"
            glue = before or not self._is_spaced

        while index < len(words):
            word = words[index]
            index += 1
            if word == "Ns":
                glue = True
            elif word == "Ap":
                add("'", before=True, behind=True)
            elif word == "Pf":
                prefix = words[index] if index < len(words) else ""
                index += 1
                add(plain(prefix), before=True)
            elif word == "Nm":
                follows = words[index] if index < len(words) else ""
                if follows and follows not in _INLINE and follows not in _BEHIND:
                    index += 1
                    self._name = self._name or plain(follows)
                    add(plain(follows))
                else:
                    add(self._name)
            elif word == "Fl":
                follows = words[index] if index < len(words) else ""
                if follows and follows not in _INLINE and follows not in _BEHIND | {"|"}:
                    index += 1
                    add(f"-{plain(follows)}")
                else:
                    add("-", before=follows in _INLINE and follows != "Ns")
            elif word == "Xr" and index < len(words):
                name = plain(words[index])
                index += 1
                section = words[index] if index < len(words) else ""
                if section[:1].isdigit():
                    index += 1
                    name += f"({section})"
                add(name)
            elif word == "Fn" and index < len(words):
                add(f"{plain(words[index])}({', '.join(map(plain, words[index + 1 :]))})")
                index = len(words)
            elif word in _ENCLOSING:
                opening, end = _ENCLOSING[word]
                closing.append(end)
                add(opening, before=True)
            elif word in _OPENING:
                add(_OPENING[word], before=True)
            elif word in _CLOSING:
                add(_CLOSING[word], behind=True)
            elif word in _SYSTEMS:
                add(_SYSTEMS[word])
            elif word in _PLAIN:
                if word == "Ar" and (index == len(words) or words[index] in _INLINE | _BEHIND):
                    add("file ...")
            elif word in _BEFORE:
                add(word, before=True)
            elif word in _BEHIND:
                if index == len(words):  # stands behind the brackets that close here
                    text += "".join(reversed(closing))
                    closing.clear()
                add(word, behind=True)
            else:
                add(plain(word))
        return text + "".join(reversed(closing))

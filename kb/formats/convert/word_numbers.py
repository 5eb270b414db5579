"""Word's automatic numbers: `3.2`, `(b)`, `Article 4`. No text of the file contains them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kb.formats.convert.packed import Package, W, integer

_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l")),
    *((40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)
_MOST = 4_000  # that letters and Roman numerals are written for


class Numbers:
    """Counts the paragraphs of a document in their order."""

    def __init__(self, package: Package) -> None:
        roots = [package.xml(f"word/{part}.xml") for part in ("numbering", "styles")]
        numbering, styles = ([] if root is None else list(root) for root in roots)
        kinds = {_get(kind, "abstractNumId"): kind for kind in _named(numbering, "abstractNum")}
        self._lists: dict[str, tuple[str, dict[int, Any], dict[int, int]]] = {}
        for item in _named(numbering, "num"):
            kind = _value(item, "abstractNumId")
            levels = {
                integer(_get(level, "ilvl")): level for level in _named(kinds.get(kind, ()), "lvl")
            }
            starts = {
                integer(_get(change, "ilvl")): integer(start)
                for change in _named(item, "lvlOverride")
                if (start := _value(change, "startOverride"))
            }
            self._lists[_get(item, "numId")] = kind, levels, starts
        self._styles = {_get(style, "styleId"): style for style in _named(styles, "style")}
        self._counts: dict[str, dict[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._lists)

    def next(self, paragraph: Any) -> str:
        """The number in front of the next paragraph; "" for none, or a bullet."""
        style = _value(paragraph, "pPr/pStyle")
        number, level = self._place(paragraph, style)
        kind, levels, starts = self._lists.get(number, ("", {}, {}))
        if level not in levels:
            return ""
        counts = self._counts.setdefault(kind, {})
        start = integer(_value(levels[level], "start"))
        counts[level] = starts.pop(level, counts.get(level, start - 1) + 1)
        for deeper in [other for other in counts if other > level]:
            del counts[deeper]

        def written(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            if at not in levels:
                return ""
            count = counts.setdefault(at, integer(_value(levels[at], "start")))
            return _written(count, _value(levels[at], "numFmt"))

        if _value(levels[level], "numFmt") == "bullet":
            return ""
        return re.sub(r"%([1-9])", written, _value(levels[level], "lvlText")).strip()

    def _place(self, paragraph: Any, style: str) -> tuple[str, int]:
        """A paragraph's list, and its level there: its own, or those of its style."""
        number = _value(paragraph, "pPr/numPr/numId")
        level = _value(paragraph, "pPr/numPr/ilvl")
        seen: set[str] = set()
        while not number and style in self._styles and style not in seen:
            seen.add(style)
            number = _value(self._styles[style], "pPr/numPr/numId")
            level = level or _value(self._styles[style], "pPr/numPr/ilvl")
            levels = self._lists.get(number, ("", {}, {}))[1]
            for at, described in levels.items():
                level = str(at) if _value(described, "pStyle") == style else level
            style = _value(self._styles[style], "basedOn")
        return number, integer(level)


def _named(elements: Any, name: str) -> Iterator[Any]:
    return (element for element in elements if element.tag == f"{W}{name}")


def _get(element: Any, name: str) -> str:
    return element.get(f"{W}{name}") or ""


def _value(element: Any, path: str) -> str:
    inner = element.find("/".join(f"{W}{name}" for name in path.split("/")))
    return "" if inner is None else _get(inner, "val")


def _written(count: int, form: str) -> str:
    if form.endswith("Letter") and 0 < count < _MOST:
        text = chr(ord("a") + (count - 1) % 26) * ((count - 1) // 26 + 1)
    elif form.endswith("Roman") and 0 < count < _MOST:
        text = ""
        for size, sign in _ROMAN:
            text += sign * (count // size)
            count %= size
    elif form == "none":
        return ""
    else:
        return f"{count:02}" if form == "decimalZero" else str(count)
    return text.upper() if form.startswith("upper") else text

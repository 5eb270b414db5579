"""Limits the depth of pages: tags of deeper elements are ignored.

For each tag an HTML parser looks through the open elements: 130,000 `<div>` took 16 s, twice as
many four times as long; 40,000 attributes of one element took 5 s. html-to-markdown silently drops
what is deeper than 1,024; an element that `DEEPEST` admits adds up to two that end by themselves
(`li`, `td`).

Open elements follow the rules of the HTML standard that matter here: which elements end by
themselves, what stops that, and that formatting continues after the element in which it began.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from kb.text.assets import asset

DEEPEST = 256  # elements that lie in one another
# Each of these puts a mark before every line of its content.
MOST_MARKS = dict.fromkeys(("blockquote", "ul", "ol", "dl", "menu", "dir"), 30)
MOST_ATTRIBUTES = 250  # of an element; further ones are left out
MOST_FORMATS = 50  # that are open at once: each begins anew in every paragraph
_SHORT = 20_000  # characters that hold no attributes worth counting

_VALUE = r"""(?>"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)"""
_ATTRIBUTE = rf"(?>[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+{_VALUE}?+)?+)"
TAG = re.compile(
    r"<(?:(?P<comment>!--)|(?P<end>/?)(?P<name>[A-Za-z][^\s/>]*+)"
    rf"{_ATTRIBUTE}{{0,{MOST_ATTRIBUTES}}}+(?P<more>{_ATTRIBUTE}*+)[\s/]*+>?)"
)
COMMENT_END = re.compile("--!?>")
_RAW = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script style textarea title xmp iframe noembed noframes".split())
}
_VOID, _FORMATTING, _ALONE = (
    frozenset(asset("page-parts")["elements"][kind].split())
    for kind in ("void", "formatting", "alone")
)
_FOREIGN = ("svg", "math")

_TABLE, _ITEM, _BLOCK, _SCOPE = "(table)", "(item)", "(block)", "(scope)"
_CELLS = ("td", "th")
_ROWS = ("tr", *_CELLS)
_BODIES = ("thead", "tbody", "tfoot", "caption", "colgroup", *_ROWS)
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
# An element that may end by itself -> the elements that its beginning ends, and what stops that.
_IMPLIED = {
    "p": (("p",), _BLOCK),
    "li": (("li",), _ITEM),
    **dict.fromkeys(("dt", "dd"), (("dt", "dd"), _ITEM)),
    **dict.fromkeys(_CELLS, (_CELLS, _TABLE)),
    "tr": (_ROWS, _TABLE),
    **dict.fromkeys(_BODIES[:5], (_BODIES, _TABLE)),
    **dict.fromkeys(_HEADINGS, (_HEADINGS, _BLOCK)),
    "option": (("option",), _BLOCK),
    "optgroup": (("option", "optgroup"), _BLOCK),
    **dict.fromkeys(("rb", "rt", "rp"), (("rb", "rt", "rp"), _BLOCK)),
}
_GROUPS = {
    **dict.fromkeys(("address", "div"), (_BLOCK,)),
    **dict.fromkeys(asset("page-parts")["elements"]["blocks"].split(), (_ITEM, _BLOCK)),
    **dict.fromkeys(_HEADINGS, (_ITEM, _BLOCK)),
    **dict.fromkeys(("applet", "button", "marquee", "object"), (_SCOPE, _ITEM, _BLOCK)),
    **dict.fromkeys(("table", "template"), (_TABLE, _SCOPE, _ITEM, _BLOCK)),
    **dict.fromkeys((*_CELLS, "caption"), (_SCOPE, _ITEM, _BLOCK)),
}


def shallow(text: str) -> str:
    """A page without tags of elements deeper than `DEEPEST`, and attributes over the limit."""
    if text.count("<") <= DEEPEST and len(text) <= _SHORT:
        return text
    parts: list[str] = []
    done, place = 0, 0
    elements = _Open()
    while (tag := TAG.search(text, place)) is not None:
        place = tag.end()
        name = "" if tag["comment"] else tag["name"].lower()
        if tag["comment"]:
            rest = COMMENT_END.search(text, tag.start() + 2)
        else:
            is_raw = name in _RAW and not tag["end"] and not elements.are_foreign
            if tag["end"]:
                elements.end(name)
            elif not is_raw and not elements.begin(name, ends_itself=tag[0].endswith("/>")):
                parts += [text[done : tag.start()], " " if name in _GROUPS else ""]
                done = place
                continue
            if tag["more"]:
                parts.append(text[done : tag.start("more")])
                done = tag.end("more")
            if not is_raw:
                continue
            rest = _RAW[name].search(text, place)
        if rest is None:
            break  # all that follows is text
        place = rest.end()
    return "".join([*parts, text[done:]]) if parts else text


class _Open:
    def __init__(self) -> None:
        self._names: list[str] = []
        self._places: defaultdict[str, list[int]] = defaultdict(list)  # of names and groups
        self._formatting: Counter[str] = Counter()
        self._formats = 0

    @property
    def are_foreign(self) -> bool:
        """Whether we are in a picture or formula, which have their own rules."""
        return any(self._places[name] for name in _FOREIGN)

    def begin(self, name: str, *, ends_itself: bool) -> bool:
        """Begin an element unless it would be too deep; returns whether it begins."""
        if name in _VOID or name in _ALONE:
            return True
        if ends_itself and (name in _FOREIGN or (self.are_foreign and name not in _GROUPS)):
            return True
        if name in _FORMATTING:
            if self._formats >= MOST_FORMATS:
                return False
            self._formatting[name] += 1
            self._formats += 1
            return True
        if (implied := _IMPLIED.get(name)) is not None:
            ended, wall = implied
            if wall == _TABLE and not self._places[_TABLE]:
                return True  # ignored outside a table
            places = [self._last(tag) for tag in ended]
            places = [tag for tag in places if tag >= 0 and tag >= self._last(wall)]
            if places:
                self._leave(min(places))
        elif len(self._names) >= DEEPEST or len(self._places[name]) >= MOST_MARKS.get(
            name, DEEPEST
        ):
            return False
        for key in (name, *_GROUPS.get(name, ())):
            self._places[key].append(len(self._names))
        self._names.append(name)
        return True

    def end(self, name: str) -> None:
        if self._formatting[name]:
            self._formatting[name] -= 1
            self._formats -= 1
        wall = _TABLE if name in _BODIES or _TABLE in _GROUPS.get(name, ()) else _SCOPE
        place = self._last(name)
        if place >= 0 and place >= self._last(wall):
            self._leave(place)

    def _last(self, key: str) -> int:
        places = self._places[key]
        return places[-1] if places else -1

    def _leave(self, place: int) -> None:
        while len(self._names) > place:
            name = self._names.pop()
            for key in (name, *_GROUPS.get(name, ())):
                self._places[key].pop()

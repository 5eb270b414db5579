"""Edit one entry of a JSON file that people keep by hand; everything else stays byte for byte.

Comments and trailing commas are allowed, as the assistants allow them. Python's parser, which gets
the text with these blanked out, finds errors. A change is tried at each place where its keys occur,
until the text differs in meaning by this change alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kb.assistants.config_file import Malformed, line_and_column, look_up, says_the_same
from kb.text.json_text import without_comments

_SPACE = r"(?:\s|(?>//[^\r\n]*|/\*(?s:.)*?\*/))*"  # atomic: comments are not reconsidered
_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)


def read(text: str) -> dict[str, Any]:
    """The values of a file; {} for an empty one, or one of comments alone. Raises Malformed."""
    load = partial(json.loads, parse_constant=partial(_refuse, text))
    blanked = text
    try:
        try:
            values: Any = load(text)  # most files have no comments, and some have megabytes
        except json.JSONDecodeError:
            blanked = without_comments(text)
            if not blanked.strip():
                return {}
            values = load(blanked)
    except json.JSONDecodeError as error:
        raise Malformed(error.msg, *line_and_column(text, error.pos)) from error
    except RecursionError as error:
        raise Malformed("it is nested too deeply", 1, 1) from error
    if not isinstance(values, dict):
        start = len(blanked) - len(blanked.lstrip())
        raise Malformed("it holds no object", *line_and_column(text, start))
    return values


def put(text: str, keys: Sequence[str], value: Any) -> str:
    """The text with `value` under `keys`; an existing object keeps its other members. Raises
    Malformed if the file is broken, or one of the keys is not above an object."""
    values = read(text)
    present = look_up(values, keys)
    if isinstance(value, Mapping) and isinstance(present, Mapping):
        value = {**present, **value}
    if present == value:
        return text
    for depth in range(1, len(keys)):
        if not isinstance(look_up(values, keys[:depth]) or {}, Mapping):
            name = re.search(f"{re.escape(json.dumps(keys[depth - 1]))}{_SPACE}:{_SPACE}", text)
            place = line_and_column(text, name.end() if name else 0)
            raise Malformed(f'"{keys[depth - 1]}" holds no object', *place)
    changes = _with_entry(text, values, keys, value) if present is None else (
        text[:start] + _rendered(text, value, _indent_of_line(text, start)) + text[end:]
        for _, start, end in _members(text, keys[-1])
    )  # fmt: skip
    for changed in changes:
        if says_the_same(read, text, changed, keys, value):
            return changed
    raise Malformed(f'"{".".join(keys)}" cannot be written there', 1, 1)


def remove(text: str, keys: Sequence[str]) -> str:
    """The text without what is under `keys`; raises Malformed if the file is broken."""
    while look_up(read(text), keys) is not None:
        for changed in _without_entry(text, keys[-1]):
            if says_the_same(read, text, changed, keys, None, is_step=True):
                text = changed
                break
        else:
            raise Malformed(f'"{".".join(keys)}" cannot be cut out', 1, 1)
    return text


def _with_entry(
    text: str, values: Mapping[str, Any], keys: Sequence[str], value: Any
) -> Iterator[str]:
    """The text with a new first member of the innermost existing object of the keys."""
    depth = max(d for d in range(len(keys)) if d == 0 or look_up(values, keys[:d]) is not None)
    for key in reversed(keys[depth + 1 :]):
        value = {key: value}
    name = json.dumps(keys[depth], ensure_ascii=False)
    line_end = "\r\n" if "\r\n" in text else "\n"
    before = f"{re.escape(json.dumps(keys[depth - 1]))}{_SPACE}:{_SPACE}" if depth else ""
    for brace in _outermost_first(rf"{before}{{([ \t]*//[^\r\n]*)?", text):
        rest = text[brace.end() :]
        is_empty = not look_up(values, keys[:depth])
        around = _indent_of_line(text, brace.end())
        if is_empty:
            is_line = "{" in text[text.rfind("\n", 0, brace.end()) + 1 : brace.end() - 1]
        else:
            is_line = re.match(r"[ \t]*(?:/\*|[^\s/])", rest) is not None
        if is_line and brace[1] is None:
            separators = (",", ":") if '": ' not in text and '"' in text else (", ", ": ")
            entry = json.dumps({keys[depth]: value}, ensure_ascii=False, separators=separators)
            blank = re.match(r"[ \t]*", rest)
            start = brace.end() + (blank.end() if blank and not is_empty else 0)
            comma = "" if is_empty else separators[0]
            yield text[:start] + entry[1:-1] + comma + text[start:]
            continue
        indent = re.match(r"\s*\n([ \t]+)[^\s}]", rest)
        inside = indent[1] if indent else around + _unit(text)
        entry = f"{line_end}{inside}{name}: {_rendered(text, value, inside)}"
        if not is_empty:
            entry += ","
        if not re.match(r"[ \t]*\r?\n", rest):
            entry += line_end + (around if is_empty else inside)
        yield text[: brace.end()] + entry + rest
    if not values and not depth:
        end = "" if not text.strip() or text.endswith("\n") else line_end
        yield f"{text}{end}{_rendered(text, {keys[0]: value}, '')}{line_end}"


def _without_entry(text: str, key: str) -> Iterator[str]:
    """The text without a member of that name, and without its comma and space."""
    for start, _, end in _members(text, key):
        before, after = text[:start], text[end:]
        for shorter in (before.rstrip(), before):  # a comment before it may need its line's end
            if comma := re.match(rf"{_SPACE}?,", after, re.DOTALL):
                yield shorter + after[comma.end() :]
            elif shorter.endswith(","):
                yield shorter[:-1] + after
            else:
                yield shorter + (after.lstrip() if after.lstrip().startswith("}") else after)


def _members(text: str, key: str) -> Iterator[tuple[int, int, int]]:
    """Where members of that name may be: start of the key and of the value, end of the value."""
    for name in _outermost_first(rf"{re.escape(json.dumps(key))}{_SPACE}:\s*", text):
        for end in re.finditer(r"[}\]]", text[name.end() :]):
            member = text[name.start() : name.end() + end.end()]
            try:
                read(f"{{{member}}}")
            except Malformed:
                continue
            yield name.start(), name.end(), name.end() + end.end()
            break


def _outermost_first(pattern: str, text: str) -> list[re.Match[str]]:
    # An assistant's file of megabytes has such a key for each project, and its own at the top.
    matches = re.finditer(pattern, text, re.DOTALL)
    return sorted(matches, key=lambda match: len(_indent_of_line(text, match.start())))


def _rendered(text: str, value: Any, indent: str) -> str:
    """A value as a file would write it: one line per key, lists on one line."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    line_end, inner = "\r\n" if "\r\n" in text else "\n", indent + _unit(text)
    lines = [
        f"{inner}{json.dumps(key, ensure_ascii=False)}: {_rendered(text, member, inner)}"
        for key, member in value.items()
    ]
    return line_end.join(["{", f",{line_end}".join(lines), indent + "}"])


def _unit(text: str) -> str:
    indent = _INDENT.search(text)
    return indent[1] if indent else "  "


def _indent_of_line(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _refuse(text: str, name: str) -> None:
    """Refuse NaN and the infinities, which Python reads and JSON lacks."""
    raise Malformed(f"{name} is not a JSON value", *line_and_column(text, text.find(name)))

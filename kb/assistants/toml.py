"""Edit one table of a TOML file that people keep by hand; everything else stays byte for byte.

tomlkit, which is made for such edits, moves lines: a table that it puts after
`mcp_servers.other.command = "x"` swallows the dotted lines that follow. So a change is tried at
each place where its keys occur, until `tomllib` reads the same except for this change.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kb.assistants.config_file import Malformed, line_and_column, look_up, says_the_same

_PLACE = re.compile(r"\(at (?:line (\d+), column (\d+)|end of document)\)")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"^[ \t]*\[.*\n?", re.MULTILINE)
# Blank lines and comments at the end of a table may belong to the next one.
_NEXT_COMMENTS = re.compile(r"(?:^[ \t]*(?:#.*)?(?:\n|\Z))+\Z", re.MULTILINE)


def read(text: str) -> dict[str, Any]:
    """The values of a file; raises Malformed if it is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        reason = _PLACE.sub("", str(error)).strip()
        if place is None or place[1] is None:
            raise Malformed(reason, *line_and_column(text, len(text))) from error
        raise Malformed(reason, int(place[1]), int(place[2])) from error
    except RecursionError as error:
        raise Malformed("it is nested too deeply", 1, 1) from error


def put(text: str, keys: Sequence[str], value: Mapping[str, Any]) -> str:
    """The text with `value` under `keys`; an existing table is rewritten with its other members.
    Raises Malformed if the file is broken, or writes these keys in a way that is not edited
    here."""
    present = look_up(read(text), keys)
    value = {**(present or {}), **value}
    if present == value:
        return text
    kept = text if present is None else remove(text, keys)
    for changed in _with_table(kept, keys, value):
        if says_the_same(read, text, changed, keys, value):
            return changed
    reason = f"[{_dotted(keys)}] cannot be written beside what is there"
    raise Malformed(reason, *_place_of(text, keys[0]))


def remove(text: str, keys: Sequence[str]) -> str:
    """The text without what is under `keys`; raises Malformed as `put`."""
    while look_up(read(text), keys) is not None:
        for changed in _without_part(text, keys):
            if says_the_same(read, text, changed, keys, None, is_step=True):
                text = changed
                break
        else:
            raise Malformed(f"[{_dotted(keys)}] cannot be cut out", *_place_of(text, keys[-1]))
    return text


def _with_table(text: str, keys: Sequence[str], value: Mapping[str, Any]) -> Iterator[str]:
    """The text with a table in the braces of its parent, else at the end."""
    parent = re.escape(_dotted(keys[:-1]))
    for brace in re.finditer(rf"(?<![\w.-]){parent}\s*=\s*{{", text):
        start, rest = brace.end(), text[brace.end() :]
        end = " " if rest.lstrip().startswith("}") else ","
        yield f"{text[:start]} {_line(keys[-1:], value)}{end}{rest}"
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{_dotted(keys)}]", *(_line([key], inner) for key, inner in value.items())]
    between = line_end if text.strip() else ""
    if text and not text.endswith("\n"):
        between += line_end
    yield text + between + "".join(line + line_end for line in lines)


def _without_part(text: str, keys: Sequence[str]) -> Iterator[str]:
    """The text without something that may be part of a table."""
    headers = [(header.start(), header[0]) for header in _HEADER.finditer(text)]
    for start, line in reversed(headers):
        if keys[-1] in line:
            for behind in (*(place for place, _ in headers if place > start), len(text)):
                body = _NEXT_COMMENTS.sub("", text[start:behind])
                before = re.sub(r"(?:\A|(?<=\n))\r?\n\Z", "", text[:start])
                yield before + text[start + len(body) :]
    name = re.escape(_dotted(keys[-1:]))
    for pair in re.finditer(rf"(?<![\w-]){name}[\w.\" -]*=", text):
        for end in re.finditer(r"[}\n]|\Z", text[pair.end() :]):
            before, after = text[: pair.start()], text[pair.end() + end.end() :]
            yield text[: before.rfind("\n") + 1] + after  # `mcp_servers.kb.command = "kb"`
            if comma := re.match(r"\s*,\s*", after):
                yield before + after[comma.end() :]
            yield re.sub(r",\s*\Z", "", before) + after


def _line(keys: Sequence[str], value: Any) -> str:
    return f"{_dotted(keys)} = {_rendered(value)}"


def _dotted(keys: Sequence[str]) -> str:
    return ".".join(key if _BARE_KEY.fullmatch(key) else json.dumps(key) for key in keys)


def _rendered(value: Any) -> str:
    """JSON's strings, numbers, booleans and flat lists are also TOML's."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_line([key], inner) for key, inner in value.items())} }}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _place_of(text: str, key: str) -> tuple[int, int]:
    return line_and_column(text, max(0, text.find(key)))

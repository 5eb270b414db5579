"""The values at the very start of a file, in YAML, TOML or JSON, as values that JSON can hold.

`title: Rust: a tour`, `- @scope/pkg` or a stray `%` void a whole YAML document. What is not valid
is read entry by entry, each as YAML by itself, and where that fails its value is its text: a bad
line costs one line at most.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

import yaml

from kb.text.decode import encodable

MAXIMUM_KEY = 200  # characters
MAXIMUM_VALUE = 2_000  # characters of a value that is kept as it was written
_MOST_NESTED = 8  # mappings in mappings

_COLON = re.compile(r":(?=[ \t]|$)")
_NO_KEY = re.compile(r"[#\[\]{},|>?%\s]|-(?:\s|$)")
_CONTINUES = re.compile(r"\s|-(?:\s|$)|[\[\]{},\"']|$")
_BLOCK_SCALAR = re.compile(r"[|>][0-9+-]{0,2}")
_ITEM = re.compile(r"[ \t]*-(?:[ \t]+|$)")
# What stands between the commas of a list in brackets: quoted, or free of commas.
_FLOW_ITEM = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^,]*)\s*(?:,|$)""")


def _read_yaml_lines(source: str) -> tuple[dict[str, Any], list[int]]:
    """Return the values, and the lines (from 0) that gave none."""
    reader = _LineReader()
    return reader.mapping(list(enumerate(source.split("\n"))), 0), reader.left_out


class _LineReader:
    def __init__(self) -> None:
        self.left_out: list[int] = []

    def mapping(self, lines: Sequence[tuple[int, str]], depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for entry in _entries(lines):
            entry_values = _read_entry("\n".join(text for _, text in entry))
            if entry_values is None:
                entry_values = self._as_written(entry, depth)
            if entry_values is None:
                self.left_out += [number for number, _ in entry]
            else:
                values |= entry_values
        return values

    def _as_written(self, entry: Sequence[tuple[int, str]], depth: int) -> dict[str, Any] | None:
        parts = _key_and_value(entry[0][1])
        if parts is None:
            return None
        key, value = parts
        body = [(number, text) for number, text in entry[1:] if text.strip()]
        read: Any
        if value and not _BLOCK_SCALAR.fullmatch(value):
            read = _inline(" ".join([value, *(text.strip() for _, text in body)]))
        elif value or not body:
            read = "\n".join(text.strip() for _, text in body)
        elif _ITEM.match(body[0][1]):
            read = [self._item(text) for text in _items([text for _, text in body])]
        elif depth < _MOST_NESTED:
            spaced = [(number, text.expandtabs(2)) for number, text in body]
            indent = min(len(text) - len(text.lstrip()) for _, text in spaced)
            read = self.mapping([(number, text[indent:]) for number, text in spaced], depth + 1)
        else:
            return None
        return {key: read} if _size(read) <= MAXIMUM_VALUE else None

    def _item(self, text: str) -> Any:
        # Under this key everything is text, `1.10` and `yes` too.
        value = _read_entry(f"title: {text}")
        return _unquoted(text) if value is None else value["title"]


def _entries(lines: Sequence[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    entry: list[tuple[int, str]] = []
    for number, text in lines:
        if not entry and (not text.strip() or text.startswith("#")):
            continue
        is_key = not text[:1].isspace() and _key_and_value(text) is not None
        if entry and (text.startswith("#") or (_CONTINUES.match(text) and not is_key)):
            entry.append((number, text))
            continue
        if entry:
            yield entry
        entry = [(number, text)]
    if entry:
        yield entry


def _key_and_value(line: str) -> tuple[str, str] | None:
    colon = _COLON.search(line)
    if colon is None or _NO_KEY.match(line) or colon.start() > MAXIMUM_KEY:
        return None
    key = _unquoted(line[: colon.start()].strip())
    if not key.isprintable():
        return None
    return (key, line[colon.end() :].strip()) if key else None


def _inline(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        items = [match[1].strip() for match in _FLOW_ITEM.finditer(text[1:-1])]
        return [_unquoted(item) for item in items if item]
    return _unquoted(text)


def _unquoted(text: str) -> str:
    quote = text[:1]
    if len(text) > 1 and quote in ("'", '"') and text.endswith(quote) and quote not in text[1:-1]:
        return text[1:-1]
    return text


def _items(texts: Sequence[str]) -> Iterator[str]:
    item: list[str] = []
    for text in texts:
        dash = _ITEM.match(text)
        if dash and item:
            yield " ".join(item)
            item = []
        item.append(text[dash.end() :].strip() if dash else text.strip())
    yield " ".join(item)


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 0  # each of its values was measured by itself
    return len(value) if isinstance(value, str) else sum(len(str(item)) for item in value)


# A longer block is no front matter: a thematic break at the top must not swallow the text.
MAXIMUM_CHARACTERS = 65_536

MAXIMUM_DEPTH = 100  # brackets in brackets
_BRACKET = re.compile(r"[\[\]{}]")

MOST_LINES_NAMED = 5  # in a notice

# All values with aliases expanded: ten lines of YAML can name 10^10 ("billion laughs").
MAXIMUM_EXPANDED_CHARACTERS = 4 * MAXIMUM_CHARACTERS

_BLOCK = re.compile(
    r"""(?:(?P<dashes>---)(?P<language>yaml|toml|json)?|\+\+\+)[ \t]*\n
        (?P<source>.*?)
        ^(?(dashes)(?:---|\.\.\.)|\+\+\+)[ \t]*(?:\n|\Z)""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
_JSON = re.compile(r"\{[ \t]*\n")
_PLACE = re.compile(r"[ :(]+(?:at )?line (\d+),? column.*")
_TAG = "tag:yaml.org,2002:"

# Shown, or matched with what somebody types: kept as written, even if YAML sees a number.
_TEXT_KEYS = frozenset(
    "title subtitle shorttitle short_title linktitle sidebar_label aliases alias tags tag keywords "
    "categories category name names author authors id slug version summary description".split()
)

# What PyYAML raises on a source that it cannot read.
_UNREADABLE = (yaml.YAMLError, ValueError, OverflowError, RecursionError)
# What the scalar constructors raise on values such as `!!bool maybe`, which are kept as written.
_UNFIT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, yaml.YAMLError)


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The values of a front matter block and how much of the file it takes."""

    values: dict[str, Any]
    character_count: int  # of the whole block with both fences and the last line end; 0 = none
    line_count: int
    notice: str = ""  # what is wrong with the YAML, for the user; "" when nothing is


NO_FRONT_MATTER = FrontMatter(values={}, character_count=0, line_count=0)


def read_front_matter(text: str) -> FrontMatter:
    """Read the block between `---` on line 1 and the next `---` or `...`.

    Hugo's others too: TOML between lines of `+++`, a JSON object that begins on line 1, `---toml`
    and `---json`. A malformed block is still front matter, with a notice and what can be read line
    by line. Dates keep their text, as do numbers that would be written differently (1.10), `yes`,
    `no`, `on`, `off`, and all that is shown. Valid YAML that is not a mapping is text between two
    thematic breaks; so is a malformed block whose first line is blank (Pandoc's rule), and one
    between `+++` without a line of TOML.
    """
    if _JSON.match(text):
        head = text[:MAXIMUM_CHARACTERS]
        try:
            values, end = json.JSONDecoder().raw_decode(head)
            values = _plain(values)
        except (ValueError, RecursionError):
            return NO_FRONT_MATTER
        rest = re.compile(r"[ \t]*(?:\n|\Z)").match(head, end)
        return _front_matter(text[: rest.end()], values) if rest else NO_FRONT_MATTER
    match = _BLOCK.match(text, 0, MAXIMUM_CHARACTERS)
    # A match that ends at the limit may have cut a longer line short.
    if match is None or match.end() == MAXIMUM_CHARACTERS < len(text):
        return NO_FRONT_MATTER
    source = match["source"]
    language = match["language"] or ("yaml" if match["dashes"] else "toml")
    notice = ""
    try:
        values = _READERS[language](source)
    except _UNREADABLE as error:
        if not source.split("\n", 1)[0].strip():
            return NO_FRONT_MATTER
        values, left_out = _BY_LINES[language](source)
        if not values and not match["dashes"]:
            return NO_FRONT_MATTER
        how = "was read line by line" if values else "was ignored"
        notice = f"The front matter is not valid {language.upper()} and {how}: {_describe(error)}."
        if values and left_out:
            # Counted from 0 and from the line after the opening fence.
            numbers = ", ".join(str(number + 2) for number in left_out[:MOST_LINES_NAMED])
            more = ", ..." if len(left_out) > MOST_LINES_NAMED else ""
            notice += f" Left out: line{'s' if len(left_out) > 1 else ''} {numbers}{more}."
    return _front_matter(match[0], values, notice)


def _front_matter(block: str, values: Any, notice: str = "") -> FrontMatter:
    if not isinstance(values, dict):
        return NO_FRONT_MATTER
    return FrontMatter(values, len(block), block.count("\n") + (not block.endswith("\n")), notice)


def front_matter_title(values: dict[str, Any]) -> str:
    """Return the `title` value as one line of text, "" when there is none."""
    title = values.get("title")
    return " ".join(title.split()) if isinstance(title, str) else ""


def _describe(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        # The mark counts from 0 and from the line after the opening fence.
        return f"{error.problem} (line {error.problem_mark.line + 2})"
    text = str(error).split("\n", 1)[0].rstrip(".")
    place = _PLACE.search(text)  # of tomllib and json
    return f"{text[: place.start()]} (line {int(place[1]) + 1})" if place else text


def _read_yaml(source: str) -> Any:
    depth = 0
    for bracket in _BRACKET.finditer(source):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MAXIMUM_DEPTH:  # PyYAML finds out too, but looks at all of them for each
            raise RecursionError
    loader = yaml.SafeLoader(source)
    try:
        return _Reader(loader).value(loader.get_single_node())  # no node: nothing but comments
    finally:
        loader.dispose()


def _read_toml(source: str) -> Any:
    values = _plain(tomllib.loads(source, parse_float=_number))
    grouped = values.get("taxonomies")  # where Zola keeps tags and the like
    return {**grouped, **values} if isinstance(grouped, dict) else values


def _read_toml_lines(source: str) -> tuple[dict[str, Any], list[int]]:
    """The values of lines that can be read on their own, and the other lines, from 0."""
    values: dict[str, Any] = {}
    left_out = []
    for number, line in enumerate(source.split("\n")):
        try:
            values |= _read_toml(line)
        except _UNREADABLE:
            left_out.append(number)
    return values, left_out


def _number(written: str) -> float | str:
    value = float(written)
    return value if str(value) == written and math.isfinite(value) else written


def _plain(value: Any, *, as_text: bool = False, depth: int = 0) -> Any:
    """What JSON or TOML holds, in the form of `_Reader`."""
    if depth > MAXIMUM_DEPTH:
        raise RecursionError
    if isinstance(value, dict):
        return {
            encodable(key): _plain(part, as_text=key.lower() in _TEXT_KEYS, depth=depth + 1)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [_plain(part, as_text=as_text, depth=depth + 1) for part in value]
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if value is None or isinstance(value, bool):
        return value
    return str(value) if as_text or not _fits_json(value) else value


def _read_entry(source: str) -> dict[str, Any] | None:
    try:
        values = _read_yaml(source)
    except _UNREADABLE:
        return None
    return values if isinstance(values, dict) else None


class _Reader:
    """YAML nodes as JSON values: keeps list keys and unknown tags readable, counts expansions."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader
        self._remaining = MAXIMUM_EXPANDED_CHARACTERS

    def value(self, node: yaml.Node | None, *, as_text: bool = False) -> Any:
        self._spend(1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, as_text=as_text) for item in node.value]
        return self._scalar(node, as_text) if isinstance(node, yaml.ScalarNode) else {}

    def _spend(self, characters: int) -> None:
        self._remaining -= characters
        if self._remaining < 0:
            raise yaml.YAMLError("its aliases expand to too many values")

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        inherited: dict[str, Any] = {}
        values: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag != f"{_TAG}merge":
                name = self._key(key)
                values[name] = self.value(value, as_text=name.lower() in _TEXT_KEYS)
                continue
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                merged = self.value(source)
                if isinstance(merged, dict):
                    inherited = merged | inherited  # the first source named wins
        return inherited | values

    def _key(self, node: yaml.Node) -> str:
        """Keys keep their spelling (`on`, `2024`, `null`); a list or mapping becomes JSON."""
        if isinstance(node, yaml.ScalarNode):
            self._spend(len(node.value))
            return encodable(node.value)
        return json.dumps(self.value(node), ensure_ascii=False)

    def _scalar(self, node: yaml.ScalarNode, as_text: bool) -> Any:
        self._spend(len(node.value))
        written = encodable(node.value)
        if as_text and node.tag != f"{_TAG}null":
            return written
        try:
            value = self._loader.construct_object(node)
        except _UNFIT:
            return written
        if value is None:
            return value
        if isinstance(value, bool):
            return value if written.lower() in ("true", "false") else written
        if isinstance(value, str):
            return encodable(value)
        if isinstance(value, int | float) and str(value) == written and _fits_json(value):
            return value
        # Dates, base 60 numbers (YAML 1.1 reads 12:30 as 750), 1.10, NaN, huge integers, binary.
        return written


def _fits_json(value: float) -> bool:
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 2**63


_READERS: Mapping[str, Callable[[str], Any]] = {
    "yaml": _read_yaml,
    "toml": _read_toml,
    "json": lambda source: _plain(json.loads(source)),
}
_BY_LINES: Mapping[str, Callable[[str], tuple[dict[str, Any], list[int]]]] = {
    "yaml": _read_yaml_lines,
    "toml": _read_toml_lines,
    "json": lambda _: ({}, []),
}

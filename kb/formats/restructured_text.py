"""Section titles and definition lists of a reStructuredText file, found by docutils."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from docutils import frontend, nodes, utils
from docutils.parsers.rst import Parser, states
from docutils.statemachine import StringList

from kb.formats.outline import (
    MAXIMUM_HEADING,
    Block,
    Body,
    Heading,
    first_prose,
    last_text_line,
    line_blocks,
    one_line,
)
from kb.formats.restructured_links import LIST_MARK, find_references, normal_name

# docutils' own default; its patterns may take quadratic time on a longer line.
LINE_LENGTH_LIMIT = 10_000
# More of a title is not read: the expressions below take quadratic time on hostile text.
MAXIMUM_TITLE = 2_000
MAXIMUM_TERM = 400

_SPACES = {ord("\v"): " ", ord("\f"): " "}

_INLINE_MARKUP = (
    (re.compile(r"``(.+?)``"), r"\1"),  # literal
    (re.compile(r":[A-Za-z][\w.:+-]*:`"), "`"),  # the role before interpreted text
    (re.compile(r"`([^`<]+?)\s*<[^`>]*>`(?:__?)?"), r"\1"),  # `text <target>`_
    (re.compile(r"`~?([^`]+)`(?:__?)?"), r"\1"),  # interpreted text, `phrase reference`_
    (re.compile(r"\*\*(\S|\S.*?\S)\*\*"), r"\1"),
    (re.compile(r"(?<![\w*])\*([^\s*]|[^\s*][^*]*[^\s*])\*(?![\w*])"), r"\1"),
    (re.compile(r"(?<![\w|])\|([^\s|]|[^\s|][^|]*[^\s|])\|(?:__?)?(?![\w|])"), r"\1"),
    (re.compile(r"(?<=\w)__?(?=[\s.,:;!?)]|$)"), ""),  # reference_
    (re.compile(r"\\(\S)"), r"\1"),
)


_NOTHING: Mapping[str, str] = {}
_SUBSTITUTED = re.compile(r"(?<![\w|])\|([^|\s]|[^|\s][^|]*[^|\s])\|_{0,2}(?![\w|])")

_ITEM = "list_item"
_LIST_ITEM = re.compile(rf"{LIST_MARK}\s")
_EXPLICIT_MARKUP = re.compile(r"\.\.(?:\s|$)|:[^:\s][^:]*:(?:\s|$)|__\s")


class RestructuredTextError(Exception):
    """docutils could not read the file."""


class Outline(NamedTuple):
    """A file's titles and definitions, in document order."""

    titles: list[Heading]
    definitions: list[Heading]  # none of those inside of other blocks, but of glossaries


def read(text: str, lines: Sequence[str], path: str) -> Body:
    references = find_references(lines)
    links, labels = tuple(references.links), tuple(references.labels)
    try:
        titles, definitions = read_outline(text, references.substitutions)
    except RestructuredTextError as error:
        runs = line_blocks(lines)
        notice = f"The file could not be read as reStructuredText, so it has no headings: {error}."
        return Body((), runs, first_prose(runs, lines, str), {}, (notice,), links, labels)
    blocks: list[Block] = []
    last = 0
    for title in titles:
        blocks += _runs(lines, last + 1, title.start_line - 1)
        blocks.append(Block(title.start_line, title.end_line, "heading"))
        last = title.end_line
    blocks += _runs(lines, last + 1, len(lines))
    shown = partial(plain_text, substitutions=references.substitutions)
    summary = first_prose(blocks, lines, shown)
    return Body(titles, blocks, summary, {}, (), links, labels, definitions=tuple(definitions))


def read_outline(text: str, substitutions: Mapping[str, str] = _NOTHING) -> Outline:
    """Return the section titles and definitions, with 1-based lines.

    Only the block structure is parsed: no directive, role or substitution runs, nothing is
    read from disk, nothing is written to stderr.

    Raises:
        RestructuredTextError: docutils failed, or a line is longer than `LINE_LENGTH_LIMIT`.
    """
    lines = [line.translate(_SPACES).expandtabs(8).rstrip() for line in text.split("\n")]
    if max(map(len, lines)) > LINE_LENGTH_LIMIT:
        raise RestructuredTextError(f"a line is longer than {LINE_LENGTH_LIMIT:,} characters")
    settings = _settings()
    document: Any = _Document(settings, utils.new_reporter("", settings), source="")
    document.note_source("", -1)
    document.kb_outline = Outline([], [])
    document.kb_substitutions = substitutions
    machine = _OutlineMachine(state_classes=_STATES, initial_state="Body")
    # Leaves inline text as it is, so that no role runs; `plain_text` cleans what is shown. Not a
    # subclass: docutils reads the patterns of the class itself.
    inliner: Any = states.Inliner()
    inliner.parse = lambda text, *_: ([nodes.Text(text)], [])
    try:
        machine.run(_Lines(lines, source=""), document, inliner=inliner)
    # docutils has no common exception; whatever it raises must not stop a sync.
    except Exception as error:
        raise RestructuredTextError(str(error) or type(error).__name__) from error
    outline: Outline = document.kb_outline
    return outline


def _runs(lines: Sequence[str], first: int, last: int) -> Iterator[Block]:
    """Blocks; an indented run stays with the line above it, as code with what announces it."""
    start = end = 0
    kind = ""
    for number in range(first, last + 1):
        line = lines[number - 1]
        if not line.strip():
            continue
        is_item = _LIST_ITEM.match(line) is not None
        after_blank = number - 1 > end
        if not start or (line[0] not in " \t" and (after_blank or (is_item and kind == _ITEM))):
            if start:
                yield Block(start, end, kind)
            start = number
            kind = "directive" if _EXPLICIT_MARKUP.match(line) else "paragraph"
            kind = _ITEM if is_item else kind
        end = number
    if start:
        yield Block(start, end, kind)


def plain_text(source: str, substitutions: Mapping[str, str] = _NOTHING) -> str:
    """Remove inline markup, put `substitutions` in by normal name, and fold whitespace."""
    if substitutions and "|" in source:
        source = _SUBSTITUTED.sub(
            lambda match: substitutions.get(normal_name(match[1]), match[0]), source
        )
    for pattern, replacement in _INLINE_MARKUP:
        source = pattern.sub(replacement, source)
    return " ".join(source.split())


def _settings() -> Any:
    settings = frontend.get_default_settings(Parser)
    settings.file_insertion_enabled = False
    settings.raw_enabled = False
    settings.line_length_limit = LINE_LENGTH_LIMIT
    settings.syntax_highlight = "none"
    settings.report_level = settings.halt_level = 5  # above "severe": report and stop at nothing
    settings.warning_stream = False
    return settings


class _Lines(StringList):
    """Lines whose open-ended slices are empty: docutils takes one, all the rest, for every list."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice) and index.stop is None and index.start is not None:
            return StringList([], source="")
        return super().__getitem__(index)


class _Forgetful(nodes.Element):
    """An element that knows its parent and keeps no children: they took 2 kB each."""

    def append(self, item: Any) -> None:
        self.setup_child(item)


class _Section(_Forgetful, nodes.section):
    pass


class _Document(_Forgetful, nodes.document):
    """Keeps no lists of targets, footnotes and the like either."""


for _name in dir(nodes.document):
    if _name.startswith("note_") and _name != "note_source":
        setattr(_Document, _name, lambda *_, **__: None)


class _OutlineMachine(states.RSTStateMachine):
    def error(self) -> None:
        """Print nothing: docutils would write the exception to stderr before raising it."""


class _OutlineState(states.RSTState):
    """Record titles; keep directives and nested blocks closed, since no title can stand inside."""

    document: Any  # with `kb_outline` and `kb_substitutions`
    state_machine: Any
    parent: Any
    memo: Any

    def __init__(self, state_machine: Any, debug: bool = False) -> None:
        super().__init__(state_machine, debug)
        self.nested_sm_kwargs = {"state_classes": _STATES, "initial_state": "Body"}

    def section(self, title: str, source: str, style: Any, lineno: int, messages: Any) -> None:
        if not self.check_subsection(source, style, lineno):
            return
        inside = _Section()
        self.parent += inside
        self.parent = inside
        self.memo.section_level += 1
        level = len(self.parent.section_hierarchy())
        # The line under the title is the one docutils has just read.
        end_line = self.state_machine.abs_line_number()
        start_line = end_line - source.count("\n")
        text = plain_text(title[:MAXIMUM_TITLE], self.document.kb_substitutions)
        heading = Heading(min(level, 6), one_line(text[:MAXIMUM_HEADING]), start_line, end_line)
        self.document.kb_outline.titles.append(heading)

    def run_directive(
        self, directive: Any, match: Any, type_name: str, option_presets: Any
    ) -> tuple[list[Any], bool]:
        *_, blank_finish = self.state_machine.get_first_known_indented(match.end())
        return [], blank_finish

    def unknown_directive(self, type_name: str) -> tuple[list[Any], bool]:
        lines, _, offset, blank_finish = self.state_machine.get_first_known_indented(0)
        if type_name == "glossary":
            self._read_glossary(list(lines)[1:], offset + 1)
        return [], blank_finish

    def definition_list_item(self, termline: list[str]) -> tuple[Any, bool]:
        line = self.state_machine.abs_line_number() - 1
        lines, _, offset, blank_finish = self.state_machine.get_indented()
        if not termline[0].endswith("::"):  # else it announces code
            self._add_definition(termline, line, offset + last_text_line(lines, 1, len(lines)))
        return nodes.definition_list_item(), blank_finish

    def _read_glossary(self, lines: Sequence[str], offset: int) -> None:
        """Terms stand at the margin; several of one definition follow each other."""
        terms: list[str] = []
        start = end = 0
        for number, line in enumerate([*lines, "."], start=offset + 1):
            is_term = line[:1].strip() != "" and not line.startswith((":", ".."))
            if is_term and end >= start + len(terms) > start:
                self._add_definition(terms, start, end)
                terms = []
            if is_term:
                start = start if terms else number
                terms.append(line)
            end = number if line.strip() else end

    def _add_definition(self, terms: list[str], start: int, end: int) -> None:
        names = (term.partition(" : ")[0] for term in terms)  # behind it stands a classifier
        if sum(map(len, terms)) <= MAXIMUM_TERM:
            plain = (plain_text(name, self.document.kb_substitutions) for name in names)
            definition = Heading(1, ", ".join(plain), start, start + len(terms) - 1, end)
            self.document.kb_outline.definitions.append(definition)

    def nested_parse(self, block: Any, input_offset: int, *_: Any, **__: Any) -> int:
        return input_offset + len(block)

    def nested_list_parse(
        self, block: Any, input_offset: int, *_: Any, **__: Any
    ) -> tuple[int, bool]:
        return input_offset - 1, True  # as if the list had ended: each item makes a list


# The states find each other by class name, so each subclass keeps the name of its base.
_STATES = tuple(type(state.__name__, (_OutlineState, state), {}) for state in states.state_classes)

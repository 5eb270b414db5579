"""Section titles of a reStructuredText file, found by docutils."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from docutils import frontend, nodes, utils
from docutils.parsers.rst import Parser, states
from docutils.statemachine import StringList

from kb.formats.restructured_links import LIST_MARK, normal_name

# docutils' own default; its patterns may take quadratic time on a longer line.
LINE_LENGTH_LIMIT = 10_000
# More of a title is not read: the expressions below take quadratic time on hostile text.
MAXIMUM_TITLE = 2_000

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


@dataclass(frozen=True, slots=True)
class Title:
    """One section title with the lines of its adornment."""

    level: int  # 1 = the first adornment style met in the file
    text: str
    start_line: int
    end_line: int


def read_titles(text: str, substitutions: Mapping[str, str] = _NOTHING) -> tuple[Title, ...]:
    """Return the section titles in document order, with 1-based lines.

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
    document.kb_titles = []
    document.kb_substitutions = substitutions
    machine = _OutlineMachine(state_classes=_STATES, initial_state="Body")
    try:
        machine.run(_Lines(lines, source=""), document, inliner=_inliner())
    # docutils has no common exception; whatever it raises must not stop a sync.
    except Exception as error:
        raise RestructuredTextError(str(error) or type(error).__name__) from error
    return tuple(document.kb_titles)


def read_blocks(lines: Sequence[str], titles: Sequence[Title]) -> Iterator[tuple[int, int, str]]:
    """Yield (first line, last line, kind) of each block; blank lines between belong to none.

    An indented run stays with the line it hangs on: code with the paragraph that announces it,
    a directive with its content, a list item with its paragraphs.
    """
    covered = 0
    for title in titles:
        yield from _runs(lines, covered + 1, title.start_line - 1)
        yield title.start_line, title.end_line, "heading"
        covered = title.end_line
    yield from _runs(lines, covered + 1, len(lines))


def _runs(lines: Sequence[str], first: int, last: int) -> Iterator[tuple[int, int, str]]:
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
                yield start, end, kind
            start = number
            kind = "directive" if _EXPLICIT_MARKUP.match(line) else "paragraph"
            kind = _ITEM if is_item else kind
        end = number
    if start:
        yield start, end, kind


def plain_text(source: str, substitutions: Mapping[str, str] = _NOTHING) -> str:
    """Remove inline markup from a title or a paragraph, and fold its whitespace.

    Args:
        substitutions: texts by the normal form of their names.
    """
    if substitutions and "|" in source:
        source = _SUBSTITUTED.sub(
            lambda found: substitutions.get(normal_name(found[1]), found[0]), source
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


def _inliner() -> Any:
    """Leave inline text as it is, so that no role runs; `plain_text` cleans what is shown."""
    inliner: Any = (
        states.Inliner()
    )  # a subclass fails: docutils reads the patterns of the class itself
    inliner.parse = lambda text, *_: ([nodes.Text(text)], [])
    return inliner


class _Lines(StringList):
    """Lines whose open-ended slices are empty.

    docutils takes such a slice, the rest of the file, to every list that it opens: a file of
    20,000 lists of one item took 12 s. `_OutlineState` looks at none of them.
    """

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice) and index.stop is None and index.start is not None:
            return StringList([], source="")
        return super().__getitem__(index)


class _Forgetful(nodes.Element):
    """An element that knows what it is part of, and keeps no parts: they took 2 kB each."""

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
    """Record titles; keep every directive and every nested block closed.

    A title cannot stand inside a list, a quote or a directive, so nothing inside them matters.
    """

    document: Any  # with `kb_titles` and `kb_substitutions`
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
        self.document.kb_titles.append(
            Title(
                level,
                plain_text(title[:MAXIMUM_TITLE], self.document.kb_substitutions),
                start_line,
                end_line,
            )
        )

    def run_directive(
        self, directive: Any, match: Any, type_name: str, option_presets: Any
    ) -> tuple[list[Any], bool]:
        *_, blank_finish = self.state_machine.get_first_known_indented(match.end())
        return [], blank_finish

    def nested_parse(self, block: Any, input_offset: int, *_: Any, **__: Any) -> int:
        return input_offset + len(block)

    def nested_list_parse(
        self, block: Any, input_offset: int, *_: Any, **__: Any
    ) -> tuple[int, bool]:
        return input_offset - 1, True  # as if the list had ended: each item makes a list


# The states find each other by class name, so each subclass keeps the name of its base.
_STATES = tuple(type(state.__name__, (_OutlineState, state), {}) for state in states.state_classes)

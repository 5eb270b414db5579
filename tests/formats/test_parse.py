"""Parsing gives the outline, blocks and lines that a reader of the file would name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from docutils.parsers.rst import roles
from hypothesis import given, settings, strategies as st
from markdown_it import MarkdownIt
from markdown_it.utils import read_fixture_file

from kb.formats import markdown
from kb.formats.links import KeepingLinks, may_hold_link
from kb.formats.markdown import PARSER
from kb.formats.outline import MAXIMUM_SUMMARY, ParsedDocument
from kb.formats.parse import parse

CASES = Path(__file__).parents[2] / "fixtures" / "cases" / "parse"


def render(path: str, text: str) -> str:
    """Write down all that was parsed, one fact a line, for the case files."""
    document = parse(text, path)
    lines = [f"title: {document.title}"]
    if document.summary:
        lines.append(f"summary: {document.summary}")
    for key, value in document.front_matter.items():
        lines.append(f"front matter: {key} = {json.dumps(value, ensure_ascii=False)}")
    lines += [f"notice: {notice}" for notice in document.notices]
    for s in document.sections:
        parent = "" if s.parent is None else f" in {document.sections[s.parent].start_line}"
        lines.append(
            f"section {s.start_line}-{s.body_end_line}-{s.end_line}{parent}: "
            f"{'#' * s.level} {s.heading_path}".rstrip()
        )
    lines += [f"block {b.start_line}-{b.end_line}: {b.kind}" for b in document.blocks]
    return "\n".join([*lines, f"lines: {document.total_lines}", ""])


def _cases() -> list[object]:
    return [
        pytest.param(title, text, expected, id=f"{file.stem}: {title}")
        for file in sorted(CASES.glob("*.txt"))
        for _, title, text, expected in read_fixture_file(file)
    ]


@pytest.mark.parametrize(("title", "text", "expected"), _cases())
def test_case(title: str, text: str, expected: str) -> None:
    assert render(title.partition(":")[0], text) == expected


# Text of any kind

MARKUP = st.sampled_from(
    [
        *(
            "# ",
            "## ",
            "#",
            "=====",
            "-----",
            "---",
            "...",
            "- ",
            "  - ",
            "1. ",
            "> ",
            "    ",
            "\t",
        ),
        *(
            "```",
            "````",
            "~~~",
            "<!--",
            "-->",
            "<p>",
            "|a|b|",
            "|-|-|",
            "[a]: b",
            "*",
            "`",
            "[x](y)",
        ),
        *(
            "&amp;",
            "{ #a }",
            ".. note::",
            "::",
            ":a:`b`",
            "+---+",
            "title: ",
            "word",
            "日本語。",
            "\n: ",
            "::\n  ",
            "- a :: ",
            ":   ",
            "😀",
        ),
        *("\0", "\f", "\x85", "\u2028", "\r", "\u3000", "\n", "\n", "\n", "\n\n"),
    ]
)
TEXTS = st.lists(MARKUP | st.text(max_size=5), max_size=40).map("".join)
PATHS = st.sampled_from(["a.md", "a.mdx", "a.rst", "a.txt", "a.adoc", "a.org"])


def _check(document: ParsedDocument, text: str) -> None:
    lines = text.split("\n")
    covered = 0
    for block in document.blocks:
        assert covered < block.start_line <= block.end_line <= document.total_lines
        assert not "".join(lines[covered : block.start_line - 1]).strip(), "a gap between blocks"
        covered = block.end_line
        if block.kind != "front_matter":
            assert lines[block.start_line - 1].strip()
            assert lines[block.end_line - 1].strip()
    assert not "".join(lines[covered:]).strip()
    headings = [block.start_line for block in document.blocks if block.kind == "heading"]
    assert headings == [s.start_line for s in document.sections if not s.term_end_line]
    defined = {block.start_line for block in document.blocks if block.kind == "definition"}
    terms = {s.start_line for s in document.sections if s.term_end_line}
    assert terms <= defined
    assert bool(terms) == bool(defined)
    for position, section in enumerate(document.sections):
        assert section.position == position
        assert section.start_line <= section.body_end_line <= section.end_line
        if section.parent is not None:
            parent = document.sections[section.parent]
            assert parent.position < position
            assert parent.level < section.level
            assert section.end_line <= parent.end_line
    assert len(document.summary) <= MAXIMUM_SUMMARY
    assert document.title
    shown = [document.title, document.summary, *(s.heading_path for s in document.sections)]
    json.dumps([shown, document.front_matter], ensure_ascii=False, allow_nan=False).encode()
    assert "\0" not in "".join(shown)


@settings(max_examples=120, deadline=None)
@given(TEXTS, PATHS)
def test_any_text_is_parsed_into_ordered_blocks_and_nested_sections(text: str, path: str) -> None:
    _check(parse(text, path), text)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        MARKUP | st.sampled_from(["&a ", "*a", "!!set ", "<<: ", "? ", ": ", "\nb = ", "[a.b]\n"]),
        max_size=25,
    ),
    st.sampled_from([("---\na: 1\n", "---"), ("+++\na = 1\n", "+++"), ("---json\n", "---")]),
)
def test_any_front_matter_ends_as_json(parts: list[str], fences: tuple[str, str]) -> None:
    text = fences[0] + "".join(parts) + f"\n{fences[1]}\n# Heading\n"
    document = parse(text, "a.md")
    _check(document, text)


@pytest.mark.parametrize("path", ["a.md", "a.rst", "a.txt"])
@pytest.mark.parametrize("separator", ["\f", "\v", "\x1c", "\x85", "\u2028", "\u2029", "\r"])
def test_only_a_line_feed_ends_a_line(path: str, separator: str) -> None:
    document = parse(f"a{separator}b\n\nTitle\n=====\n", path)
    assert document.total_lines == 4
    assert [b.start_line for b in document.blocks] == [1, 3]


@pytest.mark.parametrize(("text", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\n\n", 2)])
def test_the_last_line_end_opens_no_further_line(text: str, lines: int) -> None:
    assert parse(text, "a.md").total_lines == lines


# Hostile files: each of these took seconds to minutes, or crashed, in some parser

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(9 * ['*' + before])}]\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)
MERGES = LAUGHS.replace("[x,x,x,x,x,x,x,x,x]", "{x: 1}").replace("[*", "{<<: [*").replace("]", "]}")


@pytest.mark.parametrize(
    "yaml",
    [LAUGHS, MERGES, "a: &a [*a]\n", "[" * 1000 + "\n", "a: " * 5000 + "\n", "a: '\n", "\0: a\n"],
    ids=["laughs", "merges", "cycle", "nested", "colons", "unclosed", "nul"],
)
def test_hostile_front_matter_is_a_notice(yaml: str) -> None:
    document = parse(f"---\n{yaml}---\n# Heading\n", "a.md")
    assert document.title == "Heading"
    assert len(json.dumps(document.front_matter)) < 4 * len(yaml)
    assert document.notices[0].startswith("The front matter is not valid YAML")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.md", "> " * 20_000),
        ("a.md", "- " * 20_000),
        ("a.md", "# " + "*a [" * 20_000),
        ("a.md", "# a " + "{ #a" * 20_000 + "}"),
        ("a.md", "```\n" * 5001),
        ("a.md", "x" * 5_000_000),
        ("a.md", "a\n: b\n" * 20_000),
        ("a.md", "a\n" * 50_000 + ": b\n"),
        ("a.md", "".join(f"{' ' * depth}a\n{' ' * depth}:   b\n\n" for depth in range(0, 800, 4))),
        ("a.rst", "* a\n b\n" * 3000),
        ("a.rst", "a\n b\n" * 3000),
        ("a.rst", ".. |a| replace:: |a| |a|\n" * 2000 + "\n|a|\n"),
        ("a.rst", "".join(" " * depth + "* a\n\n" for depth in range(1000))),
        ("a.rst", ":a" * 100_000),
        ("a.rst", "a+" * 100_000),
        ("a.rst", "http://x" + ")" * 500_000),
        ("a.org", "* " + "a  b" * 50_000),
        ("a.org", ("* " + ":a" * 240 + "\n") * 500),
        ("a.org", "<2020-01-01 " * 20_000),
        ("a.org", "(=a" * 30_000 + "\n" + "[[a" * 50_000 + "\n" + "~ =" * 50_000),
        ("a.adoc", "====\n" * 100_001),
        ("a.adoc", "".join("=" * length + "\n" for length in range(4, 1500))),
        ("a.adoc", "a::\n" * 50_000),
        ("a.adoc", "".join("*" * depth + " a\n" for depth in range(1, 1500))),
        ("a.adoc", "link:" * 100_000 + "\n" + "`+" * 100_000 + "\n" + "<<a" * 100_000),
        ("a.adoc", "link:a[" * 20_000 + "\n== " + "*_#`" * 20_000),
        ("a.adoc", ":a: xx\n" + "".join(f":{n}: {'{a}' * 40}\n:a: {{{n}}}\n" for n in "bcdef")),
        ("a.adoc", ":a: " + "x" * 1000 + "\n\n== " + "{a}" * 100_000 + "\n:b: x \\\n" * 9),
        ("a.txt", "\n" * 500_000),
    ],
    ids=lambda value: value[:16].strip() or "blank",
)
def test_a_hostile_file_is_parsed_in_linear_time(path: str, text: str) -> None:
    _check(parse(text, path), text)


def test_restructured_text_runs_nothing_and_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("Secret\n======\n")
    text = (
        f".. include:: {secret}\n\n.. csv-table::\n   :file: {secret}\n\n"
        ".. role:: own\n.. default-role:: own\n\n:own:`x` :nowhere:`y`\n\nBroken\n===\n\n*open\n"
    )
    document = parse(text, "a.rst")
    assert [section.heading for section in document.sections] == []
    assert capfd.readouterr() == ("", "")
    assert "own" not in roles._roles


def test_restructured_text_that_docutils_refuses_is_plain_text_with_a_notice() -> None:
    document = parse("Title\n=====\n\n" + "x" * 20_000, "a.rst")
    assert document.sections == ()
    assert document.title == "a.rst"
    assert "a line is longer than 10,000 characters" in document.notices[0]


def test_docutils_is_loaded_for_its_own_format_only() -> None:
    code = (
        "import sys; from kb.formats.parse import parse; parse('# a', 'a.md'); "
        "sys.exit('docutils' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("word", "length"), [("word ", 499), ("漢", 500)])
def test_a_long_summary_is_cut_at_a_word_where_there_are_words(word: str, length: int) -> None:
    summary = parse(word * 600, "a.md").summary
    assert len(summary) == length
    assert not summary.endswith("wor")


# Long texts are parsed in windows

LINES = st.sampled_from(
    [
        *("# H", "text", "", "", "- a", "  - b", "    code", "```", "> q", "> - z", "1. x", "2. y"),
        *("***", "| a | b |", "|---|---|", "[a]: /b", "[a] and [c](d)", "<div>", "</div>", "Head"),
        *("===", "[r]:", "/target", "'title", "on'", "* s", "<!-- c", "-->", "x[^1]. y"),
        "[^1]: see [t](u)",
    ]
)


@settings(max_examples=150, deadline=None)
@given(lines=st.lists(LINES, max_size=60), size=st.sampled_from([1, 10, 40, 100]))
def test_a_text_parsed_in_windows_is_parsed_as_in_one(lines: list[str], size: int) -> None:
    text = "\n".join(lines)
    whole = parse(text, "a.md")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markdown, "WINDOW_CHARACTERS", size)
        assert parse(text, "a.md") == whole


def test_a_block_that_fills_the_largest_window_goes_on_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(markdown, "WINDOW_CHARACTERS", 100)
    monkeypatch.setattr(markdown, "LARGEST_WINDOW", 400)
    quote = parse("> a [l](m)\n" * 400 + "\n# After\n", "a.md")
    assert {block.kind for block in quote.blocks} == {"quote", "heading"}
    assert [link.line for link in quote.links] == list(range(1, 401))
    # A block of code is one token, however long it is.
    fence = parse("```\n" + "# no heading\n" * 1000 + "```\n# After\n", "a.md")
    assert [block.kind for block in fence.blocks] == ["fence", "heading"]


def test_few_tokens_are_alive_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    add = markdown._Found.add

    def counting(self: markdown._Found, tokens: list[Any], line: int) -> None:
        nonlocal most
        most = max(most, len(tokens))
        add(self, tokens, line)

    monkeypatch.setattr(markdown._Found, "add", counting)
    monkeypatch.setattr(markdown, "WINDOW_CHARACTERS", 1_000)
    document = parse("- a\n" * 3_000, "a.md")
    assert len(document.blocks) == 3_000
    assert most < 1_500


# Tables have a rule of their own

TABLE_LINES = st.sampled_from(
    [
        *("|a|b|", "|-|-|", "|---|:-:|", "|-|", "a|b", "-|-", "|x", "||", "", "text", "***", "```"),
        *(
            "| [a](b) | c \\| d |",
            "x|y|z|[q](r)",
            "| https://a.b | [[w]] |",
            "  |[l](m)|",
            "|[k](v)",
        ),
        *("- a", "> q", "# h", "<div>", "- |a|b|", "  |-|-|", "    |c|d|", "\t|a|", "   ", "1. x"),
    ]
)


def _blocks_and_cells(parser: MarkdownIt, text: str) -> list[object]:
    found: list[object] = []
    at = None
    for token in parser.parse(text):
        at = token.map[0] if token.map else at
        if token.type == "inline" and may_hold_link(token.content):
            found.append((token.content, at))
        elif token.map and not token.type.startswith(("t", "inline")):
            found.append((token.type, token.map, token.level))
        elif token.type == "table_open":
            found.append((token.map, token.level))
    return found


@settings(max_examples=300, deadline=None)
@given(lines=st.lists(TABLE_LINES, min_size=2, max_size=12))
def test_tables_are_where_the_parsers_own_rule_finds_them(lines: list[str]) -> None:
    reference = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    reference.core.ruler.enableOnly(["block"])
    text = "\n".join(lines)
    assert _blocks_and_cells(PARSER, text) == _blocks_and_cells(reference, text)


BEGINNINGS = st.sampled_from(
    [
        *("", "a", "b c", "中文", "\\", "\u00a0x", " ", "  ", "   ", "    ", "      ", "\t"),
        *("- ", "-", "-\t", "* ", "+ ", "1. ", "1.\t", "2) ", "12. ", "1234567890. "),
        *("> ", ">", ">\t", "# h", "#x", "## ", "===", "=", "---", "-- -", "***", "___"),
        *("```", "~~~", "```x", "``` `", "[x]: /u", "[y]:", "/u 'tt", "'", "["),
        *("<div>", "</div>", "<a>", "<!-- c", "-->", "<p"),
        *("| a | b |", "a|b", "|-|-|", "--|--", ":-:|:-", "|---|", "|"),
    ]
)


def _tokens(parser: MarkdownIt, text: str) -> list[object]:
    """All that the parser finds but what is inside of tables, and the link definitions."""
    found: list[object] = []
    inside = False
    references: dict[str, object] = {}
    for token in parser.parse(text, references):
        inside = inside or token.type == "table_open"
        if not inside:
            found.append(token)
        elif token.type == "table_open":
            found.append((token.map, token.level))
        inside = inside and token.type != "table_close"
    return [*found, references]


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(lines=st.lists(st.lists(BEGINNINGS, max_size=3).map("".join), min_size=1, max_size=10))
def test_blocks_are_those_of_all_the_parsers_rules(lines: list[str]) -> None:
    reference = KeepingLinks("commonmark").enable(["table", "strikethrough"])
    reference.core.ruler.enableOnly(["block"])
    for text in ("\n".join(lines), "\n".join([*lines, ""])):
        assert _tokens(PARSER, text) == _tokens(reference, text)


def test_cells_without_links_leave_no_tokens() -> None:
    wide = "|" + "a|" * 500 + "\n|" + "-|" * 500 + "\n" + "|\n" * 130 + "|[l](m)|\n"
    assert len(PARSER.parse(wide)) == 3
    (link,) = parse(wide, "a.md").links
    assert (link.url, link.line) == ("m", 133)

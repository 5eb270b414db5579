"""AsciiDoc, Org, tables and source code: outline and links, with the lines of the file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from support import ROOT

from kb.formats import source_code
from kb.formats.chunk import chunk
from kb.formats.outline import ParsedDocument
from kb.formats.parse import looks_like, parse
from kb.models.tokens import load_tokenizer

FIXTURES = ROOT / "fixtures" / "formats"


def read(name: str) -> tuple[str, ParsedDocument]:
    text = (FIXTURES / name).read_text(encoding="utf-8")
    return text, parse(text, name)


def outline(parsed: ParsedDocument) -> list[tuple[int, str, int]]:
    return [(one.level, one.heading, one.start_line) for one in parsed.sections]


def links(parsed: ParsedDocument) -> list[tuple[str, int]]:
    return [(one.url, one.line) for one in parsed.links]


@pytest.mark.parametrize("name", ["harbour.adoc", "harbour.org"])
def test_what_pandoc_writes_has_the_same_outline_at_its_own_lines(name: str) -> None:
    text, parsed = read(name)
    lines = text.split("\n")
    headings = ["Harbour manual", "Arrival", "Pilot ladder", "Mooring", "Tide service", "Departure"]
    assert [heading for _, heading, _ in outline(parsed)] == headings
    for _, heading, line in outline(parsed):
        assert heading in lines[line - 1]
    (link,) = parsed.links
    assert link.url == "https://harbour.example/office"
    assert "harbour.example" in lines[link.line - 1]
    assert any(block.kind == "fence" for block in parsed.blocks)


ASCIIDOC = """\
= Wind handbook
Ada Brandt <ada@example.org>
v1.2, 2026-05-01
:toc:
:keywords: wind

Gusts are strong.

[[strong-gusts]]
== Gusts

See xref:calm.adoc#still[calm], <<strong-gusts,above>>, <<radio.adoc#,the radio>>,
link:tide.pdf[the tide] and https://example.org/wind[the page].

[source,python]
----
= no heading
link:no.adoc[code]
----

////
== A comment
////

Older
~~~~~

* one link:a.adoc[A]
+
more of it, link:b.adoc[B]

include::part.adoc[]

|===
| Cell with link:c.adoc[C]
|===
"""


def test_asciidoc_keeps_what_carries_structure() -> None:
    parsed = parse(ASCIIDOC, "wind.adoc")
    assert parsed.title == "Wind handbook"
    assert parsed.summary == "Gusts are strong."
    assert outline(parsed) == [(1, "Wind handbook", 1), (2, "Gusts", 10), (3, "Older", 25)]
    assert links(parsed) == [
        ("calm.adoc#still", 12),
        ("radio.adoc#", 12),
        ("tide.pdf", 13),
        ("https://example.org/wind", 13),
        ("a.adoc", 28),
        ("b.adoc", 30),
        ("part.adoc", 32),
        ("c.adoc", 35),
    ]


def test_links_of_asciidoc_are_those_that_are_no_code_and_lead_somewhere() -> None:
    text = """\
:site: https://example.org

A pilot comes from link:{site}/pilots[the *office*] (xref:a.adoc[]); `+link:no.adoc[code]+` is
code and \\link:no.adoc[this] is not one. See https://example.org/tide, mailto:a@example.org[us],
<<here,above>> and <<radio.adoc#on,the radio>>.

* an item with link:b.adoc[B, window=_blank]
** https://example.org/deep[deeper]
term with xref:c.adoc[C]:: +++link:no.adoc[passed]+++

[source]
link:no.adoc[code]

====
Inside link:d.adoc[D].

----
link:no.adoc[code]
----
====

|===
| https://example.org/cell | link:e.adoc[E]
|===

image::no.png[link:no.adoc[picture]]
include::part/{site}.adoc[tag=a]
"""
    parsed = parse(text, "a.adoc")
    assert links(parsed) == [
        ("https://example.org/pilots", 3),
        ("a.adoc", 3),
        ("https://example.org/tide", 4),
        ("radio.adoc#on", 5),
        ("b.adoc", 7),
        ("https://example.org/deep", 8),
        ("c.adoc", 9),
        ("d.adoc", 15),
        ("https://example.org/cell", 23),
        ("e.adoc", 23),
        ("part/https://example.org.adoc", 27),
    ]
    flat = " ".join(text.split())
    assert all(link.context in flat for link in parsed.links), "a citing sentence was altered"
    assert parsed.links[0].context.startswith("A pilot comes from link:{site}/pilots[the *office*]")


def test_a_row_of_an_asciidoc_table_has_the_head_above_it_as_lead() -> None:
    head = '.Berths\n[cols="1,2"]\n|===\n| Berth | Depth\n\n'
    text = (
        head + "".join(f"| Berth {n} | {n} metres of water below\n" for n in range(99)) + "|===\n"
    )
    parsed = parse(text, "a.adoc")
    chunks = chunk(text, parsed, load_tokenizer())
    assert len(chunks) > 2
    assert {text[slice(*one.lead)] for one in chunks[1:]} == {"| Berth | Depth"}


ORG = """\
#+TITLE: Notes on wind
#+FILETAGS: :wind:sea:
:PROPERTIES:
:ID: 7a1c
:END:

* TODO [#A] Gusts =strong= :sea:
:PROPERTIES:
:CUSTOM_ID: gusts
:END:
See [[file:calm.org::*Still][calm]], [[id:9f00][the radio]] and [[https://example.org][a page]].
# a comment
** Deep
#+begin_src python
* no heading in code for us either
[[file:no.org]]
#+end_src
| a | b |
|---+---|
| 1 | [[file:c.org]] |
"""


def test_org_keeps_what_carries_structure() -> None:
    parsed = parse(ORG.replace("* no heading", ",* no heading"), "wind.org")
    assert parsed.title == "Notes on wind"
    assert parsed.front_matter["tags"] == ["wind", "sea"]
    assert outline(parsed) == [(1, "Gusts strong", 7), (2, "Deep", 13)]
    assert links(parsed) == [
        ("calm.org#Still", 11),
        ("9f00", 11),
        ("https://example.org", 11),
        ("c.org", 20),
    ]


def test_verbatim_text_of_org_holds_no_link_and_a_citing_sentence_is_as_it_is_written() -> None:
    text = """\
* Use =[[no.org]]= and [[file:head.org][head]]
An index ~x[[1, 2]]~ is code. So is =https://example.org/no=, (~a=b[[3]]~) and
=[[no][no]]=; not so a=b [[yes]] or ~b [[see
this]] ~ c. Keys are [[kbd:][C-x]], mail is [[mailto:a@example.org]].

- one [[file:a.org::*Part][A]], two
- https://example.org/page.
: fixed [[no.org]]
| [[b.org]] | ~[[no.org]]~ |
"""
    parsed = parse(text, "a.org")
    assert links(parsed) == [
        ("head.org", 1),
        ("yes", 3),
        ("see this", 3),
        ("a.org#Part", 6),
        ("https://example.org/page", 7),
        ("b.org", 9),
    ]
    flat = " ".join(text.split())
    assert all(link.context in flat for link in parsed.links)
    assert parsed.sections[0].heading == "Use [[no.org]] and head"
    assert parsed.summary.startswith("An index x[[1, 2]] is code.")


def test_the_columns_of_a_table_are_the_heading_of_its_rows() -> None:
    _, parsed = read("berths.csv")
    assert outline(parsed) == [(2, "Berth | Depth | Largest vessel | Bollards", 1)]
    assert parsed.title == "berths.csv"
    assert parsed.sections[0].end_line == 61
    table = 'Name;"Note\non two lines"\nAda;1\n'
    assert outline(parse(table, "a.csv")) == [(2, "Name | Note on two lines", 1)]
    assert outline(parse("1,2\n3,4\n", "numbers.csv")) == []
    assert outline(parse("a\tb\n1\t2\n", "a.tsv")) == [(2, "a | b", 1)]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a,b;c\n1,2;3\n", "a | b;c"),
        ("name;price\nvane;1,5\nmast;2,25\n", "name | price"),
        ("name|what\na, b, c|d\ne, f|g\n", "name | what"),
        ("name\twhat\na, b, c\td\ne, f\tg\n", "name | what"),
        ('"a;b",c\n"d;e;f",g\n', "a;b | c"),
        ("'a'; b\n\n'c'; d\n", "'a' | b"),
        ("one\ntwo\n", "one"),
        ("name, what\n" + "x, y\n" * 30 + "a;b;c\n" * 30, "name | what"),
    ],
)
def test_the_separator_is_the_sign_by_which_records_are_like_the_header(
    text: str, columns: str
) -> None:
    assert outline(parse(text, "a.csv")) == [(2, columns, 1)]


def test_a_table_full_of_quotes_is_read_in_no_time() -> None:
    code = (
        "import resource; from kb.formats.parse import parse\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (15, 15))\n"
        "parse(\"> ' >\\n\" * 11_000, 'a.csv')"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


CODE = {
    "a.py": '"""Tells the tide."""\n\n# Why\n@decorated\nclass Gauge:\n    """One."""\n'
    "    def level(self):\n        return 1\n\nasync def ask(): ...\n",
    "a.js": "/** Tells. */\nexport class Gauge {\n  level() { return 1 }\n}\n"
    "export const ask = async () => 1\nconst n = 2\nfunction plain() {}\n",
    "a.ts": "interface Level { value: number }\nexport enum Kind { A }\ntype T = Level\n",
    "a.tsx": "export function View() { return <p/> }\n",
    "a.go": "package a\n\n// Gauge tells.\ntype Gauge struct{}\n\n"
    "func (g *Gauge) Level() int { return 1 }\nfunc Ask() {}\n",
    "a.rs": "//! Tells.\n/// A gauge.\n#[derive(Debug)]\npub struct Gauge;\n\n"
    "impl Gauge {\n    fn level(&self) {}\n}\nimpl Clone for Gauge {}\n",
    "A.java": "/** Tells. */\nclass Gauge {\n  Gauge() {}\n  int level() { return 1; }\n}\n",
    "a.c": "/* Tells. */\nstruct gauge { int n; };\nstatic int *level(struct gauge *g)\n{\n"
    "  return 0;\n}\n",
    "a.cpp": "namespace sea {\nclass Gauge { int level() { return 1; } };\n}\n",
    "a.rb": "# Tells.\nmodule Sea\n  class Gauge\n    def level; 1; end\n"
    "    def self.ask; end\n  end\nend\n",
}
SYMBOLS = {
    "a.py": [(2, "Gauge", 3), (3, "level", 7), (2, "ask", 10)],
    "a.js": [(2, "Gauge", 1), (3, "level", 3), (2, "ask", 5), (2, "plain", 7)],
    "a.ts": [(2, "Level", 1), (2, "Kind", 2), (2, "T", 3)],
    "a.tsx": [(2, "View", 1)],
    "a.go": [(2, "Gauge", 3), (2, "Gauge.Level", 6), (2, "Ask", 7)],
    "a.rs": [
        (2, "Gauge", 2),
        (2, "impl Gauge", 6),
        (3, "level", 7),
        (2, "impl Clone for Gauge", 9),
    ],
    "A.java": [(2, "Gauge", 1), (3, "Gauge", 3), (3, "level", 4)],
    "a.c": [(2, "gauge", 1), (2, "level", 3)],
    "a.cpp": [(2, "sea", 1), (3, "Gauge", 2)],
    "a.rb": [(2, "Sea", 1), (3, "Gauge", 3), (4, "level", 4), (4, "ask", 5)],
}


@pytest.mark.parametrize("name", CODE)
def test_symbols_are_the_outline_of_source_code(name: str) -> None:
    parsed = parse(CODE[name], name)
    assert outline(parsed) == SYMBOLS[name]
    assert parsed.title == name


def test_what_is_said_of_a_module_is_its_summary() -> None:
    assert parse(CODE["a.py"], "a.py").summary == "Tells the tide."
    licence = "# Copyright 2026 Ada\n\n# Asks the gauge.\nx = 1\n"
    assert parse(licence, "a.py").summary == "Asks the gauge."


def test_a_symbol_begins_with_all_the_comments_above_it() -> None:
    count = 60_000  # tree-sitter counts through all of them to each one: it took 17 s
    parsed = parse("use x;\n\n" + "// a\n" * count + "fn f() {}\n", "a.rs")
    assert [(one.heading, one.start_line, one.end_line) for one in parsed.sections] == [
        ("f", 3, count + 3)
    ]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.java", "a<" * 20_000),  # took 3.2 GB
        ("a.java", "a< /*>*/" * 20_000),
        ("a.ts", "a<b," * 20_000),
        ("a.tsx", "a<b," * 20_000),
    ],
)
def test_source_code_that_would_take_much_memory_is_text_with_a_notice(
    path: str, text: str
) -> None:
    assert parse(text, path).notices == ("too complex to be parsed: it has no outline",)


def test_generics_are_no_open_brackets() -> None:
    source = "".join(f"Map<String, List<A{n}>> f{n}() {{}}\n" for n in range(4_000))
    assert len(parse(f"class B {{\n{source}}}\n", "a.java").sections) == 4_001


def test_source_code_that_cannot_be_parsed_in_time_is_text_with_a_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source_code, "_TIME_LIMIT", 0)
    parsed = parse("int f() {}\n" * 20_000, "a.c")
    assert outline(parsed) == []
    assert parsed.notices == ("too complex to be parsed: it has no outline",)


@pytest.mark.parametrize(
    ("line", "heading"),
    [
        ("* Wind: part 2 :work:at@home:", "Wind: part 2"),
        ("** TODO At 10:00 :a:", "At 10:00"),
        ("* a:b:", "a:b:"),
        ("* :only:", ""),
    ],
)
def test_tags_of_an_org_heading_are_no_part_of_it(line: str, heading: str) -> None:
    parsed = parse(f"{line}\ntext\n", "a.org")
    assert [section.heading for section in parsed.sections] == [heading]


@pytest.mark.parametrize("name", ["a.adoc", "a.org", "a.csv", "a.py", "a.js", "a.c"])
@given(text=st.text(alphabet=st.sampled_from("ab =*-#|[]<>:;,.\"'`+_/\n\t{}()\\"), max_size=200))
def test_any_text_is_read_and_every_line_is_in_a_block(name: str, text: str) -> None:
    parsed = parse(text, name)
    lines = text.split("\n")
    covered = [
        line for block in parsed.blocks for line in range(block.start_line, block.end_line + 1)
    ]
    assert sorted(set(covered)) == covered
    assert {n for n, line in enumerate(lines, 1) if line.strip()} <= set(covered)


def test_own_sources_of_this_project_have_outlines() -> None:
    for file in sorted(Path(ROOT / "kb" / "formats").glob("*.py")):
        parsed = parse(file.read_text(encoding="utf-8"), file.name)
        assert parsed.summary or file.name == "__init__.py", file
        assert not parsed.notices


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("# Title\n\nText.\n", "markdown"),
        ("Title\n=====\n\nText.\n", "markdown"),
        ("---\ntitle: x\n---\n\nText.\n", "markdown"),
        ("Text.\n\n## Part\n\nText.\n", "markdown"),
        ("= Title\n\nText.\n", "asciidoc"),
        ("// why\n:toc:\n= Title\n\nText.\n", "asciidoc"),
        ("#+TITLE: Title\n* One\n", "org"),
        ("Title\n=====\n\n.. toctree::\n\n   a\n", "restructured text"),
        (".. _here:\n\nTitle\n-----\n", "restructured text"),
        ('.\\" why\n.TH A 1\n', "manual"),
        ("<?xml version='1.0'?>\n<!DOCTYPE html>\n<p>\n", "html"),
        ("\n<HTML><p>", "html"),
        ("#!/bin/sh\n# what it does\n\n# how\nexit\n", "plain text"),
        ("# one\n# two\n\n[part]\na = 1\n\n# three\nb = 2\n", "plain text"),
        ("id name\n--------------\n1 a\n", "plain text"),
        ("<p>words</p>\n", "plain text"),
        ("", "plain text"),
    ],
)
def test_a_text_without_a_known_name_is_read_as_what_it_looks_like(text: str, kind: str) -> None:
    assert looks_like(text) == kind


@pytest.mark.parametrize(
    "text", ['.\\"' * 99_999, "#\n" * 99_999, "<!--" * 99_999, "= \n" * 99_999, ".. _" * 99_999]
)
def test_looking_at_any_text_takes_linear_time(text: str) -> None:
    assert looks_like(text) == "plain text"

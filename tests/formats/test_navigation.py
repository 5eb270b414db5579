"""The navigation of a site is the outline of the file that lists it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from support import Filler

from kb.formats.outline import ParsedDocument
from kb.formats.parse import accepts, parse
from kb.store.citation_graph import links_and_states

MKDOCS = """\
site_name: Gauge
docs_dir: pages
theme:
  name: material
nav:
  - Home: index.md
  - guide/plain.md
  - Guide:
    - Install:
      - Linux: guide/linux.md
      - Site: https://example.org
    - About: guide/about.md
plugins:
  - x: !!python/name:os.system
"""
SIDEBARS = """\
// @ts-check
import type {SidebarsConfig} from '@docusaurus/plugin-content-docs';
const sidebars = {
  docs: [
    'intro',
    {
      type: 'category',
      label: 'Guide',
      link: {type: 'doc', id: 'guide/index'},
      items: [
        {type: 'doc', id: 'guide/linux', label: "Li\\u006eux"},
        {type: 'link', label: 'Site', href: 'https://example.org'},
        {Short: ['guide/short']},
      ],
    },
  ],
};
module.exports = sidebars;
"""


def outline(parsed: ParsedDocument) -> list[tuple[int, str, int]]:
    return [(one.level, one.heading, one.start_line) for one in parsed.sections]


def test_mkdocs_navigation_is_an_outline_with_links() -> None:
    parsed = parse(MKDOCS, "mkdocs.yml")
    assert parsed.title == "Gauge"
    assert outline(parsed) == [
        (2, "Home", 6),
        (2, "Guide", 8),
        (3, "Install", 9),
        (4, "Linux", 10),
        (4, "Site", 11),
        (3, "About", 12),
    ]
    assert [(one.url, one.line) for one in parsed.links] == [
        ("pages/index.md", 6),
        ("pages/guide/plain.md", 7),
        ("pages/guide/linux.md", 10),
        ("https://example.org", 11),
        ("pages/guide/about.md", 12),
    ]


@pytest.mark.parametrize("name", ["sidebars.js", "sidebars.ts"])
def test_docusaurus_sidebars_are_an_outline_with_links(name: str) -> None:
    parsed = parse(SIDEBARS, name)
    assert outline(parsed) == [
        (2, "docs", 4),
        (3, "Guide", 8),
        (4, "Linux", 11),
        (4, "Site", 12),
        (4, "Short", 13),
    ]
    assert [(one.url, one.line) for one in parsed.links] == [
        ("/intro", 5),
        ("/guide/index", 9),
        ("/guide/linux", 11),
        ("https://example.org", 12),
        ("/guide/short", 13),
    ]


def test_sidebars_in_json_are_read() -> None:
    parsed = parse('{\n  "docs": {\n    "Guide": ["a", "b/c"]\n  }\n}\n', "sidebars.json")
    assert outline(parsed) == [(2, "docs", 2), (3, "Guide", 3)]
    assert [one.url for one in parsed.links] == ["/a", "/b/c"]


def test_links_of_the_navigation_lead_to_pages(fill: Filler) -> None:
    kb = fill(
        {
            "mkdocs.yml": "site_name: S\nnav:\n- Home: index.md\n- Gone: gone.md\n",
            "docs/index.md": "# Home\n",
            "site/sidebars.js": "module.exports = {docs: ['intro', 'none']};\n",
            "site/docs/intro.md": "# Intro\n",
        },
        embed=False,
    )
    with kb.database.read() as connection:
        broken = [(one.document, one.target) for one in links_and_states(connection)[0]]
    assert broken == [("mkdocs.yml", "docs/gone.md"), ("site/sidebars.js", "/none")]


def test_only_these_files_are_navigation() -> None:
    assert accepts("a/mkdocs.yml")
    assert not accepts("a/other.yml")
    assert not accepts("a/script.js")


def test_what_cannot_be_read_is_text_with_a_notice() -> None:
    parsed = parse("nav: [\n", "mkdocs.yml")
    assert parsed.notices[0].startswith("no navigation could be read")
    assert [block.start_line for block in parsed.blocks] == [1]


@pytest.mark.parametrize("name", ["mkdocs.yml", "sidebars.js", "sidebars.json"])
@given(text=st.text(alphabet=st.sampled_from("nav: -[]{}'\"\n,ab/&*!#|>"), max_size=120))
def test_any_text_is_read_and_every_line_is_in_a_block(name: str, text: str) -> None:
    parsed = parse(text, name)
    covered = {n for block in parsed.blocks for n in range(block.start_line, block.end_line + 1)}
    assert {n for n, line in enumerate(text.split("\n"), 1) if line.strip()} <= covered


def test_lines_are_those_of_the_file_not_those_of_yaml() -> None:
    text = "site_name: a\u2028b\nnav:\n  - One: one.md\n  - Two: two.md\n"
    parsed = parse(text, "mkdocs.yml")
    assert [(one.heading, one.start_line) for one in parsed.sections] == [("One", 3), ("Two", 4)]

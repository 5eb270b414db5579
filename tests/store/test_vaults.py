"""Links between notes as Obsidian, Logseq and Zettelkasten write them."""

from __future__ import annotations

import pytest
from support import Filler

from kb.store.citation_graph import links_and_states
from kb.tools.session import Session


def targets(kb: Session) -> dict[tuple[str, str], str | None]:
    """Where each link leads, by document and link."""
    with kb.database.read() as connection:
        rows = connection.apsw.execute(
            "SELECT source.path, citations.target_url, target.path FROM citations"
            " JOIN documents AS source ON source.document_id = source_document_id"
            " LEFT JOIN documents AS target ON target.document_id = target_document_id"
        )
        return {(path, url): target for path, url, target in rows}


@pytest.mark.parametrize(
    "front", ["aliases: [Mistral, Cold wind]", "aliases:\n  - Mistral", "alias: Mistral, Other"]
)
def test_aliases_are_names_of_a_note(fill: Filler, front: str) -> None:
    kb = fill(
        {"a.md": "See [[Mistral]] and ![[mistral#^b1]].\n", "b.md": f"---\n{front}\n---\n# Wind\n"},
        embed=False,
    )
    assert targets(kb) == {("a.md", "Mistral"): "b.md", ("a.md", "mistral#^b1"): "b.md"}


def test_wiki_links_with_dots_are_paths(fill: Filler) -> None:
    kb = fill(
        {
            "a/one.md": "[[../b/two]] [[./three]] [[../b/two.md#part|x]] [[../none]]\n",
            "a/three.md": "# Three\n",
            "b/two.md": "# Two\n",
            "three.md": "# Another three\n",
        },
        embed=False,
    )
    assert targets(kb) == {
        ("a/one.md", "../b/two"): "b/two.md",
        ("a/one.md", "./three"): "a/three.md",
        ("a/one.md", "../b/two.md#part"): "b/two.md",
        ("a/one.md", "../none"): None,
    }


def test_numbers_of_a_zettelkasten_name_their_note(fill: Filler) -> None:
    kb = fill(
        {
            "202601051200 Wind.md": "# Wind\n",
            "named.md": "---\nid: 20260106\n---\n# Calm\n",
            "a.md": "[[202601051200]] [[20260106]] [[202601051200 Wind]]\n",
        },
        embed=False,
    )
    assert targets(kb) == {
        ("a.md", "202601051200"): "202601051200 Wind.md",
        ("a.md", "20260106"): "named.md",
        ("a.md", "202601051200 Wind"): "202601051200 Wind.md",
    }


def test_pages_journals_and_blocks_of_logseq(fill: Filler) -> None:
    block = "63f2b1a0-1111-2222-3333-444455556666"
    kb = fill(
        {
            "pages/sea___wind.md": "title:: Sea wind\nalias:: Breeze, Draft\n\n- strong\n"
            f"  id:: {block}\n",
            "journals/2026_01_02.md": f"- [[sea/wind]] (({block})) #[[Breeze]] [[Sea wind]]\n",
            "pages/calm.md": "- as on [[Jan 2nd, 2026]] and [[2026-01-02]]\n",
        },
        embed=False,
    )
    assert targets(kb) == {
        ("journals/2026_01_02.md", "sea/wind"): "pages/sea___wind.md",
        ("journals/2026_01_02.md", block): "pages/sea___wind.md",
        ("journals/2026_01_02.md", "Breeze"): "pages/sea___wind.md",
        ("journals/2026_01_02.md", "Sea wind"): "pages/sea___wind.md",
        ("pages/calm.md", "Jan 2nd, 2026"): "journals/2026_01_02.md",
        ("pages/calm.md", "2026-01-02"): "journals/2026_01_02.md",
    }


def test_notes_of_org_are_found_by_their_id(fill: Filler) -> None:
    kb = fill(
        {
            "a.org": "See [[id:7a1c-9][the wind]].\n",
            "b.org": ":PROPERTIES:\n:ID: 7a1c-9\n:END:\n#+title: Wind\n",
        },
        embed=False,
    )
    assert targets(kb) == {("a.org", "7a1c-9"): "b.org"}


def test_fields_of_dataview_and_tags_are_text(fill: Filler) -> None:
    text = "# Wind\n\nrating:: 5 [speed:: 12] (from:: sea) #wind/strong\n"
    kb = fill({"a.md": text}, embed=False)
    assert targets(kb) == {}
    with kb.database.read() as connection:
        row = connection.apsw.execute("SELECT title, metadata, content FROM documents").get
    assert row == ("Wind", "{}", text)


def test_pictures_are_broken_only_where_they_are_missing(fill: Filler) -> None:
    kb = fill(
        {
            "a.md": '<img src="there.png"> <img src="gone.png"> <a href="none.md">x</a>\n',
            "there.png": b"x",
        },
        embed=False,
    )
    with kb.database.read() as connection:
        assert [one.target for one in links_and_states(connection)[0]] == ["gone.png", "none.md"]

"""Citations are stored with their document and resolve whenever their target is there."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from support import Filler

from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.store.citation_graph import citations_made
from kb.store.citations import page_key, url_key
from kb.store.contents import find_document
from kb.store.documents import delete_collection
from kb.tools.session import Session


def resolved(kb: Session) -> dict[str, str | None]:
    """The target's path by "source -> as written"."""
    with kb.database.read() as connection:
        rows = connection.apsw.execute(
            "SELECT s.path, target_url, t.path FROM citations"
            " JOIN documents s ON s.document_id = source_document_id"
            " LEFT JOIN documents t ON t.document_id = target_document_id"
            " ORDER BY s.path, line, citation_id"
        )
        return {f"{source} -> {url}": target for source, url, target in rows}


def sync(kb: Session, folder: Path) -> None:
    sync_collection(kb.database, register(kb.database, str(folder)), force=True)


def test_relative_paths_resolve_decoded_with_fragment_and_without_suffix(fill: Filler) -> None:
    kb = fill(
        {
            "a/b c.md": "# B",
            "a/[1].md": "# One",
            "a/c#d.md": "# Sharp",
            "a/sub/README.md": "# Sub",
            "x/index.md": "# X",
            "ü.md": "# U",
            "a/links.md": (
                "[1](b%20c.md#part%201) [2](<b c.md>) [3](%5B1%5D.md) [4](./../a/b%20c)\n"
                "[5](c%23d.md) [6](sub/) [7](sub) [8](/x/) [9](../%C3%BC.md?plain=1)\n"
                "[10](../u%CC%88.md) [11](b.md) [12](b%20c.html) [13](..) [14](../../out.md)\n"
            ),
        }
    )
    found = {key.partition("-> ")[2]: target for key, target in resolved(kb).items()}
    assert found == {
        "b%20c.md#part%201": "a/b c.md",
        "b c.md": "a/b c.md",
        "%5B1%5D.md": "a/[1].md",
        "./../a/b%20c": "a/b c.md",
        "c%23d.md": "a/c#d.md",
        "sub/": "a/sub/README.md",
        "sub": "a/sub/README.md",
        "/x/": "x/index.md",
        "../%C3%BC.md?plain=1": "ü.md",
        "../u%CC%88.md": "ü.md",
        "b.md": None,
        "b%20c.html": "a/b c.md",
        "..": None,
        "../../out.md": None,
    }


def test_wiki_names_mean_a_stem_or_title_in_any_case_the_nearest_folder_first(fill: Filler) -> None:
    kb = fill(
        {
            "one/setup.md": "# First setup\n\n[[SETUP]] [[mast guide]] [[two/setup]]",
            "two/setup.md": "# Second setup",
            "two/deep/page.md": "[[setup]] [[First  Setup#part|text]] [[setup.md]]",
            "two/mast-guide.md": "# Another title",
            "three/page.md": "[[setup]] [[nobody]]",
        }
    )
    assert resolved(kb) == {
        "one/setup.md -> SETUP": "one/setup.md",
        "one/setup.md -> mast guide": "two/mast-guide.md",
        "one/setup.md -> two/setup": "two/setup.md",
        "three/page.md -> setup": "one/setup.md",
        "three/page.md -> nobody": None,
        "two/deep/page.md -> setup": "two/setup.md",
        "two/deep/page.md -> First  Setup#part": "one/setup.md",
        "two/deep/page.md -> setup.md": "two/setup.md",
    }


@pytest.mark.parametrize(
    "other",
    [
        "http://example.com/Page",
        "https://www.example.com/Page",
        "https://EXAMPLE.com/Page/",
        "https://example.com:443/Page#part",
        "https://example.com/Page?utm_source=x&fbclid=y",
        "https://user@example.com/P%61ge",
        "//example.com/Page",
    ],
)
def test_spellings_of_one_address_are_one_page(other: str) -> None:
    assert url_key(other) == url_key("https://example.com/Page")


@pytest.mark.parametrize(
    "other",
    [
        "https://example.com/page",
        "https://example.com/Page?id=1",
        "https://sub.example.com/Page",
        "https://example.com:8080/Page",
    ],
)
def test_other_addresses_are_other_pages(other: str) -> None:
    assert url_key(other) != url_key("https://example.com/Page")


@given(st.text())
def test_any_text_has_keys(text: str) -> None:
    assert url_key(text).startswith("url:")
    assert url_key(f"http://{text}").startswith("url:")
    assert page_key(text).startswith("page:")


def test_an_address_resolves_to_the_document_captured_from_it(fill: Filler) -> None:
    kb = fill(
        {
            "page.md": "---\nurl: https://example.com/x\n---\nText.",
            "a.md": "See http://www.example.com/x/?utm_medium=mail for more.",
        }
    )
    assert resolved(kb) == {
        "a.md -> http://www.example.com/x/?utm_medium=mail": "page.md",
        # Its own address names the page itself.
        "page.md -> https://example.com/x": "page.md",
    }


def test_a_citation_resolves_when_its_target_arrives_and_not_before(
    fill: Filler, folder: Path
) -> None:
    kb = fill({"a.md": "[b](b.md) [[b]] https://example.com/b"})
    assert set(resolved(kb).values()) == {None}
    fill({"b.md": "---\nurl: https://example.com/b\n---\n# B"})
    assert [v for k, v in resolved(kb).items() if k.startswith("a.md")] == ["b.md"] * 3


def test_a_citation_is_unresolved_when_its_target_goes(fill: Filler, folder: Path) -> None:
    kb = fill({"a.md": "[b](b.md) [[b]]", "b.md": "# B", "c.md": "# C"})
    (folder / "b.md").unlink()
    sync(kb, folder)
    assert resolved(kb) == {"a.md -> b.md": None, "a.md -> b": None}


def test_a_rename_moves_wiki_links_and_breaks_paths(fill: Filler, folder: Path) -> None:
    kb = fill({"a.md": "[b](b.md) [[The B]]", "b.md": "# The B", "c.md": "# C"})
    (folder / "b.md").rename(folder / "new.md")
    sync(kb, folder)
    assert resolved(kb) == {"a.md -> b.md": None, "a.md -> The B": "new.md"}


def test_a_changed_title_changes_what_wiki_links_mean(fill: Filler) -> None:
    kb = fill({"a.md": "[[Old name]] [[New name]]", "b.md": "# Old name"})
    fill({"b.md": "# New name"})
    assert resolved(kb) == {"a.md -> Old name": None, "a.md -> New name": "b.md"}


def test_another_page_of_the_name_takes_over_when_the_nearest_goes(
    fill: Filler, folder: Path
) -> None:
    kb = fill({"x/a.md": "[[page]]", "x/page.md": "# X", "y/page.md": "# Y"})
    assert resolved(kb) == {"x/a.md -> page": "x/page.md"}
    (folder / "x/page.md").unlink()
    sync(kb, folder)
    assert resolved(kb) == {"x/a.md -> page": "y/page.md"}


def test_a_replaced_document_leaves_no_old_citation(fill: Filler) -> None:
    kb = fill({"a.md": "[b](b.md)", "b.md": "# B"})
    fill({"a.md": "[c](c.md)"})
    assert resolved(kb) == {"a.md -> c.md": None}


def test_pages_and_addresses_resolve_across_collections_paths_do_not(
    kb: Session, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for root, name, text in (
        (one, "a.md", "[[b]] [b](b.md) https://example.com/b [[c]]"),
        (one, "c.md", "# Near"),
        (two, "b.md", "---\nurl: https://example.com/b\n---\n# B"),
        (two, "c.md", "# Far"),
    ):
        root.mkdir(exist_ok=True)
        (root / name).write_text(text)
    for root in (two, one):
        sync_collection(kb.database, register(kb.database, str(root)))
    found = {k: v for k, v in resolved(kb).items() if k.startswith("a.md")}
    assert found == {
        "a.md -> b": "b.md",
        "a.md -> b.md": None,
        "a.md -> https://example.com/b": "b.md",
        "a.md -> c": "c.md",
    }
    with kb.database.write() as connection:
        near = (find_document(connection, 2, "c.md") or {}).get("document_id")
        assert connection.rows("citations_received", document_id=near, limit=9)
        delete_collection(connection, 1)
    assert resolved(kb)["a.md -> b"] is None


def test_where_documents_are_published_is_theirs(kb: Session, folder: Path) -> None:
    (folder / "text").mkdir()
    (folder / "text/a b.md").write_text("# A")
    (folder / "x.md").write_text(
        "https://example.com/blob/main/text/a%20b.md https://example.org/book/a%20b.html#part"
    )
    published = [["https://example.com/blob/main/", ""], ["https://example.org/book", "text"]]
    sync_collection(
        kb.database, register(kb.database, str(folder), settings={"published": published})
    )
    assert list(resolved(kb).values()) == ["text/a b.md", "text/a b.md"]


def test_the_order_of_arrival_does_not_matter(kb: Session, tmp_path: Path) -> None:
    texts = {
        "a.md": "[b](d/b.md) [[c]] https://example.com/c",
        "d/b.md": "# B\n\n[[a]] [c](../c.md)",
        "c.md": "---\nurl: https://example.com/c\n---\n# C\n\n[b](d/b)",
        "d/c.md": "[[c]] [[b]]",
    }
    seen = []
    for number, names in enumerate(
        (list(texts), list(texts)[::-1], ["c.md", "a.md", "d/c.md", "d/b.md"])
    ):
        root = tmp_path / f"order{number}"
        (root / "d").mkdir(parents=True)
        for name in names:
            (root / name).write_text(texts[name])
            sync(kb, root)
        seen.append(resolved(kb))
        with kb.database.write() as connection:
            (row,) = connection.rows("collections")
            delete_collection(connection, row["collection_id"])
    assert seen[0] == seen[1] == seen[2]
    assert None not in seen[0].values()


def test_a_sentence_is_a_range_of_the_text_where_it_is_one(fill: Filler, folder: Path) -> None:
    kb = fill(
        {
            "a.md": "---\nurl: https://example.org/a\n---\n"
            "One. A sentence with a [link](b.md)\nover two lines. Another one: [link](b.md).\n\n"
            "> A quote with a [link](b.md)\n> over two lines.\n\n"
            "- an item with a [link](b.md)\n  over two\xa0lines\n\n"
            "Ünï [c](c.md)! Ünï [c](c.md)!\n"
        }
    )
    expected = [
        ("url: https://example.org/a", True),
        ("A sentence with a [link](b.md) over two lines.", True),
        ("Another one: [link](b.md).", True),
        ("A quote with a [link](b.md) over two lines.", False),
        ("an item with a [link](b.md) over two lines", False),
        ("Ünï [c](c.md)!", True),
        ("Ünï [c](c.md)!", True),
    ]
    with kb.database.read() as connection:
        document = find_document(connection, 1, "a.md")
        assert document is not None
        made = citations_made(connection, document["document_id"])
        assert [row["context"] for row in made] == [sentence for sentence, _ in expected]
        rows = connection.apsw.execute(
            "SELECT citation_texts.context, citations.context IS NULL FROM citation_texts"
            " JOIN citations USING (citation_id) ORDER BY citations.line, citation_id"
        ).fetchall()
        assert rows == expected
        places = connection.apsw.execute(
            "SELECT DISTINCT start_character FROM citations WHERE target_url = 'c.md'"
        ).fetchall()
        assert len(places) == 1  # of two that read alike the first will do


@pytest.mark.slow
def test_sentences_in_a_very_long_line_are_found(fill: Filler) -> None:
    line = " ".join(f"Sentence {number} has [a link]({number}.md)." for number in range(6_000))
    kb = fill({"a.md": line}, embed=False)
    with kb.database.read() as connection:
        document = find_document(connection, 1, "a.md")
        assert document is not None
        made = citations_made(connection, document["document_id"])
        kept = connection.apsw.execute("SELECT count(context) FROM citations").get
    assert len(made) > 5_900  # a paragraph of this length is read in pieces
    assert all(f"]({row['target_url']})" in row["context"] for row in made)
    assert all(row["context"] in line for row in made)
    assert kept == 0

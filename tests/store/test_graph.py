"""The citation graph, its exports, and links that lead nowhere."""

import json
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import networkx
import pydot
import pytest
from support import WINDROSE, Filler

from kb.cli.read import FORMATS, to_dot, to_graphml, to_html, to_mermaid
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.results.citations import Graph
from kb.store import citation_graph as module
from kb.store.citation_graph import citation_graph, drawn_citations, links_and_states, picture_of
from kb.store.contents import find_document
from kb.tools.session import Session

HOSTILE = 'He said: "<b>&amp;</b>" \\ ]] | #1; </script> `x` ü 你'


def graph(kb: Session, path: str, depth: int) -> Graph:
    with kb.database.read() as connection:
        document_id = (find_document(connection, 1, path) or {}).get("document_id")
        return citation_graph(connection, [document_id], depth)


def nodes(found: Graph) -> dict[str, str]:
    return {node.id.removeprefix("docs/"): node.type for node in found.nodes}


def edges(found: Graph) -> set[tuple[str, str]]:
    return {
        (edge.source.removeprefix("docs/"), edge.target.removeprefix("docs/"))
        for edge in found.edges
    }


def chain(fill: Filler) -> Session:
    """a -> b -> c -> d -> e, and x -> b."""
    texts = {f"{one}.md": f"[next]({other}.md)" for one, other in zip("abcd", "bcde", strict=True)}
    return fill({**texts, "e.md": "End.", "x.md": "[b](b.md)"}, embed=False)


def test_each_step_of_depth_follows_citations_both_ways(fill: Filler) -> None:
    kb = chain(fill)
    assert nodes(graph(kb, "c.md", 1)) == {"b.md": "source", "c.md": "both", "d.md": "target"}
    assert edges(graph(kb, "c.md", 2)) == {
        ("a.md", "b.md"),
        ("b.md", "c.md"),
        ("c.md", "d.md"),
        ("d.md", "e.md"),
        ("x.md", "b.md"),
    }
    assert edges(graph(kb, "e.md", 3)) == {
        ("b.md", "c.md"),
        ("c.md", "d.md"),
        ("d.md", "e.md"),
    }


def test_a_cycle_ends_and_a_link_to_itself_is_no_edge(fill: Filler) -> None:
    kb = fill(
        {"a.md": "[b](b.md) [a](a.md)", "b.md": "[c](c.md)", "c.md": "[a](a.md)"}, embed=False
    )
    found = graph(kb, "a.md", 3)
    assert nodes(found) == dict.fromkeys(["a.md", "b.md", "c.md"], "both")
    assert edges(found) == {("a.md", "b.md"), ("b.md", "c.md"), ("c.md", "a.md")}


def test_many_citations_of_one_pair_are_one_edge(fill: Filler) -> None:
    kb = fill(
        {
            "a.md": "[b](b.md) [again](b.md#x) [[b]] https://e.com/x http://www.e.com/x/",
            "b.md": "[a](a.md)",
        },
        embed=False,
    )
    found = graph(kb, "a.md", 1)
    assert [(edge.source[5:7], edge.target[-3:], edge.confidence) for edge in found.edges] == [
        ("a.", ".md", 1.0),
        ("a.", "/x/", 1.0),
        ("b.", ".md", 1.0),
    ]


def test_pages_that_are_not_there_are_nodes_labelled_with_their_address(fill: Filler) -> None:
    kb = fill({"a.md": "<https://example.com/x> [gone](gone.md)"}, embed=False)
    found = graph(kb, "a.md", 1)
    assert [(node.id, node.label, node.type, node.is_external) for node in found.nodes] == [
        ("docs/a.md", "a.md", "source", False),
        ("docs/gone.md", "gone.md", "target", True),
        ("https://example.com/x", "https://example.com/x", "target", True),
    ]


def test_targets_that_are_missing_are_a_node_for_each_place(fill: Filler) -> None:
    kb = fill(
        {
            "a/one.md": "[gone](missing.md#top) <https://example.com/x> [[No Page]]",
            "b/two.md": "[gone](missing.md) <https://www.example.com/x/> [[no page]]",
            "b/three.md": "[same](../b/missing.md) [odd](../docs/one.md)",
            "docs/one.md": "[gone](../docs/docs/one.md)",
        },
        embed=False,
    )
    with kb.database.read() as connection:
        found = citation_graph(connection, None)
    external = {node.id: node.label for node in found.nodes if node.is_external}
    assert external == {
        "docs/a/missing.md": "missing.md#top",
        "docs/b/missing.md": "../b/missing.md",
        "docs/docs/docs/one.md": "../docs/docs/one.md",
        "No Page": "No Page",
        "https://example.com/x": "https://example.com/x",
    }
    cited = [edge.target for edge in found.edges]
    assert [cited.count(id_) for id_ in sorted(external)] == [2, 1, 2, 1, 2]
    shown = {node["id"] for node in picture(kb)["nodes"] if node["kind"] != "document"}
    assert shown == {f"→ {id_}" for id_ in external}


def test_a_document_without_citations_is_alone(fill: Filler) -> None:
    kb = fill({"a.md": "Text."}, embed=False)
    assert graph(kb, "a.md", 3) == Graph(graph(kb, "a.md", 1).nodes, [])
    assert len(graph(kb, "a.md", 3).nodes) == 1


@pytest.fixture
def hostile(fill: Filler) -> Graph:
    kb = fill(
        {
            'a "x" & <y>.md': f"# {HOSTILE}\n\n[b](b.md) <https://example.com/?a=1&b=%22>",
            "b.md": '---\ntitle: "\\u0001 control"\n---\n[[A x y]]',
        },
        embed=False,
    )
    with kb.database.read() as connection:
        return citation_graph(connection, None)


def test_graphml_loads_in_networkx_with_all_attributes(hostile: Graph) -> None:
    loaded = networkx.parse_graphml(to_graphml(hostile))
    assert set(loaded.nodes) == {node.id for node in hostile.nodes}
    assert set(loaded.edges) == {(edge.source, edge.target) for edge in hostile.edges}
    first = hostile.nodes[0]
    assert loaded.nodes[first.id] == {"label": first.label, "type": "source", "external": False}
    assert {data["confidence"] for *_, data in loaded.edges(data=True)} == {1.0}


# pyparsing warns of names that pydot still uses.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_dot_loads_in_pydot(hostile: Graph) -> None:
    (loaded,) = pydot.graph_from_dot_data(to_dot(hostile))
    assert len(loaded.get_edges()) == len(hostile.edges)
    names = {node.get_name() for node in loaded.get_nodes()} - {"node", '"\\n"'}
    assert len(names) == len(hostile.nodes)


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws_the_dot_file(hostile: Graph) -> None:
    drawn = subprocess.run(
        ["dot", "-Tplain"], input=to_dot(hostile), capture_output=True, text=True, check=True
    )
    assert drawn.stderr == ""
    lines = drawn.stdout.split("\n")
    assert sum(line.startswith("node ") for line in lines) == len(hostile.nodes)
    assert sum(line.startswith("edge ") for line in lines) == len(hostile.edges)


def test_mermaid_has_one_line_a_node_and_no_character_of_its_own_syntax(hostile: Graph) -> None:
    lines = to_mermaid(hostile).split("\n")
    assert lines[0] == "graph LR"
    assert len(lines) == 1 + len(hostile.nodes) + len(hostile.edges)
    for line in lines[1 : 1 + len(hostile.nodes)]:
        label = line.split('"')
        assert len(label) == 3
        assert not set(label[1]) & set("<>[]{}|`\\")


def picture(kb: Session, **options: Any) -> dict[str, Any]:
    with kb.database.read() as connection:
        rows = drawn_citations(connection)
        return picture_of(rows, lambda *parts: "/".join(parts[:2]), **options)


def test_a_picture_says_what_documents_say_of_each_other_and_where_they_lie(
    fill: Filler, folder: Path
) -> None:
    (folder / "plan.png").write_bytes(b"x")
    kb = fill(
        {
            "guide/a.md": "# A\n\nFirst see [b](../ref/b.md). Then [b again](../ref/b.md#x).\n",
            "ref/b.md": "# B\n\n[gone](gone.md) [plan](../plan.png) <https://example.com/x>\n",
            "lone.md": "# Lone\n",
        },
        embed=False,
    )
    found = picture(kb)
    kinds = {node["id"]: (node["kind"], node["group"]) for node in found["nodes"]}
    assert kinds == {
        "docs/guide/a.md": ("document", "guide"),
        "docs/ref/b.md": ("document", "ref"),
        "→ docs/ref/gone.md": ("missing", ""),
        "→ docs/plan.png": ("file", ""),
        "→ https://example.com/x": ("external", ""),
    }
    first = found["edges"][0]
    names = [found["nodes"][first[end]]["id"] for end in ("from", "to")]
    assert names == ["docs/guide/a.md", "docs/ref/b.md"]
    assert [said["line"] for said in first["said"]] == [3, 3]
    assert first["said"][0]["text"].startswith("First see")
    hrefs = {node["id"]: node["href"] for node in found["nodes"]}
    assert hrefs["docs/ref/b.md"] == "docs/ref/b.md"
    assert hrefs["→ https://example.com/x"] == "https://example.com/x"
    assert hrefs["→ docs/ref/gone.md"] == ""
    near = picture(kb, within={"docs/ref/b.md"})["nodes"]
    assert near[0]["id"] == "docs/ref/b.md"
    assert "docs/guide/a.md" not in {node["id"] for node in near}


def test_the_sentences_of_a_large_picture_are_bounded(
    fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "The rain gauge is read each morning " * 8
    files = {
        f"{n}.md": f"{said} [next]({(n + 1) % 30}.md).\n\n{said} [other]({(n + 2) % 30}.md)."
        for n in range(30)
    }
    kb = fill(files, embed=False)
    monkeypatch.setattr(module, "MOST_CHARACTERS", 1800)
    pairs = [edge["said"] for edge in picture(kb)["edges"]]
    texts = [one.get("text", "") for own in pairs for one in own]
    assert len(pairs) == len(texts) == 60  # each pair tells a line
    assert 0 < sum(map(len, texts)) <= 1800
    with_text = {number // 10 for number, text in enumerate(texts) if text}
    assert len(with_text) == 6  # not only the documents that come first


def test_a_large_folder_is_grouped_by_the_folders_below(fill: Filler) -> None:
    kb = fill(
        {f"docs/{part}/p{n}.md": f"[x](p{n + 1}.md)" for part in "abc" for n in range(40)}
        | {"other/x.md": "[y](y.md)", "other/y.md": "[x](x.md)"},
        embed=False,
    )
    groups = {node["group"] for node in picture(kb)["nodes"] if node["kind"] == "document"}
    assert groups == {"docs/a", "docs/b", "docs/c", "other"}


def test_the_html_page_loads_nothing_and_no_title_ends_its_script(
    hostile: Graph, kb: Session
) -> None:
    page = to_html(picture(kb))
    scripts: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            assert not {"src", "href"} & {name for name, _ in attributes}
            if tag == "script":
                scripts.append("")

        def handle_data(self, data: str) -> None:
            if scripts and self.cdata_elem == "script":
                scripts[-1] += data

    Reader().feed(page)
    assert len(scripts) == 2
    assert len(json.loads(scripts[0])["nodes"]) == len(hostile.nodes)
    assert "default-src 'none'" in page
    assert "@import" not in page
    assert "fetch(" not in page


def test_the_fixture_corpus_has_exactly_two_broken_links(kb: Session) -> None:
    sync_collection(kb.database, register(kb.database, str(WINDROSE)))
    with kb.database.read() as connection:
        found = [(one.document, one.line, one.target) for one in links_and_states(connection)[0]]
    assert found == [
        ("guide/getting-started.md", 25, "../how-to/solder-the-board.md"),
        ("how-to/mount-the-mast.md", 37, "Lightning protection"),
    ]


def test_a_link_to_a_file_that_is_there_is_not_broken(fill: Filler, folder: Path) -> None:
    (folder / "img").mkdir()
    (folder / "img/a b.png").write_bytes(b"x")
    (folder.parent / "outside.cfg").write_text("x")
    kb = fill(
        {
            "x/a.md": (
                "[p](../img/a%20b.png) [q](../img/c.png) [r](/img/) [[img/a b.png]]\n"
                "[s](../../outside.cfg) [t](../../inside.cfg) https://example.com/gone\n"
            )
        },
        embed=False,
    )
    with kb.database.read() as connection:
        found = [(one.line, one.target) for one in links_and_states(connection)[0]]
    assert found == [(1, "../img/c.png"), (2, "../../inside.cfg")]


def test_without_the_folder_only_documents_count_as_broken(fill: Filler, folder: Path) -> None:
    kb = fill({"a.md": "[p](p.png) [q](q.md) [[r]]"}, embed=False)
    folder.rename(folder.with_name("elsewhere"))
    with kb.database.read() as connection:
        assert [one.target for one in links_and_states(connection)[0]] == ["q.md", "r"]


def run(database: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kb", "--db", str(database), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=WINDROSE.parent.parent,
    )


@pytest.mark.slow
def test_the_command_line_cites_exports_and_reports(kb: Session, tmp_path: Path) -> None:
    sync_collection(kb.database, register(kb.database, str(WINDROSE)))
    file = tmp_path / "kb.db"
    cited = run(file, "cite", "guide/wind.md", "--depth", "2", "--json")
    result = json.loads(cited.stdout)
    assert cited.returncode == 0
    assert {row["document"] for row in result["citations"]} >= {"windrose/notes/ru-zimovka.md"}
    assert {row["way"] for row in result["citations"]} <= {"cites", "cited by"}
    assert result["citationGraph"]["edges"]
    assert run(file, "cite", "decisions/0001-store-raw-pulses.md").stdout.startswith("cited by\t")
    # What is cited itself is not listed again as further away, a missing page neither.
    listed = run(file, "cite", "guide/getting-started.md", "--depth", "2").stdout.splitlines()
    assert any("solder-the-board.md" in line for line in listed)
    further = [line for line in listed if line.startswith("further")]
    assert further
    assert not any("solder-the-board.md" in line for line in further)
    broken = run(file, "graph", "--broken")
    assert broken.returncode == 1
    assert broken.stdout.split("\n")[0] == (
        "fixtures/windrose/guide/getting-started.md:25: ../how-to/solder-the-board.md"
    )
    for name in FORMATS:
        target = tmp_path / f"graph.{name}"
        done = run(file, "graph", "guide/wind.md", "--format", name, "-o", str(target))
        assert (done.returncode, done.stdout) == (0, "")
        assert "guide/wind.md" in target.read_text() or name == "mermaid"
    assert json.loads(run(file, "graph").stdout)["nodes"]
    assert run(file, "graph", "-o", str(tmp_path / "no/such/folder")).returncode == 3

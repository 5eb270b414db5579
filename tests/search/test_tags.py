"""Tags and aliases are found, and `tag:NAME` says which documents are meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import Filler, call

from kb.cli.main import main
from kb.formats.metadata import inline_tags, names_of, normal_tag, tags_of
from kb.search.query import parse_query

DOCUMENTS: dict[str, str | bytes] = {
    "kube.md": "---\naliases: [K8s, Kubernetes cluster]\ntags:\n  - ops/clusters\n"
    "  - '#Linux'\n---\n# Pods\n\nPods are put on nodes.\n\n## Nodes\n\nNodes run pods.\n",
    "soup.md": "---\ntags: cooking, winter food\n---\n# Soup\n\nPods of peas in a soup.\n",
    "plain.md": "# Plain\n\nPods without any tag: cooking is not one.\n",
    "org.org": "#+filetags: :linux:notes:\n\n* Kernel\n\nPods in Org.\n",
}


def found(kb: object, query: str, tool: str = "documents_search") -> list[str]:
    reply = call(kb, tool, query=query)  # type: ignore[arg-type]
    return list(dict.fromkeys(row["documentId"] for row in reply["results"]))


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("K8s", "kube.md"),
        ('+"Kubernetes cluster"', "kube.md"),
        ("clusters", "kube.md"),
        ('+"winter food"', "soup.md"),
    ],
)
def test_aliases_and_tags_are_found(fill: Filler, query: str, first: str) -> None:
    assert found(fill(DOCUMENTS), query)[0] == first


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("pods tag:linux", {"kube.md", "org.org"}),
        ("TAG:#LINUX pods", {"kube.md", "org.org"}),
        ("pods +tag:ops", {"kube.md"}),  # a tag has those below it
        ("pods tag:ops/clusters", {"kube.md"}),
        ('pods tag:"winter food"', {"soup.md"}),
        ("pods tag:linux tag:notes", {"org.org"}),
        ("pods -tag:linux", {"soup.md", "plain.md"}),
        ("pods tag:linux -nodes", {"org.org"}),
        ("tag:cooking", {"soup.md"}),
        ("pods tag:cook", set()),
        ("-tag:linux", set()),  # as with any query of exclusions alone
    ],
)
def test_a_tag_says_which_documents_are_meant(fill: Filler, query: str, expected: set[str]) -> None:
    assert set(found(fill(DOCUMENTS), query)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#wind and #sea/waves, then #to-do.", ["wind", "sea/waves", "to-do"]),
        ("a heading #idea", ["idea"]),
        ("#2026-plan #2026 #12/3 #1_2", ["2026-plan"]),  # a number alone is none
        ("`#code` ``#more ` #code`` #text", ["text"]),
        ("```#open and #shut", ["shut"]),  # a run of backticks without its like
        ("page.md#part [x](#anchor) [[#heading]] {#id} \\#no a#b", []),
        ("https://example.com/#top <a href='x' title=' #no '> &#35;", []),
        ("# title ## no", []),
        ("#日本語/天気 #überblick #✅done", ["日本語/天気", "überblick", "✅done"]),
        ("#[[rain gauge]] of Logseq", ["rain gauge"]),
    ],
)
def test_tags_in_a_text_are_those_that_obsidian_shows(text: str, expected: list[str]) -> None:
    assert inline_tags(text) == expected


def test_code_without_an_end_takes_no_longer_for_its_length() -> None:
    runs = " ".join("`" * (1 + number % 500) for number in range(20_000))
    assert inline_tags(f"{runs} #end")[-1:] in ([], ["end"])


def test_tags_of_the_text_count_as_those_of_the_front_matter(fill: Filler) -> None:
    kb = fill(
        {
            "a.md": "# Wind\n\nPods drift. #ops/wind\n\n- a point #Deep\n",
            "b.md": "# Code\n\nPods.\n\n```\n#deep\n```\n\nand `#deep`\n",
            "c.txt": "Pods #deep\n",
        }
    )
    assert set(found(kb, "pods tag:ops")) == {"a.md"}
    assert set(found(kb, "pods tag:deep")) == {"a.md"}
    assert call(kb, "documents_search", query="pods tag:dee")["notice"].endswith("deep.")


def test_an_unknown_tag_is_told_with_those_near_it(fill: Filler) -> None:
    reply = call(fill(DOCUMENTS), "documents_search", query="pods tag:cookin")
    assert reply["results"] == []
    assert reply["notice"] == 'No document has the tag "cookin": there are cooking.'


def test_tags_filter_a_batch_and_no_words_of_theirs_rank(fill: Filler) -> None:
    queries = [{"query": "pods tag:linux"}, {"query": "pods"}]
    rows = [
        one["results"]
        for one in call(fill(DOCUMENTS), "documents_search_batch", queries=queries)["results"]
    ]
    assert {row["documentId"] for row in rows[0]} == {"kube.md", "org.org"}
    assert len({row["documentId"] for row in rows[1]}) == 4
    assert parse_query("pods tag:linux", tags=True).words_to_embed == "pods"


def test_elsewhere_a_tag_is_text(fill: Filler) -> None:
    kb = fill({})
    call(kb, "search_add_document", doc_id="a", content="a tag: cooking is one")
    call(kb, "search_add_document", doc_id="b", content="nothing of it")
    assert [r["doc_id"] for r in call(kb, "search_index", query='+"tag:cooking"')["results"]] == [
        "a"
    ]


def test_the_command_line_filters_by_tag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, text in DOCUMENTS.items():
        (folder / name).write_text(str(text), encoding="utf-8")
    options = ["--db", str(tmp_path / "kb.db"), "--quiet"]

    def run(*arguments: str) -> tuple[object, list[str]]:
        with pytest.raises(SystemExit) as ended:
            main([*options, *arguments])
        return ended.value.code, capsys.readouterr().out.split()

    assert run("add", str(folder), "--no-embed")[0] == 0
    code, files = run("search", "pods tag:cooking", "--format", "files")
    assert (code, len(files)) == (0, 1)
    assert files[0].endswith("soup.md")
    assert run("search", "pods tag:unknown")[0] == 1


@pytest.mark.parametrize(
    "text", ["tag:", "tag: x", "tag:+", 'a tag:"', "tag:*", "tagging:x", 'tag:""']
)
def test_what_names_no_tag_is_text(text: str) -> None:
    assert parse_query(text, tags=True).tags == ()
    assert parse_query(text, tags=True).text == parse_query(text).text


@pytest.mark.parametrize(
    ("metadata", "tags"),
    [
        ({"tags": ["a", "#b", 2024, "a", None, ["c"]]}, ["a", "b", "2024"]),
        ({"tags": "a, b c"}, ["a", "b c"]),
        ({"tags": "a b"}, ["a", "b"]),
        ({"tag": "a"}, ["a"]),
        ({"tags": {"a": 1}}, []),
        ({}, []),
    ],
)
def test_tags_are_read_in_all_their_forms(metadata: dict[str, object], tags: list[str]) -> None:
    assert tags_of(metadata) == tags


def test_aliases_are_names_with_blanks() -> None:
    names = names_of({"aliases": "K8s, Kubernetes cluster", "alias": "[[K8]]"})
    assert names == "K8s\nKubernetes cluster\nK8"
    assert normal_tag("#Winter  Food/") == "winter-food"

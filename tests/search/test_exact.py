"""A query of required words alone is judged by its words: it needs no model."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import Filler, HashEmbedder, call

from kb.cli.main import main
from kb.errors import EmbeddingError
from kb.search.passages import Found, search_passages
from kb.tools.session import Session

PAGES: dict[str, str | bytes] = {
    "pump.md": "# Pump\n\nThe pump said low pressure and stopped at noon.\n",
    "valve.md": "# Valve\n\nA valve opens when the pressure falls, and a pump is low.\n",
    "bread.md": "# Bread\n\nKnead it for ten minutes.\n",
}
EXACT = ['"low pressure"', "+pump +low", "+press*", '+"pump" -valve']


def asked(kb: Session, query: str, *, distances: bool) -> Found:
    return search_passages(
        kb.model, kb.names, [(query, [])], 10, 2.0, True, False, distances=distances
    )


def without(row: dict[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in row.items() if name != key}


@pytest.mark.parametrize("query", EXACT)
def test_rows_and_scores_are_the_same_with_and_without_the_model(
    fill: Filler, embedder: HashEmbedder, query: str
) -> None:
    kb = fill(PAGES)
    before = len(embedder.texts)
    bare = asked(kb, query, distances=False)
    assert len(embedder.texts) == before
    assert not bare.notice
    full = asked(kb, query, distances=True)
    assert bare.rows[0]
    assert [without(row, "distance") for row in full.rows[0]] == bare.rows[0]
    assert all("distance" in row for row in full.rows[0])


@pytest.mark.parametrize("query", ["pump pressure", "+pump pressure", '"no such words"', "pump"])
def test_other_queries_are_embedded(fill: Filler, embedder: HashEmbedder, query: str) -> None:
    kb = fill(PAGES)
    before = len(embedder.texts)
    found = asked(kb, query, distances=False)
    assert len(embedder.texts) > before
    assert found.rows[0]


def test_the_tools_keep_their_distances(fill: Filler) -> None:
    kb = fill(PAGES)
    near = call(kb, "documents_search", query="+pump +low")["results"]
    assert {row["documentId"] for row in near} == {"pump.md", "valve.md"}
    limit = sorted(row["distance"] for row in near)[0]
    some = call(kb, "documents_search", query="+pump +low", maxDistance=limit + 1e-4)["results"]
    assert len(some) == 1


def test_the_command_line_loads_no_model_for_an_exact_query(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, text in PAGES.items():
        (folder / name).write_text(str(text), encoding="utf-8")

    def run(*arguments: str) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["--db", str(tmp_path / "kb.db"), "--quiet", *arguments])
        return ended.value.code, *capsys.readouterr()

    assert run("add", str(folder))[0] == 0

    def no_model(*_: object, **__: object) -> None:
        raise EmbeddingError("the model was asked for")

    monkeypatch.setattr("kb.model_in_use.ModelInUse.embedder", no_model)
    monkeypatch.setattr("kb.model_in_use.ModelInUse.embed_queries", no_model)
    code, out, err = run("search", '"low pressure"')
    assert (code, err) == (0, "")
    assert "pump.md:3" in out or "pump.md:1" in out
    assert "the model was asked for" in run("search", "low pressure")[2]

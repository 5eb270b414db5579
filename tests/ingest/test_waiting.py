"""Nobody waits for the model: while texts are embedded no transaction is open."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import HashEmbedder, call

from kb.ingest.embed import embed_pending
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.server.background import embed_added
from kb.store.database import Database
from kb.tools.registry import call_tool
from kb.tools.session import Session, open_session

TEXT = "# {0}\n\nWords of the page {0} about wind and rain.\n"


class SlowEmbedder(HashEmbedder):
    """Lets something happen each time it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] = lambda: None

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.meanwhile()
        return super().embed(texts)

    def token_vectors(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        self.meanwhile()
        return [self._vector(text).reshape(1, -1) for text in texts]


@pytest.fixture
def slow() -> SlowEmbedder:
    return SlowEmbedder()


@pytest.fixture
def full(tmp_path: Path, slow: SlowEmbedder) -> Iterator[Session]:
    """A file with a folder, an archive, a project's external docs and a discovery."""
    for name in ("docs", "archive", "external"):
        (tmp_path / name).mkdir()
        for page in ("one", "two"):
            (tmp_path / name / f"{page}.md").write_text(TEXT.format(page))
    (tmp_path / ".kb").mkdir()
    config = {"project_name": "project", "external_docs": {"path": "external"}}
    (tmp_path / ".kb" / "config.json").write_text(json.dumps(config))
    with open_session(
        Database(tmp_path / "kb.db"), project=tmp_path, make_embedder=lambda _: slow
    ) as kb:
        sync_collection(kb.database, register(kb.database, str(tmp_path / "docs")))
        sync_collection(
            kb.database, register(kb.database, str(tmp_path / "archive"), kind="archive")
        )
        embed_pending(kb.model)
        kb.project.activate()
        call_tool(kb, "context_record", {"content": "We use tokens for authentication"})
        yield kb


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("documents_search", {"query": "wind", "rerank": True}),
        ("documents_search_batch", {"queries": [{"query": "wind"}, {"query": "rain"}]}),
        ("documents_find_related", {"collection": "docs", "document": "one.md", "chunk": "wind"}),
        ("searchLocalArchives", {"query": "wind"}),
        ("search_external_docs", {"query": "wind"}),
        ("context_search", {"query": "tokens"}),
        ("context_record", {"content": "We use signed tokens for authentication"}),
    ],
)
def test_writers_go_on_while_a_tool_embeds(
    full: Session, slow: SlowEmbedder, name: str, arguments: dict[str, Any]
) -> None:
    log = Path(f"{full.database.path}-wal")
    merged: list[bool] = []
    ended: list[bool] = []
    one_at_a_time = threading.Lock()  # passages are reranked side by side

    def write() -> None:
        with one_at_a_time:
            full.calls.add("a_tool", "", 1.0, 1)
            full.calls.flush()
            merged.append(not log.exists() or log.stat().st_size == 0)

    def meanwhile() -> None:
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        writer.join(10)
        ended.append(not writer.is_alive())

    slow.meanwhile = meanwhile
    result = call_tool(full, name, arguments)
    assert not result.is_error, result.text
    assert ended
    assert all(ended)
    # What it records it embeds as a batch, at whose end the log is merged.
    assert all(merged[:1] if name == "context_record" else merged)


def test_many_calls_leave_no_vector_without_a_passage(full: Session, slow: SlowEmbedder) -> None:
    number = 0

    def replace() -> None:
        nonlocal number
        number += 1
        call(full, "search_add_document", doc_id="a", content=f"The vane turned {number} times.")

    slow.meanwhile = replace  # also what is being embedded is replaced before its vector is there
    for each in range(4):
        call(full, "context_record", content="We use signed tokens for authentication" + "." * each)
        call(full, "search_add_document", doc_id="b", content=f"Gauge {each}.")
        embed_added(full)
    slow.meanwhile = lambda: None
    embed_added(full)
    assert number > 8
    with full.database.read() as connection:
        counts = connection.row("health_counts")
    assert counts is not None
    assert (counts["unused"], counts["waiting"]) == (0, 0)
    assert counts["vectors"] > 4


def test_embedding_inside_a_read_is_refused(full: Session) -> None:
    with (
        full.database.read(),
        pytest.raises(RuntimeError, match="end the read before you embed"),
    ):
        full.model.embed_queries(["wind"])

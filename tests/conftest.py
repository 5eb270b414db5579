"""Fixtures: small files built by the product's own code."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kb.activation import activate, restore
from kb.commands.collect import register
from kb.database import Database
from kb.discoveries import record_discovery
from kb.embed import Calibration, FastembedEmbedder
from kb.knowledge_base import KnowledgeBase
from kb.registry import call_tool
from kb.sync import embed_pending, sync_collection
from kb.terms import words

ROOT = Path(__file__).resolve().parent.parent
NOBODY = 65534
WINDROSE = ROOT / "fixtures" / "windrose"


class HashEmbedder:
    """Real vectors without a model: each word adds its own fixed direction.

    Texts that share words are near each other, so everything but meaning can be tested fast.
    """

    def __init__(self, name: str = "hash-64", width: int = 64) -> None:
        self.name = name
        self.width = width
        self.sha256 = ""
        self.calibration = Calibration(slope=6.0, intercept=-3.0)
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += texts
        return np.stack([self._vector(text) for text in texts])

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.embed(texts)

    def _vector(self, text: str) -> NDArray[np.float32]:
        total = np.full(self.width, 1e-3, dtype=np.float32)
        for word in words(text.casefold()):
            seed = int.from_bytes(
                hashlib.sha256(f"{self.name} {word}".encode()).digest()[:8], "big"
            )
            total += np.random.default_rng(seed).standard_normal(self.width).astype(np.float32)
        return total / np.linalg.norm(total)


def call(kb: KnowledgeBase, name: str, **arguments: Any) -> dict[str, Any]:
    """What a tool answers, which must not be an error."""
    result = call_tool(kb, name, arguments)
    assert not result.is_error, result.content
    return result.content


def failure(kb: KnowledgeBase, name: str, **arguments: Any) -> dict[str, Any]:
    """The error that a tool answers with."""
    result = call_tool(kb, name, arguments)
    assert result.is_error, result.content
    return result.content


def content_of(result: Any) -> Any:
    """What a client reads in a tool's result: text, and structured content unless it failed."""
    content = json.loads(result.content[0].text)
    assert result.structured_content == (None if result.is_error else content)
    return content


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the user's settings or another project's file."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in [name for name in os.environ if name.startswith(("XDG_", "KB_", "SEARCH_DB"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder()


@pytest.fixture
def kb(tmp_path: Path, embedder: HashEmbedder) -> Iterator[KnowledgeBase]:
    """An empty knowledge base with the fast embedder."""
    with KnowledgeBase(
        Database(tmp_path / "kb.db"), project=tmp_path, make_embedder=lambda _: embedder
    ) as knowledge:
        yield knowledge


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for documents."""
    path = tmp_path / "docs"
    path.mkdir()
    return path


Filler = Callable[..., KnowledgeBase]


@pytest.fixture
def fill(kb: KnowledgeBase, folder: Path) -> Filler:
    """Write some documents ({path: text or bytes}) into the folder and sync it."""

    def fill_folder(documents: dict[str, str | bytes], *, embed: bool = True) -> KnowledgeBase:
        for path, content in documents.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        sync_collection(kb, register(kb, str(folder)))
        if embed:
            embed_pending(kb)
        return kb

    return fill_folder


@pytest.fixture(scope="session")
def windrose_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixture corpus in one file, embedded by the packaged model."""
    path = tmp_path_factory.mktemp("windrose") / "kb.db"
    with KnowledgeBase(Database(path), project=path.parent) as knowledge:
        sync_collection(knowledge, register(knowledge, str(WINDROSE)))
        embed_pending(knowledge)
    return path


@pytest.fixture
def windrose_copy(windrose_file: Path, tmp_path: Path) -> Path:
    """A copy of that file of a test's own."""
    return Path(shutil.copy(windrose_file, tmp_path / "windrose.db"))


@pytest.fixture(scope="session")
def model() -> FastembedEmbedder:
    """The packaged model, loaded once."""
    return FastembedEmbedder()


@pytest.fixture
def windrose(windrose_copy: Path, model: FastembedEmbedder) -> Iterator[KnowledgeBase]:
    """The fixture corpus with the packaged model."""
    with KnowledgeBase(
        Database(windrose_copy), project=windrose_copy.parent, make_embedder=lambda _: model
    ) as knowledge:
        yield knowledge


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine may enter, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp()).resolve()
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Permissions mean nothing to the superuser, who runs the tests in many containers."""
    if os.name != "posix":
        pytest.skip("needs POSIX permissions")
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def project_of_windrose(windrose_copy: Path, model: FastembedEmbedder) -> Iterator[KnowledgeBase]:
    """The fixture corpus in a project with files, external docs and a discovery: all that the
    examples of the tools need. Nothing is written yet by the one who gets it."""
    root = windrose_copy.parent
    (root / ".kb").mkdir()
    (root / "README.md").write_text("# Windrose\n\nA weather station. TODO: a picture.\n" * 10)
    (root / "external").mkdir()
    (root / "external" / "api.md").write_text("# API\n\nRequests are authenticated by a token.\n")
    config = {"project_name": "windrose", "external_docs": {"path": "external"}}
    (root / ".kb" / "config.json").write_text(json.dumps(config))
    arguments: dict[str, Any] = {"project": root, "make_embedder": lambda _: model}
    with KnowledgeBase(Database(windrose_copy), **arguments) as knowledge:
        activate(knowledge)
        record_discovery(knowledge, "We use tokens for authentication", "", "auth")
    with KnowledgeBase(Database(windrose_copy), **arguments) as knowledge:
        restore(knowledge)
        yield knowledge

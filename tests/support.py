"""What tests of several rooms share; the fixtures are in conftest.py."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from kb.disk.open_databases import Claim
from kb.models.embedder import Calibration
from kb.search.candidates import Budget, FileQuery, candidates
from kb.search.evidence import Hit, merge
from kb.search.files import Snapshot
from kb.search.filters import chunk_filters
from kb.search.query import Query
from kb.search.run import SearchRequest, SearchResult, run
from kb.store.connection import Connection
from kb.store.contents import WHOLE_FILE
from kb.text.terms import words
from kb.tools.registry import call_tool
from kb.tools.session import Session

ROOT = Path(__file__).resolve().parent.parent
NOBODY = 65534
WINDROSE = ROOT / "fixtures" / "windrose"
Filler = Callable[..., Session]


def skip_without_git() -> None:
    if shutil.which("git") is None:
        pytest.skip("needs git")


def git(folder: Path, *arguments: str) -> str:
    """What git prints for a command in a folder; the test is skipped where there is no git."""
    skip_without_git()
    command = ["git", "-c", "user.name=Somebody", "-c", "user.email=somebody@example.com"]
    done = subprocess.run(
        [*command, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


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


def call(kb: Session, name: str, **arguments: Any) -> dict[str, Any]:
    """What a tool answers, which must not be an error."""
    result = call_tool(kb, name, arguments)
    assert not result.is_error, result.content
    return result.content


def search(kb: Session, text: str, **request: Any) -> SearchResult:
    """What the pipeline answers; `request` as the fields of a `SearchRequest`."""
    return run(kb.files, SearchRequest(text, **request))


def hits_of(
    connection: Connection,
    query: Query,
    vector: NDArray[np.float32] | None = None,
    *,
    limit: int = 10,
    **budget: Any,
) -> list[Hit]:
    """The best passages of one file for a query as it stands."""
    filters = chunk_filters(connection, query, [WHOLE_FILE])
    asked = FileQuery(query, vector, filters=filters)
    found = candidates(Snapshot(connection), asked, Budget(**budget))
    return [hit for _, hit in merge([found], limit)]


def failure(kb: Session, name: str, **arguments: Any) -> dict[str, Any]:
    """The error that a tool answers with."""
    result = call_tool(kb, name, arguments)
    assert result.is_error, result.content
    return result.content


def content_of(result: Any) -> Any:
    """What a client reads in a tool's result: text, and structured content unless it failed."""
    content = json.loads(result.content[0].text)
    assert result.structured_content == (None if result.is_error else content)
    return content


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder of all processes that run the tests, for what is made once for all of them."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@contextlib.contextmanager
def another_process() -> Iterator[None]:
    """What is opened inside may be open already, as for a process that knows of no other.

    SQLite itself takes care of several connections in a process; `Claim` says why kb allows one.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Claim, "_require_only_one", lambda _: None)
        yield


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


class Outcome(NamedTuple):
    code: int
    out: str
    errors: str

    @property
    def json(self) -> Any:
        """Stdout as the one JSON document it has to be."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Outcome]

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

from kb.models.embedder import Calibration
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

"""Fixtures: small files built by the product's own code."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from support import WINDROSE, Filler, HashEmbedder, another_process, shared_folder

from kb.ingest.discoveries import record_discovery
from kb.ingest.embed import embed_pending
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.models.english import EnglishEmbedder
from kb.store.database import Database
from kb.tools.session import Session, open_session

# Tests that load a real model, and files whose tests start processes or servers or run whole
# commands: `scripts/test --fast` goes without them.
SLOW_FIXTURES = {"model", "windrose", "windrose_file", "windrose_copy", "project_of_windrose"}
SLOW_FILES = {
    "test_bounds.py",
    "test_browser.py",
    "test_budget.py",
    "test_calibrate.py",
    "test_cli.py",
    "test_compare.py",
    "test_completion.py",
    "test_context_server.py",
    "test_controls.py",
    "test_convert_process.py",
    "test_database.py",
    "test_datasette.py",
    "test_doctor.py",
    "test_evaluation.py",
    "test_external_by_name.py",
    "test_external_server.py",
    "test_features.py",
    "test_file_names.py",
    "test_folder.py",
    "test_full_disk.py",
    "test_forget.py",
    "test_formats.py",
    "test_heap.py",
    "test_hostile_files.py",
    "test_http.py",
    "test_install.py",
    "test_migrations.py",
    "test_moving.py",
    "test_multilingual.py",
    "test_packaged.py",
    "test_packaging.py",
    "test_page.py",
    "test_pages.py",
    "test_readme.py",
    "test_refused.py",
    "test_replication.py",
    "test_search_options.py",
    "test_server.py",
    "test_strangers.py",
    "test_streams.py",
    "test_stress.py",
    "test_tables.py",
    "test_terminal.py",
    "test_tidying.py",
    "test_waiting_log.py",
    "test_watch.py",
    "test_web.py",
    "test_workers.py",
}


def pytest_configure() -> None:
    """What tests start can be interrupted, also where whoever started pytest ignores signals."""
    for name in ("SIGINT", "SIGHUP", "SIGTERM"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) == signal.SIG_IGN:
            default = signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
            signal.signal(number, default)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """A process more than cores, as some tests wait; four at most, as each loads the models."""
    return min((os.cpu_count() or 1) + 1, 4)


@pytest.fixture
def sockets_collected() -> Iterator[None]:
    """Dask's sockets go where their warnings are no errors, not in a later test."""
    yield
    gc.collect()


@pytest.fixture
def many_processes() -> Iterator[None]:
    """Every opener of a file in the test stands for a process of its own."""
    with another_process():
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        used = set(getattr(item, "fixturenames", ()))
        if item.path.name in SLOW_FILES or used & SLOW_FIXTURES:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def _home_of_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is made once for all tests is not noted in the user's folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(autouse=True)
def _own_home(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test reads the user's settings or another project's file."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in [name for name in os.environ if name.startswith(("XDG_", "KB_", "SEARCH_DB"))]:
        monkeypatch.delenv(name)
    # Beside the test's folder, which may be a project that is looked through.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder()


@pytest.fixture
def kb(tmp_path: Path, embedder: HashEmbedder) -> Iterator[Session]:
    """An empty knowledge base with the fast embedder."""
    with open_session(
        Database(tmp_path / "kb.db"), project=tmp_path, make_embedder=lambda _: embedder
    ) as knowledge:
        yield knowledge


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for documents."""
    path = tmp_path / "docs"
    path.mkdir()
    return path


@pytest.fixture
def fill(kb: Session, folder: Path) -> Filler:
    """Write some documents ({path: text or bytes}) into the folder and sync it."""

    def fill_folder(documents: dict[str, str | bytes], *, embed: bool = True) -> Session:
        for path, content in documents.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        sync_collection(kb.database, register(kb.database, str(folder)))
        if embed:
            embed_pending(kb.model)
        return kb

    return fill_folder


@pytest.fixture(scope="session")
def windrose_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixture corpus in one file, embedded by the packaged model.

    The first of the processes that run the tests makes it, each has a copy.
    """
    made = shared_folder(tmp_path_factory) / "windrose.db"
    with FileLock(made.with_suffix(".lock")):
        if not made.exists():
            path = tmp_path_factory.mktemp("windrose") / "kb.db"
            with open_session(Database(path), project=path.parent) as knowledge:
                sync_collection(knowledge.database, register(knowledge.database, str(WINDROSE)))
                embed_pending(knowledge.model)
            path.rename(made)
    return Path(shutil.copy(made, tmp_path_factory.mktemp("windrose-copy") / "kb.db"))


@pytest.fixture
def windrose_copy(windrose_file: Path, tmp_path: Path) -> Path:
    """A copy of that file of a test's own."""
    return Path(shutil.copy(windrose_file, tmp_path / "windrose.db"))


@pytest.fixture(scope="session")
def model() -> EnglishEmbedder:
    """The packaged model, loaded once."""
    return EnglishEmbedder()


@pytest.fixture
def windrose(windrose_copy: Path, model: EnglishEmbedder) -> Iterator[Session]:
    """The fixture corpus with the packaged model."""
    with open_session(
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


@pytest.fixture
def project_of_windrose(windrose_copy: Path, model: EnglishEmbedder) -> Iterator[Session]:
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
    with open_session(Database(windrose_copy), **arguments) as knowledge:
        knowledge.project.activate()
        record_discovery(knowledge.model, "We use tokens for authentication", "", "auth")
    with open_session(Database(windrose_copy), **arguments) as knowledge:
        knowledge.project.restore()
        yield knowledge

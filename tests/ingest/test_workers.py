"""Embedding on a Dask scheduler's workers gives what one process gives, whatever is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, WINDROSE, Filler, HashEmbedder

from kb.errors import UsageError
from kb.ingest import engine as dask_workers
from kb.ingest.embed import EmbedReport, embed_pending, reembed
from kb.ingest.engine import Batch, DaskWorkers, Threads, Vectors
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.models.embedder import Embedder
from kb.models.english import EnglishEmbedder
from kb.store.database import Database
from kb.tools.session import Session, open_session

if find_spec("distributed") is None:
    pytest.skip("the extra dask is not installed", allow_module_level=True)

from dask_processes import Cluster, certificates, cluster

pytestmark = [
    pytest.mark.filterwarnings("default"),  # of Dask's own
    pytest.mark.usefixtures("sockets_collected"),
]


@contextmanager
def handbook(folder: Path, model: EnglishEmbedder, *include: str) -> Iterator[Session]:
    """A file with the handbook, of which nothing is embedded."""
    database = Database(folder / "waiting.db")
    with open_session(database, project=folder, make_embedder=lambda _: model) as session:
        sync_collection(database, register(database, str(WINDROSE), include=list(include)))
        yield session


@pytest.fixture
def whole(tmp_path: Path, model: EnglishEmbedder) -> Iterator[Session]:
    """The whole handbook, not embedded."""
    with handbook(tmp_path, model) as session:
        yield session


@pytest.fixture
def part(tmp_path: Path, model: EnglishEmbedder) -> Iterator[Session]:
    """Some of its pages, not embedded."""
    with handbook(tmp_path, model, "guide/**", "how-to/**") as session:
        yield session


def vectors(database: Database) -> dict[str, str]:
    """The vectors of a file, by the hash of their text."""
    with database.read() as connection:
        rows = connection.apsw.execute("SELECT hex(text_hash), hex(vector) FROM vectors")
        return dict(rows.fetchall())


def vectors_in(file: Path) -> dict[str, str]:
    with Database(file) as database:
        return vectors(database)


def embed_with(
    session: Session, address: str, at: Callable[[int], None] = lambda done: None
) -> tuple[EmbedReport, list[str]]:
    """Embed what waits; what was said meanwhile. `at` is told how much is done."""
    said: list[str] = []
    with DaskWorkers(address, said.append) as engine:
        report = embed_pending(
            session.model, engine=engine, progress=lambda stage, done, total: at(done)
        )
    return report, said


class Once:
    """Does something when so much is done, one time."""

    def __init__(self, when: int, what: Callable[[], object]) -> None:
        self.when, self.what, self.is_done = when, what, False

    def __call__(self, done: int) -> None:
        if done >= self.when and not self.is_done:
            self.is_done = True
            self.what()


@pytest.mark.parametrize("count", [2, 4])
def test_a_killed_and_an_added_worker_change_no_vector_and_nothing_is_embedded_twice(
    whole: Session, windrose_file: Path, tmp_path: Path, count: int
) -> None:
    with cluster(tmp_path, count) as made:

        def kill_and_add() -> None:
            made.kill("worker-1")
            made.add()

        report, said = embed_with(whole, made.address, Once(60, kill_and_add))
        held = made.embedded_by("worker-1")
        others = [made.embedded_by(name) for name in made.names()[1:]]
    assert vectors(whole.database) == vectors_in(windrose_file)
    assert (report.waiting, said) == (0, [])
    assert held
    assert all(others), "every worker embeds, the added one too"
    total = sum(others, held)
    assert len(total) == report.embedded
    assert {key for key, times in total.items() if times > 1} <= set(held)
    assert max(total.values()) <= 2


def test_where_the_scheduler_is_gone_this_machine_goes_on_alone(
    part: Session, windrose_file: Path, tmp_path: Path
) -> None:
    with cluster(tmp_path, 1) as made:
        report, said = embed_with(part, made.address, Once(40, made.scheduler.end))
        embedded = made.embedded_by("worker-1")
    assert said == [
        f"the Dask scheduler at {made.address} is gone: embedding goes on on this machine alone"
    ]
    assert 40 <= len(embedded) < report.embedded
    assert report.waiting == 0
    assert vectors(part.database).items() <= vectors_in(windrose_file).items()


def test_where_no_scheduler_answers_this_machine_embeds_alone(
    part: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_workers, "CONNECT_SECONDS", 0.5)
    report, (said,) = embed_with(part, "tcp://127.0.0.1:9")
    assert said.startswith("no Dask scheduler answers at tcp://127.0.0.1:9 (")
    assert said.endswith("): embedding goes on on this machine alone")
    assert (report.embedded > 100, report.waiting) == (True, 0)


def test_a_scheduler_without_workers_is_not_waited_for_long(
    part: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_workers, "PATIENCE", 1.0)
    with cluster(tmp_path, 0) as made:
        report, (said,) = embed_with(part, made.address)
    assert said == (
        f"the Dask scheduler at {made.address} has no worker: "
        "embedding goes on on this machine alone"
    )
    assert report.waiting == 0


def test_a_worker_with_another_model_gets_no_texts(
    part: Session, windrose_file: Path, tmp_path: Path
) -> None:
    with cluster(tmp_path, 0) as made:
        made.add(KB_BUILD="0" * 64)
        made.add()
        _, (said,) = embed_with(part, made.address)
        assert not made.embedded_by("worker-1")
        assert len(made.embedded_by("worker-2")) > 100
    assert " gets no texts: another build of the model all-MiniLM-L6-v2-int8 is insta" in said
    assert vectors(part.database).items() <= vectors_in(windrose_file).items()


def test_where_no_worker_has_the_model_this_machine_embeds_alone(
    part: Session, windrose_file: Path, tmp_path: Path
) -> None:
    with cluster(tmp_path, 0) as made:
        made.add(KB_BUILD="0" * 64)
        _, said = embed_with(part, made.address)
    assert said[1].startswith(f"no worker at {made.address} can embed with this file's model: ")
    assert vectors(part.database).items() <= vectors_in(windrose_file).items()


def test_what_is_embedded_anew_by_workers_is_the_same(
    windrose: Session, model: EnglishEmbedder, tmp_path: Path
) -> None:
    before = vectors(windrose.database)
    with windrose.database.write() as connection:  # as by a model of an earlier version
        connection.apsw.execute("UPDATE models SET sha256 = 'earlier'")
    with cluster(tmp_path, 1) as made:
        with DaskWorkers(made.address, pytest.fail) as engine:
            report = reembed(windrose.model, model, engine=engine)
        assert len(made.embedded_by("worker-1")) == report.embedded == len(before)
    assert vectors(windrose.database) == before


def test_an_interrupted_sync_leaves_no_task_behind(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".kb").mkdir(parents=True)

    def kb(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "kb", *words],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )

    _, errors = kb("add", str(WINDROSE), "--no-embed", "--quiet").communicate(timeout=60)
    assert not errors
    with cluster(tmp_path, 1) as made:
        process = kb("sync", "--quiet", "--workers", made.address)
        client = client_of(made)
        while len(made.embedded_by("worker-1")) < 20:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (130, "kb: interrupted; what was done is kept\n")
        tasks = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
        client.close()
    assert tasks == 0


def client_of(made: Cluster) -> Any:
    import distributed

    connect: Any = distributed.Client
    return connect(made.address, set_as_default=False)


def test_workers_are_reached_by_tls_as_dask_is_configured(
    part: Session, windrose_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dask

    settings, environment = certificates(tmp_path)
    with cluster(tmp_path, 1, "tls", environment) as made:
        assert made.address.startswith("tls://")
        lacks = pytest.raises(UsageError, match=r"distributed\.comm\.tls\.ca-file")
        with lacks, DaskWorkers(made.address, pytest.fail):
            pass
        with dask.config.set(settings):
            _, said = embed_with(part, made.address)
        assert (len(made.embedded_by("worker-1")) > 100, said) == (True, [])
    assert vectors(part.database).items() <= vectors_in(windrose_file).items()


def test_late_and_repeated_answers_change_nothing(
    kb: Session, fill: Filler, embedder: HashEmbedder
) -> None:
    class Repeating(Threads):
        """Answers each batch twice, and once more at the end, with other vectors."""

        def run(self, embedder: Embedder, batches: Iterator[Batch]) -> Generator[Vectors]:
            seen: list[Vectors] = []
            for answer in super().run(embedder, batches):
                seen.append(answer)
                yield answer
                yield answer
            for answer in seen:
                yield {key: bytes(len(vector)) for key, vector in answer.items()}
            yield {bytes(16): bytes(64)}

    fill({f"{n}.md": f"# Page {n}\n\nThis tells of thing{n}." for n in range(20)}, embed=False)
    report = embed_pending(kb.model, engine=Repeating())
    assert (report.embedded, report.reused, report.waiting) == (20, 0, 0)
    assert len(vectors(kb.database)) == 20
    assert not [vector for vector in vectors(kb.database).values() if not vector.strip("0")]


def test_a_text_that_is_under_way_is_not_handed_out_again(
    kb: Session, fill: Filler, embedder: HashEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kb.ingest import embed as embedding

    monkeypatch.setattr(embedding, "WINDOW", 2)

    class Late(Threads):
        """Takes all batches before it answers any."""

        def run(self, embedder: Embedder, batches: Iterator[Batch]) -> Generator[Vectors]:
            yield from super().run(embedder, iter(list(batches)))

    fill({f"{n}.md": "# Page\n\nAll say the same." for n in range(9)}, embed=False)
    report = embed_pending(kb.model, engine=Late())
    assert (report.embedded, report.reused, report.waiting) == (1, 8, 0)
    assert len([text for text in embedder.texts if "same" in text]) == 1


def test_without_the_extra_workers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"pip install 'kbfile\[dask\]'"):
        DaskWorkers("tcp://127.0.0.1:8786", print)


@pytest.mark.parametrize("address", ["nonsense://host:1", "tcp://host:port"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="not the address of a Dask"), DaskWorkers(address, print):
        pass

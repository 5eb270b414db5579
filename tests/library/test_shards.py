"""Files on the machines of Dask workers are searched as files here are, whatever is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, WINDROSE

import kb
from kb.errors import CollectionNotFound, DocumentNotFound, KbError, UsageError
from kb.ingest import engine as dask_workers
from kb.library import shards as shards_module
from kb.library.browsing import read_visible
from kb.library.knowledge_base import KnowledgeBase
from kb.library.overview import view_document
from kb.library.shards import ShardReader

if find_spec("distributed") is None:
    pytest.skip("the extra dask is not installed", allow_module_level=True)

from dask_processes import Cluster, certificates, cluster

pytestmark = [
    pytest.mark.filterwarnings("default"),  # of Dask's own
    pytest.mark.usefixtures("sockets_collected"),
    pytest.mark.slow,
]


PARTS = {"guide": "guide/**", "how-to": "how-to/**", "reference": "reference/**"}
QUESTIONS = (
    "what happens when the battery is low?",
    "rain gauge",
    '"wind speed"',
    "how do I calibrate the sensr",
    "+battery -solar",
    "tag:nothing",
)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder for each part of the handbook, in which its file lies."""
    folder = tmp_path_factory.mktemp("parts")
    for name, glob in PARTS.items():
        (folder / name).mkdir()
        with kb.open(folder / name / f"{name}.db", project=folder) as base:
            base.add(str(WINDROSE), name=name, include=[glob], embed=True)
    return folder


@pytest.fixture
def local(tmp_path: Path) -> Iterator[KnowledgeBase]:
    """An empty file here."""
    with kb.open(tmp_path / "local.db", project=tmp_path) as base:
        yield base


@pytest.fixture
def machines(tmp_path: Path, parts: Path) -> Iterator[Cluster]:
    """Two workers, which both see all parts."""
    with cluster(tmp_path, 2) as made:
        yield made


def use(base: KnowledgeBase, made: Cluster, parts: Path, seconds: float = 20) -> Any:
    base.use_shards(made.address, [str(parts / "*" / "*.db")], seconds)
    assert base.shards is not None
    return base.shards


def until(is_true: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_rows_scores_and_notices_are_those_of_the_files_read_as_one(
    local: KnowledgeBase, machines: Cluster, parts: Path, tmp_path: Path
) -> None:
    shards = use(local, machines, parts)
    assert len(shards._holders) == 3
    here = tmp_path / "here.db"
    kb.open(here, project=tmp_path).close()
    beside = [shutil.copy(parts / name / f"{name}.db", tmp_path) for name in PARTS]
    with kb.open([here, *beside], project=tmp_path) as base:
        for question in QUESTIONS:
            assert local.search(question).to_dict() == base.search(question).to_dict()
        both = [QUESTIONS[0], ("rain gauge", ["how-to"])]
        assert local.search_batch(both).to_dict() == base.search_batch(both).to_dict()
        filters: Any = {"paths": ["how-to/**"], "sort": "date", "max_per_document": 1}
        expected = base.search("battery", limit=3, **filters)
        assert local.search("battery", limit=3, **filters).to_dict() == expected.to_dict()
        assert local.context("battery").to_dict() == base.context("battery").to_dict()
        rows, _ = local.search_for_people("battery", collections=["how-to"])
        shown, _ = base.search_for_people("battery", collections=["how-to"])
        assert [row["snippet"] for row in rows] == [row["snippet"] for row in shown]
        assert {row["file"] for row in rows} == {""}
        for one in (local, base):
            with pytest.raises(CollectionNotFound, match='Did you mean "how-to"'):
                one.search("battery", collections=["howto"])


def test_documents_are_listed_and_read_where_they_lie(
    local: KnowledgeBase, machines: Cluster, parts: Path, tmp_path: Path
) -> None:
    use(local, machines, parts)
    here = tmp_path / "here.db"
    kb.open(here, project=tmp_path).close()
    beside = [shutil.copy(parts / name / f"{name}.db", tmp_path) for name in PARTS]
    name = "how-to/replace-the-battery.md"
    with kb.open([here, *beside], project=tmp_path) as base:
        assert local.list_collections() == base.list_collections()
        assert local.list_documents("how-to", limit=2, offset=1) == base.list_documents(
            "how-to", limit=2, offset=1
        )
        by_date = base.list_documents("guide", sort="date")
        assert local.list_documents("guide", sort="date") == by_date
        for document, collection in ((name, ""), (name, "how-to"), ("replace-the-battery.md", "")):
            expected = base.get(document, collection=collection, start_line=3)
            assert local.get(document, collection=collection, start_line=3) == expected
        assert local.outline(name) == base.outline(name)
        assert local.section(name, "old cell") == base.section(name, "old cell")
        assert local.cite(name) == base.cite(name)
        assert local.related(name) == base.related(name)
        passage = {"passage": "how long the cell lasts", "same_document": True}
        assert local.related(name, **passage) == base.related(name, **passage)
        assert read_visible(local, "how-to", name) == read_visible(base, "how-to", name)
        far, near = (view_document(each, "how-to", name, 20) for each in (local, base))
        assert (far.file, far.folder, far.sections) == ("", None, near.sections)
        for read in (
            lambda base: base.get("how-to/replace-the-batery.md"),
            lambda base: base.get("replace", collection="how-to"),
            lambda base: base.get(name, collection="howto"),
            lambda base: base.section(name, "nothing of the kind"),
            lambda base: base.list_documents("howto"),
            lambda base: base.get(name, start_line=9, end_line=3),
        ):
            errors = []
            for each in (local, base):
                with pytest.raises(KbError) as raised:
                    read(each)
                errors.append((type(raised.value), raised.value.as_result()))
            assert errors[0] == errors[1]
    machines.kill("worker-1")
    assert local.get(name).title == "Replace the battery"  # another worker has a copy
    machines.kill("worker-2")
    with pytest.raises(
        DocumentNotFound, match=r"was left out: (its worker tcp://|no worker has it)"
    ):
        local.get(name, collection="default")


def test_several_servers_share_the_workers(
    local: KnowledgeBase, machines: Cluster, parts: Path, tmp_path: Path
) -> None:
    use(local, machines, parts)
    with kb.open(tmp_path / "second.db", project=tmp_path) as second:
        use(second, machines, parts)
        for _ in range(2):
            found = local.search("battery")
            assert (found.notice, second.search("battery")) == (None, found)


def test_workers_are_searched_over_tls(local: KnowledgeBase, parts: Path, tmp_path: Path) -> None:
    import dask

    settings, environment = certificates(tmp_path)
    with cluster(tmp_path, 1, "tls", environment) as made, dask.config.set(settings):
        assert made.address.startswith("tls://")
        use(local, made, parts)
        found = local.search("battery")
        assert (bool(found.results), found.notice) == (True, None)
        assert local.get(found.results[0].document_id).content
        assert local.shards is not None
        local.shards.close()


def test_a_lost_shard_is_read_elsewhere_or_told(
    local: KnowledgeBase, machines: Cluster, parts: Path
) -> None:
    shards = use(local, machines, parts)
    whole = local.search("battery", limit=30).results
    machines.kill("worker-1")
    again = local.search("battery", limit=30)
    assert (again.results, again.notice) == (whole, None)
    machines.kill("worker-2")
    lost = local.search("battery", limit=30)
    assert (lost.results, (lost.notice or "").count("was left out: its worker tcp://")) == ([], 3)
    until(lambda: not shards._holders)
    assert (local.search("battery").notice or "").count("no worker has it now") == 3
    machines.add()
    until(lambda: len(shards._holders) == 3)
    back = local.search("battery", limit=30)
    assert (back.results, back.notice) == (whole, None)


def test_a_worker_that_stands_still_is_told_in_time_and_the_others_answer(
    local: KnowledgeBase, tmp_path: Path, parts: Path
) -> None:
    with cluster(tmp_path, 1) as made:
        shards = use(local, made, parts, seconds=2)
        local.search("battery")
        until(lambda: not shards._looking.locked())
        with shards._looking:  # it would take the worker for lost
            process = next(iter(made.workers.values())).popen.pid
            os.kill(process, signal.SIGSTOP)
            began = time.monotonic()
            slow = local.search("battery")
            took = time.monotonic() - began
            os.kill(process, signal.SIGCONT)
        assert (slow.notice or "").count("was left out: it did not answer within 2 s") == 3
        assert took < 10
        until(lambda: not local.search("battery").notice)


def test_a_damaged_file_and_another_version_are_told(
    local: KnowledgeBase, tmp_path: Path, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some").mkdir()
    shutil.copy(parts / "guide" / "guide.db", tmp_path / "some")
    (tmp_path / "some" / "broken.db").write_bytes(b"SQLite format 3\0" + b"x" * 8000)
    with cluster(tmp_path, 1) as made:
        local.use_shards(made.address, [str(tmp_path / "some")])
        found = local.search("battery")
        assert found.results
        assert "broken.db" in (found.notice or "")
        assert local.shards is not None
        local.shards.close()
        monkeypatch.setattr(shards_module, "VERSION", "9.9")
        local.use_shards(made.address, [str(tmp_path / "some")])
        found = local.search("battery")
        assert not found.results
        assert "was left out: kb 0.1.0 is installed there, 9.9 here." in (found.notice or "")


def changed_at(
    moment: list[str], change: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The steps that workers are asked for; at the last of `moment` a file changes."""
    ask, steps = shards_module.Shards.ask, list[str]()

    def ask_and_change(self: Any, worker: str, *arguments: Any) -> Any:
        steps.append(arguments[4].__name__)
        if steps == moment:
            change()
        return ask(self, worker, *arguments)

    monkeypatch.setattr(shards_module.Shards, "ask", ask_and_change)
    return steps


def test_a_file_that_changes_during_a_search_is_asked_anew(
    local: KnowledgeBase, tmp_path: Path, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some").mkdir()
    file = Path(shutil.copy(parts / "guide" / "guide.db", tmp_path / "some"))
    with cluster(tmp_path, 1) as made, kb.open(file, project=tmp_path) as written:
        local.use_shards(made.address, [str(file)])
        before = local.search("battery").results
        assert before
        # What was proposed is of an older state.
        older = ["look", "propose", "rows"]
        steps = changed_at(older, lambda: written.remove("guide"), monkeypatch)
        assert not local.search("battery").results
    assert steps[:4] == ["look", "propose", "rows", "look"]


def test_links_are_read_anew_where_a_file_changes_meanwhile(
    local: KnowledgeBase, tmp_path: Path, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some").mkdir()
    file = Path(shutil.copy(parts / "guide" / "guide.db", tmp_path / "some"))
    with cluster(tmp_path, 1) as made, kb.open(file, project=tmp_path) as written:
        local.use_shards(made.address, [str(file)])
        before = local.broken_links()
        assert before.states["resolved"]
        links = ["_open_keys", "_links"]
        text = "The station stands on a roof."
        steps = changed_at(links, lambda: written.record(text), monkeypatch)
        assert local.broken_links() == before
    assert steps == ["_open_keys", "_links"] * 2


def test_a_file_that_changes_all_the_time_is_left_out(
    local: KnowledgeBase, tmp_path: Path, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some").mkdir()
    file = Path(shutil.copy(parts / "guide" / "guide.db", tmp_path / "some"))
    with cluster(tmp_path, 1) as made, kb.open(file, project=tmp_path) as written:
        local.use_shards(made.address, [str(file)])
        ask, steps = shards_module.Shards.ask, []

        def ask_and_change(self: Any, worker: str, *arguments: Any) -> Any:
            steps.append(arguments[4].__name__)
            if steps[-1] == "rows":
                written.record(f"The station number {len(steps)} stands on a roof.")
            return ask(self, worker, *arguments)

        monkeypatch.setattr(shards_module.Shards, "ask", ask_and_change)
        result = local.search("battery")
        assert not result.results
        assert "it changed while it was searched" in result.notice
    assert steps == ["look", "propose", "rows"] * 2


def test_what_nobody_waits_for_any_more_is_ended(parts: Path) -> None:
    import asyncio

    from kb.errors import FileError
    from kb.settings import VERSION
    from kb.store.collections import Names

    reader = ShardReader([str(parts / "guide")], VERSION)

    async def ask() -> None:
        ((key, *_),), _ = await reader.shards()
        long = reader.ask(key, None, 0.3, Names({}), _count_for_ever, ())
        late = reader.ask(key, None, 0.1, Names({}), _count_for_ever, ())
        began = time.monotonic()
        errors = await asyncio.gather(long, late, return_exceptions=True)
        assert time.monotonic() - began < 10
        assert [type(error) for error in errors] == [FileError, FileError]
        assert "nobody waits" in str(errors[1])
        version, found = await reader.ask(key, None, 9.0, Names({}), _count_collections, ())
        assert (found, isinstance(version, int)) == (1, True)
        with pytest.raises(FileError, match="the file is not there any more"):
            await reader.ask("of another file", None, 9.0, Names({}), _count_collections, ())

    asyncio.run(ask())


def test_a_file_that_two_patterns_name_is_open_once(parts: Path, tmp_path: Path) -> None:
    import asyncio

    from kb.settings import VERSION

    (tmp_path / "link.db").symlink_to(parts / "guide" / "guide.db")
    reader = ShardReader([str(tmp_path / "*.db"), str(parts / "guide")], VERSION)
    listed, problems = asyncio.run(reader.shards())
    assert (len(listed), problems) == (1, [])


def _count_for_ever(_: object, connection: Any) -> None:
    connection.apsw.execute(
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"
    ).fetchall()


def _count_collections(_: object, connection: Any) -> int:
    return len(connection.apsw.execute("SELECT 1 FROM collections").fetchall())


def test_that_no_scheduler_answers_is_told(
    local: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_workers, "CONNECT_SECONDS", 0.5)
    local.use_shards("tcp://127.0.0.1:9", ["/nowhere"])
    notice = local.search("battery").notice or ""
    assert notice.startswith("Searched without shards: no Dask scheduler answers at tcp://127.0.")
    with pytest.raises(UsageError, match="not the address of a Dask"):
        local.use_shards("nonsense://host:1", ["/nowhere"])


def test_the_command_line_searches_without_a_file_here(
    machines: Cluster, parts: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "nothing"
    folder.mkdir()

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kb", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    far = "--workers", machines.address, "--shards", str(parts / "*")
    found = run("search", "rain gauge", *far, "-n", "3")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(("guide/", "how-to/", "reference/"))
    assert not [*folder.iterdir()]
    read = run("get", "replace-the-battery.md:1", *far)
    assert (read.stdout, read.stderr) == ("# Replace the battery\n", "")
    assert run("list", *far).stdout.count("\n") == len(PARTS)
    nothing = run("search", "rain gauge", *far[:3], "/nowhere/*")
    assert f"kb: No worker at {machines.address} has a file that" in nothing.stderr
    alone = run("search", "rain gauge", "--shards", "/srv")
    assert alone.returncode == 2
    assert alone.stderr.endswith("kb: --workers and --shards belong together: give both\n")

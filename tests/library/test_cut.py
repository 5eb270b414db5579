"""A file that grew is cut into shards, which are opened, synced and changed as the file was."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support import ROOT, WINDROSE, HashEmbedder

import kb
from kb.errors import DocumentNotFound, FileError, UsageError
from kb.ingest import copying
from kb.ingest.copying import is_of_shard
from kb.library.knowledge_base import KnowledgeBase
from kb.library.opening import on_database
from kb.settings import database_paths
from kb.store.database import AttachedFiles, Database

SIZE = 250_000  # bytes of a shard
QUESTIONS = (
    "what happens when the battery is low?",
    '"wind speed"',
    "rain gauge",
    "+battery -solar",
)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(WINDROSE, tmp_path / "docs"))


@pytest.fixture
def whole(tmp_path: Path, docs: Path) -> Iterator[KnowledgeBase]:
    """A file with a folder and an index, which no shard but the first may have."""
    with kb.open(tmp_path / "whole.db", project=tmp_path) as base:
        base.add(str(docs), name="docs")
        base.add_document("notes/frost.md", "# Frost\n\nThe vane freezes at night.")
        base.add_token("anna", "read")
        yield base


@pytest.fixture
def shards(tmp_path: Path, whole: KnowledgeBase) -> Iterator[KnowledgeBase]:
    cut = whole.cut(tmp_path / "cut", SIZE)
    assert len(cut) > 2
    with kb.open(tmp_path / "cut", project=tmp_path) as base:
        yield base


def run_command(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def ids(base: KnowledgeBase) -> list[str]:
    return [document.id for document in base.list_documents("docs").documents]


def test_the_shards_hold_what_the_file_held(whole: KnowledgeBase, shards: KnowledgeBase) -> None:
    assert ids(shards) == ids(whole)
    assert shards.list_collections().to_dict() == whole.list_collections().to_dict()
    assert shards.count_waiting() == whole.count_waiting()
    for question in QUESTIONS:
        expected = {(r.document_id, r.chunk_index) for r in whole.search(question, limit=5)}
        rows = {(r.document_id, r.chunk_index) for r in shards.search(question, limit=5)}
        assert len(rows & expected) >= 4
    assert len(shards.list_tokens()) == 1
    page = shards.list_documents("docs", limit=7, offset=20)
    assert [document.id for document in page.documents] == ids(whole)[20:27]
    assert (page.total, page.has_more) == (len(ids(whole)), True)


def test_a_document_is_read_where_it_lies(whole: KnowledgeBase, shards: KnowledgeBase) -> None:
    for path in ids(whole):
        assert shards.get(path, collection="docs") == whole.get(path, collection="docs")
        assert shards.outline(path) == whole.outline(path)
    name = "how-to/replace-the-battery.md"
    for base in (whole, shards):
        assert base.get("replace-the-battery.md").document == name
        assert base.section(name, "old cell").section == "The old cell"
        assert base.related(name, limit=3).related[0].document != name
        assert base.cite(name).document == f"docs/{name}"
        with pytest.raises(DocumentNotFound) as raised:
            base.get("how-to/replace-the-batery.md", collection="docs")
        assert raised.value.details["suggestions"][0] == name
    expected = [row.document for row in whole.related(name, limit=3)]
    assert [row.document for row in shards.related(name, limit=3)] == expected


def test_a_sync_of_the_set_writes_each_document_into_its_shard(
    shards: KnowledgeBase, docs: Path, tmp_path: Path
) -> None:
    unchanged = shards.sync().collections[0]
    assert (unchanged.unchanged, unchanged.total) == (35, 35)
    for number in range(12):
        (docs / f"new-{number}.md").write_text(f"# Page {number}\n\nA hygrometer, number {number}.")
    gone = next(docs.glob("how-to/*.md"))
    gone.unlink()
    done = shards.sync()
    report = done.collections[0]
    assert (report.added, report.removed, report.total, done.embedded) == (12, 1, 46, 12)
    assert "new-7.md" in ids(shards)
    shards.close()
    holders = 0
    for file in (tmp_path / "cut").glob("*.db"):
        with kb.open(file, project=tmp_path) as base:
            number, count = file.stem.removeprefix("whole-").split("-of-")
            assert all(is_of_shard(path, (int(number) - 1, int(count))) for path in ids(base))
            holders += any(path.startswith("new-") for path in ids(base))
            assert base.sync().collections[0].unchanged == len(ids(base))  # each by itself
    assert holders > 1


def test_what_is_added_moved_and_removed_is_so_in_all_shards(
    shards: KnowledgeBase, docs: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "one.md").write_text("# Barometer\n\nIt measures pressure.")
    added = shards.add(str(other), name="other")
    assert (added.collections[0].added, added.embedded) == (1, 1)
    (other / "two.md").write_text("# Thermometer\n\nIt measures heat.")
    (other / "three.md").write_text("# Hygrometer\n\nIt measures damp.")
    assert shards.sync(["other"]).collections[0].added == 2
    other.rename(tmp_path / "moved")
    assert shards.move("other", str(tmp_path / "moved")).collections[0].unchanged == 3
    for path in (tmp_path / "moved").glob("t*.md"):
        path.unlink()
    assert shards.sync(["other"]).collections[0].removed == 2  # none is left in some shards
    assert shards.remove("docs").documents == 35
    assert [row.collection for row in shards.list_collections()] == ["default", "other"]


def test_a_shard_is_cut_again(shards: KnowledgeBase, tmp_path: Path) -> None:
    first = tmp_path / "cut" / "whole-1-of-4.db"
    if not first.exists():
        first = next((tmp_path / "cut").glob("whole-1-of-*.db"))
    count = int(first.stem.rpartition("-")[2])
    expected = sorted(ids(shards))
    shards.close()
    with kb.open(first, project=tmp_path) as base:
        mine = ids(base)
        again = base.cut(tmp_path / "again", first.stat().st_size - 1)
    assert len(again) == 2
    first.unlink()
    files = [*(tmp_path / "cut").glob("*.db"), *(shard.file for shard in again)]
    with kb.open(files, project=tmp_path) as base:
        assert sorted(ids(base)) == expected
        assert base.sync().collections[0].unchanged == 35
    for remainder, shard in zip((0, count), again, strict=True):
        with kb.open(shard.file, project=tmp_path) as base:
            part = [path for path in mine if is_of_shard(path, (remainder, 2 * count))]
            assert ids(base) == part


def test_the_command_line_opens_a_folder_of_shards(whole: KnowledgeBase, tmp_path: Path) -> None:
    whole.close()

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return run_command([sys.executable, "-m", "kb", *words], tmp_path)

    cut = run("--db", "whole.db", "split", "--by-size", "0.25 MB", "cut")
    assert cut.stdout.splitlines()[0].startswith("cut/whole-1-of-")
    assert "`--db cut` opens the shards in its place" in cut.stdout
    assert run("--db", "cut", "list", "docs").stdout.count("\n") == 35
    synced = run("--db", "cut", "sync", "docs")
    assert synced.stdout.startswith("docs: 35 unchanged (35 documents)\n")
    shutil.copytree(tmp_path / "cut", tmp_path / "copied")
    refused = run("--db", "copied", "sync", "docs")
    assert (refused.returncode, "`kb trust docs`" in refused.stderr) == (3, True)
    assert run("--db", "copied", "trust").stdout.count(" may read ") == 1
    assert run("--db", "copied", "sync", "docs").stdout.startswith("docs: 35 unchanged")
    second = next((tmp_path / "cut").glob("whole-2-*.db"))
    shutil.copy(second, tmp_path / "cut" / "again.db")
    assert "A shard is among the files twice" in run("--db", "cut", "list").stderr
    (tmp_path / "cut" / "again.db").unlink()
    second.unlink()
    missing = "of all shards: the documents of the others are missing"
    for command in (("sync",), ("search", "wind"), ("list",)):
        assert missing in run("--db", "cut", *command).stderr
    for wrong in (("cut",), ("--by-size", "much", "cut"), ("--by-size", "1MB", "cut", "docs")):
        assert run("--db", "whole.db", "split", *wrong).returncode == 2


def test_what_cannot_be_cut_is_refused_and_leaves_nothing(
    whole: KnowledgeBase, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(FileError, match="is there already"):
        whole.cut(tmp_path / "there", SIZE)
    with pytest.raises(UsageError, match="is no larger than that"):
        whole.cut(tmp_path / "cut", 10**9)
    copy_tokens = copying.copy_tokens

    def copy_while_somebody_writes(*connections: object) -> None:
        copy_tokens(*connections)  # type: ignore[arg-type]
        subprocess.run(
            [sys.executable, "-m", "kb", "--db", str(tmp_path / "whole.db"), "sync", "--no-embed"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
            timeout=120,
        )

    (docs / "new.md").write_text("# New")
    monkeypatch.setattr(copying, "copy_tokens", copy_while_somebody_writes)
    with pytest.raises(FileError, match="written to meanwhile"):
        whole.cut(tmp_path / "cut", SIZE)
    assert not [*tmp_path.glob("cut*")]
    with kb.open(tmp_path / "index.db", project=tmp_path) as base:
        base.add_document("frost.md", "# Frost\n\nAt night.")
        with pytest.raises(UsageError, match="no collection has a source"):
            base.cut(tmp_path / "cut", 10_000)


def test_a_split_that_is_killed_leaves_the_file_and_no_set(
    whole: KnowledgeBase, tmp_path: Path
) -> None:
    expected = ids(whole)
    whole.close()
    command = [sys.executable, "-m", "kb", "--db", "whole.db", "split", "--by-size", "200kB", "cut"]
    for delay in (0.0, 0.1, 0.3):
        process = subprocess.Popen(
            command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        unfinished = tmp_path / "cut.unfinished"
        end = time.monotonic() + 60
        while not unfinished.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
        with kb.open(tmp_path / "whole.db", project=tmp_path) as base:
            assert ids(base) == expected
        if (tmp_path / "cut").exists():
            break  # it was faster
        again = run_command(command, tmp_path)
        assert (again.returncode, "one was stopped: remove it" in again.stderr) == (3, True)
        shutil.rmtree(unfinished)


def test_a_copy_of_a_set_is_a_set(
    whole: KnowledgeBase, shards: KnowledgeBase, tmp_path: Path
) -> None:
    copied = shards.copy(tmp_path / "copy")
    files = [*(tmp_path / "copy").iterdir()]
    assert copied.bytes == sum(file.stat().st_size for file in files)
    assert {file.name for file in files} == {p.name for p in (tmp_path / "cut").glob("*.db")}
    with pytest.raises(FileError, match="exists already"):
        shards.copy(tmp_path / "copy")
    with kb.open(tmp_path / "copy", project=tmp_path) as base:
        assert ids(base) == ids(whole)
        assert base.sync().collections[0].unchanged == 35


def test_a_collection_moves_out_of_all_shards_and_is_whole(
    whole: KnowledgeBase, shards: KnowledgeBase, docs: Path, tmp_path: Path
) -> None:
    expected = ids(whole)
    with pytest.raises(UsageError, match="these are shards: cut one by itself"):
        shards.cut(tmp_path / "again", 10_000)
    (moved,) = shards.split(tmp_path / "out.db", ["docs"])
    assert (moved.name, moved.documents, moved.waiting) == ("docs", 35, 0)
    assert [row.collection for row in shards.list_collections()] == ["default"]
    (docs / "new.md").write_text("# New")
    with kb.open(tmp_path / "out.db", project=tmp_path) as base:
        assert ids(base) == expected
        report = base.sync().collections[0]
        assert (report.added, report.unchanged, report.removed) == (1, 35, 0)


def test_shards_are_merged_into_one_file_again(
    whole: KnowledgeBase, shards: KnowledgeBase, tmp_path: Path
) -> None:
    expected = ids(whole)
    shards.close()
    first, *others = sorted((tmp_path / "cut").glob("*.db"))
    with (
        kb.open(first, project=tmp_path) as base,
        pytest.raises(UsageError, match="the other file is a shard of it"),
    ):
        base.merge(others[0])
    with kb.open(tmp_path / "one.db", project=tmp_path) as base:
        for file in (first, *others):
            base.merge(file)
        assert ids(base) == expected
        assert [row.collection for row in base.list_collections()] == ["default", "docs"]
        report = base.sync().collections[0]
        assert (report.added, report.unchanged, report.removed) == (0, 35, 0)


def test_shards_that_are_missing_or_twice_are_told_at_once(
    shards: KnowledgeBase, tmp_path: Path
) -> None:
    def notice(base: KnowledgeBase) -> str:
        return base.list_collections().notice or ""

    count = len(shards.files)
    assert notice(shards) == ""
    shards.close()
    first, *_, last = sorted((tmp_path / "cut").glob("*.db"))
    with kb.open(first, project=tmp_path) as base:
        half = base.cut(tmp_path / "again", first.stat().st_size - 1).shards[0].file
    with kb.open([tmp_path / "cut", half], project=tmp_path) as base:
        assert "twice" in notice(base)  # half of the first, and the first
    (tmp_path / "link.db").symlink_to(last)
    with kb.open([tmp_path / "cut", tmp_path / "link.db"], project=tmp_path) as base:
        assert (len(base.files), notice(base)) == (count, "")
        aside = last.rename(tmp_path / "aside.db")
        assert "there is no knowledge base at" in notice(base)
        os.link(first, last)  # which is open already
        assert "open in this process already" in notice(base)
        last.unlink()
        aside.rename(last)
        assert notice(base) == ""
        # Another file takes the place of a shard that is open.
        shutil.copy(first, tmp_path / "copied.db")
        os.replace(tmp_path / "copied.db", last)
        assert "twice" in notice(base)
    last.unlink()
    with kb.open(tmp_path / "cut", project=tmp_path) as base:
        assert notice(base).startswith(f"These are {count - 1}/{count} of all shards")


def test_a_shard_is_compared_with_its_part_of_the_source(shards: KnowledgeBase, docs: Path) -> None:
    def told() -> list[str]:
        return [f.message for f in shards.health() if f.message.startswith("docs: ")]

    assert told() == [f"docs: as in {docs}"] * len(shards.files)
    (docs / "new.md").write_text("# New")
    assert [part for part in told() if "as in" not in part] == ["docs: out of date: 1 new (new.md)"]


def test_a_shard_of_another_model_is_searched_with_it_and_related_to_nothing(
    whole: KnowledgeBase, tmp_path: Path
) -> None:
    models = {"hash-64": HashEmbedder(), "hash-32": HashEmbedder("hash-32", 32)}

    def opened(name: str, model: str | None = None) -> KnowledgeBase:
        first, *others = database_paths([str(tmp_path / name)])
        return on_database(
            Database(first),
            project=tmp_path,
            model=model,
            make_embedder=models.__getitem__,
            beside=AttachedFiles(others),
        )

    whole.close()
    with opened("whole.db") as base:
        base.reembed("hash-64")
        base.cut(tmp_path / "cut", SIZE)
    _, second, *_ = sorted((tmp_path / "cut").glob("*.db"))
    with opened(f"cut/{second.name}", "hash-32") as base:
        base.reembed("hash-32")
    with opened("cut") as base:
        found = base.search("rain gauge")
        assert (found.notice, {row.distance is not None for row in found}) == (None, {True})
        path = next(path for path in ids(base) if is_of_shard(path, (0, len(base.files))))
        related = base.related(path)
        assert related.related
        assert (related.notice or "").count("come from another model, hash-32") == 1
        base.reembed("hash-64")
        assert base.related(path).notice is None


def test_what_a_project_holds_is_no_target_for_other_shards(
    shards: KnowledgeBase, tmp_path: Path
) -> None:
    address = "https://wiki.example/plan"
    for name, count, text in (("plans", 1, f"---\nurl: {address}\n---\n"), ("pages", 9, "")):
        (tmp_path / name).mkdir()
        for number in range(count):
            body = f"{text}# Page {number}\n\nSee [the plan]({address}).\n"
            (tmp_path / name / f"{number}.md").write_text(body)
        shards.add(str(tmp_path / name), name=name, embed=False)

    def cited() -> list[str]:
        pages = (shards.cite(f"pages/{number}.md").citations for number in range(9))
        return [row.document for rows in pages for row in rows]

    assert cited() == ["plans/0.md"] * 9
    for file in shards.files:
        with file.database.write() as connection:
            connection.apsw.execute(
                "INSERT INTO projects VALUES (9, 'other', 'main', 'f00', '/else', '2026-01-01');"
                "UPDATE collections SET project_id = 9 WHERE name = 'plans'"
            )
    assert 0 < cited().count("") < 9  # in its own shard it was resolved before


def test_a_set_is_replicated_file_by_file(shards: KnowledgeBase, tmp_path: Path) -> None:
    shards.close()
    for command in ("replicate", "restore"):
        words = ["--db", "cut", command, str(tmp_path / "there")]
        done = run_command([sys.executable, "-m", "kb", *words], tmp_path)
        assert (done.returncode, "one file at a time" in done.stderr) == (2, True)

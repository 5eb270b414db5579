"""A file is copied elsewhere while it is written, comes back from there, and is followed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from destinations import KINDS, Place, free_port, missing, place
from support import ROOT, another_process, call, failure

from kb.errors import ConfigurationError, FileError, SourceError, UsageError
from kb.models.english import EnglishEmbedder
from kb.results.findings import HINT, SOUND
from kb.store.database import Database
from kb.store.replication import litestream
from kb.store.replication.follow import open_replica
from kb.store.replication.litestream import parse_destination, restore
from kb.store.replication.replicate import finding, replication_state, stop
from kb.store.write_ahead_log import is_replicated, litestream_folder
from kb.tools.registry import call_tool, load_tools
from kb.tools.session import Session, open_session

pytestmark = pytest.mark.skipif(bool(missing("folder")), reason=missing("folder"))

PATIENCE = 120.0


@pytest.fixture(params=KINDS)
def destination(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """Each kind of place in turn."""
    if reason := missing(request.param):
        pytest.skip(reason)
    with place(request.param, tmp_path / "place") as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


class Replicator:
    """A `kb replicate` under way."""

    def __init__(self, file: Path, address: str, *options: str) -> None:
        self.file = file
        self.log = file.with_name("replicate.log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kb", "--db", str(file), "replicate", address, *options],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def wait_until_copied(self) -> None:
        """Until everything that was written before now is at the destination."""
        wanted, deadline = time.time(), time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            state = replication_state(self.file)
            if state and state.copied_at and state.copied_at.timestamp() > wanted:
                return
            time.sleep(0.05)
        raise AssertionError(f"nothing was copied: {self.said()}")

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def replicating(file: Path, address: str, *options: str) -> Iterator[Replicator]:
    """As long as the block lasts."""
    replicator = Replicator(file, address, *options)
    try:
        yield replicator
    finally:
        if replicator.process.poll() is None:
            replicator.end()
        replicator.log.close()


def add(kb: Session, *names: str) -> None:
    for name in names:
        call(kb, "search_add_document", doc_id=name, content=f"The vane of {name} turns.")


def documents_in(file: Path) -> list[str]:
    with (
        another_process(),
        Database(file, create=False) as database,
        open_session(database) as session,
    ):
        listed = call(session, "documents_list_documents", collection="default")
        return [one["id"] for one in listed["documents"]]


def run(*words: str, code: int = 0) -> str:
    """What a command says."""
    done = subprocess.run(
        [sys.executable, "-m", "kb", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=PATIENCE,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_what_was_written_comes_back_from_each_kind_of_place(
    kb: Session, destination: Place, tmp_path: Path
) -> None:
    file = kb.database.path
    add(kb, "before")
    with replicating(file, destination.address) as replicator:
        replicator.wait_until_copied()
        add(kb, "during")
        replicator.wait_until_copied()
        state = replication_state(file)
        assert state is not None
        assert (state.is_running, state.error, state.is_behind) == (True, "", False)
        found = finding(file)
        assert found is not None
        assert found.state == SOUND
        add(kb, "last")
        assert replicator.end() == 0  # what is not copied yet is copied at the end
        assert destination.address in replicator.said()
    back = tmp_path / "back.db"
    assert restore(destination.address, back) == 3
    assert documents_in(back) == ["before", "during", "last"]
    assert not is_replicated(back)
    assert back.read_bytes()[18:20] == b"\1\1"
    assert not Path(f"{back}-wal").exists()


def test_killed_replicators_and_servers_lose_nothing(kb: Session, tmp_path: Path) -> None:
    address = str(tmp_path / "copy")
    file = kb.database.path
    for number in range(3):
        with replicating(file, address) as replicator:
            replicator.wait_until_copied()
            add(kb, *(f"n{number}{one}" for one in range(5)))
            # The watcher alone: its Litestream goes on, and is ended by the next one.
            replicator.process.kill()
            replicator.process.wait()
        add(kb, f"n{number}while-away")
    with replicating(file, address) as replicator:
        replicator.wait_until_copied()
        children = Path(f"/proc/{replicator.process.pid}/task/{replicator.process.pid}/children")
        if children.exists():
            os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
        add(kb, "last")
        replicator.wait_until_copied()
    back = tmp_path / "back.db"
    restore(address, back)
    assert documents_in(back) == documents_in(file)
    assert len(documents_in(back)) == 19


def test_a_copy_follows_and_answers_every_tool_that_reads(
    project_of_windrose: Session, model: EnglishEmbedder, tmp_path: Path
) -> None:
    written = project_of_windrose
    copy = str(tmp_path / "copy")
    with replicating(written.database.path, copy) as replicator:
        replicator.wait_until_copied()
        database, beside = open_replica(copy, "http://writer:8642/mcp")
        with open_session(
            database,
            beside=beside,
            project=written.knowledge.project,
            make_embedder=lambda _: model,
        ) as replica:
            call(replica, "activate_project")
            for tool in load_tools().values():
                if not tool.read_only:
                    continue
                answer, same = (
                    call_tool(one, tool.name, tool.example) for one in (replica, written)
                )
                assert not answer.is_error, (tool.name, answer.content)
                assert _timeless(answer.content) == _timeless(same.content), tool.name
            found = call(replica, "searchLocalArchives", query="wind")
            assert "results" in found
            for name, arguments in (
                ("search_add_document", {"doc_id": "x", "content": "y"}),
                ("search_create_index", {"index_name": "x"}),
                ("context_record", {"content": "We use JWT tokens in cookies"}),
            ):
                refused = failure(replica, name, **arguments)
                assert copy in refused["error"]
                assert "http://writer:8642/mcp" in refused["error"]
            add(written, "new")
            deadline = time.monotonic() + PATIENCE
            with replica.database.read() as connection:  # one who reads keeps the old state
                while time.monotonic() < deadline and not _sees(replica, "new"):
                    time.sleep(0.05)
                assert connection.integrity(1) == []
            assert _sees(replica, "new")
        folder = Path(os.environ["HOME"]) / ".cache" / "kb" / "replicas"
        assert list(folder.iterdir()) == []


def test_a_replica_says_that_it_may_be_behind_while_the_destination_does_not_answer(
    kb: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := missing("sftp"):
        pytest.skip(reason)
    add(kb, "one")
    with place("sftp", tmp_path / "place") as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        with replicating(kb.database.path, made.address) as replicator:
            replicator.wait_until_copied()
        database, beside = open_replica(made.address, "")
        session = open_session(database, beside=beside)
        assert "notice" not in call(session, "documents_list_collections")
    with session:
        deadline = time.monotonic() + PATIENCE
        while "notice" not in call(session, "documents_list_collections"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        said = call(session, "documents_list_collections")["notice"]
        assert "may lack what was written since" in said
        assert made.address in said
        assert _sees(session, "one")


def _sees(session: Session, name: str) -> bool:
    answer = call_tool(
        session, "documents_get_document", {"collection": "default", "document": name}
    )
    return not answer.is_error


def _timeless(content: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in content.items() if key != "searchTime"}


def test_the_configuration_holds_no_secret_and_is_for_its_owner_alone(
    kb: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_keys = Path(os.environ["HOME"]) / ".ssh" / "known_hosts"
    host_keys.parent.mkdir()
    host_keys.write_text("example.org ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBamOVlFakeFakeFake\n")
    monkeypatch.setenv("KB_SFTP_PASSWORD", 'pa$s"word')
    to = parse_destination("sftp://me@example.org/~/copies/$HOME")
    with litestream.temporary_configuration(to) as (_, place):
        assert place.stat().st_mode & 0o777 == 0o600
        text = place.read_text()
    assert "pa$s" not in text
    assert "pa$s" not in repr(to)
    variables = litestream.environment(to)
    for name in ("KB_SFTP_PASSWORD", "KB_DOLLAR"):  # as Litestream does it
        text = text.replace(f"${{{name}}}", variables[name])
    replica = json.loads(text)["dbs"][0]["replica"]
    assert replica["password"] == 'pa$s"word'
    assert replica["path"] == "copies/$HOME"
    assert replica["host-key"].startswith("ssh-ed25519 AAAA")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("gs://bucket/x", "there is no way to copy to gs://"),
        ("sftp://me:secret@host/x", "no place for a password"),
        ("sftp://me@host", "name a server and a folder there"),
        ("sftp://me@nobody.example/x", "ssh does not know nobody.example"),
        ("s3://bucket", "name a bucket and a folder in it"),
        ("s3://bucket/x?acl=public", "takes endpoint and region after"),
        ("s3://bucket/x?endpoint=storage:9000", "an endpoint is a URL"),
        ("missing/folder/copy", "does not exist: make or mount it first"),
        ("taken", "is a file: name a folder for the copy"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_with_the_reason(
    address: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").touch()
    with pytest.raises((UsageError, SourceError)) as refused:
        parse_destination(address)
    assert said in refused.value.message
    assert "secret" not in refused.value.message


def test_without_ssh_keygen_it_is_said_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SourceError, match="ssh-keygen is not installed, which knows"):
        parse_destination("sftp://me@example.org/~/copies")


def test_without_the_program_it_is_said_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigurationError, match="litestream is missing: pip install"):
        litestream.program()


def test_a_destination_that_does_not_answer_is_told_and_leaves_an_ordinary_file(
    kb: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = kb.database.path
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    address = f"s3://bucket/x?endpoint=http://127.0.0.1:{free_port()}"
    said = run("--db", str(file), "replicate", address, code=3)
    assert f"{address} does not answer" in said
    assert not is_replicated(file)


def test_another_files_copy_is_not_written_over(
    kb: Session, tmp_path: Path, destination: Place
) -> None:
    file = kb.database.path
    add(kb, "one")
    with replicating(file, destination.address) as replicator:
        replicator.wait_until_copied()
    other = tmp_path / "other.db"
    with Database(other):
        pass
    said = run("--db", str(other), "replicate", destination.address, code=2)
    assert "holds a copy already" in said
    assert "--continue" in said
    assert not is_replicated(other)


def test_a_restored_file_goes_on_where_the_lost_one_ended(kb: Session, tmp_path: Path) -> None:
    address = str(tmp_path / "copy")
    add(kb, "one")
    with replicating(kb.database.path, address) as replicator:
        replicator.wait_until_copied()
        add(kb, "two")
        replicator.wait_until_copied()
    back, again = tmp_path / "back.db", tmp_path / "again.db"
    restore(address, back)
    with open_session(Database(back)) as session, replicating(back, address, "--continue") as more:
        more.wait_until_copied()
        add(session, "three")
        more.wait_until_copied()
    restore(address, again)
    assert documents_in(again) == ["one", "three", "two"]


def test_a_file_comes_back_as_it_was_at_a_time(kb: Session, tmp_path: Path) -> None:
    address = str(tmp_path / "copy")
    add(kb, "one")
    with replicating(kb.database.path, address) as replicator:
        replicator.wait_until_copied()
        replicator.wait_until_copied()
        then = datetime.now().astimezone().isoformat()
        replicator.wait_until_copied()
        add(kb, "two")
        replicator.wait_until_copied()
    restore(address, tmp_path / "then.db", then)
    assert documents_in(tmp_path / "then.db") == ["one"]
    with pytest.raises(UsageError, match="is not a time"):
        restore(address, tmp_path / "never.db", "yesterday")
    with pytest.raises(SourceError, match=r"there is no copy from 2001.*: name a later time"):
        restore(address, tmp_path / "never.db", "2001-01-01T00:00:00Z")
    assert not (tmp_path / "never.db").exists()


def test_commands_show_how_far_the_copy_is_and_end_it(kb: Session, tmp_path: Path) -> None:
    file, address = kb.database.path, str(tmp_path / "copy")
    add(kb, "one")
    assert "is not replicated" in run("--db", str(file), "replicate", code=2)
    with replicating(file, address) as replicator:
        replicator.wait_until_copied()
        assert f"is copied to {address}" in run("--db", str(file), "replicate")
        assert f"is copied to {address}" in run("--db", str(file), "status")
        again = run("--db", str(file), "replicate", address, code=3)
        assert f"process {replicator.process.pid}" in again
    found = finding(file)
    assert found is not None
    assert found.state == HINT
    assert f"`kb replicate {address}` goes on" in found.remedy
    said = json.loads(run("--db", str(file), "--json", "replicate", code=1))
    assert (said["destination"], said["running"]) == (address, False)
    add(kb, "two")
    kb.close()
    assert Path(f"{file}-wal").exists()
    assert not stop(file)
    assert not is_replicated(file)
    assert not Path(f"{file}-wal").exists()
    assert documents_in(file) == ["one", "two"]


def test_a_copy_that_is_made_once_holds_everything(kb: Session, tmp_path: Path) -> None:
    file, address = kb.database.path, str(tmp_path / "copy")
    for name in ("one", "two"):
        add(kb, name)
        said = run("--db", str(file), "replicate", address, "--once")
        assert f"is copied to {address}" in said
        back = tmp_path / f"{name}.db"
        restore(address, back)
        assert documents_in(back) == documents_in(file)


def test_a_restore_names_the_file_that_goes_on(kb: Session, tmp_path: Path) -> None:
    address, back = str(tmp_path / "a copy"), str(tmp_path / "back.db")
    add(kb, "one")
    run("--db", str(kb.database.path), "replicate", address, "--once")
    said = run("--db", back, "restore", address)
    assert f"`kb --db {back} replicate '{address}' --continue` goes on from here" in said


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_a_restored_file_is_open_to_nobody_new(kb: Session, tmp_path: Path, mode: int) -> None:
    add(kb, "n")
    kb.database.path.chmod(mode)
    address = str(tmp_path / "copy")
    with replicating(kb.database.path, address) as replicator:
        replicator.wait_until_copied()
    back = tmp_path / "back.db"
    restore(address, back)
    assert stat.S_IMODE(back.stat().st_mode) == mode


def test_no_file_is_restored_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    folder = tmp_path / "missing"
    with pytest.raises(FileError, match="does not exist: make it first"):
        restore(str(tmp_path / "copy"), folder / "kb.db")
    assert not folder.exists()


def test_what_is_there_is_not_written_over_by_a_restore(kb: Session, tmp_path: Path) -> None:
    said = run("--db", str(kb.database.path), "restore", str(tmp_path / "copy"), code=3)
    assert "is there already" in said
    said = run("--db", str(tmp_path / "new.db"), "restore", str(tmp_path / "copy"), code=3)
    assert "there is no copy at" in said
    assert not (tmp_path / "new.db").exists()
    with pytest.raises(SourceError, match="there is no copy at"):
        open_replica(str(tmp_path / "copy"), "")


def test_a_copy_that_does_not_arrive_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, address = tmp_path / "here.db", str(tmp_path / "copy")
    with Database(file), replicating(file, address) as replicator:
        replicator.wait_until_copied()
    monkeypatch.setattr("kb.store.replication.follow.FIRST_SECONDS", 0.0)
    with pytest.raises(SourceError, match="has not arrived in 0 s"):
        open_replica(address, "")


def test_a_litestream_of_somebody_elses_is_recognised(kb: Session) -> None:
    litestream_folder(kb.database.path).mkdir()
    state = replication_state(kb.database.path)
    assert state is not None
    assert "a Litestream that kb did not start" in state.sentence()


def test_a_file_that_is_named_from_here_is_told_to_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("here.db")
    with Database(file), replicating(file, "copy") as replicator:
        replicator.wait_until_copied()
        assert "is there" in run("--db", "here.db", "replicate")

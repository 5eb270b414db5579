"""The watcher: what it notices, and that it neither ends nor keeps the server from ending."""

import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kb.disk.watch import FolderWatcher

TIMEOUT = 15  # only a guard: events come within a second


class Changes:
    """The calls of one watcher."""

    def __init__(self, folder: Path) -> None:
        self._calls: queue.Queue[None] = queue.Queue()
        self.watcher = FolderWatcher(folder, self._changed, folder / "kb.db")
        self.watcher.start()
        assert self.watcher.watching.wait(TIMEOUT)
        self._calls.get(timeout=TIMEOUT)  # for what changed before the watch stood

    def _changed(self) -> bool:
        self._calls.put(None)
        return False

    def wait_until(self, true: Callable[[], bool]) -> None:
        """Wait for calls until one of them finds something to be true."""
        self._calls.get(timeout=TIMEOUT)
        while not true():
            self._calls.get(timeout=TIMEOUT)

    def nothing_comes_before(self, act: Callable[[], None]) -> None:
        assert self._calls.empty()
        act()
        self._calls.get(timeout=TIMEOUT)
        assert self._calls.empty()


@pytest.fixture
def changes(folder: Path) -> Iterator[Changes]:
    made = Changes(folder)
    yield made
    made.watcher.stop()


def test_writing_renaming_and_deleting_are_noticed(changes: Changes, folder: Path) -> None:
    (folder / "a.md").write_text("one")
    changes.wait_until(lambda: True)
    # As editors save: a new file is moved over the old one.
    (folder / ".a.swp").write_text("two")
    os.replace(folder / ".a.swp", folder / "a.md")
    changes.wait_until(lambda: True)
    (folder / "a.md").unlink()
    changes.wait_until(lambda: True)


def test_a_new_folder_is_watched_too(changes: Changes, folder: Path) -> None:
    (folder / "new" / "deep").mkdir(parents=True)
    changes.wait_until(lambda: True)
    (folder / "new" / "deep" / "a.md").write_text("one")
    changes.wait_until(lambda: True)


def test_thousands_of_changes_are_few_calls(changes: Changes, folder: Path) -> None:
    for number in range(2000):
        (folder / f"{number}.md").write_text("x")
    changes.wait_until(lambda: len(os.listdir(folder)) == 2000)
    assert changes._calls.qsize() < 5


def test_the_file_itself_and_git_are_no_changes(changes: Changes, folder: Path) -> None:
    (folder / "kb.db").write_text("x")
    (folder / "kb.db-wal").write_text("x")
    (folder / "node_modules").mkdir()
    changes.nothing_comes_before(lambda: (folder / "a.md").touch())


def test_a_folder_that_is_deleted_and_made_again_is_watched_on(
    changes: Changes, folder: Path
) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    changes.wait_until(folder.exists)
    (folder / "a.md").write_text("one")
    changes.wait_until((folder / "a.md").exists)


def test_a_folder_that_another_takes_the_place_of_is_watched_on(
    changes: Changes, folder: Path
) -> None:
    other = folder.with_name("other")
    other.mkdir()
    folder.rename(folder.with_name("old"))
    other.rename(folder)
    changes.wait_until(folder.exists)
    (folder / "a.md").write_text("one")
    changes.wait_until((folder / "a.md").exists)


def test_who_asks_is_called_back_though_nothing_changed(changes: Changes) -> None:
    changes.nothing_comes_before(changes.watcher.look_again)


def test_a_callback_that_fails_ends_nothing(folder: Path) -> None:
    called = queue.Queue[None]()

    def fail() -> bool:
        called.put(None)
        raise RuntimeError("no")

    watcher = FolderWatcher(folder, fail)
    watcher.start()
    called.get(timeout=TIMEOUT)
    (folder / "a.md").touch()
    called.get(timeout=TIMEOUT)
    watcher.stop()


def test_stopping_does_not_wait_for_a_long_callback(folder: Path) -> None:
    started, release = threading.Event(), threading.Event()

    def block() -> bool:
        started.set()
        return release.wait(TIMEOUT)

    watcher = FolderWatcher(folder, block)
    watcher.start()
    assert started.wait(TIMEOUT)
    watcher.stop()
    release.set()


def test_a_callback_that_left_something_to_do_is_called_again(folder: Path) -> None:
    calls = queue.Queue[int]()

    def count() -> bool:
        calls.put(0)
        return calls.qsize() < 3

    watcher = FolderWatcher(folder, count)
    watcher.start()
    assert watcher.watching.wait(TIMEOUT)
    while calls.qsize() < 3:
        assert not watcher._stopping.wait(0.05)
    watcher.stop()
    assert calls.qsize() == 3

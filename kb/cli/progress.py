"""What people see while something takes long: a bar with rate and time left, or one line."""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from kb.cli import render
from kb.cli.streams import coloured

Show = Callable[[str, int, int], None]

NOTICE_SECONDS = 1.5  # before a command says that it takes longer


class Notice:
    """One line on stderr about a step that takes long: what is done, and how much longer."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._is_silent = options.quiet or options.json
        self._timer: threading.Timer | None = None
        self._stage = ""
        self._began = 0.0

    def begin(self, look: Callable[[], tuple[str, float]]) -> None:
        """Begin a step; `look` says what is done, and for how many seconds in all (0: unknown)."""
        self.end()
        self._look = look
        self._began = time.monotonic()
        if not self._is_silent:
            self._timer = threading.Timer(NOTICE_SECONDS, self._say)
            self._timer.daemon = True
            self._timer.start()

    def show(self, stage: str, done: int, total: int) -> None:
        """The progress of the step, as a callback of `progress`."""
        if stage != self._stage:
            self._stage = stage
            self.begin(lambda: (stage, 0.0))
        elapsed = time.monotonic() - self._began
        if done:
            seconds = elapsed / done * total
            self._look = lambda: (f"{stage}: {done:,} of {total:,}", seconds)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _say(self) -> None:
        doing, seconds = self._look()
        left = max(seconds - (time.monotonic() - self._began), 1)
        render.say(
            f"{doing}, {f'about {_in_words(left)} more' if seconds else 'which takes a while'}"
        )


def _in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextlib.contextmanager
def progress(options: argparse.Namespace) -> Iterator[Show]:
    """A progress callback: a bar on stderr when that is a terminal, else one notice."""
    notice: Notice = options.notice
    if options.quiet or not sys.stderr.isatty():
        yield notice.show
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:>10}"),
        BarColumn(),
        MofNCompleteColumn(),
        _rate_column(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=coloured(sys.stderr)), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            notice.end()
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield show


def _rate_column() -> Any:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:.1f}/s" if task.speed else "")

    return Rate()

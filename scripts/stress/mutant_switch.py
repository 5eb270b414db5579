"""What a checkout with mutants in it is run with: `guard` in its modules, and a plugin for pytest.

A test runs as it is. Then it runs again in a child process for each mutant whose guard it made
use of, until one notices: fixtures and imports are paid once, and no test runs that cannot notice.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time
from pathlib import Path
from typing import TypeVar

import pytest
from _pytest.runner import runtestprotocol

T = TypeVar("T")

# Files and not variables, which some tests and some parts of ours take from their children.
_HERE = Path(__file__).parent
_ACTIVE, _REACHED = _HERE / "mutant-active", _HERE / "mutants-reached"
CHOSEN, VERDICTS = _HERE / "mutants-chosen", _HERE / "mutants-verdicts"
SURVIVED = 77  # no code with which the code itself ends a process
# Of the processor, whose time is the same on a busy machine: of a mutant in one file of tests and
# in all of them (the other tests follow at the end), and of a test beyond ten times its usual time.
SECONDS, MOST_SECONDS, PATIENCE = 3.0, 15.0, 10.0
WAIT = 6  # times that on the clock: what sleeps for so long would hold up the suite
PR_SET_CHILD_SUBREAPER = 36
_active = _ACTIVE.read_text() if _ACTIVE.exists() else ""
_noted: set[str] = set()


def guard(name: str, value: T, instead: T) -> T:
    """A guard's own value, or what a mutant makes of it."""
    if value == instead or (isinstance(instead, bool) and bool(value) is instead):
        return value
    return instead if is_off(name) else value


def is_off(name: str) -> bool:
    """Whether a mutant is the one that is tried; none is while it is noted who gets here."""
    if not _active and name not in _noted:
        _noted.add(name)
        with contextlib.suppress(OSError), _REACHED.open("a") as file:
            file.write(f"{name}\n")
    return name == _active


class Trial:
    """Tries the mutants that are left on each test that passes."""

    def __init__(self) -> None:
        self._left = set(CHOSEN.read_text().split())
        self._seconds: dict[tuple[str, str], float] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        _noted.clear()
        _REACHED.unlink(missing_ok=True)
        began = _processor_seconds()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        patience = PATIENCE + 10 * (_processor_seconds() - began)
        if all(report.passed for report in reports) and _REACHED.exists():
            for name in sorted(self._left & set(_REACHED.read_text().split())):
                self._try(name, item, nextitem, patience)
        return True

    def _try(
        self, name: str, item: pytest.Item, nextitem: pytest.Item | None, patience: float
    ) -> None:
        place = (name, item.nodeid.partition("::")[0])
        spent = [self._seconds.get(where, 0.0) for where in (place, (name, ""))]
        verdict = "reached"
        if spent[0] < SECONDS and spent[1] < MOST_SECONDS:
            began = _processor_seconds()
            verdict = _in_child(name, item, nextitem, patience)
            took = _processor_seconds() - began
            self._seconds |= {place: spent[0] + took, (name, ""): spent[1] + took}
        if verdict == "killed":
            self._left.discard(name)
        with VERDICTS.open("a") as file:
            file.write(f"{verdict}\t{name}\t{item.nodeid}\n")
        if not self._left:
            item.session.shouldstop = "no mutant is left"


def _processor_seconds() -> float:
    """What this process and those that it waited for took."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _children() -> set[int]:
    """The processes below this one, by /proc."""
    own = os.getpid()
    return {int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text().split()}


def _in_child(name: str, item: pytest.Item, nextitem: pytest.Item | None, patience: float) -> str:
    global _active
    _ACTIVE.write_text(name)
    before = _children()
    pid = os.fork()
    if not pid:
        _active = name
        code = 1
        try:
            os.setsid()
            most = resource.getrlimit(resource.RLIMIT_CPU)[1]
            resource.setrlimit(resource.RLIMIT_CPU, (int(patience) + 1, most))
            item._initrequest()  # type: ignore[attr-defined]
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            code = 1 if any(report.failed for report in reports) else SURVIVED
        finally:
            os._exit(code)
    until = time.monotonic() + WAIT * patience
    try:
        while time.monotonic() < until:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return "survived" if os.waitstatus_to_exitcode(status) == SURVIVED else "killed"
            time.sleep(0.005)
        return "killed"
    finally:
        while left := _children() - before:  # and theirs, which come to this process then
            for process in left:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
        _ACTIVE.unlink()


def pytest_configure(config: pytest.Config) -> None:
    if not _active:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        config.pluginmanager.register(Trial())


def pytest_sessionfinish() -> None:
    (_HERE / "mutant-ended").touch()

"""What the stress scripts share: a server to talk to, documents from a seed, a table at the end.

Every script is one command, makes all it needs in a folder of its own, takes `--seed` (the same
seed does the same) and `--seconds` (after which it begins nothing new), prints a Markdown table and
what failed, and exits with 1 if anything did.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

LOST_SECONDS = 120.0  # after which a process is given up
SHOWN = 20  # failures that are printed
WORDS = (
    "vane gauge mast anemometer station battery sensor reading interval archive export chart wind "
    "rain pressure calibrate install configure replace clean measure store send north zero point "
    "firmware update cable power solar panel tower bracket wire signal noise average gust calm"
).split()


def arguments(
    doc: str | None, seconds: float, *, only: Sequence[str] = (), **numbers: int
) -> argparse.Namespace:
    """The command line of a script: its docstring, numbers that bound it, parts to choose from."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=seconds, help="begin nothing new after it")
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    if only:
        parser.add_argument("--only", choices=only, default="", metavar="PART")
    return parser.parse_args()


class Report:
    """Counts, times and failures of a run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.started = time.monotonic()
        self.failures: list[str] = []
        self.times: dict[str, list[float]] = collections.defaultdict(list)
        self.counts: dict[str, collections.Counter[str]] = collections.defaultdict(
            collections.Counter
        )

    @property
    def is_over(self) -> bool:
        return time.monotonic() - self.started > self.options.seconds

    def fail(self, text: str) -> None:
        self.failures.append(text)
        print(f"FAILED: {text}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.times[kind].append(time.monotonic() - started)

    def count_table(self, what: str, columns: Sequence[str]) -> None:
        rows = [[kind, *(counts[one] for one in columns)] for kind, counts in self.counts.items()]
        table([what, *columns], rows)

    def time_table(self, what: str) -> None:
        rows = [
            [kind, len(times), *(f"{percentile(times, p):.3f}" for p in (0.5, 0.95, 0.99, 1.0))]
            for kind, times in sorted(self.times.items())
        ]
        table([what, "times", "p50 s", "p95 s", "p99 s", "max s"], rows)

    def end(self) -> None:
        """Print what failed, and leave."""
        seconds = time.monotonic() - self.started
        print(f"\nseed {self.options.seed}, {seconds:.0f} s, {len(self.failures)} failures")
        for failure in self.failures[:SHOWN]:
            print(f"- {failure}")
        sys.exit(1 if self.failures else 0)


class Server:
    """One `kb serve` and the client that talks to it."""

    def __init__(self, project: Path, *options: str, more: Mapping[str, str] | None = None) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the server
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "kb", "serve", "--rate-limit", "off", *options],
            cwd=project,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={**environment(project), **(more or {})},
        )
        self.number = 0
        self.ask(
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "stress", "version": "1"},
            },
        )
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(message).encode() + b"\n")
        self.popen.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            OSError: the server has ended.
        """
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            answer = json.loads(line)
            if answer.get("id") == self.number:
                return answer
        raise BrokenPipeError("the server has ended")

    def call(self, name: str, **values: Any) -> tuple[dict[str, Any], bool]:
        """What a tool answers, and whether it is an error."""
        answer = self.ask("tools/call", {"name": name, "arguments": values})
        result = answer["result"]
        return json.loads(result["content"][0]["text"]), bool(result.get("isError"))

    def memory(self) -> float:
        """What the process holds, in MB, without the pages of files that it has mapped."""
        for line in Path(f"/proc/{self.popen.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def kill(self) -> None:
        self.popen.send_signal(signal.SIGKILL)
        self._close()

    def end(self) -> tuple[int, int]:
        """Close its input: its exit code, and the tracebacks in its log."""
        assert self.popen.stdin is not None
        with contextlib.suppress(OSError):
            self.popen.stdin.close()
        code = self.popen.wait(LOST_SECONDS)
        self.log.seek(0)
        tracebacks = self.log.read().count(b"Traceback (most recent call last)")
        self._close()
        return code, tracebacks

    def _close(self) -> None:
        self.popen.wait()
        for stream in (self.popen.stdin, self.popen.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        self.log.close()


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)}


def kb_process(project: Path, *words: str) -> subprocess.Popen[str]:
    """A command under way."""
    return subprocess.Popen(
        [sys.executable, "-m", "kb", *words],
        cwd=project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment(project),
    )


def kb(project: Path, *words: str) -> tuple[int, str, str]:
    """A command's exit code, stdout and stderr."""
    process = kb_process(project, *words)
    try:
        out, errors = process.communicate(timeout=LOST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
        return -1, out, f"{errors}\nhangs"
    return process.returncode, out, errors


@contextlib.contextmanager
def workshop() -> Iterator[Path]:
    """A folder for the run, with a project in it."""
    folder = Path(tempfile.mkdtemp(prefix="kb-stress-"))
    try:
        (folder / "project" / ".kb").mkdir(parents=True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def document(rng: random.Random, paragraphs: int = 4) -> str:
    """A page in Markdown."""

    def sentence(words: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(words)).capitalize() + "."

    parts = [f"# {sentence(3)}"]
    for _ in range(paragraphs):
        if rng.random() < 0.4:
            parts.append(f"## {sentence(3)}")
        parts.append(" ".join(sentence(rng.randint(5, 14)) for _ in range(rng.randint(2, 5))))
    return "\n\n".join(parts) + "\n"


def write_documents(folder: Path, rng: random.Random, count: int) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"page-{number}.md" for number in range(count)]
    for path in paths:
        path.write_text(document(rng))
    return paths


def query(database: Path, sql: str, *, with_log: bool = False) -> list[tuple[Any, ...]]:
    """What a plain copy of the `.db` alone holds, read by Python's own SQLite.

    Args:
        with_log: the log or journal is copied too, as after a crash.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(database, folder)
        for suffix in ("-wal", "-journal") if with_log else ():
            if (log := Path(f"{database}{suffix}")).exists():
                shutil.copy(log, folder)
        connection = sqlite3.connect(copy)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A Markdown table on stdout."""
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")

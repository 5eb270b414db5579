"""A Dask scheduler and its workers as processes, and what each worker embedded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kb.ingest.engine import PROBES
from kb.models.embedder import text_hash

ROOT = Path(__file__).resolve().parents[1]
ROLES = ("scheduler", "worker", "client")
COUNTING = Path(__file__).with_name("dask_preload.py")


class Process:
    """One of Dask's commands, from its first word that it is ready until it is ended."""

    def __init__(
        self, module: str, *words: str, ready: str, environment: dict[str, str] | None = None
    ) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{module}", *words, "--no-dashboard"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        )
        self.said = ""
        for line in self._lines():
            self.said += line
            if ready in line:
                return
        raise AssertionError(f"{module} does not start: {self.said}")

    def _lines(self) -> IO[str]:
        assert self.popen.stderr is not None
        return self.popen.stderr

    def end(self) -> None:
        self.popen.kill()
        self._lines().close()
        self.popen.wait(60)


class Cluster:
    """A scheduler on this machine, with workers of one thread each."""

    def __init__(
        self, folder: Path, protocol: str = "tcp", environment: dict[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._environment = environment or {}
        self._number = 0
        words = ("--host", f"{protocol}://127.0.0.1", "--port", "0")
        place = "Scheduler at:"
        self.scheduler = Process("dask_scheduler", *words, ready=place, environment=environment)
        self.address = self.scheduler.said.rpartition(place)[2].strip()
        self.workers: dict[str, Process] = {}

    def add(self, **environment: str) -> str:
        """Start a worker, which is there when this returns: its name."""
        self._number += 1
        name = f"worker-{self._number}"
        counted = {"KB_COUNTED": str(self._folder / f"{name}.jsonl")}
        words = ("--name", name, "--nthreads", "1", "--no-nanny", "--local-directory")
        self.workers[name] = Process(
            "dask_worker",
            self.address,
            *words,
            str(self._folder),
            "--preload",
            str(COUNTING),
            ready="Registered to:",
            environment={**self._environment, **counted, **environment},
        )
        return name

    def kill(self, name: str) -> None:
        self.workers.pop(name).end()

    def embedded_by(self, name: str) -> Counter[str]:
        """The texts that a worker began to embed, by hash, without those that it is tried by."""
        file = self._folder / f"{name}.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        tried = {text_hash(text).hex() for text in PROBES}
        return Counter(key for line in lines if (key := json.loads(line)) not in tried)

    def names(self) -> list[str]:
        """All workers that there have been."""
        return [f"worker-{number + 1}" for number in range(self._number)]

    def end(self) -> None:
        for process in (*self.workers.values(), self.scheduler):
            process.end()


def certificates(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """A new authority's certificate for all: as Dask's settings, and as a process's environment."""
    from distributed.security import Security

    role = Security.temporary().get_tls_config_for_role("client")
    files = {"ca-file": role["ca_file"], "cert": role["cert"], "key": role["key"]}
    settings = {}
    for name, text in files.items():
        file = folder / f"{name}.pem"
        file.write_text(text)
        keys = [name] if name == "ca-file" else [f"{role}.{name}" for role in ROLES]
        settings.update({f"distributed.comm.tls.{key}": str(file) for key in keys})
    environment = {
        "DASK_" + key.upper().replace(".", "__").replace("-", "_"): value
        for key, value in settings.items()
    }
    return settings, environment


@contextmanager
def cluster(
    folder: Path, count: int, protocol: str = "tcp", environment: dict[str, str] | None = None
) -> Iterator[Cluster]:
    """A scheduler with so many workers."""
    made = Cluster(folder, protocol, environment)
    try:
        for _ in range(count):
            made.add()
        yield made
    finally:
        made.end()

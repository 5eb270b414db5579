"""The program litestream: where it is, its configuration, what it says of a destination."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from kb.errors import ConfigurationError, SourceError
from kb.store.replicated import CONTROL
from kb.store.replication.destination import PASSWORD_VARIABLE, Destination

__all__ = [
    "CONFIGURATION",
    "INSTALL",
    "Newest",
    "configuration",
    "environment",
    "explain",
    "newest",
    "program",
    "restore",
    "start",
    "temporary_configuration",
    "write_private",
]

INSTALL = 'pip install "kbfile[replicate]"'
CONFIGURATION = "kb.json"  # Litestream reads YAML, of which JSON is a part
LOOK_INTERVAL = "100ms"  # between two looks at the log
SYNC_INTERVALS = {"s3": "200ms"}  # between two copies of what was found; S3 counts each
SYNC_INTERVAL = "100ms"
# Pages (16 MB) in the log after which it is merged, which takes a sync of the disk and the lock of
# writers. Its own number comes after 4 MB, every two seconds where much is written.
MERGE_PAGES = 4000
# Litestream merges a log of this many pages (123 MB) even if writers have to wait for it, well
# before kb would refuse to write on.
TRUNCATE_PAGES = 30_000
# How long single transactions lie at the destination after they were joined to larger ones, which
# happens twice a minute. All of them are listed again and again; its own default is five minutes.
SINGLE_RETENTION = "1m"
END_SECONDS = "10s"  # for what is not copied yet when it is ended
LOOK_SECONDS = 120.0
_MOST = 200  # characters of a reason that are shown
_DOLLAR = "KB_DOLLAR"  # a literal $ in the configuration, where variables are put in


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest state that a destination holds."""

    number: int  # of Litestream's transactions
    time: datetime


def program() -> str:
    """The path of the program.

    Raises:
        ConfigurationError: it is not installed.
    """
    beside = Path(sysconfig.get_path("scripts")) / f"litestream{'.exe' * (sys.platform == 'win32')}"
    found = str(beside) if beside.is_file() else shutil.which("litestream")
    if found is None:
        raise ConfigurationError(f"the program litestream is missing: {INSTALL}")
    return found


def configuration(file: Path, destination: Destination) -> str:
    """What Litestream is told: which file, where to, how often."""
    interval = SYNC_INTERVALS.get(destination.kind, SYNC_INTERVAL)
    replica = {**destination.settings, "sync-interval": interval, "auto-recover": True}
    return _with_dollars(
        json.dumps(
            {
                "logging": {"level": "info", "type": "json", "stderr": True},
                "socket": {"enabled": True, "path": CONTROL, "permissions": 0o600},
                "shutdown-sync-timeout": END_SECONDS,
                "l0-retention": SINGLE_RETENTION,
                "dbs": [
                    {
                        "path": os.path.realpath(file),
                        "monitor-interval": LOOK_INTERVAL,
                        "min-checkpoint-page-count": MERGE_PAGES,
                        "truncate-page-n": TRUNCATE_PAGES,
                        "replica": replica,
                    }
                ],
                "x-kb": {"address": destination.address},
            },
            indent=2,
            ensure_ascii=False,
        )
    )


def start(
    destination: Destination,
    words: Sequence[str],
    hear: Callable[[str], None],
    *,
    in_own_session: bool = False,
) -> tuple[subprocess.Popen[str], threading.Thread]:
    """Start it with these arguments, and listen to what it logs.

    Args:
        hear: called with each line, on the thread that is returned; that one ends with the process.
        in_own_session: signals of the terminal do not reach it.
    """
    process = subprocess.Popen(
        [program(), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment(destination),
        start_new_session=in_own_session,
    )
    reader = threading.Thread(target=_listen, args=[process.stderr, hear], daemon=True)
    reader.start()
    return process, reader


def _listen(lines: TextIO, hear: Callable[[str], None]) -> None:
    with lines:
        for line in lines:
            hear(line)


def write_private(place: Path, text: str) -> None:
    """Write a file that nobody else may read, all of it or nothing."""
    handle, name = tempfile.mkstemp(dir=place.parent)
    try:
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(name, place)
    except BaseException:
        # It is gone if a signal came just after the last step: what that raised has to get out.
        Path(name).unlink(missing_ok=True)
        raise


def environment(destination: Destination) -> dict[str, str]:
    """Litestream's own: with the secrets, which are in nothing else."""
    variables = {**os.environ, **destination.secrets, _DOLLAR: "$"}
    # With this variable its S3 client refuses to begin; it takes the authorities from that one.
    if authorities := variables.pop("AWS_CA_BUNDLE", ""):
        variables.setdefault("SSL_CERT_FILE", authorities)
    return variables


@contextmanager
def temporary_configuration(destination: Destination) -> Iterator[tuple[str, Path]]:
    """A configuration for reading a copy, and the name of the file in it."""
    with tempfile.TemporaryDirectory(prefix="kb-") as folder:
        name = Path(folder) / "kb.db"
        place = Path(folder) / CONFIGURATION
        write_private(place, configuration(name, destination))
        yield os.path.realpath(name), place


def newest(destination: Destination) -> Newest | None:
    """The newest state that a destination holds; None where there is no copy.

    Raises:
        SourceError: it cannot be reached.
    """
    destination.require_answer()
    with temporary_configuration(destination) as (name, place):
        done = _run(destination, "restore", "-config", place, "-dry-run", "-json", "-o", name, name)
    if done.returncode:
        if "no matching backup files" in done.stderr:
            return None
        raise SourceError(explain(done.stderr, destination))
    plan: dict[str, Any] = json.loads(done.stdout)
    last = max(plan["files"], key=lambda one: str(one["max_txid"]))
    return Newest(int(plan["max_txid"], 16), datetime.fromisoformat(last["timestamp"]))


def restore(destination: Destination, target: Path, at: str = "") -> None:
    """Bring a copy back as a file, which must not be there.

    Raises:
        SourceError: there is no copy, or it cannot be read.
    """
    destination.require_answer()
    when = ["-timestamp", at] if at else []
    with temporary_configuration(destination) as (name, place):
        done = _run(
            destination,
            "restore",
            "-config",
            place,
            *when,
            "-integrity-check",
            "quick",
            "-o",
            target.absolute(),
            name,
            patience=None,
        )
    if done.returncode:
        raise SourceError(explain(done.stderr, destination, at))


def explain(said: str, destination: Destination, at: str = "") -> str:
    """What Litestream complains of, with what to do.

    Args:
        at: the time for which a copy was asked; "" for the newest.
    """
    lines = [line for line in said.splitlines() if line.strip()]
    reason = lines[-1].removeprefix("Error: ") if lines else "it said nothing"
    place = destination.address
    if "no matching backup files" in reason or "timestamp" in reason:
        if at:
            return f"there is no copy from {at} or before at {place}: name a later time, or none"
        return f"there is no copy at {place}: `kb replicate` where the file is makes one"
    for pattern, advice in _ADVICE:
        if re.search(pattern, reason, re.IGNORECASE):
            return f"cannot use {place}: {advice} ({_short(reason)})"
    return f"cannot use {place}: {_short(reason)}"


_ADVICE = (
    ("host key mismatch", "the server shows another key than ssh knows. Log in once with "
     "`ssh -o HostKeyAlgorithms=ecdsa-sha2-nistp256,rsa-sha2-512 HOST` and compare its key"),
    ("passphrase", "the key has a passphrase: make one without for this, and name it in "
     "KB_SFTP_KEY"),
    ("unable to authenticate|no supported methods", "the server does not let us in: look at the "
     "user, at KB_SFTP_KEY and at KB_SFTP_PASSWORD"),
    ("NoSuchBucket", "there is no such bucket: make it first"),
    ("InvalidAccessKey|SignatureDoesNotMatch|AccessDenied|Forbidden|get credentials|IMDS",
     "the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in ~/.aws, are missing or do not "
     "open it"),
    ("permission denied", "it may not be written: look at the rights of its folder"),
    ("no space left|disk full", "there is no room left"),
    ("connection refused|no such host|timeout|timed out|unreachable|reset by peer|EOF|deadline",
     "it does not answer: look at the address and the network"),
)  # fmt: skip


def _short(reason: str) -> str:
    """The end of a chain of reasons, which is the one that matters."""
    return reason if len(reason) <= _MOST else f"...{reason[-_MOST:]}"


def _with_dollars(text: str) -> str:
    kept = f"${{{PASSWORD_VARIABLE}}}"
    return kept.join(part.replace("$", f"${{{_DOLLAR}}}") for part in text.split(kept))


def _run(
    destination: Destination, *words: object, patience: float | None = LOOK_SECONDS
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [program(), *map(str, words)],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            env=environment(destination),
            check=False,
            timeout=patience,
        )
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"{destination.address} has not answered for {patience:.0f} s") from error

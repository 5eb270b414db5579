"""The program litestream: its place, its configuration, and where it copies to.

An address (of a folder, an SFTP server, S3 or what speaks like it) becomes the settings that
Litestream knows. None of them is a secret: keys and passwords come from the environment and from
files that stay where they are.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from kb.disk.system import apart
from kb.disk.write import replace_file
from kb.errors import ConfigurationError, FileError, SourceError, UsageError
from kb.store.contents import sizes
from kb.store.database import Database
from kb.store.write_ahead_log import CONTROL, litestream_folder

KEY_VARIABLE = "KB_SFTP_KEY"
PASSWORD_VARIABLE = "KB_SFTP_PASSWORD"
SSH_PORT = 22
CONNECT_SECONDS = 10
_OWN_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
# Litestream's SSH takes the first of these that the server has.
_HOST_KEYS = ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
_S3_OPTIONS = ("endpoint", "region")
_PORTS = {"http": 80, "https": 443}
_DEFAULT_REGION = "us-east-1"  # which servers of one's own take for any
_FORMS = "a folder, sftp://USER@HOST/FOLDER or s3://BUCKET/FOLDER"
INSTALL = 'pip install "kbfile[replicate]" (there is none for Windows)'
CONFIGURATION = "kb.json"  # Litestream reads YAML, of which JSON is a part
LOOK_INTERVAL = "100ms"  # between two looks at the log
SYNC_INTERVALS = {"s3": "200ms"}  # between two copies of what was found; S3 counts each
SYNC_INTERVAL = "100ms"
# The log is merged from this many pages (16 MB) on, at the price of a disk sync and a write lock.
MERGE_PAGES = 4000
# From here (123 MB) it is merged even if writers must wait; kb would refuse to write only later.
TRUNCATE_PAGES = 30_000
# How long transactions are kept once they are joined. All are listed each time; the default is 5m.
SINGLE_RETENTION = "1m"
END_SECONDS = "10s"  # for what is not copied yet when it is ended
LOOK_SECONDS = 120.0
_MOST = 200  # characters of a reason that are shown
_DOLLAR = "KB_DOLLAR"  # a literal $ in the configuration, where variables are put in
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


@dataclass(frozen=True, slots=True)
class Destination:
    """One place that holds, or will hold, the copy of one file."""

    address: str  # as people read and type it
    settings: Mapping[str, object]  # Litestream's, of a replica
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # for its environment
    server: tuple[str, int] | None = None  # which has to answer first, where we know it

    @property
    def kind(self) -> str:
        return str(self.settings["type"])

    def require_answer(self) -> None:
        """Raise SourceError if a server does not answer: Litestream would try for two minutes."""
        if self.server is None:
            return
        try:
            socket.create_connection(self.server, CONNECT_SECONDS).close()
        except OSError as error:
            raise SourceError(
                f"{self.address} does not answer: look at the address and the network "
                f"({error.strerror or error})"
            ) from error


def parse_destination(text: str) -> Destination:
    """The place that somebody named.

    Raises:
        UsageError: it is not an address, or holds a secret.
        SourceError: its folder, key or host is not known here.
    """
    scheme, separator, _ = text.partition("://")
    if not separator:
        return _folder(Path(text).expanduser())
    parts = urlsplit(text)
    if parts.password is not None:
        raise UsageError(
            "an address is no place for a password, which other users of the machine can read: "
            f"put it into {PASSWORD_VARIABLE}, or use a key"
        )
    if scheme == "file":
        return _folder(Path(unquote(parts.path)))
    if scheme not in ("sftp", "s3"):
        raise UsageError(f"there is no way to copy to {scheme}://: name {_FORMS}")
    return _sftp(parts) if scheme == "sftp" else _s3(parts)


def _folder(path: Path) -> Destination:
    path = Path(os.path.abspath(path))
    if path.is_file():
        raise UsageError(f"{path} is a file: name a folder for the copy")
    if not path.parent.is_dir():
        # Litestream would make it, also where a disk is to be mounted.
        raise SourceError(f"the folder {path.parent} does not exist: make or mount it first")
    return Destination(str(path), {"type": "file", "path": str(path)})


def _s3(parts: SplitResult) -> Destination:
    path = unquote(parts.path).strip("/")
    if not parts.hostname or not path:
        raise UsageError("name a bucket and a folder in it, such as s3://bucket/handbook")
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if unknown := [name for name in options if name not in _S3_OPTIONS]:
        raise UsageError(f"s3:// takes {' and '.join(_S3_OPTIONS)} after ?, not {unknown[0]}")
    settings: dict[str, object] = {"type": "s3", "bucket": parts.netloc, "path": path, **options}
    if "endpoint" not in options:
        return Destination(parts.geturl(), settings)
    settings.setdefault("region", _DEFAULT_REGION)
    settings["force-path-style"] = True
    endpoint = urlsplit(options["endpoint"])
    if endpoint.scheme not in _PORTS or not endpoint.hostname:
        raise UsageError("an endpoint is a URL, such as https://storage.example.org")
    server = (endpoint.hostname, endpoint.port or _PORTS[endpoint.scheme])
    return Destination(parts.geturl(), settings, server=server)


def _sftp(parts: SplitResult) -> Destination:
    folder = unquote(parts.path)
    if not parts.hostname or not folder.strip("/"):
        raise UsageError("name a server and a folder there, such as sftp://me@host/~/handbook")
    host, port = server = parts.hostname, parts.port or SSH_PORT
    settings: dict[str, object] = {
        "type": "sftp",
        "host": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        "user": unquote(parts.username) if parts.username else getpass.getuser(),
        "path": folder.removeprefix("/~/"),
        "host-key": _host_key(host, port),
    }
    if password := os.environ.get(PASSWORD_VARIABLE):
        # Litestream puts it in from its environment, into the text of the configuration.
        settings["password"] = f"${{{PASSWORD_VARIABLE}}}"
        return Destination(
            parts.geturl(), settings, {PASSWORD_VARIABLE: json.dumps(password)[1:-1]}, server
        )
    settings["key-path"] = str(_own_key())
    return Destination(parts.geturl(), settings, server=server)


def _own_key() -> Path:
    if named := os.environ.get(KEY_VARIABLE):
        path = Path(named).expanduser().absolute()
        if not path.is_file():
            raise SourceError(f"there is no key {path}, which {KEY_VARIABLE} names")
        return path
    folder = Path.home() / ".ssh"
    keys = [folder / name for name in _OWN_KEYS if (folder / name).is_file()]
    if not keys:
        raise SourceError(
            f"there is no key in {folder} to log in with: name one in {KEY_VARIABLE}, or put a "
            f"password into {PASSWORD_VARIABLE}"
        )
    return keys[0]


def _host_key(host: str, port: int) -> str:
    """The server's key that ssh knows; Litestream itself would trust whoever answers."""
    name = host if port == SSH_PORT else f"[{host}]:{port}"
    try:
        done = subprocess.run(
            ["ssh-keygen", "-F", name, "-f", str(Path.home() / ".ssh" / "known_hosts")],
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except FileNotFoundError as error:
        raise SourceError(
            "ssh-keygen is not installed, which knows the keys of servers: install OpenSSH's "
            "client (openssh-client in Debian and Ubuntu)"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"cannot ask ssh-keygen for the key of {name}: {error}") from error
    lines = (line.split() for line in done.stdout.splitlines() if not line.startswith(("#", "@")))
    keys = {fields[1]: f"{fields[1]} {fields[2]}" for fields in lines if len(fields) > 2}
    if not keys:
        raise SourceError(
            f"ssh does not know {name}, so another machine might answer in its place: log in once "
            f"with `ssh{'' if port == SSH_PORT else f' -p {port}'} {host}`, and look at its key"
        )
    return keys[next((kind for kind in _HOST_KEYS if kind in keys), next(iter(keys)))]


@dataclass(frozen=True, slots=True)
class Newest:
    number: int  # of Litestream's transactions
    time: datetime


def program() -> str:
    """The path of the program. Raises ConfigurationError if it is not installed."""
    beside = shutil.which("litestream", path=sysconfig.get_path("scripts"))
    program = beside or shutil.which("litestream")
    if program is None:
        raise ConfigurationError(f"the program litestream is missing: {INSTALL}")
    return program


def configuration(file: Path, destination: Destination) -> str:
    """What Litestream is told: which file, where to, how often."""
    interval = SYNC_INTERVALS.get(destination.kind, SYNC_INTERVAL)
    replica = {**destination.settings, "sync-interval": interval, "auto-recover": True}
    settings = {
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
    }
    password = f"${{{PASSWORD_VARIABLE}}}"  # the one variable that Litestream puts in
    parts = json.dumps(settings, indent=2, ensure_ascii=False).split(password)
    return password.join(part.replace("$", f"${{{_DOLLAR}}}") for part in parts)


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
        **(apart() if in_own_session else {}),
    )

    def listen(lines: TextIO) -> None:
        with lines:
            for line in lines:
                hear(line)

    reader = threading.Thread(target=listen, args=[process.stderr], daemon=True)
    reader.start()
    return process, reader


def environment(destination: Destination) -> dict[str, str]:
    """Litestream's environment: the only place that holds the secrets."""
    variables = {**os.environ, **destination.secrets, _DOLLAR: "$"}
    # With this variable its S3 client refuses to begin; it takes the authorities from that one.
    if authorities := variables.pop("AWS_CA_BUNDLE", ""):
        variables.setdefault("SSL_CERT_FILE", authorities)
    return variables


@contextmanager
def temporary_configuration(destination: Destination) -> Iterator[tuple[str, Path]]:
    """A configuration for reading a copy, and the file's name in it."""
    with tempfile.TemporaryDirectory(prefix="kb-") as folder:
        name = Path(folder) / "kb.db"
        place = Path(folder) / CONFIGURATION
        replace_file(place, configuration(name, destination), is_private=True)
        yield os.path.realpath(name), place


def newest(destination: Destination) -> Newest | None:
    """The newest state at a destination; None without a copy. Raises SourceError."""
    destination.require_answer()
    with temporary_configuration(destination) as (name, place):
        done = _run(destination, "restore", "-config", place, "-dry-run", "-json", "-o", name, name)
    if done.returncode:
        if "no matching backup files" in done.stderr:
            return None
        raise SourceError(explain(done.stderr, destination))
    plan: dict[str, Any] = json.loads(done.stdout)
    last = max(plan["files"], key=lambda file: str(file["max_txid"]))
    return Newest(int(plan["max_txid"], 16), datetime.fromisoformat(last["timestamp"]))


def restore(address: str, file: Path, at: str = "") -> int:
    """Write the file from its copy at an address; how many documents it has.

    It gets the permissions of the copy in a folder. No other place keeps them, so the file is then
    for its owner alone.

    Args:
        at: a time; the file is then as it was at that time.

    Raises:
        FileError: there is a file already, or what comes back is not a kb file.
        SourceError: there is no copy, or it cannot be read.
        UsageError: the time or the address is malformed.
    """
    destination = parse_destination(address)
    at = _time(at) if at else ""
    for place in (file, Path(f"{file}-wal")):
        if place.exists():
            raise FileError(
                f"{place} is there already, and would be lost: move it away, or name another file "
                "with --db",
                path=str(place),
            )
    if not file.absolute().parent.is_dir():
        raise FileError(f"the folder {file.parent} does not exist: make it first")
    destination.require_answer()
    with temporary_configuration(destination) as (name, place):
        words = ["restore", "-config", place, "-integrity-check", "quick", "-o", file.absolute()]
        words += ["-timestamp", at] if at else []
        done = _run(destination, *words, name, patience=None)
    if done.returncode:
        raise SourceError(explain(done.stderr, destination, at))
    if destination.kind == "file":
        last = max(Path(destination.address).glob("ltx/*/*.ltx"), key=os.path.getmtime)
        file.chmod(stat.S_IMODE(last.stat().st_mode))
    for name in (f"{file}-shm", f"{file}-wal"):  # of Litestream's own look at it
        Path(name).unlink(missing_ok=True)
    # What Litestream knew of the file that was here is not true of this one.
    shutil.rmtree(litestream_folder(file), ignore_errors=True)
    with Database(file, create=False) as database:
        with database.write():
            pass  # the last to leave an ordinary file gives it its own kind of journal
        with database.read() as connection:
            return sizes(connection)["documents"]


def explain(output: str, destination: Destination, at: str = "") -> str:
    """What Litestream complains of and what to do, for a copy as of a time or "" for the newest."""
    lines = [line for line in output.splitlines() if line.strip()]
    reason = lines[-1].removeprefix("Error: ") if lines else "it said nothing"
    place = destination.address
    if "no matching backup files" in reason or "timestamp" in reason:
        if at:
            return f"there is no copy from {at} or before at {place}: name a later time, or none"
        return f"there is no copy at {place}: `kb replicate` where the file is makes one"
    # Of a chain of reasons the end is the one that matters.
    short = reason if len(reason) <= _MOST else f"...{reason[-_MOST:]}"
    for pattern, advice in _ADVICE:
        if re.search(pattern, reason, re.IGNORECASE):
            return f"cannot use {place}: {advice} ({short})"
    return f"cannot use {place}: {short}"


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
            umask=0o077,
        )
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"{destination.address} has not answered for {patience:.0f} s") from error


def _time(text: str) -> str:
    """A time for Litestream, which wants a zone: by default the local one."""
    try:
        return datetime.fromisoformat(text).astimezone().isoformat()
    except ValueError as error:
        raise UsageError(f"{text} is not a time such as 2026-11-28T12:00:00Z") from error

"""Places that a file is copied to: a folder, an SFTP server and an S3 server of a test's own."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

KINDS = ("folder", "sftp", "s3")
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
PROGRAMS = Path(sysconfig.get_path("scripts"))
BUCKET = "copies"
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Place:
    """An address, and what the environment needs to use it."""

    address: str
    environment: dict[str, str] = field(default_factory=dict)


def missing(kind: str) -> str:
    """Why a place cannot be had on this machine; "" if it can."""
    if not (PROGRAMS / "litestream").exists() and shutil.which("litestream") is None:
        return "the program litestream is not installed: the extra `replicate`"
    if kind == "sftp" and SSHD is None:
        return "there is no SSH server on this machine: Debian's openssh-server"
    if kind == "s3" and not (PROGRAMS / "moto_server").exists():
        return "there is no S3 server on this machine: moto[server], of the extra `test`"
    return ""


@contextlib.contextmanager
def place(kind: str, folder: Path) -> Iterator[Place]:
    """One of them, as long as the block lasts.

    Args:
        folder: where it keeps everything; for an SFTP server also the home of who logs in.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        yield Place(str(folder / "copy"))
        return
    with _sftp(folder) if kind == "sftp" else _s3(folder) as made:
        yield made


@contextlib.contextmanager
def ssh_server(folder: Path) -> Iterator[tuple[int, Path]]:
    """An SSH server for the key `key` of a folder, as its port and a home that knows the server."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    for name in ("host", "key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", folder / name], check=True
        )
    shutil.copy(folder / "key.pub", folder / "authorized_keys")
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        "Subsystem sftp internal-sftp\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # which it asks for where it is not a service
    assert SSHD is not None
    home = folder / "home"
    (home / ".ssh").mkdir(parents=True)
    host_key = " ".join((folder / "host.pub").read_text().split()[:2])
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}\n")
    command = [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")]
    with _server(command, folder, port):
        yield port, home


@contextlib.contextmanager
def _sftp(folder: Path) -> Iterator[Place]:
    with ssh_server(folder) as (port, home):
        yield Place(
            f"sftp://{getpass.getuser()}@127.0.0.1:{port}{folder}/copy",
            {"HOME": str(home), "KB_SFTP_KEY": str(folder / "key")},
        )


@contextlib.contextmanager
def _s3(folder: Path) -> Iterator[Place]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(PROGRAMS / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with _server(command, folder, port):
        urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT"), timeout=60)
        yield Place(
            f"s3://{BUCKET}/copy?endpoint={url}",
            {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "quite-secret"},
        )


@contextlib.contextmanager
def _server(command: list[str], folder: Path, port: int) -> Iterator[None]:
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                said = (folder / "server.log").read_text(errors="replace")
                raise RuntimeError(f"{command[0]} does not start: {said[-500:]}")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def free_port() -> int:
    """One that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])

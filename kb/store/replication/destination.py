"""Where a file is copied to: a folder, an SFTP server, S3 or what speaks like it.

An address becomes the settings that Litestream knows. None of them is a secret: keys and passwords
come from the environment and from files that stay where they are.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from kb.errors import SourceError, UsageError

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

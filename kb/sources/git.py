"""A git repository by its address: its documents, as of one commit, in a folder of our own.

git does the fetching; nothing of the repository is ever checked out, so that neither hooks nor
filters nor attributes nor links of it mean anything. Of history one commit is fetched, of files
only those that can be documents. What was fetched is kept in the user's cache folder, so that the
next sync fetches what changed; without it the next sync fetches all of it again, and no more.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

from kb.disk.ignore import IGNORE_FILES
from kb.disk.read import MAXIMUM_DOCUMENT, reason
from kb.errors import SourceError
from kb.sources.address import GitAddress
from kb.sources.cache import cache_folder
from kb.sources.git_complaints import complaint
from kb.sources.manifest import MANIFEST_NAME, read_manifest
from kb.sources.member import MOST_BYTES, Target
from kb.sources.opened import Opened

__all__ = ["cloned"]

MOST_SECONDS = 900  # of one call of git
LOOK_SECONDS = 0.5  # how often the size of what is fetched is looked at
MOST_FETCHES = 50  # each leaves a pack behind; then the repository is fetched anew
MOST_MEMORY_KIB = 2 * 1024**2  # of one process of git
LOCK_SECONDS = 600

# Where git would look for a repository other than the one that it is told of.
_PLACES = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_SHALLOW_FILE"),
    *("GIT_GRAFT_FILE", "GIT_ASKPASS", "SSH_ASKPASS", "GIT_TEMPLATE_DIR", "GIT_PROTOCOL_FROM_USER"),
)
# Said before every command. What a repository's own configuration says stands behind it.
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.askPass=",
    "core.fsmonitor=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.version=2",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "core.packedGitWindowSize=32m",
    "core.packedGitLimit=256m",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=60",
)
_NOT_BY_ID = re.compile(r"unadvertised object|not our ref")
_FILE_MODES = (b"100644", b"100755", b"100664")


@contextlib.contextmanager
def cloned(address: GitAddress, wants: Callable[[str], int]) -> Iterator[Opened]:
    """The documents of a repository in a folder, for as long as the block lasts.

    Args:
        wants: how many bytes a file, by its path below the address' folder, may have as a
            document; 0 when it is none.

    Raises:
        SourceError: git is missing or cannot fetch it, there is no such ref or folder, or it is
            larger than can be meant.
    """
    with TemporaryDirectory(prefix="kb-git-") as folder:
        try:
            with _repository(address) as repository:
                commit, seconds = repository.fetch()
                files = repository.files(commit)
                target = Target(Path(folder), address.stored)
                below = _below(address)
                chosen = _chosen(address, files, wants)
                repository.write(chosen, target, commit, seconds)
                manifest = read_manifest(
                    Path(folder, address.manifest or f"{below}{MANIFEST_NAME}")
                )
                if manifest.restricts:  # it may name what no suffix tells
                    known = {file.path for file in chosen}
                    is_named = manifest.is_named()
                    named = [
                        replace(file, maximum=MAXIMUM_DOCUMENT)
                        for file in files
                        if file.path.startswith(below)
                        and file.path not in known
                        and is_named(file.path[len(below) :])
                    ]
                    repository.write(named, target, commit, seconds)
        except OSError as error:
            raise _failure(address, reason(error)) from error
        root = Path(folder, below)
        root.mkdir(parents=True, exist_ok=True)  # nothing of it can be a document
        yield Opened(root, manifest, commit)


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a commit."""

    path: str
    blob: str  # the id of its content
    maximum: int = 0  # bytes that it may have


def _below(address: GitAddress) -> str:
    """The folder that is the collection, with a slash; "" for the whole repository."""
    folder = address.folder or address.manifest.rpartition("/")[0]
    return f"{folder}/" if folder else ""


def _chosen(
    address: GitAddress, files: Sequence[_File], wants: Callable[[str], int]
) -> list[_File]:
    """The files that are fetched: possible documents, and what says which of them are meant."""
    below = _below(address)
    inside = [file for file in files if file.path.startswith(below)]
    if not inside:
        raise _failure(address, f'it has no folder "{below}"')
    if address.manifest and all(file.path != address.manifest for file in files):
        raise _failure(address, f'it has no file "{address.manifest}"')
    chosen = []
    for file in files:
        maximum = 0
        if file.path == address.manifest:
            maximum = MAXIMUM_DOCUMENT
        elif file.path.startswith(below):
            is_ours = file.path.rpartition("/")[2] in (*IGNORE_FILES, MANIFEST_NAME)
            maximum = MAXIMUM_DOCUMENT if is_ours else wants(file.path[len(below) :])
        if maximum:
            chosen.append(replace(file, maximum=maximum))
    return chosen


@dataclass(frozen=True, slots=True)
class _Repository:
    """A bare repository of ours that holds what was fetched of an address."""

    folder: Path
    address: GitAddress
    ssh_command: str = ""  # "": as git has it

    def fetch(self) -> tuple[str, int]:
        """Fetch the newest commit that is meant, without any file. Its id, and its time."""
        return self._fetch_commit("--filter=blob:none")

    def _fetch_commit(self, *options: str) -> tuple[str, int]:
        own = "refs/kb/" + hashlib.sha256(self.address.ref.encode()).hexdigest()[:16]
        self._git(
            *("fetch", "--quiet", "--no-tags", "--depth=1", "--force", *options),
            *("--no-write-fetch-head", "--no-auto-maintenance", "--end-of-options", "origin"),
            f"{self.address.ref or 'HEAD'}:{own}",
        )
        told = self._git("show", "--no-patch", "--format=%H %ct", f"{own}^{{commit}}", "--")
        commit, seconds = told.decode().split()[-2:]
        return commit, int(seconds)

    def files(self, commit: str) -> list[_File]:
        """The regular files of a commit; neither links nor submodules."""
        listing = self._git("ls-tree", "-r", "-z", "--full-tree", commit)
        files = []
        for line in listing.split(b"\0"):
            about, _, path = line.partition(b"\t")
            mode, _, blob = about.partition(b" ")
            if mode in _FILE_MODES:
                files.append(_File(os.fsdecode(path), blob.rpartition(b" ")[2].decode()))
        return files

    def _fetch_blobs(self, files: Iterable[_File], commit: str) -> None:
        """Fetch the content of these files of a commit, unless it is there."""
        there = set(
            self._git(
                "cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname)"
            ).split()
        )
        if not (missing := {file.blob for file in files if file.blob.encode() not in there}):
            return
        try:
            self._git(
                *("-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet", "--no-tags"),
                *("--no-write-fetch-head", "--no-auto-maintenance", "--filter=blob:none"),
                *("--stdin", "--end-of-options", "origin"),
                given="".join(f"{blob}\n" for blob in sorted(missing)).encode(),
            )
        except SourceError as error:
            # Behind an sshd as it comes git speaks its first protocol, which gives no single files.
            if not _NOT_BY_ID.search(error.message):
                raise
            if self._fetch_commit("--refetch", "--no-filter")[0] != commit:
                raise _failure(self.address, "it changed meanwhile: try again") from error

    def write(self, files: Sequence[_File], target: Target, commit: str, seconds: int) -> None:
        """Fetch and write these files, each with a time that its content decides."""
        if not files:
            return
        self._fetch_blobs(files, commit)
        checked = self._git("cat-file", "--batch-check", given=_lines(files)).splitlines()
        sizes = [int(line.rpartition(b" ")[2]) for line in checked]
        small = [file for file, size in zip(files, sizes, strict=True) if size <= file.maximum]
        with self._running("cat-file", "--batch", given=_lines(small)) as output:
            for file, size in zip(files, sizes, strict=True):
                # Files of one second are told apart by it, also where they have the same length.
                part = int(file.blob[:7], 16) % 1_000_000_000
                time_ns = seconds * 1_000_000_000 + part
                if size > file.maximum:
                    target.write_hole(file.path, size, time_ns)
                    continue
                output.readline()
                target.write(file.path, _Part(output, size), time_ns)
                output.read(1)

    def _git(self, *arguments: str, given: bytes = b"") -> bytes:
        with self._running(*arguments, given=given) as output:
            return output.read()

    @contextlib.contextmanager
    def _running(self, *arguments: str, given: bytes = b"") -> Iterator[IO[bytes]]:
        """What a command of git prints, once it has ended well."""
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        command = [*_limited(), "git", *settings, f"--git-dir={self.folder}", *arguments]
        with TemporaryFile() as stdin, TemporaryFile() as stdout, TemporaryFile() as stderr:
            stdin.write(given)
            stdin.seek(0)
            with _started(command, self._environment(), stdin, stdout, stderr) as process:
                self._wait(process, stdout)
            if process.returncode:
                stderr.seek(0)
                raise _failure(self.address, complaint(stderr.read(100_000), process.returncode))
            stdout.seek(0)
            yield stdout

    def _wait(self, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
        until = time.monotonic() + MOST_SECONDS
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_SECONDS)
                return
            if time.monotonic() > until:
                raise _failure(self.address, f"it took more than {MOST_SECONDS / 60:.0f} minutes")
            if _size(self.folder) + os.fstat(output.fileno()).st_size > MOST_BYTES:
                raise _failure(self.address, f"it has more than {MOST_BYTES / 1e9:.0f} GB")

    def _environment(self) -> dict[str, str]:
        environment = {key: value for key, value in os.environ.items() if key not in _PLACES}
        if self.ssh_command:
            environment["GIT_SSH_COMMAND"] = self.ssh_command
        environment |= {
            "GIT_TERMINAL_PROMPT": "0",
            "GCM_INTERACTIVE": "never",
            "GIT_ALLOW_PROTOCOL": self.address.url.partition("://")[0],
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "LC_ALL": "C",
        }
        return environment


@contextlib.contextmanager
def _repository(address: GitAddress) -> Iterator[_Repository]:
    """The repository for an address, which nobody else uses meanwhile."""
    from filelock import FileLock, Timeout

    if shutil.which("git") is None:
        raise SourceError(
            f"{address.stored} needs git, which is not installed: install it, or add a checkout as "
            "a folder"
        )
    folder = cache_folder("git") / hashlib.sha256(address.url.encode()).hexdigest()[:32]
    try:
        with FileLock(f"{folder}.lock", timeout=LOCK_SECONDS):
            if len(list((folder / "objects" / "pack").glob("*.pack"))) > MOST_FETCHES:
                shutil.rmtree(folder)
            repository = _Repository(folder, address)
            if not (folder / "complete").exists():
                shutil.rmtree(folder, ignore_errors=True)
                repository._git("init", "--quiet", "--bare", "--template=")
                repository._git("config", "remote.origin.url", address.url)
                (folder / "complete").touch()
            os.utime(folder)
            yield _asking_nothing(repository)
    except Timeout as error:
        raise _failure(address, "another sync of it has not ended for ten minutes") from error


def _asking_nothing(repository: _Repository) -> _Repository:
    """The repository with an ssh that does not ask, unless the user says how ssh is called."""
    if not repository.address.url.startswith("ssh:") or os.environ.get("GIT_SSH_COMMAND"):
        return repository
    try:
        own = repository._git("config", "--get", "core.sshCommand").decode().strip()
    except SourceError:  # there is none
        own = "ssh"
    return replace(repository, ssh_command=f"{own} -o BatchMode=yes")


@contextlib.contextmanager
def _started(
    command: Sequence[str],
    environment: dict[str, str],
    stdin: IO[bytes],
    stdout: IO[bytes],
    stderr: IO[bytes],
) -> Iterator[subprocess.Popen[bytes]]:
    """A program without a terminal that it could ask on; it and what it started end with us."""
    process = subprocess.Popen(
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environment,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            with contextlib.suppress(OSError):
                if os.name == "posix":
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
            process.wait()


def _lines(files: Iterable[_File]) -> bytes:
    return "".join(f"{file.blob}\n" for file in files).encode()


def _limited() -> tuple[str, ...]:
    """What keeps a program's memory bounded: git holds all that a server says of its branches."""
    if os.name != "posix":
        return ()
    return ("/bin/sh", "-c", f'ulimit -v {MOST_MEMORY_KIB} 2>/dev/null; exec "$0" "$@"')


class _Part:
    """The next bytes of a stream, as a stream of their own."""

    def __init__(self, stream: IO[bytes], length: int) -> None:
        self._stream = stream
        self._left = length

    def read(self, size: int = -1, /) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._stream.read(wanted)
        self._left -= len(data)
        return data


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(place, name)).st_size
    return total


def _failure(address: GitAddress, why: str) -> SourceError:
    return SourceError(f"{address.stored} cannot be fetched: {why}", path=address.stored)

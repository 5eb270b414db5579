"""A git repository by its address: its documents, as of one commit, in a folder of our own.

Nothing is ever checked out, so the repository's hooks, filters, attributes and links have no
effect. Only one commit and the files that can be documents are fetched; the user's cache folder
keeps them, so that the next sync fetches only changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

from kb.disk.ignore import IGNORE_FILES
from kb.disk.read import MAXIMUM_DOCUMENT, UNKNOWN_STATE, reason
from kb.disk.system import apart, end_with_children, with_memory
from kb.errors import SourceError
from kb.sources.address import GitAddress
from kb.sources.bundle import MOST_BYTES, Target
from kb.sources.folder import Accepts, Opened
from kb.sources.manifest import MANIFEST_NAME, read_manifest
from kb.sources.web import cache_folder

MOST_SECONDS = 900  # of one call of git
LOOK_SECONDS = 0.5  # between checks of the size of what is fetched
MOST_COMMITS = 100  # searched for a file's last change; the oldest stands for those before it
MOST_FETCHES = 50  # each leaves a pack; then the repository is fetched anew
MOST_MEMORY_KIB = 2 * 1024**2  # of a git process
LOCK_SECONDS = 600

# They would point git to another repository than ours.
_PLACES = frozenset(
    "GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_COMMON_DIR "
    "GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_NAMESPACE GIT_PREFIX GIT_SHALLOW_FILE "
    "GIT_GRAFT_FILE GIT_ASKPASS SSH_ASKPASS GIT_TEMPLATE_DIR GIT_PROTOCOL_FROM_USER".split()
)
# Given with every command: they override a repository's own configuration.
_SETTINGS = (
    "core.hooksPath=/dev/null core.askPass= core.fsmonitor=false gc.auto=0 maintenance.auto=false "
    "protocol.version=2 submodule.recurse=false fetch.recurseSubmodules=false "
    "core.packedGitWindowSize=32m core.packedGitLimit=256m "
    "http.lowSpeedLimit=1000 http.lowSpeedTime=60".split()
)
_NOT_BY_ID = re.compile(r"unadvertised object|not our ref")
_USER = re.compile(r"//[^/@\s]+@")
_DENIED = re.compile(r"could not read|Authentication failed|Permission denied|publickey")
_LOGIN = re.compile(r"^\S+@\S+: ")
_UNKNOWN_HOST = re.compile(r"Host key verification failed|No \S+ host key is known")
_OF_ANOTHER = re.compile(r"dubious ownership in repository at ('.+')")
_FILE_MODES = (b"100644", b"100755", b"100664")


@contextlib.contextmanager
def cloned(address: GitAddress, accepts: Accepts) -> Iterator[Opened]:
    """A repository's documents, as `accepts` says by their paths below the address' folder, in a
    folder that is deleted after the block. Raises SourceError if git is missing or cannot fetch it,
    if ref or folder does not exist, or if it is implausibly large."""
    with TemporaryDirectory(prefix="kb-git-") as folder:
        try:
            with _repository(address) as repository:
                commit, seconds = repository.fetch("--filter=blob:none")
                times = repository.times(commit, seconds)
                files = repository.files(commit)
                target = Target(Path(folder), address.stored)
                below = address.folder or address.manifest.rpartition("/")[0]
                below += "/" if below else ""
                documents = _documents(address, below, files, accepts)
                repository.write(documents, target, commit, times)
                manifest = read_manifest(
                    Path(folder, address.manifest or f"{below}{MANIFEST_NAME}")
                )
                if manifest.restricts:  # it may name files with any suffix
                    paths = {file.path for file in documents}
                    is_named = manifest.is_named()
                    more = [
                        replace(file, maximum=MAXIMUM_DOCUMENT)
                        for file in files
                        if file.path.startswith(below)
                        and file.path not in paths
                        and is_named(file.path[len(below) :])
                    ]
                    repository.write(more, target, commit, times)
        except OSError as error:
            raise _failure(address, reason(error)) from error
        root = Path(folder, below)
        root.mkdir(parents=True, exist_ok=True)  # missing if none of its files can be a document
        problems = tuple((path.removeprefix(below), why) for path, why in target.problems)
        yield Opened(root, manifest, commit, state=UNKNOWN_STATE, problems=problems)


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    blob: str  # the id of its content
    maximum: int = 0  # bytes that it may have


def _documents(
    address: GitAddress, below: str, files: Sequence[_File], accepts: Accepts
) -> list[_File]:
    """The files to fetch: possible documents, ignore files and the manifest."""
    if not any(file.path.startswith(below) for file in files):
        raise _failure(address, f'it has no folder "{below}"')
    if address.manifest and all(file.path != address.manifest for file in files):
        raise _failure(address, f'it has no file "{address.manifest}"')
    documents = []
    for file in files:
        maximum = 0
        if file.path == address.manifest:
            maximum = MAXIMUM_DOCUMENT
        elif file.path.startswith(below):
            is_ours = file.path.rpartition("/")[2] in (*IGNORE_FILES, MANIFEST_NAME)
            maximum = MAXIMUM_DOCUMENT if is_ours else accepts(file.path[len(below) :])
        if maximum:
            documents.append(replace(file, maximum=maximum))
    return documents


@dataclass(frozen=True, slots=True)
class _Repository:
    folder: Path
    address: GitAddress
    ssh_command: str = ""  # "": git's default

    def fetch(self, *options: str) -> tuple[str, int]:
        """Fetch the newest commit of the ref; returns its id and time."""
        ref = "refs/kb/" + hashlib.sha256(self.address.ref.encode()).hexdigest()[:16]
        self._git(
            *("fetch", "--quiet", "--no-tags", f"--depth={MOST_COMMITS}", "--force", *options),
            *("--no-write-fetch-head", "--no-auto-maintenance", "--end-of-options", "origin"),
            f"{self.address.ref or 'HEAD'}:{ref}",
        )
        shown = self._git("show", "--no-patch", "--format=%H %ct", f"{ref}^{{commit}}", "--")
        commit, seconds = shown.decode().split()[-2:]
        return commit, int(seconds)

    def files(self, commit: str) -> list[_File]:
        listing = self._git("ls-tree", "-r", "-z", "--full-tree", commit)
        files = []
        for line in listing.split(b"\0"):
            about, _, path = line.partition(b"\t")
            mode, _, blob = about.partition(b" ")
            if mode in _FILE_MODES:
                files.append(_File(os.fsdecode(path), blob.rpartition(b" ")[2].decode()))
        return files

    def times(self, commit: str, seconds: int) -> dict[str, int]:
        """When the fetched commits last changed each file, in seconds; else the commit's time."""
        log = self._git(
            *("-c", "core.quotePath=false", "log", "--no-show-signature", "--no-renames"),
            *("--name-only", "--format=%x01%ct", commit, "--"),
        )
        times = defaultdict[str, int](lambda: seconds)
        for group in log.decode("utf-8", "surrogateescape").split("\x01")[1:]:
            changed, *paths = group.splitlines()
            for path in paths:
                times.setdefault(path, int(changed))
        return times

    def _fetch_blobs(self, files: Iterable[_File], commit: str) -> None:
        listing = ("--batch-all-objects", "--unordered", "--batch-check=%(objectname)")
        cached = set(self._git("cat-file", *listing).split())
        if not (missing := {file.blob for file in files if file.blob.encode() not in cached}):
            return
        try:
            self._git(
                *("-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet", "--no-tags"),
                *("--no-write-fetch-head", "--no-auto-maintenance", "--filter=blob:none"),
                *("--stdin", "--end-of-options", "origin"),
                stdin="".join(f"{blob}\n" for blob in sorted(missing)).encode(),
            )
        except SourceError as error:
            # Behind a plain sshd git speaks its first protocol, which cannot give single files.
            if not _NOT_BY_ID.search(error.message):
                raise
            if self.fetch("--refetch", "--no-filter", "--depth=1")[0] != commit:
                raise _failure(self.address, "it changed meanwhile: try again") from error

    def write(
        self, files: Sequence[_File], target: Target, commit: str, times: Mapping[str, int]
    ) -> None:
        """Fetch and write files, each with the time of its last change."""
        if not files:
            return
        self._fetch_blobs(files, commit)
        checked = self._git("cat-file", "--batch-check", stdin=_lines(files)).splitlines()
        sizes = [int(line.rpartition(b" ")[2]) for line in checked]
        small = [file for file, size in zip(files, sizes, strict=True) if size <= file.maximum]
        with self._running("cat-file", "--batch", stdin=_lines(small)) as output:
            for file, size in zip(files, sizes, strict=True):
                # The content's hash tells files of the same second and length apart.
                time_ns = times[file.path] * 1_000_000_000 + int(file.blob[:7], 16) % 1_000_000_000
                if size > file.maximum:
                    with target.noting(file.path):
                        target.write(file.path, size, time_ns)
                    continue
                output.readline()
                content = _Part(output, size)
                with target.noting(file.path):
                    target.write(file.path, content, time_ns)
                content.read()  # the rest, if it was not written
                output.read(1)

    def _git(self, *arguments: str, stdin: bytes = b"") -> bytes:
        with self._running(*arguments, stdin=stdin) as output:
            return output.read()

    @contextlib.contextmanager
    def _running(self, *arguments: str, stdin: bytes = b"") -> Iterator[IO[bytes]]:
        """The output of a git command that succeeded."""
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        limit = with_memory(MOST_MEMORY_KIB)
        command = [*limit, "git", *settings, f"--git-dir={self.folder}", *arguments]
        with TemporaryFile() as given, TemporaryFile() as output, TemporaryFile() as errors:
            given.write(stdin)
            given.seek(0)
            process = subprocess.Popen(
                command,
                stdin=given,
                stdout=output,
                stderr=errors,
                env=self._environment(),
                **apart(),
            )
            try:
                self._wait(process, output)
            finally:
                end_with_children(process)
            if process.returncode:
                errors.seek(0)
                raise _failure(self.address, complaint(errors.read(100_000), process.returncode))
            output.seek(0)
            yield output

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
        ssh = {"GIT_SSH_COMMAND": self.ssh_command} if self.ssh_command else {}
        return {
            **{key: value for key, value in os.environ.items() if key not in _PLACES},
            **ssh,
            "GIT_TERMINAL_PROMPT": "0",
            "GCM_INTERACTIVE": "never",
            "GIT_ALLOW_PROTOCOL": self.address.url.partition("://")[0],
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "LC_ALL": "C",
        }


@contextlib.contextmanager
def _repository(address: GitAddress) -> Iterator[_Repository]:
    """The cached repository of an address, locked for the block."""
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
            if address.url.startswith("ssh:") and not os.environ.get("GIT_SSH_COMMAND"):
                try:
                    ssh = repository._git("config", "--get", "core.sshCommand").decode().strip()
                except SourceError:  # not set
                    ssh = "ssh"
                # One that never prompts.
                repository = replace(repository, ssh_command=f"{ssh} -o BatchMode=yes")
            yield repository
    except Timeout as error:
        raise _failure(address, "another sync of it has not ended for ten minutes") from error


def _lines(files: Iterable[_File]) -> bytes:
    return "".join(f"{file.blob}\n" for file in files).encode()


@dataclass(slots=True)
class _Part:
    """The next bytes of a stream, as a stream of their own."""

    stream: IO[bytes]
    length: int

    def read(self, size: int = -1, /) -> bytes:
        data = self.stream.read(self.length if size < 0 else min(size, self.length))
        self.length -= len(data)
        return data


def _size(folder: Path) -> int:
    """Bytes of all files of a folder; some may vanish meanwhile."""
    total = 0
    for inner, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(inner, name)).st_size
    return total


def complaint(output: bytes, code: int) -> str:
    """git's complaint on one line, without user names, and what can be done about it."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line and not line.startswith(("hint:", "warning:"))]
    causes = [line for line in lines if line.startswith(("fatal:", "error:", "ERROR:"))] or lines
    text = causes[0].partition(": ")[2] or causes[0] if causes else f"git ended with {code}"
    if text.startswith("Could not read from remote") and (
        before := lines[: lines.index(causes[0])]
    ):
        text = _LOGIN.sub("", before[-1])  # ssh's words: git has none
    if match := _OF_ANOTHER.search(text):
        text += f": `git config --global --add safe.directory {match[1]}` trusts it"
    if _UNKNOWN_HOST.search(text):
        text += " ssh does not know this server: log in once by hand"
    if _DENIED.search("\n".join(lines)):
        text += ": it is not there, or git has no credentials for it (see git help credentials)"
    return _USER.sub("//", text)[:600]


def _failure(address: GitAddress, why: str) -> SourceError:
    return SourceError(f"{address.stored} cannot be fetched: {why}", path=address.stored)

"""A bundle (`.tar`, `.tar.gz`, `.zip` and the like), unpacked while it is read.

A bundle or a repository may come from a stranger: `Target` writes it into a folder of our own. It
is refused if a member leads outside or if it unpacks to more than its size can account for;
symbolic links and devices are left out. A single folder that contains everything else is the top.
An export in parts, a bundle of bundles, is unpacked twice.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import io
import json
import lzma
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Any, Protocol, cast

from kb.disk.open_databases import opened
from kb.disk.read import UNKNOWN_STATE, reason
from kb.disk.skipped import skipped_parts
from kb.disk.system import require_possible_name
from kb.disk.write import replacing
from kb.errors import SourceError, UsageError
from kb.sources.address import BUNDLE_SUFFIXES, is_bundle
from kb.sources.folder import Opened, SourceFile, read_data
from kb.sources.manifest import MANIFEST_NAME, read_manifest
from kb.text.decode import likeliest_encoding
from kb.text.file_names import on_disk, storable

MOST_MEMBERS = 100_000
MOST_BYTES = 4_000_000_000
MOST_RATIO = 200  # text seldom shrinks below a twentieth; small bundles of much white space may
RATIO_FROM = 50_000_000
PIECE = 1 << 20
# How a system refuses a name: too long, or a file's where a folder must be.
_NAME_ERRORS = (errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EINVAL)


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes; none at the end."""


@dataclass(slots=True)
class Target:
    """A folder that members are written into, and how much more is believed."""

    folder: Path
    source: str  # as shown to people
    packed_bytes: int = MOST_BYTES  # size of what is unpacked
    member_count: int = 0
    byte_count: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)  # members not written, and why
    _names: set[str] = field(default_factory=set)

    def write(self, name: str, content: Readable | int, modified_ns: int) -> None:
        """Write a member, or a hole of this size if it is too large to read. Raises SourceError if
        it leads outside or is implausibly large."""
        path = self.place(name)
        self.count_member()
        if name not in self._names and path.is_file():
            raise OSError(errno.EEXIST, "another member has this name, but for the case", name)
        self._names.add(name)
        require_possible_name(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            if isinstance(content, int):
                file.truncate(content)
            else:
                while piece := content.read(PIECE):
                    self.count_bytes(len(piece))
                    file.write(piece)
        os.utime(path, ns=(modified_ns, modified_ns))

    def place(self, name: str) -> Path:
        """Where a member of this name belongs. Raises SourceError if it leads outside."""
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or "\\" in name or re.match(r"/|[A-Za-z]:", name):
            raise SourceError(
                f"{self.source} is refused: its member {name!r} leads outside of it",
                path=self.source,
            )
        return self.folder.joinpath(*parts)

    @contextlib.contextmanager
    def noting(self, name: str) -> Iterator[None]:
        """Report a name that the system cannot have as a problem of this member alone."""
        try:
            yield
        except OSError as error:
            if error.errno not in _NAME_ERRORS:
                raise
            shown = name if len(name) <= 100 else f"{name[:100]}..."
            self.problems.append((storable(shown), f"cannot be unpacked: {reason(error)}"))

    def count_member(self) -> None:
        """Count a member, even one that is left out."""
        self.member_count += 1
        if self.member_count > MOST_MEMBERS:
            raise self._bomb(f"holds more than {MOST_MEMBERS:,} members")

    def count_bytes(self, count: int) -> None:
        self.byte_count += count
        most = min(MOST_BYTES, max(RATIO_FROM, MOST_RATIO * self.packed_bytes))
        if self.byte_count > most:
            raise self._bomb(f"unpacks to more than {most / 1e6:,.0f} MB")

    def _bomb(self, why: str) -> SourceError:
        return SourceError(
            f"{self.source} is refused: it {why}; unpack it yourself and add the folder if it is "
            "what it says",
            path=self.source,
        )


# What these modules raise on a damaged, encrypted or oddly packed bundle.
_DAMAGES = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError),
    *(RuntimeError, NotImplementedError),
)
_MOST_XZ_MEMORY = 200_000_000  # bytes; `xz -9` takes 65 million
# Of zip names that do not say theirs: that of the system that packed them. CP437, which the format
# prescribes, is last.
_NAME_ENCODINGS = ("cp932", "gb18030", "big5", "cp949", "cp866", "cp1251", "cp737", "cp437")
_FEWEST_BYTES = 6  # beyond ASCII, to tell these encodings apart
_IS_UTF_8 = 0x800  # a flag of a zip's member


def is_packed(data: bytes) -> bool:
    """Whether a file's first bytes are those of a bundle."""
    compressed = data.startswith((b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ"))
    return compressed or data[257:262] == b"ustar"


@contextlib.contextmanager
def unpacked(source: Path) -> Iterator[Opened]:
    """A folder, or what a bundle unpacks to, deleted after the block. Raises SourceError."""
    if is_bundle(source):
        with unpacked_bundle(source) as bundle:
            yield bundle
    else:
        yield Opened(source, read_manifest(source / MANIFEST_NAME))


@contextlib.contextmanager
def unpacked_bundle(source: Path, address: str = "") -> Iterator[Opened]:
    """The folder that a bundle unpacks to, deleted after the block; with an `address` its path is
    temporary. Its files get the bundle's time: their own may be equal in two editions. Raises
    SourceError if it is damaged or encrypted, leads outside, or is a bomb."""
    name = address or str(source)
    with TemporaryDirectory(prefix="kb-bundle-") as folder:
        root = Path(folder)
        try:
            state = source.stat()
            run = _Unpacking(Target(root, name, state.st_size), state.st_mtime_ns)
            run.unpack(source)
            parts = _visible(root)
            if parts and all(part.name.lower().endswith(BUNDLE_SUFFIXES) for part in parts):
                for part in sorted(parts):
                    run.unpack(part)
                    part.unlink()
        except _DAMAGES as error:
            raise SourceError(f"{name} cannot be unpacked: {error}", path=name) from error
        except OSError as error:
            raise SourceError(f"{name} cannot be unpacked: {reason(error)}", path=name) from error
        top = _visible(root)
        if len(top) == 1 and top[0].is_dir():
            root = top[0]
        # Of a temporary bundle only the time means anything.
        bundle_state = UNKNOWN_STATE if address else SourceFile.of("", source, state).state
        problems = [(path.removeprefix(f"{root.name}/"), why) for path, why in run.target.problems]
        manifest = read_manifest(root / MANIFEST_NAME)
        yield Opened(root, manifest, state=bundle_state, problems=tuple(problems))


def _visible(folder: Path) -> list[Path]:
    """A folder's entries without those that operating systems leave there."""
    return [entry for entry in folder.iterdir() if not skipped_parts(entry.name)]


@dataclass(slots=True)
class _Unpacking:
    target: Target
    modified_ns: int  # of each file

    def unpack(self, bundle: Path) -> None:
        """Unpack by content: servers and people name bundles as they like."""
        with opened(bundle) as file:
            start = file.read(6)
            file.seek(0)
            if start.startswith(b"PK"):
                self._unzip(file)
            else:
                stream: Any = file
                if start.startswith(b"\x1f\x8b"):
                    stream = gzip.GzipFile(fileobj=file)
                elif start.startswith(b"BZh"):
                    stream = bz2.BZ2File(file)
                elif start == b"\xfd7zXZ\0":
                    stream = io.BufferedReader(_Xz(file))
                self._untar(stream)

    def _untar(self, stream: IO[bytes]) -> None:
        # Skipped members are decompressed too, and headers are read into memory.
        whole = _Counted(stream, replace(self.target, byte_count=0))
        with tarfile.open(fileobj=cast(IO[bytes], whole), mode="r|") as archive:
            for member in archive:
                if member.islnk():  # another name of an earlier member
                    try:
                        with self.target.place(_plain(member.linkname)).open("rb") as content:
                            self._write(member.name, content)
                    except (FileNotFoundError, IsADirectoryError):
                        why = "a link to what the bundle does not hold"
                        self.target.problems.append((storable(member.name), why))
                elif (data := archive.extractfile(member) if member.isreg() else None) is None:
                    self.target.count_member()
                else:
                    self._write(member.name, data)

    def _unzip(self, file: IO[bytes]) -> None:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            encoding = _encoding_of_names(members)
            for info in members:
                name = info.filename
                if not info.flag_bits & _IS_UTF_8:
                    name = name.encode("cp437").decode(encoding, "replace")
                kind = stat.S_IFMT(info.external_attr >> 16)
                if _plain(name).endswith("/") or kind not in (0, stat.S_IFREG):
                    self.target.count_member()
                else:
                    with archive.open(info) as content:
                        self._write(name, content)

    def _write(self, name: str, content: Readable) -> None:
        with self.target.noting(name):
            self.target.write(_plain(name), content, self.modified_ns)


def _plain(name: str) -> str:
    """A member's name with "/" between its parts: some Windows programs write backslashes."""
    return name.replace("\\", "/")


@dataclass(frozen=True, slots=True)
class _Counted:
    """A stream that stops at the bytes the target believes."""

    stream: IO[bytes]
    counter: Target

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.counter.count_bytes(len(data))
        return data


class _Xz(io.RawIOBase):
    """An xz stream with bounded memory: `lzma.LZMAFile` lets the dictionary take all of it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decompressor = lzma.LZMADecompressor(memlimit=_MOST_XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not (data or self._decompressor.eof):
            more = self._file.read(1 << 16) if self._decompressor.needs_input else b""
            if self._decompressor.needs_input and not more:
                raise EOFError("it ends before its end")
            data = self._decompressor.decompress(more, len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _encoding_of_names(members: list[zipfile.ZipInfo]) -> str:
    """The encoding of the names that a zip does not flag as UTF-8, guessed from all of them."""
    names = b"\n".join(
        info.filename.encode("cp437") for info in members if not info.flag_bits & _IS_UTF_8
    )
    with contextlib.suppress(UnicodeDecodeError):
        names.decode()
        return "utf-8"
    if len(re.sub(rb"[\0-\x7f]", b"", names)) < _FEWEST_BYTES:
        return "cp437"
    return likeliest_encoding(names, _NAME_ENCODINGS) or "cp437"


def pack(files: list[SourceFile], destination: Path, manifest: Mapping[str, object]) -> int:
    """Write a bundle of files with its manifest; returns its size in bytes. The same input gives
    the same bytes. Raises UsageError if the destination is not a `.tar.gz` or `.tgz`, SourceError
    if a file cannot be read or the destination cannot be written."""
    if not destination.name.lower().endswith((".tar.gz", ".tgz")):
        raise UsageError(f"{destination} is not a bundle's name: end it with .tar.gz")
    try:
        with (
            replacing(destination) as raw,
            gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            text = json.dumps(manifest, ensure_ascii=False, indent=2) + "\n"
            _add(archive, MANIFEST_NAME, text.encode())
            for file in sorted(files, key=lambda file: file.path):
                _add(archive, on_disk(file.path), read_data(file, max(file.size, 1)))
    except OSError as error:
        raise SourceError(
            f"{destination} cannot be written: {reason(error)}", path=str(destination)
        ) from error
    return destination.stat().st_size


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o644
    archive.addfile(info, io.BytesIO(content))

"""A bundle, `.tar.gz`, `.tgz` or `.zip`: unpacked into a folder for as long as it is read.

A bundle comes from anywhere. Members that lead outside are refused with the whole bundle, links
and devices are left out, and what unpacks to more than its size can account for is a bomb.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO

from kb.disk.read import reason
from kb.errors import SourceError, UsageError
from kb.sources.folder import SourceFile
from kb.text.file_names import below, on_disk

__all__ = ["SUFFIXES", "document_file", "is_bundle", "pack", "unpacked"]

SUFFIXES = (".tar.gz", ".tgz", ".zip")
MOST_MEMBERS = 100_000
MOST_BYTES = 4_000_000_000
# Text seldom shrinks to less than a twentieth; small bundles of much white space may.
MOST_RATIO = 200
RATIO_FROM = 50_000_000
PIECE = 1 << 20


def is_bundle(source: Path) -> bool:
    """Whether a source is a bundle, by its name."""
    return source.name.lower().endswith(SUFFIXES) and source.is_file()


def document_file(source: str, path: str) -> Path:
    """Where a document of a source lies, both as stored; no file for a document of a bundle."""
    file = Path(on_disk(source or "/nonexistent"))
    is_one_document = file.is_file() and not is_bundle(file)
    return file if is_one_document else below(source or "/nonexistent", path)


@contextlib.contextmanager
def unpacked(source: Path) -> Iterator[Path]:
    """The folder that a source is, or that a bundle unpacks to; the latter goes with the block.

    Files of a bundle have the bundle's own time: their own ones may be equal in two editions.

    Raises:
        SourceError: the bundle is damaged, leads outside, or is a bomb.
    """
    if not is_bundle(source):
        yield source
        return
    with TemporaryDirectory(prefix="kb-bundle-") as folder:
        try:
            state = source.stat()
            target = _Target(Path(folder), source, state.st_size, state.st_mtime_ns)
            if source.name.lower().endswith(".zip"):
                _unzip(source, target)
            else:
                _untar(source, target)
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
            raise SourceError(f"{source} cannot be unpacked: {error}", path=str(source)) from error
        except (RuntimeError, NotImplementedError) as error:  # encrypted, or an odd method
            raise SourceError(f"{source} cannot be unpacked: {error}", path=str(source)) from error
        except OSError as error:
            raise SourceError(
                f"{source} cannot be unpacked: {reason(error)}", path=str(source)
            ) from error
        yield Path(folder)


@dataclass(slots=True)
class _Target:
    """Where a bundle is unpacked to, and how much more of it is believed."""

    folder: Path
    source: Path
    packed_bytes: int
    modified_ns: int
    member_count: int = 0
    byte_count: int = 0

    def write(self, name: str, content: IO[bytes]) -> None:
        """Write one member.

        Raises:
            SourceError: its name leads outside, or the bundle is a bomb.
        """
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\\" in name or ":" in parts[0]:
            raise SourceError(
                f"{self.source} is refused: its member {name!r} leads outside of it",
                path=str(self.source),
            )
        self.count_member()
        path = self.folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            while piece := content.read(PIECE):
                self._count_bytes(len(piece))
                file.write(piece)
        os.utime(path, ns=(self.modified_ns, self.modified_ns))

    def count_member(self) -> None:
        """Count a member, also one that is left out."""
        self.member_count += 1
        if self.member_count > MOST_MEMBERS:
            raise self._bomb(f"holds more than {MOST_MEMBERS:,} members")

    def _count_bytes(self, count: int) -> None:
        self.byte_count += count
        most = min(MOST_BYTES, max(RATIO_FROM, MOST_RATIO * self.packed_bytes))
        if self.byte_count > most:
            raise self._bomb(f"unpacks to more than {most / 1e6:,.0f} MB")

    def _bomb(self, why: str) -> SourceError:
        return SourceError(
            f"{self.source} is refused: it {why}; unpack it yourself and add the folder if it is "
            "what it says",
            path=str(self.source),
        )


def _untar(source: Path, target: _Target) -> None:
    with tarfile.open(source, "r:gz") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is None:
                target.count_member()
            else:
                target.write(member.name, content)


def _unzip(source: Path, target: _Target) -> None:
    with zipfile.ZipFile(source) as archive:
        for info in archive.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.is_dir() or kind not in (0, stat.S_IFREG):
                target.count_member()
            else:
                with archive.open(info) as content:
                    target.write(info.filename, content)


def pack(files: list[SourceFile], destination: Path, manifest: dict[str, object]) -> int:
    """Write a bundle of some files with its manifest; returns its size in bytes.

    The same input gives the same bytes: files in order, without times and owners.

    Raises:
        UsageError: the destination is no `.tar.gz` or `.tgz`.
        SourceError: a file cannot be read, or the destination cannot be written.
    """
    if not destination.name.lower().endswith((".tar.gz", ".tgz")):
        raise UsageError(f"{destination} is no bundle's name: end it with .tar.gz")
    waiting = destination.with_name(f".{destination.name}.part")
    try:
        with (
            waiting.open("wb") as raw,
            gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            text = json.dumps(manifest, ensure_ascii=False, indent=2) + "\n"
            _add(archive, "manifest.json", text.encode())
            for file in sorted(files, key=lambda one: one.path):
                _add(archive, file.path, file.location.read_bytes())
        waiting.replace(destination)
    except OSError as error:
        waiting.unlink(missing_ok=True)
        raise SourceError(
            f"{error.filename or destination} cannot be packed: {reason(error)}",
            path=str(destination),
        ) from error
    return destination.stat().st_size


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o644
    archive.addfile(info, io.BytesIO(content))

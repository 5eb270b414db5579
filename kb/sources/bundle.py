"""A bundle, `.tar.gz`, `.tgz` or `.zip`: unpacked into a folder for as long as it is read.

A bundle comes from anywhere. Members that lead outside are refused with the whole bundle, links
and devices are left out, and what unpacks to more than its size can account for is a bomb.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from kb.disk.read import reason
from kb.errors import SourceError, UsageError
from kb.sources.address import is_bundle
from kb.sources.folder import SourceFile
from kb.sources.manifest import MANIFEST_NAME, read_manifest
from kb.sources.member import Target
from kb.sources.opened import Opened

__all__ = ["pack", "unpacked"]

# What the two modules raise on a bundle that is damaged, encrypted or packed in an odd way.
_DAMAGES = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, ValueError),
    *(RuntimeError, NotImplementedError),
)


@contextlib.contextmanager
def unpacked(source: Path, called: str = "") -> Iterator[Opened]:
    """The folder that a source is, or that a bundle unpacks to; the latter goes with the block.

    Files of a bundle have the bundle's own time: their own ones may be equal in two editions.

    Args:
        called: what people know the source by, where it is not its path.

    Raises:
        SourceError: the bundle is damaged or encrypted, leads outside, or is a bomb.
    """
    if not is_bundle(source):
        yield Opened(source, read_manifest(source / MANIFEST_NAME))
        return
    name = called or str(source)
    with TemporaryDirectory(prefix="kb-bundle-") as folder:
        try:
            state = source.stat()
            target = Target(Path(folder), name, state.st_size)
            unpack = _unzip if source.name.lower().endswith(".zip") else _untar
            unpack(source, target, state.st_mtime_ns)
        except _DAMAGES as error:
            raise SourceError(f"{name} cannot be unpacked: {error}", path=name) from error
        except OSError as error:
            raise SourceError(f"{name} cannot be unpacked: {reason(error)}", path=name) from error
        yield Opened(Path(folder), read_manifest(Path(folder, MANIFEST_NAME)))


def _untar(source: Path, target: Target, modified_ns: int) -> None:
    with tarfile.open(source, "r:gz") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is None:
                target.count_member()
            else:
                target.write(member.name, content, modified_ns)


def _unzip(source: Path, target: Target, modified_ns: int) -> None:
    with zipfile.ZipFile(source) as archive:
        for info in archive.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.is_dir() or kind not in (0, stat.S_IFREG):
                target.count_member()
            else:
                with archive.open(info) as content:
                    target.write(info.filename, content, modified_ns)


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
            _add(archive, MANIFEST_NAME, text.encode())
            for file in sorted(files, key=lambda one: one.path):
                _add(archive, file.path, file.location.read_bytes())
        waiting.replace(destination)
    except OSError as error:
        with contextlib.suppress(OSError):
            waiting.unlink(missing_ok=True)
        is_own = error.filename in (None, str(waiting))
        failed = (
            f"{destination} cannot be written" if is_own else f"{error.filename} cannot be read"
        )
        raise SourceError(
            f"{failed}: {reason(error)}",
            path=str(destination),
        ) from error
    return destination.stat().st_size


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o644
    archive.addfile(info, io.BytesIO(content))

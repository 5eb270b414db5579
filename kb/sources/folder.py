"""A folder on disk -> the files that are documents, and a file -> its text.

Nothing here fails because of one bad entry: what cannot be listed is reported with its path and
left out. A reported path is unknown, not gone; whoever syncs must keep what it holds of it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kb.disk.globs import Globs
from kb.disk.ignore import IGNORE_FILES, IgnoreRules
from kb.disk.read import read_bytes, reason, too_large
from kb.disk.secret import begins_as_private_key, is_secret, secret_folder
from kb.disk.skipped import NEVER_ENTERED, NOISY_FOLDERS, skipped_parts
from kb.errors import SourceError
from kb.text.decode import NoTextError, decode
from kb.text.file_names import storable

__all__ = [
    "DOCUMENT_SUFFIXES",
    "MAXIMUM_BYTES",
    "Accepts",
    "SecretFile",
    "SourceFile",
    "SourceText",
    "read",
    "read_data",
    "secret_root",
    "text_files",
    "walk",
]

DOCUMENT_SUFFIXES = (".md", ".markdown", ".mdx", ".txt", ".rst")
MAXIMUM_BYTES = 20_000_000

Report = Callable[[str, str], None]
Withhold = Callable[[str], None]


class SecretFile(SourceError):
    """A file that is never stored, by its name or because it is a private key."""


# How many bytes a file of this path may have as a document; 0 when it is none.
Accepts = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a collection as the walk saw it."""

    path: str  # relative to the root, "/" on every system, `storable`, else as on disk
    location: Path  # where to open it; for a link, what it leads to
    size: int  # bytes
    modified_ns: int


@dataclass(frozen=True, slots=True)
class SourceText:
    """What a file holds."""

    text: str  # without byte order mark, line ends as "\n"
    content_hash: bytes  # SHA-256 of the bytes on disk
    encoding: str  # the Python codec that read it: "utf-8", "utf-8-sig", "utf-16-le", "latin-1" ...
    notice: str  # "" or what the user should know ("not UTF-8: read as Latin-1")


def no_withholding(path: str) -> None:
    """Nobody asks which secret files were left out."""


def text_files(path: str) -> int:
    """Accept the formats that are text."""
    return MAXIMUM_BYTES if path.lower().endswith(DOCUMENT_SUFFIXES) else 0


def walk(
    root: Path,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    *,
    report: Report,
    withhold: Withhold = no_withholding,
    hidden: bool = False,
    accepts: Accepts = text_files,
) -> Iterator[SourceFile]:
    """The documents in and below a folder, sorted by path; or the one file that `root` is.

    Ignore files count as in git. What `kb.disk.skipped` lists is left out unless a glob names it,
    secret files always. A link is followed when it leads to a place inside the root that the
    walk does not reach otherwise, so that no file comes twice. The folder is read before the
    first file is returned.

    Args:
        root: a folder, or a single file, which is then taken whatever the globs say.
        include: globs (see `Globs`) that decide in place of `accepts`.
        exclude: globs that win over the included; they hold for a link's target as well.
        report: called with a path relative to the root and a message for each file, folder or
            link that had to be left out.
        withhold: called with the path of each file that is left out because it is secret.
        hidden: take hidden files and folders too, except those that programs fill.
        accepts: which files are documents.

    Raises:
        SourceError: the root is missing, unreadable, or neither a folder nor a regular file.
        SecretFile: the root is secret itself.
        UsageError: a glob that can match nothing.
    """
    walker = _Walker(
        Globs(include, descend=False) if include else None,
        Globs(exclude, descend=True),
        report,
        withhold,
        hidden,
        accepts,
    )
    try:
        walker.start(root)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise SourceError(
            f"Cannot read {root}: {reason(error)}. Check the path and its permissions.",
            path=str(root),
        ) from error
    return iter(sorted(walker.found.values(), key=lambda file: file.path))


def read(file: SourceFile) -> SourceText:
    """The text of one file.

    Raises:
        SecretFile: it is a private key.
        SourceError: it cannot be opened, is too large by now, or is no text.
    """
    data = read_data(file, MAXIMUM_BYTES)
    try:
        decoded = decode(data)
    except NoTextError as error:
        raise _unreadable(file, f"{error}. Save it as UTF-8 text, or exclude it.") from error
    if begins_as_private_key(decoded.text):
        raise SecretFile(f"{file.path} is a private key, which is never stored", path=file.path)
    return SourceText(decoded.text, hashlib.sha256(data).digest(), decoded.encoding, decoded.notice)


def read_data(file: SourceFile, maximum: int) -> bytes:
    """The bytes of one file.

    Raises:
        SourceError: it cannot be opened, or is too large by now.
    """
    try:
        return read_bytes(file.location, maximum)
    except FileNotFoundError as error:
        raise _unreadable(file, "it is gone. Sync again.") from error
    except OSError as error:
        raise _unreadable(file, f"{reason(error)}. Allow reading it, or exclude it.") from error


class _Walker:
    """One walk: what was found, and the links that wait until all real paths are known."""

    def __init__(
        self,
        include: Globs | None,
        exclude: Globs,
        report: Report,
        withhold: Withhold,
        hidden: bool,
        accepts: Accepts,
    ) -> None:
        self.found: dict[str, SourceFile] = {}  # by location, so that no file comes twice
        self._include = include
        self._exclude = exclude
        self._report: Report = lambda path, message: report(storable(path), message)
        self._withhold: Withhold = lambda path: withhold(storable(path))
        self._hidden = hidden
        self._accepts = accepts
        self._root = ""
        self._folders: set[str] = set()  # real paths already listed
        self._links: list[tuple[str, str, IgnoreRules]] = []  # path, location, rules there

    def start(self, root: Path) -> None:
        self._root = os.path.realpath(root, strict=True)
        if why := secret_root(Path(self._root)):
            raise SecretFile(f"{root} is never stored: {why}.", path=str(root))
        status = os.stat(self._root)
        if stat.S_ISDIR(status.st_mode):
            os.scandir(self._root).close()  # an unreadable root is an error, not an empty folder
            self._list(self._root, "", IgnoreRules.above(Path(self._root), self._report))
            while self._links:
                links, self._links = sorted(self._links, key=lambda link: link[0]), []
                for path, location, rules in links:
                    self._follow(path, location, rules)
        elif not stat.S_ISREG(status.st_mode):
            raise OSError("neither a folder nor a regular file")
        else:
            self._add(root.name, self._root, status)

    def _list(self, folder: str, prefix: str, rules: IgnoreRules) -> None:
        """List a real folder and all below it; `prefix` is its path with a slash."""
        pending = [(folder, prefix, rules)]
        while pending:
            folder, prefix, rules = pending.pop()
            if folder in self._folders:
                continue
            self._folders.add(folder)
            try:
                with os.scandir(folder) as listing:
                    entries = list(listing)
            except (FileNotFoundError, NotADirectoryError):
                continue  # gone since its parent was listed
            except OSError as error:
                self._report(prefix.rstrip("/"), f"folder not read: {reason(error)}")
                continue
            ignore_files = [entry.name for entry in entries if entry.name in IGNORE_FILES]
            rules = rules.inside(folder, prefix, ignore_files)
            for entry in entries:
                try:
                    if self._enters(entry, prefix, rules):
                        pending.append((entry.path, f"{prefix}{entry.name}/", rules))
                except FileNotFoundError:
                    continue  # gone since the folder was listed
                except OSError as error:
                    self._report(prefix + entry.name, f"skipped: {reason(error)}")

    def _enters(self, entry: os.DirEntry[str], prefix: str, rules: IgnoreRules) -> bool:
        """Take in a file or link; True for a folder that is to be listed."""
        name, path = entry.name, prefix + entry.name
        if self._skips(path, name):
            return False
        is_link = entry.is_symlink()
        is_folder = entry.is_dir(follow_symlinks=False)
        if not (is_link or is_folder or self._wanted(path)):
            return False
        if self._exclude.match(path + "/" if is_folder else path):
            return False
        if rules.ignores(path, name, is_folder):
            return False
        if is_secret(path):
            self._withhold(path + "/" if is_folder else path)
            return False
        if is_link:
            self._links.append((path, entry.path, rules))
        elif not is_folder:
            self._add(path, entry.path, entry.stat(follow_symlinks=False))
        return is_folder

    def _follow(self, path: str, location: str, rules: IgnoreRules) -> None:
        try:
            target = os.path.realpath(location, strict=True)
            status = os.stat(target)
        except OSError as error:
            if os.path.lexists(location):
                self._report(path, f"link not followed: {reason(error)}")
            return
        is_folder = stat.S_ISDIR(status.st_mode)
        slash = "/" if is_folder else ""
        if self._exclude.match(path + slash) or not (is_folder or self._wanted(path)):
            return
        # Compared part by part: `/proj_secret` begins with `/proj` but is outside it.
        if not Path(target).is_relative_to(self._root):
            self._report(path, "link not followed: it leads out of the collection's folder")
            return
        inner = Path(target).relative_to(self._root)
        if is_secret(inner.as_posix()):
            self._withhold(path)
            return
        if any(self._skips("/".join(inner.parts[: n + 1]), p) for n, p in enumerate(inner.parts)):
            return
        if self._exclude.match(inner.as_posix() + slash):
            return
        if is_folder:
            self._list(target, path + "/", rules)
        elif target not in self.found:
            self._add(path, target, status)

    def _skips(self, path: str, name: str) -> bool:
        """Whether an entry is left out with all it may hold: no glob names its last part."""
        if name in NEVER_ENTERED or (self._hidden and name in NOISY_FOLDERS):
            return True
        last_two = "/".join(path.rsplit("/", 2)[-2:])
        if self._hidden or name not in skipped_parts(last_two)[-1:]:
            return False
        return self._include is None or not self._include.may_name(name)

    def _wanted(self, path: str) -> bool:
        if self._include is not None:
            return self._include.match(path, () if self._hidden else skipped_parts(path))
        return self._accepts(path) > 0

    def _add(self, path: str, location: str, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            self._report(path, "skipped: not a regular file")
        elif status.st_size > (maximum := self._accepts(path) or MAXIMUM_BYTES):
            self._report(path, f"skipped: {too_large(status.st_size, maximum)}")
        else:
            self.found[location] = SourceFile(
                storable(path), Path(location), status.st_size, status.st_mtime_ns
            )


def secret_root(root: Path) -> str:
    """Why a file or folder must not be added; "" when it may be. Links are resolved already."""
    if secret_folder(root.as_posix()):
        return "it lies in a folder of credentials"
    return "its name is that of a secret (a key, a password file)" if is_secret(root.name) else ""


def _unreadable(file: SourceFile, why: str) -> SourceError:
    return SourceError(f"Cannot read {file.path}: {why}", path=file.path)

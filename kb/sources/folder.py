"""A folder on disk -> the files that are documents, and a file -> its text.

No bad entry stops a walk: it is reported with its path and left out. Its state is unknown, so a
sync must keep what is stored of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kb.disk.globs import Globs
from kb.disk.ignore import IGNORE_FILES, IgnoreFiles
from kb.disk.read import MAXIMUM_DOCUMENT, FileState, read_bytes, reason, too_large
from kb.disk.ripgrep import list_files
from kb.disk.secret import begins_as_private_key, is_secret, secret_folder
from kb.disk.skipped import NEVER_ENTERED, NOISY_FOLDERS, TOOL_FOLDERS, skipped_parts
from kb.errors import SourceError
from kb.sources.manifest import Manifest
from kb.text.decode import NoTextError, decode
from kb.text.file_names import storable
from kb.text.suffixes import PAGE_SUFFIXES

if TYPE_CHECKING:
    from kb.sources.includes import Shown

LEADS_OUT = (
    "link not followed: it leads out of the collection's folder; `kb add` its target by itself"
)
LARGEST_INODE = 2**63 - 1  # in SQLite; some file systems go beyond
_BARE_NEGATION = re.compile(r"^!\s*$", re.MULTILINE)

Report = Callable[[str, str], None]
Withhold = Callable[[str], None]


class SecretFile(SourceError):
    """A file that is never stored: its name says so, or it is a private key."""


Accepts = Callable[[str], int]  # bytes that a file of this path may have; 0: not a document


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a collection as the walk saw it."""

    path: str  # relative to the root, "/" on every system, `storable`, else as on disk
    location: Path  # where to open it; for a link, what it leads to
    size: int  # bytes
    modified_ns: int
    url: str = ""  # where it was fetched; "" if it was not
    captured: str = ""  # when it was fetched, as UTC text
    changed_ns: int | None = None  # as in `FileState`
    inode: int | None = None

    @classmethod
    def of(cls, path: str, location: Path, status: os.stat_result) -> SourceFile:
        return cls(
            path,
            location,
            status.st_size,
            status.st_mtime_ns,
            changed_ns=status.st_ctime_ns,
            inode=status.st_ino & LARGEST_INODE,
        )

    @property
    def state(self) -> FileState:
        return FileState(self.size, self.modified_ns, self.changed_ns, self.inode)


@dataclass(frozen=True, slots=True)
class SourceText:
    text: str  # without byte order mark, line ends as "\n"
    content_hash: bytes  # SHA-256 of the bytes on disk, with those of included text
    encoding: str  # the Python codec that read it: "utf-8", "utf-8-sig", "utf-16-le", "latin-1" ...
    notice: str  # "" or what the user should know ("not UTF-8: read as Latin-1")
    shown: tuple[Shown, ...] = ()  # after the file's own text
    includes: bool = False  # whether it names other files, existing or not, as parts of it


@dataclass(frozen=True, slots=True)
class Opened:
    """A source while it is read; its files lie in folders for that long."""

    root: Path  # a folder, or the one file that the source is
    manifest: Manifest = field(default_factory=Manifest)
    version: str | None = None  # the source's own name for this edition: git's commit
    fetched: tuple[SourceFile, ...] = ()  # besides those below the root
    notices: tuple[str, ...] = ()
    state: FileState | None = None  # of all files below a temporary root: theirs says nothing
    problems: tuple[tuple[str, str], ...] = ()  # missing paths, and why


def text_files(path: str) -> int:
    """Accept only formats that are text."""
    return MAXIMUM_DOCUMENT if path.lower().endswith(PAGE_SUFFIXES) else 0


def walk(
    root: Path,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    *,
    report: Report,
    withhold: Withhold = lambda _: None,
    hidden: bool = False,
    accepts: Accepts = text_files,
) -> Iterator[SourceFile]:
    """The documents in and below a folder, sorted by path; or the single file that `root` is.

    Ignore files work as in git. What `kb.disk.skipped` lists is left out unless a glob names it,
    secret files always. A link is followed if it leads inside the root to what the walk does not
    reach otherwise, so that no file comes twice.

    Args:
        root: a folder, or a single file, which is taken whatever the globs say.
        include: globs (see `Globs`) that replace `accepts`.
        exclude: globs that win over `include`; they apply to a link's target too.
        report: called with the relative path of each entry that is left out, and a message.
        withhold: called with the path of each secret file.
        hidden: take hidden files and folders too, except those that programs fill.
        accepts: which files are documents.

    Raises:
        SourceError: the root is missing, unreadable, or neither a folder nor a regular file.
        SecretFile: the root is secret.
        UsageError: a glob that can match nothing.
    """
    walker = _Walker(
        Globs(include, descend=False) if include else None,
        Globs(exclude, descend=True),
        lambda path, message: report(storable(path), message),
        lambda path: withhold(storable(path)),
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
    return iter(sorted(walker.files.values(), key=lambda file: file.path))


def read(file: SourceFile) -> SourceText:
    """The text of a file. Raises SecretFile if it is a private key, and SourceError if it cannot be
    opened, has become too large or is not text."""
    data = read_data(file, MAXIMUM_DOCUMENT)
    try:
        decoded = decode(data)
    except NoTextError as error:
        raise _unreadable(file, f"{error}. Save it as UTF-8 text, or exclude it.") from error
    if begins_as_private_key(decoded.text):
        raise SecretFile(f"{file.path} is a private key, which is never stored", path=file.path)
    return SourceText(decoded.text, hashlib.sha256(data).digest(), decoded.encoding, decoded.notice)


def is_private_key(file: SourceFile) -> bool:
    """Whether a file is a private key by its content."""
    try:
        read(file)
    except SourceError as error:  # or it is not text
        return isinstance(error, SecretFile)
    return False


def read_data(file: SourceFile, maximum: int) -> bytes:
    """The bytes of a file. Raises SourceError if it cannot be opened or has become too large."""
    try:
        return read_bytes(file.location, maximum)
    except FileNotFoundError as error:
        raise _unreadable(file, "it is gone. Sync again.") from error
    except OSError as error:
        raise _unreadable(file, f"{reason(error)}. Allow reading it, or exclude it.") from error


@dataclass(slots=True)
class _Walker:
    """A walk: its files, and the links that wait until all real paths are known."""

    include: Globs | None
    exclude: Globs
    report: Report
    withhold: Withhold
    hidden: bool
    accepts: Accepts
    files: dict[str, SourceFile] = field(default_factory=dict)  # by location: none comes twice
    root: str = ""
    folders: set[str] = field(default_factory=set)  # real paths that were scanned
    links: list[tuple[str, str]] = field(default_factory=list)  # path and location
    ignore_files: IgnoreFiles = field(init=False)

    def start(self, root: Path) -> None:
        self.root = os.path.realpath(root, strict=True)
        if why := secret_root(Path(self.root)):
            raise SecretFile(f"{root} is never stored: {why}.", path=str(root))
        status = os.stat(self.root)
        if stat.S_ISDIR(status.st_mode):
            os.scandir(self.root).close()  # an unreadable root is an error, not an empty folder
            self.ignore_files = IgnoreFiles(Path(self.root))
            self._list(self.root, "")
            while self.links:
                links, self.links = sorted(self.links), []
                for path, location in links:
                    self._follow(path, location)
        elif not stat.S_ISREG(status.st_mode):
            raise OSError("neither a folder nor a regular file")
        else:
            self._add(root.name, self.root, status)

    def _list(self, folder: str, prefix: str) -> None:
        """Add everything below a real folder; `prefix` is its path with a slash."""
        skipped = NOISY_FOLDERS if self.hidden else TOOL_FOLDERS
        listing = list_files(
            Path(folder),
            hidden=self.hidden or (self.include is not None and self.include.names_hidden),
            skipped=sorted(name for name in skipped if not self._is_named(name)),
            with_parents=not prefix,
        )
        for inner, why in listing.unread:
            is_ignore_file = inner.rpartition("/")[2] in IGNORE_FILES
            what = "ignore file not used" if is_ignore_file else "folder not read"
            self.report((prefix + inner).rstrip("/"), f"{what}: {why}")
        holding = {""}
        for inner in listing.files:
            above = inner.rpartition("/")[0]
            while above not in holding:
                holding.add(above)
                above = above.rpartition("/")[0]
        # ripgrep does not see the path through a link, and reads ignore files as UTF-8 only.
        is_sure = self._look_for_links(folder, prefix, holding) and not prefix
        for inner in listing.files:
            self._take(prefix + inner, os.path.join(folder, inner), is_sure)

    def _take(self, path: str, location: str, is_sure: bool) -> None:
        """Add a regular file that ripgrep does not ignore."""
        if not self._matches(path) or self.exclude.match(path):
            return
        # ripgrep also compares names byte by byte, in whatever Unicode form they are.
        if not (is_sure and path.isascii()) and self.ignore_files.hides(path):
            return
        if is_secret(path):
            self.withhold(path)
            return
        if location in self.files:
            return
        try:
            self._add(path, location, os.stat(location, follow_symlinks=False))
        except FileNotFoundError:
            pass  # gone since the folder was listed
        except OSError as error:
            self.report(path, f"skipped: {reason(error)}")

    def _look_for_links(self, folder: str, prefix: str, holding: set[str]) -> bool:
        """Note the links below a folder, report special files, and return whether ripgrep reads all
        ignore files as git does. `holding`: folders that contain a file which is not ignored."""
        is_sure = True
        pending = [""]
        while pending:
            inner = pending.pop()
            location = os.path.join(folder, inner) if inner else folder
            if location in self.folders:
                continue
            self.folders.add(location)
            try:
                with os.scandir(location) as entries:
                    listed = list(entries)
            except OSError:
                continue  # gone, or reported because ripgrep could not read it either
            before = f"{inner}/" if inner else ""
            for entry in listed:
                path = prefix + before + entry.name
                if entry.is_symlink():
                    if not (self._skips(path) or self.ignore_files.ignores(path, False)):
                        self.links.append((path, entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    if before + entry.name in holding or not (
                        self._skips(path) or self.ignore_files.ignores(path, True)
                    ):
                        pending.append(before + entry.name)
                elif not entry.is_file(follow_symlinks=False) and self._matches(path):
                    self.report(path, "skipped: not a regular file")
                if entry.name in IGNORE_FILES:
                    is_sure &= self._is_plain(path, entry.path)
        return is_sure

    def _is_plain(self, path: str, ignore_file: str) -> bool:
        """Whether ripgrep reads an ignore file as git does; report one that cannot be read."""
        try:
            text = read_bytes(Path(os.path.realpath(ignore_file)), MAXIMUM_DOCUMENT).decode()
        except UnicodeDecodeError:
            return False  # ripgrep uses what comes before
        except OSError as error:
            self.report(path, f"ignore file not used: {reason(error)}")
            return True
        return _BARE_NEGATION.search(text) is None  # to ripgrep it negates everything

    def _follow(self, path: str, location: str) -> None:
        try:
            target = os.path.realpath(location, strict=True)
            status = os.stat(target)
        except OSError as error:
            if os.path.lexists(location):
                self.report(path, f"link not followed: {reason(error)}")
            return
        is_folder = stat.S_ISDIR(status.st_mode)
        slash = "/" if is_folder else ""
        if self.exclude.match(path + slash) or not (is_folder or self._matches(path)):
            return
        # Compared by parts: `/proj_secret` begins with `/proj` but is outside it.
        if not Path(target).is_relative_to(self.root):
            self.report(path, LEADS_OUT)
            return
        inner = Path(target).relative_to(self.root).as_posix()
        if is_secret(path) or is_secret(inner):
            self.withhold(path)
        elif not (self._skips(inner) or self.exclude.match(inner + slash)):
            if is_folder and target not in self.folders:
                self._list(target, path + "/")
            elif not is_folder and target not in self.files:
                self._add(path, target, status)

    def _skips(self, path: str) -> bool:
        """Whether an entry is skipped with everything below it: no glob names a part of it."""
        parts = path.split("/")
        if not NEVER_ENTERED.isdisjoint(parts):
            return True
        if self.hidden:
            return not NOISY_FOLDERS.isdisjoint(parts)
        return any(not self._is_named(part) for part in skipped_parts(path))

    def _is_named(self, part: str) -> bool:
        return (
            self.include is not None
            and part not in NEVER_ENTERED
            and self.include.may_name(part)
            and not self.hidden
        )

    def _matches(self, path: str) -> bool:
        if self.hidden:
            return self.include is None or self.include.match(path)
        if self.include is not None:
            return self.include.match(path, skipped_parts(path))
        return self.accepts(path) > 0 and not skipped_parts(path)

    def _add(self, path: str, location: str, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            self.report(path, "skipped: not a regular file")
        elif status.st_size > (maximum := self.accepts(path) or MAXIMUM_DOCUMENT):
            self.report(path, f"skipped: {too_large(status.st_size, maximum)}")
        else:
            self.files[location] = SourceFile.of(storable(path), Path(location), status)


def secret_root(root: Path) -> str:
    """Why a file or folder must not be added; "" if it may be. Its links must be resolved."""
    if secret_folder(root.as_posix()):
        return "it lies in a folder of credentials"
    return "its name is that of a secret (a key, a password file)" if is_secret(root.name) else ""


def _unreadable(file: SourceFile, why: str) -> SourceError:
    return SourceError(f"Cannot read {file.path}: {why}", path=file.path)

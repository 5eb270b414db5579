"""A folder on disk -> the files that are documents, and a file -> its text.

Nothing here fails because of one bad entry: what cannot be listed is reported with its path and
left out. A reported path is unknown, not gone; whoever syncs must keep what it holds of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kb.disk.globs import Globs
from kb.disk.ignore import IGNORE_FILES, IgnoreFiles
from kb.disk.read import MAXIMUM_DOCUMENT, read_bytes, reason, too_large
from kb.disk.ripgrep import list_files
from kb.disk.secret import begins_as_private_key, is_secret, secret_folder
from kb.disk.skipped import NEVER_ENTERED, NOISY_FOLDERS, TOOL_FOLDERS, skipped_parts
from kb.errors import SourceError
from kb.text.decode import NoTextError, decode
from kb.text.file_names import storable
from kb.text.suffixes import PAGE_SUFFIXES

__all__ = [
    "LEADS_OUT",
    "Accepts",
    "SecretFile",
    "SourceFile",
    "SourceText",
    "is_private_key",
    "read",
    "read_data",
    "secret_root",
    "text_files",
    "walk",
]

# Said of a link that is not followed; the collection of what it leads to has its own root.
LEADS_OUT = (
    "link not followed: it leads out of the collection's folder; `kb add` its target by itself"
)
_BARE_NEGATION = re.compile(r"^!\s*$", re.MULTILINE)

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
    url: str = ""  # where it was fetched; "" when it was not
    captured: str = ""  # when it was fetched, as UTC text


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
    return MAXIMUM_DOCUMENT if path.lower().endswith(PAGE_SUFFIXES) else 0


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
    data = read_data(file, MAXIMUM_DOCUMENT)
    try:
        decoded = decode(data)
    except NoTextError as error:
        raise _unreadable(file, f"{error}. Save it as UTF-8 text, or exclude it.") from error
    if begins_as_private_key(decoded.text):
        raise SecretFile(f"{file.path} is a private key, which is never stored", path=file.path)
    return SourceText(decoded.text, hashlib.sha256(data).digest(), decoded.encoding, decoded.notice)


def is_private_key(file: SourceFile) -> bool:
    """Whether a file is a private key by its text, whatever it is called."""
    try:
        read(file)
    except SecretFile:
        return True
    except SourceError:  # no text
        return False
    return False


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
        self._folders: set[str] = set()  # real paths whose entries were looked at
        self._links: list[tuple[str, str]] = []  # path and location

    def start(self, root: Path) -> None:
        self._root = os.path.realpath(root, strict=True)
        if why := secret_root(Path(self._root)):
            raise SecretFile(f"{root} is never stored: {why}.", path=str(root))
        status = os.stat(self._root)
        if stat.S_ISDIR(status.st_mode):
            os.scandir(self._root).close()  # an unreadable root is an error, not an empty folder
            self._ignore_files = IgnoreFiles(Path(self._root))
            self._list(self._root, "")
            while self._links:
                links, self._links = sorted(self._links), []
                for path, location in links:
                    self._follow(path, location)
        elif not stat.S_ISREG(status.st_mode):
            raise OSError("neither a folder nor a regular file")
        else:
            self._add(root.name, self._root, status)

    def _list(self, folder: str, prefix: str) -> None:
        """Take in all below a real folder; `prefix` is its path with a slash."""
        skipped = NOISY_FOLDERS if self._hidden else TOOL_FOLDERS
        listing = list_files(
            Path(folder),
            hidden=self._hidden or (self._include is not None and self._include.names_hidden),
            skipped=sorted(name for name in skipped if not self._is_named(name)),
            with_parents=not prefix,
        )
        for inner, why in listing.unread:
            is_ignore_file = inner.rpartition("/")[2] in IGNORE_FILES
            what = "ignore file not used" if is_ignore_file else "folder not read"
            self._report((prefix + inner).rstrip("/"), f"{what}: {why}")
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
        """Take in a regular file that ripgrep does not find ignored."""
        if not self._wanted(path) or self._exclude.match(path):
            return
        # It also compares names byte by byte, in whatever Unicode form they are.
        if not (is_sure and path.isascii()) and self._ignore_files.hides(path):
            return
        if is_secret(path):
            self._withhold(path)
            return
        if location in self.found:
            return
        try:
            self._add(path, location, os.stat(location, follow_symlinks=False))
        except FileNotFoundError:
            pass  # gone since the folder was listed
        except OSError as error:
            self._report(path, f"skipped: {reason(error)}")

    def _look_for_links(self, folder: str, prefix: str, holding: set[str]) -> bool:
        """Note the links below a folder; report what is neither file, folder nor link.

        Args:
            holding: the folders that hold a file which is not ignored, directly or not.

        Returns:
            whether ripgrep can have read all ignore files right.
        """
        is_sure = True
        pending = [""]
        while pending:
            inner = pending.pop()
            place = os.path.join(folder, inner) if inner else folder
            if place in self._folders:
                continue
            self._folders.add(place)
            try:
                with os.scandir(place) as entries:
                    listed = list(entries)
            except OSError:
                continue  # gone, or ripgrep could not read it either and it is reported
            before = f"{inner}/" if inner else ""
            for entry in listed:
                path = prefix + before + entry.name
                if entry.is_symlink():
                    if not (self._skips(path) or self._ignored(path)):
                        self._links.append((path, entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    known = before + entry.name in holding
                    if known or not (self._skips(path) or self._ignored(path, is_folder=True)):
                        pending.append(before + entry.name)
                elif not entry.is_file(follow_symlinks=False) and self._wanted(path):
                    self._report(path, "skipped: not a regular file")
                if entry.name in IGNORE_FILES:
                    is_sure &= self._is_plain(path, entry.path)
        return is_sure

    def _is_plain(self, path: str, ignore_file: str) -> bool:
        """Whether ripgrep reads an ignore file as git does; tell it when it cannot be read."""
        try:
            text = read_bytes(Path(os.path.realpath(ignore_file)), MAXIMUM_DOCUMENT).decode()
        except UnicodeDecodeError:
            return False  # of which ripgrep uses what comes before
        except OSError as error:
            self._report(path, f"ignore file not used: {reason(error)}")
            return True
        return _BARE_NEGATION.search(text) is None  # which takes back everything in ripgrep

    def _follow(self, path: str, location: str) -> None:
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
            self._report(path, LEADS_OUT)
            return
        inner = Path(target).relative_to(self._root).as_posix()
        if is_secret(path) or is_secret(inner):
            self._withhold(path)
        elif self._skips(inner) or self._exclude.match(inner + slash):
            return
        elif is_folder and target not in self._folders:
            self._list(target, path + "/")
        elif not is_folder and target not in self.found:
            self._add(path, target, status)

    def _skips(self, path: str) -> bool:
        """Whether an entry is left out with all it may hold: no glob names a part of it."""
        parts = path.split("/")
        if not NEVER_ENTERED.isdisjoint(parts):
            return True
        if self._hidden:
            return not NOISY_FOLDERS.isdisjoint(parts)
        return any(not self._is_named(part) for part in skipped_parts(path))

    def _is_named(self, part: str) -> bool:
        return (
            self._include is not None
            and part not in NEVER_ENTERED
            and self._include.may_name(part)
            and not self._hidden
        )

    def _ignored(self, path: str, *, is_folder: bool = False) -> bool:
        return self._ignore_files.ignores(path, is_folder)

    def _wanted(self, path: str) -> bool:
        if self._hidden:
            return self._include is None or self._include.match(path)
        if self._include is not None:
            return self._include.match(path, skipped_parts(path))
        return self._accepts(path) > 0 and not skipped_parts(path)

    def _add(self, path: str, location: str, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            self._report(path, "skipped: not a regular file")
        elif status.st_size > (maximum := self._accepts(path) or MAXIMUM_DOCUMENT):
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

"""Search by regular expression: the files of a project, or texts that are stored.

Both are searched by ripgrep, so that a pattern means the same. A match is a line, as in grep: a
line counts once however often the pattern occurs in it.

A folder is asked several times. Its files are listed, and those that have changed are looked at.
The next pass counts over all; the few files that ripgrep does not read as others do (old encodings,
UTF-16, lone returns) are decoded and counted anew. The last one reads the files that come into the
reply and hands their text to ripgrep, which says where lines match. Asked once for everything,
ripgrep prints 300 MB for the pattern "." and 8 MB of files.

To find the files to decode takes twice as long as a search. So a process keeps what it found out
about a file until a look at its inode (2 us) shows another size, place or time. Of a file that was
written within the last two seconds nothing is kept: it may change again within the same tick of the
clock that its times are taken from.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import stat
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from kb.disk.globs import Globs
from kb.disk.inside import HIDDEN_FOLDERS, is_hidden_from_tools, read_beneath
from kb.disk.ripgrep import (
    MAXIMUM_BYTES,
    Place,
    Query,
    count_in_folder,
    count_in_text,
    first_places,
    list_to_search,
    odd_files,
)
from kb.disk.secret import begins_as_private_key
from kb.errors import SourceError
from kb.results.code import CONTEXT_LINES, DISK, STORED, CodeMatch, CodeMatches
from kb.text.decode import NoTextError, decode
from kb.text.file_names import storable

# FAT counts modification times in twos of seconds, which is the coarsest.
SETTLED_NS = 2_000_000_000

FILES_REMEMBERED = 50_000  # of all folders together; some 300 bytes each

# Read here rather than by ripgrep, which has no way to be told of a few files but a long command.
_FEW_FILES = 200
_FEW_BYTES = 8 * 1024 * 1024  # 10 ms

# As `odd_files` has it: a return at the end of the text ends its last line, whoever reads it.
_ODD_BYTES = re.compile(rb"\r(?!\n|\Z)|\0")
SKIPPED_FOLDERS = ("dist", "build", ".next", ".context", ".kb")  # and the hidden names
# Hidden files are left out later: ripgrep takes 3 ms a pass to compile the globs for them.
_PRUNED = tuple(f"**/{name}/" for name in (*SKIPPED_FOLDERS, *HIDDEN_FOLDERS))
TIME_LIMIT = 3.0  # seconds for a call; 60 times what 1,600 files take
_REPLY_SECONDS = 0.5  # kept for the second pass when the first takes all the time
# Characters. A minified file is one line; a reply of 100 matches must stay readable.
TEXT_LENGTH = 500
CONTEXT_LENGTH = 200
KEY_BYTES = 16 * 1024  # where a private key begins, if behind its certificates
_BATCH_BYTES = 16 * 1024 * 1024  # of text handed over at once; starting ripgrep takes 5 ms


class Reading(Enum):
    AS_IT_IS = "by ripgrep itself"
    DECODED = "as the text that it holds in its encoding"
    NOT_AT_ALL = "it is binary, hidden from tools, or too large"


@dataclass(slots=True)
class FileRead:
    """How a file is to be searched for as long as it stays in one state."""

    state: tuple[int, int, int, int]  # inode, bytes, modified and changed in ns since 1970
    reading: Reading | None = None  # None until it is known
    is_private_key: bool | None = None  # likewise


_remembered: dict[str, dict[str, FileRead]] = {}  # by folder, the last that changed at the end
_lock = threading.Lock()


def look_at(root: Path, listed: list[str]) -> tuple[dict[str, FileRead], list[str]]:
    """What is remembered of the listed files by path, sorted, and those of which nothing is."""
    with _lock:
        before = _remembered.get(str(root), {})
    is_same = len(listed) == len(before) and all(map(before.__contains__, listed))
    files_read, unknown, start = {}, [], f"{root}/"
    for path in before if is_same else sorted(listed):
        try:
            status = os.lstat(start + path)
        except OSError:
            continue  # gone since it was listed
        state = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        file_read = before.get(path)
        if file_read is None or file_read.state != state or file_read.reading is None:
            file_read = FileRead(state)
            is_searched = stat.S_ISREG(status.st_mode) and status.st_size <= MAXIMUM_BYTES
            if is_searched and not is_hidden_from_tools(path):
                unknown.append(path)
            else:
                file_read.reading = Reading.NOT_AT_ALL
        files_read[path] = file_read
    return files_read, unknown


def remember(root: Path, files: dict[str, FileRead], looked_at: int) -> None:
    """Keep what was learned since `look_at` was called at this time (ns since 1970)."""
    with _lock:
        if _remembered.get(str(root)) == files:
            return
    before = looked_at - SETTLED_NS
    kept = {
        path: file
        for path, file in files.items()
        if file.reading is not None and max(file.state[2:]) < before
    }
    with _lock:
        _remembered.pop(str(root), None)
        _remembered[str(root)] = kept
        count = sum(map(len, _remembered.values()))
        while count > FILES_REMEMBERED:
            count -= len(_remembered.pop(next(iter(_remembered))))


def find_odd(
    root: Path, files: dict[str, FileRead], paths: list[str], seconds: float
) -> tuple[set[str], bool]:
    """Which of some files ripgrep sees other lines in than whoever decodes them, binary ones too;
    and whether all were looked at within so many seconds. Of many, their whole folder is searched.
    """
    if len(paths) > _FEW_FILES or sum(files[path].state[1] for path in paths) > _FEW_BYTES:
        odd, complete = odd_files(root, _PRUNED, seconds)
        return set(odd).intersection(paths), complete
    deadline = time.monotonic() + seconds
    searched: set[str] = set()
    for path in paths:
        if time.monotonic() > deadline:
            return searched, False
        try:
            data, _ = read_beneath(root, path.split("/"), MAXIMUM_BYTES)
        except OSError:
            continue
        if is_odd(data):
            searched.add(path)
    return searched, True


def is_odd(data: bytes) -> bool:
    """Whether bytes are not UTF-8, contain a NUL, or end lines with a lone return."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return _ODD_BYTES.search(data) is not None


def grep(
    root: Path,
    pattern: str,
    file_pattern: str,
    case_sensitive: bool,
    limit: int,
    context_lines: int = CONTEXT_LINES,
) -> CodeMatches:
    """Search the text files of a folder, as `Documents.grep`; SourceError if it is missing.

    Args:
        pattern: in ripgrep's syntax (the one of Rust); it matches within a line.
        file_pattern: a glob (see `Globs`) that files must match; "" takes all.
    """
    root = Path(os.path.realpath(root))
    if not root.is_dir():
        raise SourceError(f"Cannot search {root}: it is not a folder.", path=str(root))
    takes = _taking(file_pattern)
    query = Query(pattern, case_sensitive)
    deadline = time.monotonic() + TIME_LIMIT
    counts, complete = _count(query, root, takes, deadline)
    matches: list[CodeMatch] = []
    for batch in _batches(_first_files(root, counts, limit)):
        seconds = max(deadline - time.monotonic(), _REPLY_SECONDS)
        places, in_time = first_places(query, batch.text(), limit - len(matches), seconds)
        matches += batch.matches(places, context_lines)
        complete = complete and in_time
        if len(matches) == limit or not in_time:
            break
    return _results(matches, sum(counts.values()), len(counts), DISK, complete)


def _count(
    query: Query, root: Path, takes: Callable[[str], bool], deadline: float
) -> tuple[dict[str, int], bool]:
    """Matching lines by path, sorted, none of private keys; and whether all files were searched."""
    looked_at = time.time_ns()
    listed, complete = list_to_search(root, _PRUNED, TIME_LIMIT - _REPLY_SECONDS)
    files, unknown = look_at(root, listed)
    seconds = deadline - _REPLY_SECONDS - time.monotonic()
    counts, all_counted = count_in_folder(query, root, _PRUNED, seconds, with_zeros=bool(unknown))
    complete = complete and all_counted
    odd: set[str] = set()
    if complete and unknown:
        seconds = max(deadline - time.monotonic(), 0.1)
        odd, complete = find_odd(root, files, unknown, seconds)
        for path in unknown:
            if path in odd:
                files[path].reading = Reading.DECODED
            elif path in counts:
                files[path].reading = Reading.AS_IT_IS
    decoded: dict[str, int] = {}
    if complete:
        odd_ones = [path for path, file in files.items() if file.reading is Reading.DECODED]
        # Whether a new one holds text is found out even where it is not asked for.
        requested = [path for path in odd_ones if path in odd or takes(path)]
        decoded, complete = _count_decoded(query, root, requested, files, counts, deadline)
        if complete:
            remember(root, files, looked_at)
    named = counts | decoded
    lines = {
        path: named.get(path, 0)
        for path, file in files.items()
        # What was searched and is not named has no match.
        if (
            file.reading is not Reading.NOT_AT_ALL
            if path in named
            else file.reading is Reading.AS_IT_IS and all_counted
        )
        and takes(path)
    }
    for path in [path for path, count in lines.items() if count]:
        if _is_private_key(root, path, files[path]):
            # As if it did not match: else the number of files would tell bit by bit what is in it.
            if all_counted or unknown:
                lines[path] = 0
            else:
                del lines[path]
    return lines, complete


def _count_decoded(
    query: Query,
    root: Path,
    paths: Iterable[str],
    files: dict[str, FileRead],
    counts: dict[str, int],
    deadline: float,
) -> tuple[dict[str, int], bool]:
    """Count in files that ripgrep cannot read, noting binary ones in `files`; whether in all."""
    batch, complete = _Batch(), True
    for path in paths:
        try:
            text = _decoded(root, path)
        except OSError:
            files[path].reading = None
            continue
        except NoTextError:
            files[path].reading = Reading.AS_IT_IS if path in counts else Reading.NOT_AT_ALL
            continue
        if batch.size + len(text) > _BATCH_BYTES or time.monotonic() > deadline:
            complete = False
            break
        batch.add(path, text)
    if not batch.paths:
        return {}, complete
    seconds = max(deadline - time.monotonic(), _REPLY_SECONDS)
    places, in_time = first_places(query, batch.text(), _BATCH_BYTES, seconds)
    lines = Counter(batch.paths[batch.index_of(place)] for place in places)
    return {path: lines[path] for path in batch.paths}, complete and in_time


def _decoded(root: Path, path: str) -> bytes:
    """A file's text as UTF-8; OSError if it cannot be read, NoTextError if it is binary."""
    head, _ = read_beneath(root, path.split("/"), KEY_BYTES)
    if not head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        decode(head[:KEY_BYTES])  # binary files are many and large
    data, _ = read_beneath(root, path.split("/"), MAXIMUM_BYTES)
    return decode(data).text.encode(errors="replace")


def grep_texts(
    texts: Iterable[tuple[str, str]],
    pattern: str,
    file_pattern: str,
    case_sensitive: bool,
    limit: int,
    context_lines: int = CONTEXT_LINES,
) -> CodeMatches:
    """As `grep`, in stored texts, given as path and text, in the order in which they come.

    They are read as they are needed, some megabytes at a time.
    """
    takes = _taking(file_pattern)
    query = Query(pattern, case_sensitive)
    deadline = time.monotonic() + TIME_LIMIT
    # A bad pattern is an error even when there is nothing to search.
    total, complete = count_in_text(query, b"", TIME_LIMIT)
    taken = (
        (path, text.encode(errors="replace"))
        for path, text in texts
        if takes(path) and not is_hidden_from_tools(path)
    )
    matches: list[CodeMatch] = []
    searched = 0
    for batch in _batches(taken):
        seconds = deadline - time.monotonic()
        if seconds <= 0 or not complete:
            complete = False
            break
        count, complete = count_in_text(query, batch.text(), seconds)
        total += count
        searched += len(batch.paths)
        if count and len(matches) < limit:
            seconds = max(deadline - time.monotonic(), _REPLY_SECONDS)
            places, in_time = first_places(query, batch.text(), limit - len(matches), seconds)
            matches += batch.matches(places, context_lines)
            complete = complete and in_time
    return _results(matches, total, searched, STORED, complete)


def _results(
    matches: list[CodeMatch], total: int, files: int, searched: str, complete: bool
) -> CodeMatches:
    return CodeMatches(
        matches=matches,
        total_matches=total,
        files_searched=files,
        searched=searched,
        truncated=not complete or None,
    )


class _Batch:
    """Texts joined so that one run of ripgrep searches them all."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.size = 0  # bytes
        self._texts: list[bytes] = []
        self._starts: list[int] = []  # for each text, the number of lines before it
        self._line_count = 0

    def add(self, path: str, text: bytes) -> None:
        if text and not text.endswith(b"\n"):
            text += b"\n"
        self.paths.append(path)
        self._texts.append(text)
        self._starts.append(self._line_count)
        self._line_count += text.count(b"\n")
        self.size += len(text)

    def text(self) -> bytes:
        return b"".join(self._texts)

    def index_of(self, place: Place) -> int:
        # Of texts with the same start all but the last are empty.
        return bisect_right(self._starts, place.line - 1) - 1

    def matches(self, places: Iterable[Place], context_lines: int) -> Iterator[CodeMatch]:
        at, lines = -1, [b""]
        for place in places:
            index = self.index_of(place)
            if index != at:
                at, lines = index, self._texts[index].split(b"\n")[:-1]
            number = place.line - 1 - self._starts[index]
            yield _match(self.paths[index], lines, number, place.byte, context_lines)


def _match(path: str, lines: list[bytes], index: int, byte: int, context_lines: int) -> CodeMatch:
    column = len(lines[index][:byte].decode("utf-8", "replace"))
    text = lines[index].removesuffix(b"\r").decode("utf-8", "replace")
    start = max(0, min(column - TEXT_LENGTH // 4, len(text) - TEXT_LENGTH))
    left = "…" if start else ""
    right = "…" if start + TEXT_LENGTH < len(text) else ""
    return CodeMatch(
        file=path,
        line=index + 1,
        column=column + 1,
        text=left + text[start : start + TEXT_LENGTH] + right,
        before=[_context(line) for line in lines[max(0, index - context_lines) : index]],
        after=[_context(line) for line in lines[index + 1 : index + 1 + context_lines]],
    )


def _context(line: bytes) -> str:
    # No letter takes more than four bytes: a long line need not be decoded to its end.
    text = line[: 4 * (CONTEXT_LENGTH + 1)].removesuffix(b"\r").decode("utf-8", "replace")
    return text if len(text) <= CONTEXT_LENGTH else text[:CONTEXT_LENGTH] + "…"


def _is_private_key(root: Path, path: str, file: FileRead) -> bool:
    if file.is_private_key is None:
        try:
            data, _ = read_beneath(root, path.split("/"), KEY_BYTES)
        except OSError:
            return False
        file.is_private_key = begins_as_private_key(_as_utf_8(data).decode("utf-8", "replace"))
    return file.is_private_key


def _batches(documents: Iterable[tuple[str, bytes]]) -> Iterator[_Batch]:
    batch = _Batch()
    for path, text in documents:
        if batch.paths and batch.size + len(text) > _BATCH_BYTES:
            yield batch
            batch = _Batch()
        batch.add(path, text)
    if batch.paths:
        yield batch


def _first_files(root: Path, counts: dict[str, int], limit: int) -> Iterator[tuple[str, bytes]]:
    """The files with the first matches, as UTF-8."""
    matches = 0
    for path, count in counts.items():
        if matches >= limit:
            return
        if count == 0:
            continue
        try:
            data, _ = read_beneath(root, path.split("/"), MAXIMUM_BYTES)
        except OSError:
            continue  # gone or replaced since it was counted
        matches += count
        yield storable(path), _as_utf_8(data)


def _as_utf_8(data: bytes) -> bytes:
    """The text without byte order mark as `read_file` shows it; "\r\n" stays, as ripgrep has it."""
    data = data.removeprefix(codecs.BOM_UTF8)
    if is_odd(data):
        with contextlib.suppress(NoTextError):
            return decode(data).text.encode(errors="replace")
    return data


def _taking(file_pattern: str) -> Callable[[str], bool]:
    return Globs([file_pattern], descend=False).match if file_pattern else lambda _: True

"""Documents made ahead of their storing, by a second process.

To parse and to cut a text is half of what a sync without vectors computes, and depends on nothing
but the text. So where there is much to read, a child does that for the next files while this
process stores the one before, as everything is stored: by one writer, in the order of the files.
Where a document is not ready when its turn comes, this process makes one that the child has not
been given yet: so both have the same to do, and the child's start costs nobody's time.

The child is fed and asked over its pipes, by a thread each, so that it never waits. It ends with
them, however this process ended, and what goes wrong in it is done again here, where it is told.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

from kb.errors import DocumentTooComplex
from kb.formats.chunk import Chunk
from kb.formats.outline import Block, Link, Section
from kb.ingest.prepare import Preparation, ReadFile, prepare_document, trusted_time
from kb.models.embedder import available_cores
from kb.sources.folder import SourceFile, SourceText
from kb.store.documents import NewDocument

__all__ = ["reading"]

# Bytes of text from which a child pays: it takes half a second to start, and of a megabyte it takes
# over as much.
WORTH_A_PROCESS = 2_000_000
# What is held at most until it is stored; a single file may be larger.
MOST_FILES = 64
MOST_BYTES = 8_000_000
# Objects after which the youngest are looked through for garbage, and how many such looks until
# all are. Hardly any object of a document is garbage that is not freed at once: in 9 MB of text a
# thousand looks found 600 of them, and took 7 % of the time.
GARBAGE = (20_000, 50, 100)
REPLIES_AT_ONCE = 1 << 20  # bytes that the child can write before somebody reads them


@contextlib.contextmanager
def reading(
    preparation: Preparation, files: Sequence[SourceFile], known: Mapping[str, bytes]
) -> Iterator[Callable[[SourceFile], ReadFile]]:
    """What reads these files, one behind the other: by two processes where that saves time.

    Args:
        files: all that will be read, in order.
        known: the hashes of what is stored, by path: such a file needs no document.
    """
    size = sum(file.size for file in files if preparation.format_of(file) is None)
    if size < WORTH_A_PROCESS:
        yield preparation.read
        return
    before = gc.get_threshold()
    gc.set_threshold(*GARBAGE)
    try:
        if available_cores() < 2:
            yield preparation.read
        else:
            with contextlib.closing(_ReadAhead(preparation, files, known)) as ahead:
                yield ahead.read
    finally:
        gc.set_threshold(*before)


class _ReadAhead:
    """Reads files in order; their documents are made meanwhile. Closing it ends the child."""

    def __init__(
        self, preparation: Preparation, files: Iterable[SourceFile], known: Mapping[str, bytes]
    ) -> None:
        self._preparation = preparation
        self._files: Iterator[SourceFile] = iter(files)
        self._known = known
        self._waiting: deque[_Waiting] = deque()
        self._child: subprocess.Popen[bytes] | None = None
        self._has_failed = False  # then nothing more is asked of it
        self._feeding = ThreadPoolExecutor(1, "kb-read-ahead-feeding")
        self._asking = ThreadPoolExecutor(1, "kb-read-ahead-asking")

    def close(self) -> None:
        for thread in (self._feeding, self._asking):
            thread.shutdown(wait=False, cancel_futures=True)
        if self._child is not None:
            self._child.kill()
        for thread in (self._feeding, self._asking):
            thread.shutdown()
        if self._child is not None:
            with contextlib.suppress(OSError):
                self._child.communicate()

    def read(self, file: SourceFile) -> ReadFile:
        """The next file, as `Preparation.read` gives it.

        Raises:
            SourceError: it cannot be read.
        """
        self._look_ahead()
        one = self._waiting.popleft()
        assert one.file == file
        if isinstance(one.found, Exception):
            raise one.found
        if (given := one.given) is None:
            return one.found
        return replace(one.found, prepare=lambda: self._document(given))

    def _look_ahead(self) -> None:
        while not self._waiting or (
            len(self._waiting) < MOST_FILES
            and sum(one.file.size for one in self._waiting) < MOST_BYTES
        ):
            file = next(self._files, None)
            if file is None:
                return
            try:
                read = self._preparation.read(file)
            except Exception as error:  # noqa: BLE001 - it is the file's, and told in its turn
                self._waiting.append(_Waiting(file, error))
                continue
            given = None
            if read.source and read.content_hash != self._known.get(file.path):
                given = self._given_away(file, read, read.source)
            self._waiting.append(_Waiting(file, read, given))

    def _given_away(self, file: SourceFile, read: ReadFile, source: SourceText) -> _Given:
        fed = self._feeding.submit(self._feed, (file, source, self._preparation.options))
        made = self._asking.submit(self._ask, fed)
        return _Given(read.prepare, source.text, trusted_time(file), fed, made)

    def _document(self, given: _Given) -> NewDocument:
        """The document of a file that was given away; until it is there, others are made here."""
        while given.own is None and not given.made.done():
            later = (one.given for one in self._waiting if one.given is not None)
            free = (one for one in (given, *later) if one.is_taken_back())
            if (one := next(free, None)) is None:
                wait([given.made])
            else:
                one.make()
        return given.document()

    def _feed(self, request: Any) -> bool:
        """Give the child a text to make a document of; whether it takes it."""
        if self._has_failed:
            return False
        try:
            child = self._child = self._child or _start()
            assert child.stdin is not None
            pickle.dump(request, child.stdin, pickle.HIGHEST_PROTOCOL)
            child.stdin.flush()
        except Exception:  # noqa: BLE001 - whatever it is, it costs time alone
            self._has_failed = True
            return False
        return True

    def _ask(self, fed: Future[bool]) -> NewDocument | DocumentTooComplex | None:
        """What the child made of the text that it was given; None if nothing."""
        try:
            if not fed.result() or self._has_failed:
                return None
            assert self._child is not None
            assert self._child.stdout is not None
            reply: NewDocument | DocumentTooComplex | None = pickle.load(self._child.stdout)
        except CancelledError:
            return None  # made here
        except Exception:  # noqa: BLE001 - whatever it is, it costs time alone
            self._has_failed = True
            return None
        return reply


@dataclass(slots=True)
class _Given:
    """A text of which the child is to make a document.

    Attributes:
        prepare: makes it in this process.
        modified_ns: the time that is stored of the file, as it was read.
        fed: whether the child takes the text; until it is at that, it can be cancelled.
        made: what the child made of it; None if nothing.
        own: what this process made of it, or why it cannot.
    """

    prepare: Callable[[], NewDocument]
    text: str
    modified_ns: int | None
    fed: Future[bool]
    made: Future[NewDocument | DocumentTooComplex | None]
    own: NewDocument | Exception | None = None

    def is_taken_back(self) -> bool:
        """Whether it is to be made here after all, for the child never gets it."""
        return self.own is None and self.fed.cancel()

    def make(self) -> None:
        """Make the document here, now."""
        try:
            self.own = self.prepare()
        except Exception as error:  # noqa: BLE001 - it is the file's, and told in its turn
            self.own = error

    def document(self) -> NewDocument:
        """The document that was made; waits for it.

        Raises:
            Exception: whatever kept it from being made.
        """
        new = self.own or self.made.result()
        if new is None:
            new = self.prepare()
        if isinstance(new, Exception):
            raise new
        return replace(new, text=self.text, modified_ns=self.modified_ns)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A file that was read ahead."""

    file: SourceFile
    found: ReadFile | Exception
    given: _Given | None = None


def _start() -> subprocess.Popen[bytes]:
    places = os.pathsep.join(os.path.abspath(place) for place in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kb.ingest.read_ahead"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=REPLIES_AT_ONCE,
        env={**os.environ, "PYTHONPATH": places},
        # Ctrl-C in a terminal is for the parent, which then ends the child.
        start_new_session=True,
    )


def main() -> None:
    """The child: texts in, documents without their texts out, until the pipe is closed."""
    gc.set_threshold(*GARBAGE)
    requests = sys.stdin.buffer
    # What a library prints must not get between the replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _widen(replies.fileno())
    with contextlib.suppress(EOFError, OSError):
        while True:
            pickler = pickle.Pickler(replies, pickle.HIGHEST_PROTOCOL)
            pickler.dispatch_table = _BY_FIELDS
            pickler.dump(_made(*pickle.load(requests)))
            replies.flush()


def _by_fields(kind: type[Any]) -> Callable[[Any], tuple[type[Any], tuple[Any, ...]]]:
    """How to pickle an object as the arguments that make it anew."""
    values = attrgetter(*(field.name for field in fields(kind)))
    return lambda one: (kind, values(one))


# What a document has thousands of. A frozen class with slots is pickled field by field in Python
# otherwise, which takes three times as long.
_BY_FIELDS: Mapping[type, Callable[[Any], Any]] = {
    kind: _by_fields(kind) for kind in (Block, Section, Link, Chunk)
}


def _widen(pipe: int) -> None:
    """Give a pipe more room, where the system can: its reader may have other things to do."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, REPLIES_AT_ONCE)


def _made(
    file: SourceFile, source: SourceText, options: Mapping[str, Any]
) -> NewDocument | DocumentTooComplex | None:
    try:
        return replace(prepare_document(file, source, options), text="")
    except DocumentTooComplex as error:
        return error
    except Exception:  # noqa: BLE001 - the parent comes to the same, and says it
        return None


if __name__ == "__main__":
    main()

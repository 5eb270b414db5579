"""Documents made ahead of their storing, by a second process.

Parsing and cutting take half of a sync without vectors, and need nothing but the text. So where
there is much to read, a child does that for the next files while this process stores the one
before, in the order of the files. Where a document is not ready in its turn, this process makes one
that the child has not been given yet: both share the work, and nobody waits for the child's start.

A thread feeds the child through a pipe and another reads its replies, so that it never waits; a
`ProcessPoolExecutor` lets it (docs/decisions/0024-text-speed.md). It ends when the pipe is closed,
however this process ended. What fails in it is done again here, where it is told.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

from kb.disk.read import FileState
from kb.disk.system import apart, enlarge_pipe
from kb.errors import DocumentTooComplex
from kb.formats.chunk import Chunk
from kb.formats.outline import Block, Link, Section
from kb.ingest.prepare import Preparation, ReadFile, prepare_document
from kb.models.embedder import available_cores
from kb.sources.folder import SourceFile, SourceText
from kb.store.documents import NewDocument

# Bytes of text from which a child pays: it takes half a second to start.
WORTH_A_PROCESS = 2_000_000
# What waits for its storing; a single file may be larger.
MAX_FILES = 64
MAX_BYTES = 8_000_000
# Of the garbage collector: a document's objects are freed together, and looks took 7 % of the time.
GARBAGE = (20_000, 50, 100)
PIPE_BYTES = 1 << 20  # that the child can write before somebody reads them


@contextlib.contextmanager
def reading(
    preparation: Preparation, files: Sequence[SourceFile], stored: Mapping[str, bytes]
) -> Iterator[Callable[[SourceFile], ReadFile]]:
    """A function that reads these files in order: by two processes where that saves time.

    A file whose hash is in `stored` under its path needs no document.
    """
    size = sum(file.size for file in files if preparation.format_of(file) is None)
    if size < WORTH_A_PROCESS:
        yield preparation.read
        return
    thresholds = gc.get_threshold()
    gc.set_threshold(*GARBAGE)
    try:
        if available_cores() < 2:
            yield preparation.read
        else:
            with contextlib.closing(_ReadAhead(preparation, iter(files), stored)) as ahead:
                yield ahead.read
    finally:
        gc.set_threshold(*thresholds)


class _ReadAhead:
    """Reads files in order; their documents are made meanwhile. Closing it ends the child."""

    def __init__(
        self, preparation: Preparation, files: Iterator[SourceFile], stored: Mapping[str, bytes]
    ) -> None:
        self._preparation = preparation
        self._files = files
        self._stored = stored
        self._waiting: deque[_FileAhead] = deque()
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
        """As `Preparation.read`, of the next file."""
        self._look_ahead()
        ahead = self._waiting.popleft()
        assert ahead.file == file
        if isinstance(ahead.result, Exception):
            raise ahead.result
        if ahead.fed is None:
            return ahead.result
        return replace(ahead.result, prepare=lambda: self._document(ahead))

    def _look_ahead(self) -> None:
        while not self._waiting or (
            len(self._waiting) < MAX_FILES
            and sum(ahead.file.size for ahead in self._waiting) < MAX_BYTES
        ):
            if (file := next(self._files, None)) is None:
                return
            try:
                read = self._preparation.read(file)
            except Exception as error:  # noqa: BLE001 - it is the file's, and told in its turn
                self._waiting.append(_FileAhead(file, error, file.state))
                continue
            ahead = _FileAhead(file, read, read.state_of(file))
            if read.source and read.content_hash != self._stored.get(file.path):
                request = (_made, (file, read.source, self._preparation.options))
                ahead.fed = self._feeding.submit(self._feed, request)
                ahead.reply = self._asking.submit(self._ask, ahead.fed)
            self._waiting.append(ahead)

    def _document(self, ahead: _FileAhead) -> NewDocument:
        """A file's document; while the child makes it, others are made here."""
        assert ahead.reply is not None
        while ahead.made is None and not ahead.reply.done():
            if not any(free.make_here() for free in (ahead, *self._waiting)):
                wait([ahead.reply])
        return ahead.document()

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
        """The child's document of a text; None if there is none."""
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
class _FileAhead:
    file: SourceFile
    result: ReadFile | Exception
    state: FileState  # as it was read
    fed: Future[bool] | None = None  # whether the child takes its text; None: it needs none
    reply: Future[NewDocument | DocumentTooComplex | None] | None = None  # of the child
    made: NewDocument | Exception | None = None  # by this process

    def make_here(self) -> bool:
        """Make the document in this process, unless the child has its text."""
        if self.fed is None or self.made is not None or not self.fed.cancel():
            return False
        assert isinstance(self.result, ReadFile)
        try:
            self.made = self.result.prepare()
        except Exception as error:  # noqa: BLE001 - it is the file's, and told in its turn
            self.made = error
        return True

    def document(self) -> NewDocument:
        """The finished document, waited for; raises what prevented it."""
        assert isinstance(self.result, ReadFile)
        assert self.reply is not None
        assert self.result.source is not None
        new = self.made or self.reply.result() or self.result.prepare()
        if isinstance(new, Exception):
            raise new
        return replace(new, text=self.result.source.text, file=self.state)


def made_elsewhere(
    make: Callable[..., NewDocument | DocumentTooComplex], *arguments: Any
) -> NewDocument | DocumentTooComplex:
    """Run a function in a separate process, while this one answers others."""
    with contextlib.suppress(Exception), _start() as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            pickle.dump((make, arguments), child.stdin, pickle.HIGHEST_PROTOCOL)
            child.stdin.flush()
            made: NewDocument | DocumentTooComplex = pickle.load(child.stdout)
        finally:
            child.kill()
        if made is not None:
            return made
    return make(*arguments)


def _start() -> subprocess.Popen[bytes]:
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kb.ingest.read_ahead"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=PIPE_BYTES,
        env={**os.environ, "PYTHONPATH": paths},
        **apart(),  # Ctrl-C is for the parent, which then ends the child
    )


def main() -> None:
    """The child: functions and texts in, documents out, until the pipe is closed."""
    gc.set_threshold(*GARBAGE)
    requests = sys.stdin.buffer
    # What a library prints must not get between the replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    enlarge_pipe(replies.fileno(), PIPE_BYTES)
    with contextlib.suppress(EOFError, OSError):
        while True:
            pickler = pickle.Pickler(replies, pickle.HIGHEST_PROTOCOL)
            pickler.dispatch_table = _BY_FIELDS
            make, arguments = pickle.load(requests)
            pickler.dump(make(*arguments))
            replies.flush()


def _by_fields(kind: type[Any]) -> Callable[[Any], tuple[type[Any], tuple[Any, ...]]]:
    """A pickler of objects as the arguments that make them."""
    values = attrgetter(*(field.name for field in fields(kind)))
    return lambda instance: (kind, values(instance))


# What a document has thousands of. Python pickles frozen classes with slots in thrice the time.
_BY_FIELDS: Mapping[type, Callable[[Any], Any]] = {
    kind: _by_fields(kind) for kind in (Block, Section, Link, Chunk)
}


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

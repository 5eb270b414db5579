"""Documents made ahead of their storing, by a second process.

To parse and to cut a text is half of what a sync without vectors computes, and depends on nothing
but the text. So where there is much to read, a child does that for the next files while this
process stores the one before, as everything is stored: by one writer, in the order of the files.

The child is fed and asked over its pipes. It ends with them, however this process ended, and what
goes wrong in it is done again here, where it is told.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from kb.errors import DocumentTooComplex
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
    if size < WORTH_A_PROCESS or available_cores() < 2:
        yield preparation.read
        return
    with contextlib.closing(_ReadAhead(preparation, files, known)) as ahead:
        yield ahead.read


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
        self._thread = ThreadPoolExecutor(1, "kb-read-ahead")

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._child is not None:
            self._child.kill()
        self._thread.shutdown()
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
        return one.found

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
            if read.source and read.content_hash != self._known.get(file.path):
                read = self._given_away(file, read, read.source)
            self._waiting.append(_Waiting(file, read))

    def _given_away(self, file: SourceFile, read: ReadFile, source: SourceText) -> ReadFile:
        """The file with a document that the child makes of it."""
        modified_ns = trusted_time(file)  # as it was read
        made = self._thread.submit(self._ask, (file, source, self._preparation.options))

        def prepare() -> NewDocument:
            new = made.result()
            if new is None:
                return read.prepare()
            if isinstance(new, DocumentTooComplex):
                raise new
            return replace(new, text=source.text, modified_ns=modified_ns)

        return replace(read, prepare=prepare)

    def _ask(self, request: Any) -> NewDocument | DocumentTooComplex | None:
        """What the child makes of a text; None if nothing."""
        if self._has_failed:
            return None
        try:
            child = self._child = self._child or _start()
            assert child.stdin is not None
            assert child.stdout is not None
            pickle.dump(request, child.stdin, pickle.HIGHEST_PROTOCOL)
            child.stdin.flush()
            reply: NewDocument | DocumentTooComplex | None = pickle.load(child.stdout)
        except Exception:  # noqa: BLE001 - whatever it is, it costs time alone
            self._has_failed = True
            return None
        return reply


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A file that was read ahead."""

    file: SourceFile
    found: ReadFile | Exception


def _start() -> subprocess.Popen[bytes]:
    places = os.pathsep.join(os.path.abspath(place) for place in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kb.ingest.read_ahead"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": places},
        # Ctrl-C in a terminal is for the parent, which then ends the child.
        start_new_session=True,
    )


def main() -> None:
    """The child: texts in, documents without their texts out, until the pipe is closed."""
    requests = sys.stdin.buffer
    # What a library prints must not get between the replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(EOFError, OSError):
        while True:
            pickle.dump(_made(*pickle.load(requests)), replies, pickle.HIGHEST_PROTOCOL)
            replies.flush()


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

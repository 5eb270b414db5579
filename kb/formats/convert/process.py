"""Converting files in a child process that outlives a file, but not a failure.

The child is started at the first file and takes one after the other, so that its libraries are
loaded once. Whatever goes wrong in it is the error of the file at hand: it is ended then, and the
next file gets a new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from kb.errors import ConversionError
from kb.formats.convert.formats import INSTALL, Format
from kb.formats.convert.result import Converted
from kb.formats.convert.worker import LENGTH, PROCESSOR_SECONDS, TOO_MUCH_MEMORY

__all__ = ["MAXIMUM_TEXT_BYTES", "Converter"]

# The processor time is limited in the child; this is for one that waits, or whose limit the
# system does not know.
CLOCK_SECONDS = 5 * PROCESSOR_SECONDS
MAXIMUM_TEXT_BYTES = 64_000_000  # of a reply
FILES_A_PROCESS = 500  # afterwards a new one: libraries leak


class Converter:
    """Turns files into Markdown. Use as a context manager: leaving it ends the child.

    May be used by several threads; they wait for each other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._files = 0

    def __enter__(self) -> Converter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child. Another file would start a new one."""
        with self._lock:
            self._end()

    def convert(self, kind: Format, name: str, data: bytes) -> Converted:
        """The file as Markdown.

        Args:
            kind: the file's format, by its name.
            name: of the file, without folders; of a page that was fetched its address.
            data: all its bytes.

        Raises:
            ConversionError: it cannot be converted; says why.
        """
        if not kind.is_available:
            raise ConversionError(f"is in a format ({kind.name}) that `{INSTALL}` adds")
        request = json.dumps({"module": kind.module, "name": name}).encode()
        with self._lock:
            try:
                reply = self._ask(request, data)
                if not (isinstance(reply, dict) and "error" in reply):
                    return Converted.from_message(reply)
            except ValueError as error:
                self._end()
                raise ConversionError("made its converter send nonsense") from error
            except BaseException:
                self._end()  # whatever it was busy with: the next file finds it idle
                raise
            if reply.get("memory"):
                self._end()
        raise ConversionError(str(reply["error"]))

    def _ask(self, request: bytes, data: bytes) -> Any:
        """What the child answers.

        Raises:
            ConversionError: it does not, or with too much.
            ValueError: it is no JSON.
        """
        child = self._running()
        stdin, stdout = child.stdin, child.stdout
        assert stdin is not None
        assert stdout is not None
        with _killed_after(child, CLOCK_SECONDS) as clock:
            message = b""
            try:
                for part in (request, data):
                    stdin.write(LENGTH.pack(len(part)))
                    stdin.write(part)
                stdin.flush()
                head = stdout.read(LENGTH.size)
                length = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else 0
                if length > MAXIMUM_TEXT_BYTES:
                    raise ConversionError(
                        f"gives {length / 1e6:.0f} MB of text, more than the limit of "
                        f"{MAXIMUM_TEXT_BYTES / 1e6:.0f} MB"
                    )
                message = stdout.read(length)
            except OSError:  # it ended while the file was written to it
                length = 0
            if not length or len(message) < length:
                raise ConversionError(_reason(child, clock))
        return json.loads(message)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._files >= FILES_A_PROCESS or (self._child and self._child.poll() is not None):
            self._end()
        if self._child is None:
            self._child = _start()
        self._files += 1
        return self._child

    def _end(self) -> None:
        child, self._child, self._files = self._child, None, 0
        if child is not None:
            child.kill()
            with contextlib.suppress(OSError):
                child.communicate()


def _start() -> subprocess.Popen[bytes]:
    # The child finds this very package, and nothing else of the environment.
    kept = ("SYSTEMROOT", "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(place) for place in sys.path)
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "kb.formats.convert.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=os.path.abspath(os.sep),
            # Ctrl-C in a terminal is for the parent, which then ends the child.
            start_new_session=True,
        )
    except OSError as error:
        raise ConversionError(f"cannot be converted: no child process ({error})") from error


class _Clock:
    is_over = False


@contextlib.contextmanager
def _killed_after(child: subprocess.Popen[bytes], seconds: float) -> Iterator[_Clock]:
    """End the child when it takes longer than this, so that waiting for its reply ends too."""
    clock = _Clock()

    def kill() -> None:
        clock.is_over = True
        child.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield clock
    finally:
        timer.cancel()


def _reason(child: subprocess.Popen[bytes], clock: _Clock) -> str:
    """Why the child gave no answer."""
    code = child.wait()
    if clock.is_over:
        return f"took more than {CLOCK_SECONDS} s to convert and was given up"
    if hasattr(signal, "SIGXCPU") and code == -signal.SIGXCPU:
        limit = f"{PROCESSOR_SECONDS} s of processor time"
        return f"took more than {limit} to convert and was given up"
    if code == -signal.SIGABRT or (hasattr(signal, "SIGKILL") and code == -signal.SIGKILL):
        return TOO_MUCH_MEMORY
    return f"made its converter fail (exit status {code})"

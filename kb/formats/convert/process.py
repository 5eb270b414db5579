"""Converts files in a child process that serves until one fails.

It takes one file after the other, so that its libraries are loaded once. Whatever goes wrong is
the current file's error, and the next file gets a new child.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from kb.disk.system import apart
from kb.errors import ConversionError
from kb.formats.convert.formats import INSTALL, Format
from kb.formats.convert.result import Converted
from kb.formats.convert.worker import LENGTH, PROCESSOR_SECONDS, TOO_MUCH_MEMORY

# The child limits its processor time; this is for one that waits, or cannot limit it.
CLOCK_SECONDS = 5 * PROCESSOR_SECONDS
OCR_CLOCK_SECONDS = 3600  # for scanned pages, each of which has its processor time
MAXIMUM_TEXT_BYTES = 64_000_000  # of a reply
_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")  # not by the child's limits
FILES_A_PROCESS = 500  # then a new one: libraries leak


class Converter:
    """Turns files into Markdown, one at a time; leaving the context ends the child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._files = 0

    def __enter__(self) -> Converter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child; another file would start a new one."""
        with self._lock:
            self._end()

    def convert(self, kind: Format, name: str, data: bytes, *, ocr: str = "") -> Converted:
        """The file as Markdown. `name` is without folders, or a fetched page's address; `ocr`
        recognises a PDF's scanned pages. Raises ConversionError, which says why."""
        if not kind.is_available:
            raise ConversionError(f"is in a format ({kind.name}) that `{INSTALL}` adds")
        options = {"ocr": ocr} if ocr and kind.module == "pdf" else {}
        request = json.dumps({"module": kind.module, "name": name, "options": options}).encode()
        seconds = OCR_CLOCK_SECONDS if options else CLOCK_SECONDS
        with self._lock:
            try:
                reply = self._ask(request, data, seconds)
                if not (isinstance(reply, dict) and "error" in reply):
                    return Converted.from_message(reply)
            except ValueError as error:
                self._end()
                raise ConversionError("made its converter send nonsense") from error
            except BaseException:
                self._end()  # whatever it is doing: the next file must find it idle
                raise
            if reply.get("memory"):
                self._end()
        raise ConversionError(str(reply["error"]))

    def _ask(self, request: bytes, data: bytes, seconds: float) -> Any:
        """The child's answer; ConversionError if there is none, or too much."""
        child = self._running()
        stdin, stdout = child.stdin, child.stdout
        assert stdin is not None
        assert stdout is not None
        end = time.monotonic() + seconds  # not after the timer's end
        # Once the child is dead, waiting for its reply ends too.
        timer = threading.Timer(seconds, child.kill)
        timer.daemon = True
        timer.start()
        length, message = 0, b""
        try:
            with contextlib.suppress(OSError):  # it ended while it was being written to
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
            is_whole = 0 < length == len(message)
            code = 0 if is_whole else child.wait()  # within the time limit: it may hang
        finally:
            timer.cancel()
        if not is_whole:
            if time.monotonic() >= end:
                raise ConversionError(f"took more than {seconds} s to convert and was given up")
            raise ConversionError(_why_it_ended(code))
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
    # The child gets this package, and nothing else of the environment.
    names = ("SYSTEMROOT", "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(place) for place in sys.path)
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "kb.formats.convert.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=os.path.abspath("/"),
            **apart(),  # Ctrl-C is for the parent, which then ends the child
        )
    except OSError as error:
        raise ConversionError(f"cannot be converted: no child process ({error})") from error


def _why_it_ended(code: int) -> str:
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"made its converter fail (exit status {code})"
    if name == "SIGXCPU":
        return f"took more than {PROCESSOR_SECONDS} s of processor time to convert and was given up"
    if name == "SIGABRT":  # how Rust and C++ end without memory
        return TOO_MUCH_MEMORY
    if name in _FROM_OUTSIDE:
        return (
            f"was not converted: its converter was ended from outside ({name}), by another program "
            "or by a system short of memory. Sync again"
        )
    return f"made its converter crash ({name})"

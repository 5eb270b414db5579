"""The streams and signals of a command: failed writes are reported, and signals end it in order.

A stream that the caller closed, a full disk behind a redirection and a name that the terminal's
encoding lacks must neither end a command in a traceback nor pass for success. All text leaves a
command here, so what could steer a terminal is replaced here.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from kb.disk.read import reason
from kb.disk.system import console_of, ending_signals
from kb.text.controls import visible
from kb.text.file_names import ESCAPING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDIN, STDOUT, STDERR = 0, 1, 2
AGAIN_SECONDS = 0.02  # until a signal is repeated that came where nothing can be raised


class OutputError(Exception):
    """What a command prints cannot be written."""


class _Output(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            why = "it is closed" if error.errno == errno.EBADF else reason(error)
            raise OutputError(f"cannot write to stdout: {why}") from error


class _Errors(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:  # there is nobody to tell
            return len(bytes(data))


class _Visible(io.TextIOWrapper):
    """Text for people and pipes, without sequences that could steer a terminal."""

    def write(self, text: str) -> int:
        super().write(visible(text))
        return len(text)


class _Coloured:
    """A stream for `rich`, whose own sequences pass; the texts that it gets must be `visible`."""

    def __init__(self, stream: _Visible) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return io.TextIOWrapper.write(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def coloured(stream: TextIO) -> Any:
    """A stream for what `rich` draws."""
    return _Coloured(stream) if isinstance(stream, _Visible) else stream


def prepare_streams() -> None:
    """Make stdin, stdout and stderr usable, whatever the caller left of them."""
    # A closed stream is None. The next file to be opened would get its number, and its text. A
    # closed stdin is empty; printing to a closed stdout fails.
    for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        if stream is None:
            _put_null_device(number, os.O_WRONLY if number == STDERR else os.O_RDONLY)
    if sys.stdin is None:
        sys.stdin = open(STDIN, encoding="utf-8", closefd=False)  # noqa: SIM115 - for good
    sys.stdout = _writing(sys.stdout, STDOUT, _Output)
    sys.stderr = _writing(sys.stderr, STDERR, _Errors)


@contextlib.contextmanager
def written_output() -> Iterator[None]:
    """Make sure that what is printed within is written; raises OutputError."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of a pipe has left (`kb list | head`): no error, but nothing more to write.
        _put_null_device(sys.stdout.fileno(), os.O_WRONLY)
    except OutputError:
        _put_null_device(sys.stdout.fileno(), os.O_WRONLY)
        raise


def _put_null_device(number: int, flags: int) -> None:
    """Open the null device in place of a stream."""
    opened = os.open(os.devnull, flags)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)


@contextlib.contextmanager
def ending_on_signals() -> Iterator[None]:
    """End in order on a signal that would end the process anyway, so that the file is closed.
    Ctrl-C raises `KeyboardInterrupt`, the others `SystemExit`, even during a destructor, from
    which Python lets no exception out."""
    # An ignored signal, such as SIGHUP under nohup, stays ignored.
    taken = [number for number in ending_signals() if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _end)
    before, sys.unraisablehook = sys.unraisablehook, _come_again
    try:
        yield
    finally:
        sys.unraisablehook = before
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _come_again(lost: sys.UnraisableHookArgs) -> None:
    """Repeat a signal whose exception was lost, once the code that lost it has ended."""
    match lost.exc_value:
        case KeyboardInterrupt():
            number = signal.SIGINT
        case SystemExit(code=int(code)) if code > 128:
            number = signal.Signals(code - 128)
        case _:
            sys.__unraisablehook__(lost)
            return
    again = threading.Timer(AGAIN_SECONDS, _thread.interrupt_main, [number])
    again.daemon = True
    again.start()


def _writing(stream: TextIO | None, number: int, kind: type[io.FileIO]) -> io.TextIOWrapper:
    if isinstance(stream, io.TextIOWrapper):
        descriptor = -1
        with contextlib.suppress(OSError, ValueError):
            descriptor = stream.fileno()
        if descriptor != number:
            stream.reconfigure(errors=ESCAPING)  # a test or another program put it there
            return stream
    if stream is not None:
        stream.flush()
    return _Visible(
        io.BufferedWriter(console_of(stream) or kind(number, "w", closefd=False)),
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors=ESCAPING,
        line_buffering=number == STDERR or os.isatty(number),
        write_through=number == STDERR,
    )

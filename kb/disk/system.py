"""What operating systems do differently, in one place: Linux, macOS and Windows side by side.

Each function asks `sys.platform` itself, so that mypy checks every way for its own system
(`scripts/test`), and a test on Linux can take the others. Elsewhere nothing asks for the system,
but what tests/test_architecture.py lists. docs/install.md says what is missing where.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TextIO

if TYPE_CHECKING:
    import socket
    import subprocess

# How long to try to replace a file that a virus scanner or an index has open on Windows.
REPLACE_SECONDS = 2.0
PROCESSES = Path("/proc")  # on Linux
# What Windows takes for a device in every folder, with any suffix, and cannot have in a name.
_PORTS = (f"{port}{number}" for port in ("com", "lpt") for number in range(10))
_DEVICES = {"con", "prn", "aux", "nul", *_PORTS}
_NOT_IN_NAMES = frozenset('<>:"\\|?*' + "".join(map(chr, range(32))))


# Files


def open_to_read(path: str | Path, *, follow: bool, folder: int | None = None) -> int:
    """A descriptor of a file.

    Args:
        follow: False refuses a link in the last place, and waits for no fifo's writer.
        folder: the descriptor of a folder that the path is relative to; none on Windows.

    Raises:
        OSError: it cannot be opened.
    """
    if sys.platform == "win32":
        if not follow and os.path.islink(path):
            raise OSError(errno.ELOOP, "this is a link", str(path))
        return os.open(path, os.O_RDONLY | os.O_BINARY)
    flags = os.O_RDONLY if follow else os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
    return os.open(path, flags, dir_fd=folder)


@contextlib.contextmanager
def place_beneath(folder: Path, parts: Sequence[str]) -> Iterator[tuple[str | Path, int | None]]:
    """The path and the folder with which `open_to_read` follows no link below a real folder.

    It goes name by name, so that the system refuses a folder swapped for a link between check and
    use. Windows cannot: there a link is noticed when the block ends, before its result is used.

    Raises OSError if a part of it is missing, or a link.
    """
    if sys.platform == "win32":
        path = folder.joinpath(*parts)
        yield path, None
        if os.path.realpath(path) != os.path.normpath(path):
            raise OSError(errno.ELOOP, "a part of it has become a link", str(path))
        return
    flags = os.O_RDONLY | os.O_DIRECTORY
    at = os.open(folder, flags)
    try:
        for name in parts[:-1]:
            below = os.open(name, flags | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        yield parts[-1], at
    finally:
        os.close(at)


@contextlib.contextmanager
def kept_folder(folder: Path) -> Iterator[os.stat_result]:
    """What a folder is, whose number no other one gets for as long as the block lasts.

    The number of a deleted folder is given to the next unless it is held open. NTFS does not give
    one again so soon, and nothing deletes a folder there that is open.
    """
    if sys.platform == "win32":
        yield os.stat(folder)
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield os.fstat(descriptor)
    finally:
        os.close(descriptor)


def replace(source: Path, target: Path) -> None:
    """Put a file in another one's place at once, or into an empty one. Raises OSError.

    Windows refuses while any program has the other one open: it is tried for `REPLACE_SECONDS`.
    """
    until = time.monotonic() + REPLACE_SECONDS
    while True:
        try:
            return os.replace(source, target)
        except PermissionError:
            if sys.platform != "win32" or time.monotonic() > until:
                raise
        time.sleep(0.05)


def give_to_owner_of(path: Path, status: os.stat_result) -> None:
    """Give a file to the owner of another one, where this user may; on Windows it inherits."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            os.chown(path, status.st_uid, status.st_gid)


def is_marked_read_only(path: Path) -> bool:
    """Whether the owner may not write; on a Windows folder the mark means something else."""
    return sys.platform != "win32" and not path.stat().st_mode & stat.S_IWUSR


def require_possible_name(name: str) -> None:
    """Refuse to write what would become another file than its relative name says.

    To Windows a colon begins a stream of the file before it, dots and blanks at the end are
    nothing, and some names are devices.

    Raises OSError if the system can have no file of this name.
    """
    if sys.platform != "win32":
        return
    for part in name.split("/"):
        is_device = part.split(".")[0].rstrip().lower() in _DEVICES
        if is_device or part.endswith((".", " ")) or not _NOT_IN_NAMES.isdisjoint(part):
            raise OSError(errno.EINVAL, "no file can have this name on Windows", name)


def copy_contents(source: BinaryIO, target: BinaryIO) -> None:
    """Copy a whole file, on Linux within the kernel, on some file systems without moving a byte."""
    numbers = source.fileno(), target.fileno()
    done, size = 0, os.fstat(source.fileno()).st_size
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            while done < size and (count := os.copy_file_range(*numbers, size - done, done, done)):
                done += count
            return
    import shutil

    source.seek(0)
    target.seek(0)
    shutil.copyfileobj(source, target, 1 << 20)


def unnamed_file() -> IO[bytes]:
    """A file for what a process prints: on Linux in memory, as the temporary folder may be full."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return os.fdopen(os.memfd_create("kb"), "w+b")
    import tempfile

    return tempfile.TemporaryFile()


def lock_shared(file: BinaryIO, first: int, size: int) -> bool:
    """Lock bytes of a file against writers until it closes; False: one writes. Not on Windows."""
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, size, first)
        except OSError:
            return False
    return True


# Processes


def apart() -> dict[str, Any]:
    """Arguments of `subprocess.Popen` for a child without Ctrl-C, terminal and window."""
    if sys.platform == "win32":
        import subprocess

        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
        return {"creationflags": flags}
    return {"start_new_session": True}


def end_with_children(process: subprocess.Popen[bytes]) -> None:
    """End a program started `apart`, with all that it started."""
    if process.poll() is not None:
        return
    if sys.platform == "win32":
        import subprocess

        command = ["taskkill", "/F", "/T", "/PID", str(process.pid)]
        with contextlib.suppress(OSError):
            subprocess.run(command, capture_output=True, check=False)
        process.kill()
    else:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def with_memory(kibibytes: int) -> tuple[str, ...]:
    """What to write before a command to bound its memory; macOS does not, Windows has nothing."""
    if sys.platform == "win32":
        return ()
    return ("/bin/sh", "-c", f'ulimit -v {kibibytes} 2>/dev/null; exec "$0" "$@"')


def limit_process(*, memory: int, open_files: int) -> None:
    """Let this process have no more, write no file, and leave no memory image. Not on Windows.

    `memory` is in bytes of address space, which macOS does not bound.
    """
    if sys.platform == "win32":
        return
    import resource

    for limit, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, open_files),
    ):
        with contextlib.suppress(OSError, ValueError):  # the system refuses it
            resource.setrlimit(limit, (value, value))


def limit_processor_time(seconds: int) -> None:
    """Let this process run for so many seconds more before the system ends it. Not on Windows."""
    if sys.platform == "win32":
        return
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(usage.ru_utime + usage.ru_stime) + seconds
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))


def thread_clock() -> Callable[[], float]:
    """The processor time of this thread in seconds, which any thread may read.

    Only Linux tells another thread's: elsewhere it is the time of day.
    """
    if sys.platform == "linux":
        return partial(time.clock_gettime, time.pthread_getcpuclockid(threading.get_ident()))
    return time.monotonic


def status_fields(process: int) -> list[str]:
    """What Linux says of a process in its `stat` (proc(5)), from the state on; [] elsewhere."""
    try:
        status = (PROCESSES / str(process) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return status.rpartition(")")[2].split()  # before it stands the name, which may hold anything


def processor_seconds(process: int) -> float:
    """The processor time of a process; 0 if the system does not tell."""
    ticks = sum(map(int, status_fields(process)[11:13]))  # utime and stime
    if sys.platform == "win32" or not ticks:
        return 0.0
    return ticks / os.sysconf("SC_CLK_TCK")


def is_alive(process: int) -> bool:
    """Whether a process exists; on Windows, where asking would end it, always."""
    if sys.platform == "win32":
        return True
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def ending_signals() -> list[signal.Signals]:
    """The signals beside Ctrl-C that end a process: on Windows a closed console sends SIGBREAK."""
    if sys.platform == "win32":
        return [signal.SIGTERM, signal.SIGBREAK]
    return [signal.SIGTERM, signal.SIGHUP]


# Streams


def enlarge_pipe(descriptor: int, size: int) -> None:
    """Let a pipe hold more than the usual 64 KiB, where the system can (Linux)."""
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, size)


def make_blocking(descriptor: int) -> None:
    """Make writes wait for their reader, whoever shares the descriptor, as on Windows."""
    if sys.platform != "win32":
        os.set_blocking(descriptor, True)


def console_of(stream: TextIO | None) -> io.RawIOBase | None:
    """The Windows console behind a stream: it takes text, and bytes only in its own code page."""
    if sys.platform == "win32" and isinstance(stream, io.TextIOWrapper) and stream.isatty():
        return getattr(stream.buffer, "raw", None)
    return None


def connect_to_socket(path: str, seconds: float) -> socket.socket:
    """A connection to a socket file. Raises OSError if nobody listens there, or on Windows."""
    import socket

    if sys.platform == "win32":
        raise OSError(errno.EAFNOSUPPORT, "Windows has no such sockets", path)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(seconds)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection

"""Runs a module as another system would: `python tests/on_system.py win32 kb add docs`.

What that system lacks is taken from Python, and what it forbids is refused, below kb's own code and
in the processes that kb starts too. What it does in its own way in C, as its console, is not there.
"""

import contextlib
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

for name in ("anyio._backends._asyncio", "apsw", "charset_normalizer", "filelock", "numpy"):
    __import__(name)
for name in ("onnxruntime", "platformdirs", "uvicorn", "watchfiles", "mcp", "mcp.client.stdio"):
    __import__(name)

LACKING = {
    "darwin": {
        "os": "copy_file_range memfd_create sched_getaffinity",
        "time": "pthread_getcpuclockid",
        "fcntl": "F_SETPIPE_SZ",
    },
    "win32": {
        "os": "O_DIRECTORY chown copy_file_range fchmod fork "
        "getgid geteuid getpgid getuid getloadavg killpg memfd_create mkfifo pread "
        "sched_getaffinity set_blocking setsid statvfs sysconf uname",
        "signal": "SIGHUP SIGALRM SIGXCPU setitimer pthread_sigmask",
        "time": "clock_gettime pthread_getcpuclockid",
    },
}
NO_MODULES = {"darwin": (), "win32": ("fcntl", "resource", "pwd", "grp", "termios")}
BINARY, CREATION_FLAGS = 1 << 40, 0x08000200


def main() -> None:
    system, module, *arguments = sys.argv[1:]
    if system == "win32":
        forbid_as_windows()
    start_children_on(system)
    for owner, names in LACKING[system].items():
        for name in names.split():
            delattr(sys.modules.get(owner) or __import__(owner), name)
    for name in NO_MODULES[system]:
        sys.modules[name] = None
    sys.platform = system
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def forbid_as_windows() -> None:
    os.O_BINARY = BINARY
    os.supports_dir_fd = set()
    os.supports_effective_ids = set()
    signal.SIGBREAK = signal.SIGUSR2
    subprocess.CREATE_NEW_PROCESS_GROUP, subprocess.CREATE_NO_WINDOW = 0x200, 0x08000000
    shutil._use_fd_functions, shutil.which = False, as_here(shutil.which)
    tempfile._bin_openflags |= BINARY
    tempfile.TemporaryFile = tempfile.NamedTemporaryFile
    wrap("open", open_as_windows)
    wrap("stat", without_folder)
    for name in ("replace", "rename", "unlink", "remove"):
        wrap(name, only_closed_files)
    wrap("kill", only_for_popen)


def wrap(name, guard) -> None:
    original = getattr(os, name)
    setattr(os, name, lambda *args, **options: guard(original, *args, **options))


def open_as_windows(original, path, flags, mode=0o777, *, dir_fd=None):
    if dir_fd is not None:
        raise NotImplementedError("dir_fd unavailable on this platform")
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    assert flags & BINARY or writes or path == os.devnull, f"{path} is read as text"
    return original(path, flags & ~BINARY, mode)


def without_folder(original, path, *, dir_fd=None, follow_symlinks=True):
    if dir_fd is not None:
        raise NotImplementedError("dir_fd unavailable on this platform")
    return original(path, follow_symlinks=follow_symlinks)


def only_closed_files(original, *paths, dir_fd=None):
    """No program may take away a file that one has open, and a name is taken only by `replace`."""
    if dir_fd is not None:
        raise NotImplementedError("dir_fd unavailable on this platform")
    modules = {frame.f_globals["__name__"] for frame, _ in traceback.walk_stack(None)}
    for path in paths:
        if is_open(path) and not any(
            name.startswith("filelock.") for name in modules
        ):  # it has another way on Windows
            raise PermissionError(13, "The process cannot access the file", str(path))
    if original.__name__ == "rename" and os.path.lexists(paths[1]):
        raise FileExistsError(17, "Cannot create a file when that file already exists", paths[1])
    return original(*paths)


def only_for_popen(original, *arguments):
    asks = sys._getframe(2).f_globals["__name__"]
    assert asks == "subprocess", "os.kill ends a process there, whatever the signal"
    original(*arguments)


def as_here(original):
    """A function of the standard library that would load a module of the other system."""

    def call(*arguments, **options):
        system, sys.platform = sys.platform, "linux"
        try:
            return original(*arguments, **options)
        finally:
            sys.platform = system

    return call


def is_open(path) -> bool:
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(int(number)), status):
                    return True
    return False


def start_children_on(system: str) -> None:
    original = subprocess.Popen.__init__

    def start(self, command, *arguments, creationflags=0, **options):
        if system == "win32":
            assert creationflags in (0, CREATION_FLAGS)
            assert not options.get("start_new_session"), "which Windows does not know"
        if command[0] == sys.executable and "-m" in command:
            at = command.index("-m")
            command = [*command[:at], str(Path(__file__)), system, *command[at + 1 :]]
        original(self, command, *arguments, **options)

    subprocess.Popen.__init__ = start


if __name__ == "__main__":
    main()

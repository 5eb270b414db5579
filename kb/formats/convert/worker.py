"""The child process: bytes of a file in, Markdown out, one file after the other.

It hands strangers' files to parsers in C and Rust, so it gives up whatever conversion does not
need: memory beyond a limit, files, the network, other programs. The parent watches the time.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import struct
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, BinaryIO

from kb.disk.system import limit_process, limit_processor_time
from kb.formats.convert.result import Converted, ConverterError

LENGTH = struct.Struct("!Q")  # before each message and each file: its number of bytes

MEMORY_BYTES = 2 * 1024**3  # of address space
TOO_MUCH_MEMORY = f"needs more than {MEMORY_BYTES / 1024**3:.0f} GB of memory to be converted"
PROCESSOR_SECONDS = 60  # a file


def main() -> None:
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(1), "wb")  # no output of a library may get between them
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no fault of the file
    limit_process(memory=MEMORY_BYTES, open_files=64)
    _forbid()
    while head := requests.read(LENGTH.size):
        request = json.loads(_read(requests, head))
        data = _read(requests, requests.read(LENGTH.size))
        message = json.dumps(_answer(request, data)).encode()
        del data
        replies.write(LENGTH.pack(len(message)) + message)
        replies.flush()


def _read(stream: BinaryIO, head: bytes) -> bytes:
    return stream.read(LENGTH.unpack(head)[0])


def _answer(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """The converted file as a message, or `{"error": text}`, with "memory" if that ran out."""
    renew_processor_time()
    try:
        # Here, as the parent imports this module for its limits.
        from kb.formats.convert.completeness import with_losses

        module = importlib.import_module(f"kb.formats.convert.{request['module']}")
        convert: Callable[..., Converted] = module.convert
        converted = convert(data, request["name"], **request["options"])
        return asdict(with_losses(request["module"], data, converted))
    except ConverterError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": TOO_MUCH_MEMORY, "memory": True}
    except RecursionError:
        return {"error": "is nested too deeply to be converted"}
    # Whatever a library raises on a damaged file is the file's error; Rust's panic is no Exception.
    except BaseException as error:  # noqa: BLE001
        detail = " ".join(str(error).split())[:200]
        kind = type(error).__name__
        return {"error": f"cannot be converted: {kind}{': ' if detail else ''}{detail}"}


def renew_processor_time() -> None:
    """Each file has its own share; the system ends a process that exceeds it."""
    limit_processor_time(PROCESSOR_SECONDS)


_FORBIDDEN = tuple(
    """
    socket. subprocess. os.exec os.fork os.posix_spawn os.spawn os.startfile os.system
    os.remove os.rename os.rmdir os.mkdir os.link os.symlink os.truncate os.chmod os.chown
    shutil. sqlite3. tempfile. urllib. ftplib. http. smtplib. webbrowser.
    """.split()
)


def _forbid() -> None:
    """Refuse, for good, what no conversion needs: writing, foreign files, network, programs."""
    folders = filter(None, (*sys.path, sys.prefix, sys.base_prefix))
    inside = tuple({os.path.join(os.path.realpath(folder), "") for folder in folders})

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = mode and set(mode) & set("wax+")
            writes = writes or (not mode and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            if isinstance(path, int):
                return
            where = os.path.realpath(os.fsdecode(path))
            if writes or not where.startswith(inside):
                raise PermissionError(f"a converter may not open {where}")
        elif event.startswith(_FORBIDDEN):
            raise PermissionError(f"a converter may not use {event}")

    sys.addaudithook(refuse)


if __name__ == "__main__":
    main()

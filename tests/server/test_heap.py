"""What a server holds does not grow with the number of its threads."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest
from http_process import HttpServer
from server_process import serving

THREADS_HEAP = 32 << 20  # glibc reserves 64 MB for each further heap, aligned


pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc has several heaps"
)


def test_all_threads_of_a_server_share_one_heap(windrose_copy: Path) -> None:
    with serving(windrose_copy) as process:
        process.handshake()
        for number in range(1, 21):
            process.call("documents_search", {"query": f"E{400 + number}", "limit": 1}, number)
        assert len(process.replies(20)) == 20
        assert reserved_heaps(process.popen.pid) == []


def test_so_do_those_of_a_server_of_a_folder(windrose_copy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "served"
    folder.mkdir()
    shutil.copy(windrose_copy, folder / "handbook.db")
    with HttpServer(None, "--db-folder", str(folder)) as server:
        for _ in range(5):
            assert server.request("POST", "/handbook/api/search", {"query": "wind"})[0] == 200
        assert reserved_heaps(server.popen.pid) == []


def reserved_heaps(process: int) -> list[str]:
    """The heaps of threads in the address space of a process."""
    maps = Path(f"/proc/{process}/maps").read_text()
    return [line for line in maps.splitlines() if is_reserved(line)]


def is_reserved(line: str) -> bool:
    """Whether a line tells of address space that a heap of a thread may grow into."""
    places, permissions, *_, inode = line.split()[:5]
    start, end = (int(place, 16) for place in places.split("-"))
    is_anonymous = inode == "0" and len(line.split()) == 5
    return is_anonymous and permissions == "---p" and THREADS_HEAP < end - start <= 2 * THREADS_HEAP

"""A small mail of Outlook, built by code: a compound file (MS-CFB) of properties (MS-OXMSG)."""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["msg", "old_msg"]

SECTOR, SMALL = 512, 64
END, FREE, NONE = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFF
STORAGE, STREAM, ROOT = 1, 2, 5
TEXT, OLD_TEXT, NUMBER = 0x001F, 0x001E, 0x0003  # types of properties: UTF-16, bytes, 32 bits
Tree = dict[str, Any]  # bytes, or another one


def msg(texts: dict[int, str], attached: tuple[str, ...] = ()) -> bytes:
    """A message of these text properties by their ids, and files of these names."""
    return _message(_properties(texts, 32), attached)


def old_msg(texts: dict[int, str], page: int, encoding: str) -> bytes:
    """A message whose texts are bytes in a code page, each with a NUL at its end."""
    data = {pid: text.encode(encoding) + b"\0" for pid, text in texts.items()}
    rows = [(pid << 16 | NUMBER, 6, page, 0) for pid in (0x3FFD, 0x3FDE)]
    rows += [(pid << 16 | OLD_TEXT, 6, len(value), 0) for pid, value in data.items()]
    properties = bytes(32) + b"".join(struct.pack("<IIII", *row) for row in rows)
    tree: Tree = {"__properties_version1.0": properties}
    tree.update({f"__substg1.0_{pid:04X}{OLD_TEXT:04X}": value for pid, value in data.items()})
    return _message(tree)


def _message(tree: Tree, attached: tuple[str, ...] = ()) -> bytes:
    for number, name in enumerate(attached):
        tree[f"__attach_version1.0_#{number:08X}"] = _properties({0x3707: name}, 8)
    return _compound(tree)


def _properties(texts: dict[int, str], header: int) -> Tree:
    values = {pid: text.encode("utf-16-le") for pid, text in texts.items()}
    rows = (struct.pack("<IIII", pid << 16 | TEXT, 6, len(v) + 2, 0) for pid, v in values.items())
    tree: Tree = {"__properties_version1.0": bytes(header) + b"".join(rows)}
    tree.update({f"__substg1.0_{pid:04X}{TEXT:04X}": value for pid, value in values.items()})
    return tree


def _compound(tree: Tree) -> bytes:
    """A file of streams that are all small, and so lie in one that the root holds."""
    entries: list[list[Any]] = [["Root Entry", ROOT, NONE, NONE, 0, 0]]
    small, small_table = b"", b""

    def add(inside: Tree) -> int:
        """Add entries, each the right neighbour of the one before; the first one's number."""
        first = last = NONE
        for name, value in inside.items():
            nonlocal small, small_table
            number = len(entries)
            entry: list[Any] = [name, STORAGE, NONE, NONE, 0, 0]
            entries.append(entry)
            if isinstance(value, bytes):
                start, count = len(small) // SMALL, -(-len(value) // SMALL)
                small += value.ljust(count * SMALL, b"\0")
                chain = [*range(start + 1, start + count), END]
                small_table += struct.pack(f"<{count}I", *chain[:count])
                entry[:] = [name, STREAM, NONE, NONE, start if count else END, len(value)]
            else:
                entry[3] = add(value)
            if last == NONE:
                first = number
            else:
                entries[last][2] = number
            last = number
        return first

    entries[0][3] = add(tree)
    parts = [_padded(part) for part in (bytes(128 * len(entries)), small_table, small)]
    counts = [len(part) // SECTOR for part in parts]
    table: list[int] = [0xFFFFFFFD]  # the sector of this table itself
    starts = []
    for count in counts:
        starts.append(len(table))
        table += [*range(len(table) + 1, len(table) + count), END]
    entries[0][4:] = starts[2], len(small)
    directory = b"".join(_entry(*entry) for entry in entries)
    assert len(table) <= SECTOR // 4
    head = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(16)
    head += struct.pack("<HHHHH6x", 0x3E, 3, 0xFFFE, 9, 6)
    head += struct.pack("<IIIIIIIII", 0, 1, starts[0], 0, 4096, starts[1], counts[1], END, 0)
    head += struct.pack("<109I", 0, *[FREE] * 108)
    fat = struct.pack("<128I", *table, *[FREE] * (128 - len(table)))
    return head + fat + _padded(directory) + parts[1] + parts[2]


def _entry(name: str, kind: int, right: int, child: int, start: int, size: int) -> bytes:
    label = name.encode("utf-16-le") + b"\0\0"
    head = struct.pack("<64sHBBIII", label, len(label), kind, 1, NONE, right, child)
    return head + bytes(36) + struct.pack("<IQ", start, size)


def _padded(data: bytes) -> bytes:
    return data.ljust(-(-len(data) // SECTOR) * SECTOR, b"\0")

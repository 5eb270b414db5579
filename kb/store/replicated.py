"""Whether Litestream copies a file to another place while it is written.

Litestream keeps its state in a folder beside the file, which is there from its first start until
`kb replicate --stop`. That folder is the mark: it is seen with one look, by every process, whether
Litestream runs just now or not, and it does not go along with a copy of the file.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["CONTROL", "is_being_replicated", "is_replicated", "litestream_folder"]

# Where Litestream listens while it runs. Relative to its folder, in which it works: a socket's name
# has to be short.
CONTROL = "control.sock"


def litestream_folder(file: Path) -> Path:
    """Where Litestream keeps what it knows of a file."""
    real = Path(os.path.realpath(file))
    return real.with_name(f".{real.name}-litestream")


def is_replicated(file: Path) -> bool:
    """Whether a file is copied elsewhere, or will be again when Litestream is back."""
    return os.path.isdir(litestream_folder(file))


def is_being_replicated(file: Path) -> bool:
    """Whether Litestream runs for a file just now, or was killed without being started again."""
    return os.path.exists(litestream_folder(file) / CONTROL)

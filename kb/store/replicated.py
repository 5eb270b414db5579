"""Whether Litestream copies a file to another place while it is written.

Litestream keeps its state in a folder beside the file, which is there from its first start until
`kb replicate --stop`. That folder is the mark: it is seen with one look, by every process, whether
Litestream runs just now or not, and it does not go along with a copy of the file.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["is_replicated", "litestream_folder"]


def litestream_folder(file: Path) -> Path:
    """Where Litestream keeps what it knows of a file."""
    real = Path(os.path.realpath(file))
    return real.with_name(f".{real.name}-litestream")


def is_replicated(file: Path) -> bool:
    """Whether a file is copied elsewhere, or will be again when Litestream is back."""
    return os.path.isdir(litestream_folder(file))

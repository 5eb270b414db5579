"""Whether an entry is hidden by `.gitignore` and `.ignore` files, one entry at a time.

ripgrep judges the files of a folder. What it does not list is judged here, with pathspec: links,
and folders without a file, in which there may be links.
"""

from __future__ import annotations

from pathlib import Path

from pathspec import GitIgnoreSpec

from kb.disk.globs import compiled, composed
from kb.disk.read import read_bytes
from kb.settings import repository_of

# In order of precedence, as ripgrep has it: `.ignore` anywhere overrules every `.gitignore`.
IGNORE_FILES = (".ignore", ".gitignore")
MAXIMUM_BYTES = 1_000_000  # git's own limit is 100 MB; the largest in use have some 10 kB


class IgnoreFiles:
    """The ignore files in and around a folder, a real and absolute path, up to its repository."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._top = top = repository_of(root) or root
        self._above = root.relative_to(top).parts
        self._specs: dict[tuple[str, ...], GitIgnoreSpec | None] = {}
        self._folders: dict[str, bool] = {}  # whether they are hidden

    def ignores(self, path: str, is_folder: bool) -> bool:
        """Whether an entry, named relative to the root, is ignored; its folder is not."""
        parts = (*self._above, *path.split("/"))
        for name in (*IGNORE_FILES, ".git/info/exclude"):
            for depth in range(len(parts) - 1, -1, -1):
                if name not in IGNORE_FILES and depth:
                    continue
                spec = self._spec(parts[:depth], name)
                inner = "/".join(parts[depth:]) + ("/" if is_folder else "")
                if spec and (verdict := spec.check_file(composed(inner)).include) is not None:
                    return verdict
        return False

    def hides(self, path: str) -> bool:
        """Whether a file, or a folder around it, is ignored."""
        slash = path.find("/")
        while slash >= 0:
            folder = path[:slash]
            if folder not in self._folders:
                self._folders[folder] = self.ignores(folder, True)
            if self._folders[folder]:
                return True
            slash = path.find("/", slash + 1)
        return self.ignores(path, False)

    def _spec(self, folder: tuple[str, ...], name: str) -> GitIgnoreSpec | None:
        key = (*folder, name)
        if key not in self._specs:
            self._specs[key] = _read(self._top.joinpath(*key))
        return self._specs[key]


def _read(file: Path) -> GitIgnoreSpec | None:
    try:
        data = read_bytes(file, MAXIMUM_BYTES)
    except (OSError, ValueError):
        return None  # ripgrep tells what is wrong with it
    lines = composed(data.decode("utf-8-sig", "surrogateescape")).split("\n")
    patterns = (compiled(line.removesuffix("\r")) for line in lines)
    return GitIgnoreSpec([pattern for pattern in patterns if pattern is not None])

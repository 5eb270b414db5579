"""What a folder of documents holds beside its documents: hidden, tool, trash and lock files.

A walk leaves them out unless an include glob names them: `.github/**` names `.github`, while `**`
and `*` name nothing, as in a shell.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

# The insides of repositories and of kb itself: no glob opens them.
NEVER_ENTERED = frozenset({".git", ".hg", ".svn", ".kb"})

# Folders that programs fill, often and with much. Changes in them start no sync.
NOISY_FOLDERS = NEVER_ENTERED | {".context", ".venv", "__pycache__", "node_modules"}

# Folders of tools and systems; what begins with a dot is hidden whatever its name is.
TOOL_FOLDERS = NOISY_FOLDERS | {
    *("venv", "virtualenv", "site-packages", "dist-packages", "__pypackages__", "target"),
    *("bower_components", "jspm_packages", "elm-stuff", "DerivedData", "__MACOSX"),
    *("$RECYCLE.BIN", "#recycle", "@eaDir", "System Volume Information", "lost+found"),
}
# What an application keeps beside its documents, by the last two names of the path.
_TOOL_PAIRS = frozenset({("logseq", "bak"), ("logseq", "version-files")})
_LOCK_FILE = "~$"  # of Office; those of Emacs, `.#x.md`, are hidden


def skipped_parts(path: str) -> list[str]:
    """The parts of a path for which a walk skips it, from the root down."""
    parts = path.split("/")
    return [
        part
        for before, part in zip(["", *parts], parts, strict=False)
        if part.startswith((".", _LOCK_FILE))
        or part in TOOL_FOLDERS
        or (before, part) in _TOOL_PAIRS
    ]


def named_by(segments: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether the segments of one glob name all these parts, each another one, in this order.

    A segment names what it matches and begins like: `.git*` names `.github`, `*` does not.
    """
    rest = iter(segments)
    return all(any(_names(segment, part) for segment in rest) for part in parts)


def _names(segment: str, part: str) -> bool:
    return segment[:1] == part[:1] and fnmatch.fnmatchcase(part, segment)

"""Which branch is checked out, from git's files: a repository can make git itself run programs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kb.disk.read import read_bytes
from kb.errors import ConfigurationError
from kb.settings import repository_of
from kb.text.file_names import storable

NO_BRANCH = "default"  # the branch of a project that is no git repository
MAXIMUM_GIT_BYTES = 10_000  # HEAD and the files that lead to it hold one line

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REFERENCE = re.compile(r"ref:\s*(?:refs/heads/|refs/)?(\S.*)")


def git_branch(root: Path) -> str:
    """The branch that is checked out around a folder, read from git's files.

    `detached-<first 8 of the commit>` for a detached head, `NO_BRANCH` without git. Each
    worktree has a HEAD of its own.

    Raises ConfigurationError if only git can read how it keeps its references.
    """
    repository = repository_of(root)
    if repository is None:
        return NO_BRANCH
    entry = repository / ".git"
    try:
        folder = entry
        if os.path.isfile(entry):  # a worktree or a submodule
            folder = entry.parent / _one_line(entry).removeprefix("gitdir:").strip()
        head = _one_line(folder / "HEAD")
    except (OSError, ValueError):  # not git's after all, or broken
        return NO_BRANCH
    if _COMMIT.fullmatch(head):
        return f"detached-{head[:8]}"
    reference = _REFERENCE.fullmatch(head)
    if reference is None:
        return NO_BRANCH
    if reference[1] == ".invalid":
        raise ConfigurationError(
            f"the branch cannot be read from {folder / 'HEAD'}, since this repository keeps its "
            "references as reftable: give branch_name"
        )
    return storable(reference[1])


def _one_line(file: Path) -> str:
    # The name of a branch, or of a folder, is bytes as any other.
    return read_bytes(file, MAXIMUM_GIT_BYTES).decode("utf-8", "surrogateescape").strip("\n\r ")

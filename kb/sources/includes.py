"""What a page includes from other files of its source.

The included text follows the page's own in the document, so that the page's lines stay as they
are on disk; its passages belong to the line that includes it (docs/decisions/0033-includes.md).
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from kb.disk.globs import Globs
from kb.disk.ignore import IgnoreFiles
from kb.disk.inside import as_listed, read_beneath
from kb.disk.secret import begins_as_private_key, is_secret
from kb.disk.skipped import skipped_parts
from kb.sources.folder import SourceFile, SourceText
from kb.text.decode import NoTextError, decode
from kb.text.suffixes import text_format

MAX_FILE = 100_000  # bytes of a file of which something is shown
MAX_SHOWN = 1_000_000  # characters that one page shows
MAX_INCLUDES = 500  # of one page
MAX_TOLD = 6  # notices of a page
_HINT = re.compile(r"8<-|\{[*!]|include|raw-loader|^<<<|#playground", re.MULTILINE)
# Generators' syntaxes by format. Markdown: MkDocs (snippets, mdx-include, include-markdown), MyST,
# mdBook, Docusaurus, VitePress.
_SYNTAXES = {
    name: tuple(re.compile(pattern, re.MULTILINE) for pattern in patterns)
    for name, patterns in {
        "markdown": (
            r"""^[ \t]*-+8<-+[ \t]+["'](?P<path>[^"'\n]+?)(?P<part>(?::[\w-]*){0,2})["']""",
            r"\{[*!]>?[ \t]*+(?P<path>[^\s*!}]++)(?P<part>[^*!}\n]*+)[*!]\}",
            r"""\{%-?\s*include(?:-markdown|_relative)?\s+["'](?P<path>[^"'\n]+)["'](?P<part>)""",
            r"^[ \t]*[`:]{3,}\{(?:literal)?include\}[ \t]+(?P<path>\S+)"
            r"[ \t]*\n(?P<part>(?:[ \t]*:[\w-]+:.*\n)*)",
            r"\{\{#(?:include|rustdoc_include|playground)\s+(?P<path>[^\s:}]+)"
            r"(?P<part>(?::[\w-]*){0,2})",
            r"""^import\s+\w+\s+from\s+["']!!raw-loader!(?P<path>[^"'\n]+)["'](?P<part>)""",
            r"^<<<[ \t]*(?P<path>[^\s{#]+)(?P<part>(?:#[\w-]+)?)",
        ),
        "restructured text": (
            r"^[ \t]*\.\. (?:literal)?include::[ \t]+(?P<path>\S+)"
            r"[ \t]*\n(?P<part>(?:[ \t]*:[\w-]+:.*\n)*)",
        ),
        "asciidoc": (r"^include::(?P<path>[^\[\n]+)\[(?P<part>[^\]\n]*)\]",),
    }.items()
}
_LINES = re.compile(
    r':lines:[ \t]*([^\n]+)|\blines="([^"]+)"|\blines=([^,\]"]+)|\bln\[([^\]]+)\]|^:(\d*:?\d*)$'
)
_RANGE = re.compile(r"(\d*)(?::|-|\.\.)-?(\d*)|(\d+)")
_NAME = re.compile(r'\btags?="?([\w-]+)|^[:#]([A-Za-z][\w-]*)$')


@dataclass(frozen=True, slots=True)
class Shown:
    """Text that a page includes from another file; it follows the page's own."""

    line: int  # of the page, 1-based
    path: str  # in the source
    heading: tuple[int, int]  # characters of the document's text: the path with the lines
    body: tuple[int, int]  # and what is shown


def with_shown(file: SourceFile, source: SourceText, exclude: Globs) -> SourceText:
    """A page's text followed by what it includes; the hash covers both. Only files of the same
    source are read: none that contains a secret, that `exclude` matches or that an ignore file
    hides. A notice names what is left out, except within code, where a page may only explain the
    syntax."""
    if not _HINT.search(source.text) or not file.location.as_posix().endswith(f"/{file.path}"):
        return source
    if not (matches := _includes(source.text, text_format(file.path))):
        return source
    root = Path(file.location.as_posix()[: -len(file.path) - 1])
    ignore_files = IgnoreFiles(root)

    def hides(path: str) -> bool:
        return exclude.match(path) or ignore_files.hides(path)

    text, content_hash, notices = source.text, hashlib.sha256(source.content_hash), [source.notice]
    shown: dict[tuple[str, str], Shown] = {}
    line, fences, counted = 1, 0, 0
    for match in matches[:MAX_INCLUDES]:
        path, part = match["path"], match["part"]
        line += source.text.count("\n", counted, match.start("path"))
        fences += source.text.count("\n```", counted, match.start("path"))
        counted = match.start("path")
        try:
            target, body = _read(root, file.path, path, hides)
        except OSError as error:
            before = source.text[source.text.rfind("\n", 0, counted) + 1 : counted]
            if fences % 2 == 0 and before.count("`") % 2 == 0:
                notices.append(f"line {line} shows {path}, which is left out: {error}")
            continue
        body, lines = _part_of(body, part)
        is_full = len(text) + len(body) > len(source.text) + MAX_SHOWN
        if is_full:
            notices.append(f"line {line} shows {path}, which is left out: the page shows too much")
        if is_full or not body.strip() or (target, part) in shown:
            continue
        heading = f"{target}, {lines}:" if lines else f"{target}:"
        start = len(text) + len(heading) + 2
        text += f"\n{heading}\n{body}\n"
        where = (start - len(heading) - 1, start - 1), (start, start + len(body))
        shown[target, part] = Shown(line, target, *where)
        content_hash.update(body.encode())
    if len(matches) > MAX_INCLUDES:
        notices.append(f"it shows more than {MAX_INCLUDES} files: the others are left out")
    if len(notices) > MAX_TOLD:
        notices[MAX_TOLD:] = [f"and {len(notices) - MAX_TOLD} more like these"]
    return replace(
        source,
        text=text,
        content_hash=content_hash.digest() if shown else source.content_hash,
        notice="; ".join(filter(None, notices)),
        shown=tuple(shown.values()),
        includes=True,
    )


def _includes(text: str, kind: str) -> list[re.Match[str]]:
    matches = [
        match
        for syntax in _SYNTAXES.get(kind, ())
        for match in islice(syntax.finditer(text), MAX_INCLUDES + 1)
    ]
    return sorted(matches, key=lambda match: match.start())


def _read(root: Path, page: str, path: str, hides: Callable[[str], bool]) -> tuple[str, str]:
    """Path and text of an included file. Raises OSError, which says why, if none may be shown."""
    for written in _candidates(page, path):
        try:
            candidate = as_listed(str(root), written)
            if is_secret(candidate) or skipped_parts(candidate) or hides(candidate):
                continue
            data, _ = read_beneath(root, candidate.split("/"), MAX_FILE)
        except (OSError, ValueError):
            continue
        if len(data) > MAX_FILE:
            raise OSError(f"it has more than {MAX_FILE // 1000} kB")
        try:
            text = decode(data).text
        except NoTextError as error:
            raise OSError(f"it {error}") from error
        if begins_as_private_key(text):
            raise OSError("it is a private key")
        return candidate, text
    raise OSError("the source has no such file, or excludes it")


def _candidates(page: str, path: str) -> Iterator[str]:
    """From the page's folder up to the root: generators differ in where paths start."""
    path = re.sub(r"^(?:@site|[@~])?/+", "", path)
    folder = page
    while folder:
        folder = posixpath.dirname(folder)
        candidate = posixpath.normpath(posixpath.join(folder, path))
        if not candidate.startswith(".."):
            yield candidate


def _part_of(text: str, part: str) -> tuple[str, str]:
    """The included part of a text, and its lines in words; "" for all of it."""
    lines = text.removesuffix("\n").split("\n")
    if chosen := _LINES.search(part):
        ranges = [
            (int(first or 1), int(last or len(lines))) if not single else (int(single),) * 2
            for first, last, single in _RANGE.findall(next(filter(None, chosen.groups()), ""))
        ]
    elif (name := _NAME.search(part)) and (inside := _between(lines, name[1] or name[2])):
        ranges = [inside]
    else:
        return text, ""
    body = "\n".join(line for first, last in ranges for line in lines[max(first, 1) - 1 : last])
    return body, "lines " + ", ".join(f"{first}-{min(last, len(lines))}" for first, last in ranges)


def _between(lines: list[str], name: str) -> tuple[int, int] | None:
    """The lines between a part's markers (AsciiDoc, snippets, mdBook, VitePress)."""
    begin = re.compile(rf"(?:\btag::|\[start:|\bANCHOR: ?|#region ){re.escape(name)}\b")
    end = re.compile(rf"(?:\bend::|\[end:|\bANCHOR_END: ?|#endregion ?){re.escape(name)}\b")
    first = next((number for number, line in enumerate(lines, 1) if begin.search(line)), None)
    last = next((number for number, line in enumerate(lines, 1) if end.search(line)), None)
    return (first + 1, last - 1) if first and last and first < last else None

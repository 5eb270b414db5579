"""Archives of research reports and captured pages: their layouts, header lines and dates.

Read are Markdown files with or without front matter, the header lines `# Research: <query>`,
`# Source: [title](url)`, `## Captured: <date>` and `Date: <date>`, and two layouts:
`<md5>/content.md` with `metadata.json` (a captured page) and `queries/<id>/result.json` with
`metadata.json` (a research result, read as the Markdown it holds).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from kb.disk.read import MAXIMUM_DOCUMENT, read_bytes, reason
from kb.errors import SourceError
from kb.formats.archive_kinds import RESEARCH, URL_CONTENT
from kb.formats.front_matter import read_front_matter
from kb.formats.outline import ParsedDocument
from kb.formats.research_json import result_markdown
from kb.sources.folder import (
    Report,
    SourceFile,
    SourceText,
    Withhold,
    no_withholding,
    read,
    walk,
)
from kb.text.suffixes import PAGE_SUFFIXES

RESULT_FILE, CONTENT_FILE, METADATA_FILE = "result.json", "content.md", "metadata.json"
HEADER_LINES = 60  # how far down a header line may stand
MAXIMUM_LINE = 2_000  # characters of a header line that are read

# The known formats in any case of letters, and results.
_INCLUDED = (
    *("**/*." + "".join(f"[{c}{c.upper()}]" for c in suffix[1:]) for suffix in PAGE_SUFFIXES),
    f"**/queries/*/{RESULT_FILE}",
)
_ISO_DATE = re.compile(r"(?<!\d)(\d{4})[-/.](\d{2})[-/.](\d{2})(?!\d)")
_RESEARCH = re.compile(r"#\s+Research:\s*(?P<query>.+?)\s*#*\s*")
_SOURCE = re.compile(
    r"#\s+Source:\s*(?:\[(?P<title>.*)\]\(<?(?P<url>[^\s>]+?)>?\)|<?(?P<bare>https?://[^\s>]+)>?)\s*"
)
_DATE_LINE = re.compile(
    r"(?:#{1,6}\s+|[-*]\s+)?[*_]*(?:Captured|Date)[*_]*:[*_]*\s*(?P<date>.+?)\s*", re.IGNORECASE
)
_WRITTEN_DATES = ("%B %d, %Y", "%b %d, %Y", "%d %B %Y", "%d %b %Y", "%B %d %Y", "%m/%d/%Y")
_DATES = (
    *("date", "captured", "timestamp", "capturedAt", "captured_at", "createdAt", "created_at"),
    *("created", "fetchedAt", "fetched_at", "savedAt", "lastModified"),
)
_HASH_FOLDER = re.compile(r"(?:.*/)?[0-9a-f]{32}/content\.md")


@dataclass(frozen=True, slots=True)
class ArchiveText(SourceText):
    """A file of an archive with what stands beside it."""

    metadata: Mapping[str, Any] = field(default_factory=dict)  # of metadata.json


@dataclass(frozen=True, slots=True)
class ArchiveFacts:
    """What an archive knows of one document."""

    source: str  # "research" or "url-content"
    date: str  # YYYY-MM-DD
    urls: tuple[str, ...] = ()  # the page's own addresses
    query: str = ""
    title: str = ""  # "" when the text's own is to be used

    def as_metadata(self) -> dict[str, Any]:
        """What is stored with the document, under the key "archive"."""
        known: dict[str, Any] = {"source": self.source, "date": self.date}
        if self.urls:
            known["urls"] = list(self.urls)
        if self.query:
            known["query"] = self.query
        return {"archive": known}


def walk_archive(
    root: Path,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    *,
    report: Report,
    withhold: Withhold = no_withholding,
) -> Iterator[SourceFile]:
    """As `kb.sources.folder.walk`, with research results.

    Size and time are of both files of a pair.
    """
    for file in walk(root, include or _INCLUDED, exclude, report=report, withhold=withhold):
        try:
            status = _beside(file).stat() if _is_pair(file) else None
        except OSError:
            status = None
        if status is None:
            yield file
        else:
            yield replace(
                file,
                size=file.size + status.st_size,
                modified_ns=max(file.modified_ns, status.st_mtime_ns),
            )


def read_archive(file: SourceFile) -> ArchiveText:
    """One document of an archive as Markdown.

    Raises:
        SourceError: it cannot be read, or a result is no JSON.
    """
    source = read(file)
    text, content_hash, notice, metadata = source.text, source.content_hash, source.notice, {}
    if _is_pair(file):
        try:
            data = read_bytes(_beside(file), MAXIMUM_DOCUMENT)
            content_hash = hashlib.sha256(content_hash + data).digest()
            loaded = json.loads(data.decode("utf-8-sig"))
            metadata = loaded if isinstance(loaded, dict) else {}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, RecursionError) as error:
            why = reason(error) if isinstance(error, OSError) else f"no JSON: {error}"
            notice = f"{METADATA_FILE} beside it was left out: {why}"
    if file.path.rsplit("/", 1)[-1] == RESULT_FILE:
        try:
            text = result_markdown(json.loads(text), _first_text(metadata, "query", "title"))
        except (ValueError, RecursionError) as error:
            raise SourceError(
                f"Cannot read {file.path}: it is no JSON ({error}).", path=file.path
            ) from error
    return ArchiveText(text, content_hash, source.encoding, notice, metadata)


def markdown_path(path: str) -> str:
    """The path by which a document is parsed: a result is Markdown by then."""
    return path.removesuffix(".json") + ".md" if path.endswith(f"/{RESULT_FILE}") else path


def archive_facts(
    file: SourceFile, source: ArchiveText, parsed: ParsedDocument, options: Mapping[str, Any]
) -> ArchiveFacts:
    """Kind, date, addresses and query of a document, from its path, text and metadata.json.

    Args:
        options: of the collection; `source` says what the archive holds, `url_field` names a
            header line whose links are the document's own addresses.
    """
    query, link_title, urls, written = _header(source.text)
    metadata = source.metadata
    query = query or _first_text(metadata, "query", "searchQuery", "search_query")
    if captured := _first_text(metadata, "url", "sourceUrl", "source_url", "originalUrl"):
        urls = [captured, *urls]
    title = "" if parsed.front_matter.get("title") else query or link_title
    if not title and parsed.title == file.path.rsplit("/", 1)[-1]:
        title = _first_text(metadata, "title", "name") or (urls[0] if urls else "")
    kind = options.get("source") or _kind(file.path, query, urls, parsed.front_matter)
    return ArchiveFacts(
        source=kind,
        date=_date(file, written, parsed.front_matter, metadata),
        urls=tuple(dict.fromkeys([*urls, *_named_links(source.text, options.get("url_field"))])),
        query=query,
        title=title,
    )


def _kind(path: str, query: str, urls: Sequence[str], front: Mapping[str, Any]) -> str:
    if path.endswith(f"/{RESULT_FILE}") or query:
        return RESEARCH
    if urls or _HASH_FOLDER.fullmatch(path) or str(front.get("url", "")).startswith("http"):
        return URL_CONTENT
    return RESEARCH


def _header(text: str) -> tuple[str, str, list[str], str]:
    """Query, link title, own address and date as the header lines give them."""
    query = title = written = ""
    urls: list[str] = []
    for line in _header_lines(text):
        if line.startswith(("```", "~~~")):
            break
        if not query and not urls and (match := _RESEARCH.fullmatch(line)):
            query = match["query"]
        elif not query and not urls and (match := _SOURCE.fullmatch(line)):
            title, urls = match["title"] or "", [match["url"] or match["bare"]]
        elif not written and (match := _DATE_LINE.fullmatch(line)):
            written = match["date"] if _read_date(match["date"]) else ""
    return query, title, urls, written


def _header_lines(text: str) -> list[str]:
    front = read_front_matter(text)
    lines = text[front.character_count :].split("\n", HEADER_LINES)[:HEADER_LINES]
    # The expressions take quadratic time on hostile lines.
    return [line[:MAXIMUM_LINE] for line in lines]


def _named_links(text: str, field_name: Any) -> list[str]:
    """The addresses on a header line such as `- RFC PR: [#1](https://...), [#2](https://...)`."""
    if not isinstance(field_name, str) or not field_name:
        return []
    for line in _header_lines(text):
        if line.lstrip("-*_# ").lower().startswith(field_name.lower()):
            return re.findall(r"https?://[^\s)>\],]+", line)
    return []


def _date(
    file: SourceFile, written: str, front: Mapping[str, Any], metadata: Mapping[str, Any]
) -> str:
    for match in _ISO_DATE.finditer(file.path.replace("_", "-")):
        if found := _iso(*match.groups()):
            return found
    values = [written, *(front.get(key) for key in _DATES), *(metadata.get(key) for key in _DATES)]
    for value in values:
        if found := _read_date(value):
            return found
    return datetime.fromtimestamp(file.modified_ns / 1e9, UTC).date().isoformat()


def _read_date(value: Any) -> str:
    """A date as YYYY-MM-DD from text or from seconds or milliseconds since 1970; "" if none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value / 1000 if value > 1e11 else value
        if not 1e8 < seconds < 1e10:
            return ""
        return datetime.fromtimestamp(seconds, UTC).date().isoformat()
    if not isinstance(value, str):
        return ""
    for match in _ISO_DATE.finditer(value):
        if found := _iso(*match.groups()):
            return found
    for form in _WRITTEN_DATES:
        try:
            return datetime.strptime(value.strip().rstrip("."), form).date().isoformat()
        except ValueError:
            continue
    return ""


def _iso(year: str, month: str, day: str) -> str:
    try:
        return date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return ""


def _first_text(values: Mapping[str, Any], *keys: str) -> str:
    for key in keys:
        value = values.get(key)
        if isinstance(value, str) and value.strip():
            return " ".join(value.encode("utf-8", "replace").decode().split())
    return ""


def _is_pair(file: SourceFile) -> bool:
    return file.path.rsplit("/", 1)[-1] in (CONTENT_FILE, RESULT_FILE)


def _beside(file: SourceFile) -> Path:
    return file.location.with_name(METADATA_FILE)

"""Archives of research reports and captured pages: their layouts, header lines and dates.

Markdown files may have the header lines `# Research: <query>`, `# Source: [title](url)`,
`## Captured: <date>` and `Date: <date>`. `metadata.json` stands beside `<md5>/content.md`, a
captured page, and `queries/<id>/result.json`, a research result, which becomes Markdown. Programs
name its keys differently: the text is taken from the usual ones, a list of hits becomes a section
for each, and a list of sources becomes links, which count as citations.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kb.disk.read import MAXIMUM_DOCUMENT, read_bytes, reason
from kb.errors import SourceError
from kb.formats.front_matter import read_front_matter
from kb.formats.metadata import RESEARCH, URL_CONTENT, first_iso_date, read_date
from kb.formats.outline import ParsedDocument
from kb.sources.folder import Report, SourceFile, SourceText, Withhold, read, walk
from kb.text.json_text import JsonError, parse_json
from kb.text.suffixes import PAGE_SUFFIXES

RESULT_FILE, CONTENT_FILE, METADATA_FILE = "result.json", "content.md", "metadata.json"
HEADER_LINES = 60  # how far down a header line may stand
MAXIMUM_LINE = 2_000  # characters of a header line that are read

# The known formats in any case of letters, and results.
_INCLUDED = (
    *("**/*." + "".join(f"[{c}{c.upper()}]" for c in suffix[1:]) for suffix in PAGE_SUFFIXES),
    f"**/queries/*/{RESULT_FILE}",
)
_RESEARCH = re.compile(r"#\s+Research:\s*(?P<query>.+?)\s*#*\s*")
_SOURCE = re.compile(
    r"#\s+Source:\s*(?:\[(?P<title>.*)\]\(<?(?P<url>[^\s>]+?)>?\)|<?(?P<bare>https?://[^\s>]+)>?)\s*"
)
_DATE_LINE = re.compile(
    r"(?:#{1,6}\s+|[-*]\s+)?[*_]*(?:Captured|Date)[*_]*:[*_]*\s*(?P<date>.+?)\s*", re.IGNORECASE
)
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
    source: str  # "research" or "url-content"
    date: str  # YYYY-MM-DD
    urls: tuple[str, ...] = ()  # the page's own addresses
    query: str = ""
    title: str = ""  # "" when the text's own is to be used

    def as_metadata(self) -> dict[str, Any]:
        values: dict[str, Any] = {"source": self.source, "date": self.date}
        if self.urls:
            values["urls"] = list(self.urls)
        if self.query:
            values["query"] = self.query
        return {"archive": values}


def walk_archive(
    root: Path,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    *,
    report: Report,
    withhold: Withhold = lambda _: None,
) -> Iterator[SourceFile]:
    """As `kb.sources.folder.walk`, with research results; size and time are of both files."""
    for file in walk(root, include or _INCLUDED, exclude, report=report, withhold=withhold):
        with contextlib.suppress(OSError):
            if _is_pair(file):
                status = _beside(file).stat()
                file = replace(
                    file,
                    size=file.size + status.st_size,
                    modified_ns=max(file.modified_ns, status.st_mtime_ns),
                    changed_ns=max(file.changed_ns or 0, status.st_ctime_ns),
                )
        yield file


def read_archive(file: SourceFile) -> ArchiveText:
    """One document of an archive as Markdown. Raises SourceError if it cannot be read as such."""
    source = read(file)
    text, content_hash, notice, metadata = source.text, source.content_hash, source.notice, {}
    if _is_pair(file):
        try:
            data = read_bytes(_beside(file), MAXIMUM_DOCUMENT)
            content_hash = hashlib.sha256(content_hash + data).digest()
            loaded = parse_json(data)
            metadata = loaded if isinstance(loaded, dict) else {}
        except FileNotFoundError:
            pass
        except (OSError, JsonError) as error:
            why = reason(error) if isinstance(error, OSError) else f"no JSON: {error}"
            notice = f"{METADATA_FILE} beside it was left out: {why}"
    if file.path.rsplit("/", 1)[-1] == RESULT_FILE:
        try:
            text = result_markdown(parse_json(text), _first_text(metadata, "query", "title"))
        except JsonError as error:
            raise SourceError(
                f"Cannot read {file.path} as JSON: {error}.", path=file.path
            ) from error
    return ArchiveText(text, content_hash, source.encoding, notice, metadata=metadata)


def markdown_path(path: str) -> str:
    """The path by which a document is parsed: results have become Markdown."""
    return path.removesuffix(".json") + ".md" if path.endswith(f"/{RESULT_FILE}") else path


def archive_facts(
    file: SourceFile, source: ArchiveText, parsed: ParsedDocument, options: Mapping[str, Any]
) -> ArchiveFacts:
    """Kind, date, addresses and query of a document, from its path, text and metadata.json.

    Of the options `source` says what the archive holds, and `url_field` names a header line whose
    links are the document's own addresses.
    """
    query, link_title, urls, date_text = _header(source.text)
    metadata = source.metadata
    query = query or _first_text(metadata, "query", "searchQuery", "search_query")
    if captured := _first_text(metadata, "url", "sourceUrl", "source_url", "originalUrl"):
        urls = [captured, *urls]
    title = "" if parsed.front_matter.get("title") else query or link_title
    if not title and parsed.title == file.path.rsplit("/", 1)[-1]:
        title = _first_text(metadata, "title", "name") or (urls[0] if urls else "")
    is_web = str(parsed.front_matter.get("url", "")).startswith("http")
    is_page = bool(urls or _HASH_FOLDER.fullmatch(file.path)) or is_web
    is_report = query or file.path.endswith(f"/{RESULT_FILE}") or not is_page
    return ArchiveFacts(
        source=options.get("source") or (RESEARCH if is_report else URL_CONTENT),
        date=_date(file, date_text, parsed.front_matter, metadata),
        urls=tuple(dict.fromkeys([*urls, *_named_links(source.text, options.get("url_field"))])),
        query=query,
        title=title,
    )


def _header(text: str) -> tuple[str, str, list[str], str]:
    query = title = date_text = ""
    urls: list[str] = []
    for line in _header_lines(text):
        if line.startswith(("```", "~~~")):
            break
        if not query and not urls and (match := _RESEARCH.fullmatch(line)):
            query = match["query"]
        elif not query and not urls and (match := _SOURCE.fullmatch(line)):
            title, urls = match["title"] or "", [match["url"] or match["bare"]]
        elif not date_text and (match := _DATE_LINE.fullmatch(line)):
            date_text = match["date"] if read_date(match["date"]) else ""
    return query, title, urls, date_text


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
    file: SourceFile, date_text: str, front: Mapping[str, Any], metadata: Mapping[str, Any]
) -> str:
    fields = (values.get(key) for values in (front, metadata) for key in _DATES)
    in_path = first_iso_date(file.path.replace("_", "-"))
    if day := in_path or next(filter(None, map(read_date, (date_text, *fields))), ""):
        return day
    return datetime.fromtimestamp(file.modified_ns / 1e9, UTC).date().isoformat()


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


_TEXTS = (
    *("content", "report", "result", "answer", "response", "markdown", "text", "output"),
    *("summary", "body", "snippet", "description", "message"),
)
_LISTS = ("results", "hits", "items", "data", "choices", "documents")
_SOURCES = ("sources", "citations", "references", "urls", "links")
_ADDRESSES = ("url", "link", "href", "source")


def result_markdown(value: Any, query: str) -> str:
    """The text of a result under its query as heading, its sources as a list of links."""
    if isinstance(value, Mapping) and not query:
        query = _plain_text(value.get("query"))
    body = _body(value)
    lines = [body]
    sources = _sources(value)
    if sources:
        lines.append("## Sources\n\n" + "\n".join(f"- {source}" for source in sources))
    if query and not body.startswith("# "):
        lines.insert(0, f"# Research: {' '.join(query.split())}")
    return "\n\n".join(line for line in lines if line) + "\n"


def _body(value: Any) -> str:
    if isinstance(value, str):
        return _plain_text(value)
    if isinstance(value, list):
        return "\n\n".join(filter(None, map(_entry, value)))
    if not isinstance(value, Mapping):
        return ""
    for key in (*_TEXTS, *_LISTS):
        if key in value and (text := _body(value[key])):
            return text
    rest = {key: part for key, part in value.items() if key not in (*_SOURCES, "query")}
    # Unknown keys: keep the text searchable as it is, without its addresses becoming links.
    return f"```json\n{json.dumps(rest, ensure_ascii=False, indent=2)}\n```" if rest else ""


def _entry(value: Any) -> str:
    """One hit of a list: its title, linked, as heading, and its text."""
    if not isinstance(value, Mapping):
        return _body(value)
    title, url = _plain_text(value.get("title")), _address(value)
    body = next((text for key in _TEXTS if (text := _body(value.get(key)))), "")
    heading = _link(title, url)
    return "\n\n".join(filter(None, (f"## {heading}" if heading else "", body)))


def _sources(value: Any) -> list[str]:
    if not isinstance(value, Mapping):
        return []
    sources = next((value[key] for key in _SOURCES if isinstance(value.get(key), list)), None)
    if sources is None:
        return _sources(value.get("result"))
    return list(filter(None, map(_source_link, sources)))


def _source_link(value: Any) -> str:
    if isinstance(value, str):
        return f"<{value}>" if value.startswith(("http://", "https://")) else _plain_text(value)
    if not isinstance(value, Mapping):
        return ""
    return _link(_plain_text(value.get("title") or value.get("name")), _address(value))


def _link(title: str, url: str) -> str:
    return f"[{title}](<{url}>)" if title and url else f"<{url}>" if url else title


def _address(value: Mapping[str, Any]) -> str:
    for key in _ADDRESSES:
        address = value.get(key)
        if isinstance(address, str) and address.startswith(("http://", "https://")):
            return address.split()[0].strip("<>")
    return ""


def _plain_text(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    clean = value.encode("utf-8", "replace").decode("utf-8")
    return clean.replace("\r\n", "\n").replace("\r", "\n").strip()

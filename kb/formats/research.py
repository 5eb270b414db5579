"""What an archive holds, reports of research or captured pages, and a report in JSON as Markdown.

Programs name the keys of a report differently. The text is taken from the usual ones, a list of
hits becomes a section for each, and a list of sources becomes links, which count as citations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

RESEARCH, URL_CONTENT = "research", "url-content"

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
        query = _text(value.get("query"))
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
        return _text(value)
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
    title, url = _text(value.get("title")), _address(value)
    body = next((text for key in _TEXTS if (text := _body(value.get(key)))), "")
    heading = _link(title, url)
    return "\n\n".join(filter(None, (f"## {heading}" if heading else "", body)))


def _sources(value: Any) -> list[str]:
    if not isinstance(value, Mapping):
        return []
    sources = next((value[key] for key in _SOURCES if isinstance(value.get(key), list)), None)
    if sources is None:
        return _sources(value.get("result"))
    return list(filter(None, map(_source, sources)))


def _source(value: Any) -> str:
    if isinstance(value, str):
        return f"<{value}>" if value.startswith(("http://", "https://")) else _text(value)
    if not isinstance(value, Mapping):
        return ""
    return _link(_text(value.get("title") or value.get("name")), _address(value))


def _link(title: str, url: str) -> str:
    return f"[{title}](<{url}>)" if title and url else f"<{url}>" if url else title


def _address(value: Mapping[str, Any]) -> str:
    for key in _ADDRESSES:
        address = value.get(key)
        if isinstance(address, str) and address.startswith(("http://", "https://")):
            return address.split()[0].strip("<>")
    return ""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    clean = value.encode("utf-8", "replace").decode("utf-8")
    return clean.replace("\r\n", "\n").replace("\r", "\n").strip()

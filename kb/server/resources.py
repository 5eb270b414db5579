"""What a client can read by address: the project's context, and every document."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types

from kb.errors import NotFoundError, ResourceNotFound, UsageError
from kb.library import browsing
from kb.library.reading import read_lines
from kb.text.assets import asset
from kb.text.counted import counted
from kb.text.suffixes import MARKDOWN_SUFFIXES
from kb.tools.call import bounded
from kb.tools.session import Session

PAGE = 200  # documents of one answer
LAST_OFFSET = 10**9
JSON_TYPE, MARKDOWN_TYPE, TEXT_TYPE = "application/json", "text/markdown", "text/plain"
_FIXED: dict[str, tuple[str, str]] = asset("resources")["fixed"]  # address -> title, description
TEMPLATES = [types.ResourceTemplate(**row) for row in asset("resources")["templates"]]
MODULE_TEMPLATE = TEMPLATES[0].uri_template
_MODULE = "context://module/"
_DOCUMENT = "kb://"
_CURSOR = re.compile("(?:([0-9]{1,9})-)?([0-9]{1,19})")


def list_resources(session: Session, cursor: str = "") -> tuple[list[types.Resource], str]:
    """One page of resources, and where the next begins, "" after the last. Raises UsageError for a
    cursor that is not ours."""
    count = len(session.files)
    match = _CURSOR.fullmatch(cursor or "0")
    number, offset = (int(match[1] or 0), int(match[2])) if match else (0, -1)
    if not (0 <= offset <= LAST_OFFSET and 0 <= number < count):
        raise UsageError(f"the cursor {cursor!r} comes from no page of resources")
    fixed = [
        _resource(uri, uri.removeprefix("context://"), title, description, JSON_TYPE)
        for uri, (title, description) in _FIXED.items()
    ]
    listed, has_more = browsing.list_visible(session.base, number, offset, PAGE)
    resources = [
        _resource(
            document_uri(row.collection, row.path),
            f"{row.collection}/{row.path}",
            row.title,
            row.summary,
            _mime_type(row.path),
        )
        for row in listed
    ]
    if has_more:
        more = _cursor(number, offset + PAGE)
    else:
        more = _cursor(number + 1, 0) if number + 1 < count else ""
    return (resources if number or offset else fixed + resources), more


def _cursor(number: int, offset: int) -> str:
    return f"{number}-{offset}" if number else str(offset)


def read_resource(session: Session, uri: str) -> tuple[str, str]:
    """The MIME type and the text at an address; raises ResourceNotFound."""
    # Only now: readers of a project's files are not imported before the client's first answers.
    from kb.project import overview

    try:
        if uri in _FIXED:
            session.flush()
            match uri.removeprefix("context://"):
                case "project/overview":
                    shown = overview.project_overview(session.project)
                case "session/current":
                    shown = overview.current_session(session.database, session.log.current_id)
                case _:
                    shown = overview.recent_sessions(session.database)
            return JSON_TYPE, _bounded_json(session, shown)
        if uri.startswith(_MODULE):
            shown = overview.module_overview(session.project, unquote(uri.removeprefix(_MODULE)))
            return JSON_TYPE, _bounded_json(session, shown)
        if uri.startswith(_DOCUMENT):
            collection, _, document = uri.removeprefix(_DOCUMENT).partition("/")
            return _read_document(session, unquote(collection), unquote(document))
    except NotFoundError as error:
        raise ResourceNotFound(error.message, uri=uri, **error.details) from error
    addresses = ", ".join([*_FIXED, *(template.uri_template for template in TEMPLATES)])
    raise ResourceNotFound(f"Resource {uri} not found. There are: {addresses}.", uri=uri)


def document_uri(collection: str, document: str) -> str:
    return f"{_DOCUMENT}{quote(collection, safe='')}/{quote(document, safe='/')}"


def true_uri(session: Session, uri: str) -> str:
    """The address of a document under its collection's own name; other addresses unchanged."""
    if not uri.startswith(_DOCUMENT):
        return uri
    name, _, document = uri.removeprefix(_DOCUMENT).partition("/")
    collection = browsing.true_name(session.base, unquote(name))
    return document_uri(collection, unquote(document)) if collection else uri


def _read_document(session: Session, name: str, document: str) -> tuple[str, str]:
    shown = browsing.read_visible(session.base, name, document)
    part = read_lines(shown.text.removesuffix("\n"), 1, 0, session.reply_tokens)
    if not part.rest:
        return _mime_type(shown.path), shown.text
    rest = f"Read on with documents_get_document, {part.rest}." if shown.is_listed else ""
    beginning = f"[This is the beginning of {counted(shown.line_count, 'line')}. {rest}".rstrip()
    return _mime_type(shown.path), f"{part.content}\n\n{beginning}]\n"


def _resource(uri: str, name: str, title: str, text: str, mime_type: str) -> types.Resource:
    return types.Resource(
        uri=uri, name=name, title=title, description=text or None, mime_type=mime_type
    )


def _mime_type(path: str) -> str:
    return MARKDOWN_TYPE if path.lower().endswith(MARKDOWN_SUFFIXES) else TEXT_TYPE


def _bounded_json(session: Session, value: dict[str, Any]) -> str:
    # A third more for indentation.
    return json.dumps(bounded(value, session.reply_tokens * 3 // 4), ensure_ascii=False, indent=1)

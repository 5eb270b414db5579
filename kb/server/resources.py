"""What a client can read by an address: the project's context, and every document."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from kb.errors import DocumentNotFound, FileError, NotFoundError, ResourceNotFound, UsageError
from kb.search.files import SearchedFile
from kb.store.connection import Connection, Row
from kb.store.contents import documents_of_project
from kb.store.names import ALL_KINDS, BROWSABLE_KINDS
from kb.text.counted import counted
from kb.text.suffixes import MARKDOWN_SUFFIXES
from kb.tools.reading import read_lines
from kb.tools.replies import bounded
from kb.tools.session import Session

__all__ = [
    "MODULE_TEMPLATE",
    "TEMPLATES",
    "Resource",
    "document_uri",
    "list_resources",
    "read_resource",
    "true_uri",
    "visible_collections",
]

PAGE = 200  # documents of one answer
LAST_OFFSET = 10**9
JSON_TYPE, MARKDOWN_TYPE, TEXT_TYPE = "application/json", "text/markdown", "text/plain"


@dataclass(frozen=True, slots=True)
class Resource:
    """An address with what people and assistants should know of it."""

    uri: str
    name: str
    title: str
    description: str
    mime_type: str
    size: int | None = None  # characters


# Address -> title, description.
_FIXED = {
    "context://project/overview": (
        "Project overview",
        "Name, stack, modules, key files and sizes of the project.",
    ),
    "context://session/current": (
        "This session",
        "Files read, questions asked and discoveries recorded in this session.",
    ),
    "context://sessions/recent": (
        "Recent sessions",
        "The newest sessions and how much was done in each.",
    ),
}
_MODULE = "context://module/"
_DOCUMENT = "kb://"

MODULE_TEMPLATE = "context://module/{name}"
TEMPLATES = (
    Resource(
        MODULE_TEMPLATE,
        "module",
        "A module",
        "A module's files, those read most and last first, and what was learned about it.",
        JSON_TYPE,
    ),
    Resource(
        "kb://{collection}/{+document}",
        "document",
        "A document",
        "The text of a document; its id is its path in the collection.",
        TEXT_TYPE,
    ),
)


_CURSOR = re.compile("(?:([0-9]{1,9})-)?([0-9]{1,19})")


def list_resources(session: Session, cursor: str = "") -> tuple[list[Resource], str]:
    """One page of resources, and where the next begins, "" after the last.

    Raises:
        UsageError: a cursor that no page gave.
    """
    files = session.files
    number, offset = _place_of(cursor)
    if not (0 <= offset <= LAST_OFFSET and 0 <= number < len(files)):
        raise UsageError(f"the cursor {cursor!r} comes from no page of resources")
    fixed = [
        Resource(uri, uri.removeprefix("context://"), title, description, JSON_TYPE)
        for uri, (title, description) in _FIXED.items()
    ]
    rows: list[Row] = []
    file = files[number]
    try:
        with file.database.read() as connection:
            rows = documents_of_project(
                connection, BROWSABLE_KINDS, _project_id(session, file), PAGE + 1, offset
            )
    except FileError:
        if len(files) == 1:
            raise
    found = [_document_resource(file, row) for row in rows[:PAGE]]
    if len(rows) > PAGE:
        more = _cursor(number, offset + PAGE)
    else:
        more = _cursor(number + 1, 0) if number + 1 < len(files) else ""
    return (found if number or offset else fixed + found), more


def _place_of(cursor: str) -> tuple[int, int]:
    """The number of a file and of a document in it; (0, -1) where there is no such page."""
    if not cursor:
        return 0, 0
    found = _CURSOR.fullmatch(cursor)
    return (int(found[1] or 0), int(found[2])) if found else (0, -1)


def _cursor(number: int, offset: int) -> str:
    return f"{number}-{offset}" if number else str(offset)


def read_resource(session: Session, uri: str) -> tuple[str, str]:
    """The MIME type and the text behind an address.

    Raises:
        ResourceNotFound: there is nothing.
    """
    # Only now: what reads a project's files is not imported before the client has its answers.
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
    known = ", ".join([*_FIXED, *(template.uri for template in TEMPLATES)])
    raise ResourceNotFound(f"Resource {uri} not found. There are: {known}.", uri=uri)


def document_uri(collection: str, document: str) -> str:
    """The address of a document."""
    return f"{_DOCUMENT}{quote(collection, safe='')}/{quote(document, safe='/')}"


def true_uri(session: Session, uri: str) -> str:
    """The address that a document has under its collection's own name, whatever alias it is asked
    by; other addresses as they are."""
    if not uri.startswith(_DOCUMENT):
        return uri
    name, _, document = uri.removeprefix(_DOCUMENT).partition("/")
    file = session.files[0]
    with file.database.read() as connection:
        collection = _visible_collection(session, file, connection, unquote(name))
    if collection is None:
        return uri
    return document_uri(file.names.everywhere(collection["name"]), unquote(document))


def _read_document(session: Session, name: str, document: str) -> tuple[str, str]:
    """A document's text, as much of it as a reply may hold."""
    if not document:
        raise DocumentNotFound(f'Document "" not found in collection "{name}".')
    with session.read_collection(
        name, lambda file, connection: _visible_collection(session, file, connection, name)
    ) as (connection, collection, file):
        found = file.names.document(connection, collection, document, name)
    part = read_lines(found["content"].removesuffix("\n"), 1, 0, session.reply_tokens)
    if not part.rest:
        return _mime_type(found["path"]), found["content"]
    readable = collection["kind"] in BROWSABLE_KINDS
    rest = f"Read on with documents_get_document, {part.rest}." if readable else ""
    said = (
        f"[This is the beginning of {counted(found['line_count'], 'line')}. {rest}".rstrip() + "]"
    )
    return _mime_type(found["path"]), f"{part.content}\n\n{said}\n"


def visible_collections(session: Session, file: SearchedFile, connection: Connection) -> list[Row]:
    """The collections of a file that a client may see: everybody's, and its own project's."""
    return [
        row
        for row in file.names.collections(connection, (*BROWSABLE_KINDS, "external"))
        if row["project_id"] in (None, _project_id(session, file))
    ]


def _visible_collection(
    session: Session, file: SearchedFile, connection: Connection, name: str
) -> Row | None:
    rows = file.names.collections(connection, ALL_KINDS)
    visible = [row for row in rows if row["project_id"] in (None, _project_id(session, file))]
    wanted = file.names.stored(name)
    # Many programs take the part before the slash for a host and write it in lower case.
    same = [row for row in visible if row["name"] == wanted] or [
        row for row in visible if row["name"].casefold() == wanted.casefold()
    ]
    return same[0] if same else None


def _document_resource(file: SearchedFile, row: Row) -> Resource:
    collection = file.names.everywhere(row["collection"])
    return Resource(
        document_uri(collection, row["path"]),
        f"{collection}/{row['path']}",
        row["title"] or row["path"],
        row["summary"],
        _mime_type(row["path"]),
        row["character_count"],
    )


def _mime_type(path: str) -> str:
    return MARKDOWN_TYPE if path.lower().endswith(MARKDOWN_SUFFIXES) else TEXT_TYPE


def _project_id(session: Session, file: SearchedFile) -> int | None:
    """The active project, whose own collections are in the session's own file."""
    return _active_project_id(session) if file.database is session.database else None


def _active_project_id(session: Session) -> int | None:
    return session.project.active.project_id if session.project.active is not None else None


def _bounded_json(session: Session, value: dict[str, Any]) -> str:
    # A third more for the blanks that people read it by.
    kept = bounded(value, session.reply_tokens * 3 // 4)
    return json.dumps(kept, ensure_ascii=False, indent=1)

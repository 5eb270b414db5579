"""What somebody may be typing: collections, ids of documents, headings, modules."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from kb.errors import FileError, KbError
from kb.search.files import SearchedFile
from kb.server.prompts import PROMPTS
from kb.server.resources import MODULE_TEMPLATE, TEMPLATES, visible_collections
from kb.store.connection import Row
from kb.store.contents import document_paths, sections_of
from kb.tools.session import Session

__all__ = ["MOST_VALUES", "completions"]

MOST_VALUES = 100  # of one answer, which the protocol sets


def completions(
    session: Session, reference: str, argument: str, typed: str, others: Mapping[str, str]
) -> tuple[list[str], int]:
    """The values that fit what is typed so far, those that begin with it first, and their number.

    Args:
        reference: a prompt's name or a template's address.
        others: arguments that are filled in already.
    """
    known = [*PROMPTS, *(template.uri for template in TEMPLATES)]
    if reference not in known:
        return [], 0
    try:
        values = list(_values(session, reference, argument, others))
    except KbError:  # the collection or document that was filled in is not there
        return [], 0
    wanted = typed.casefold()
    fitting = [value for value in dict.fromkeys(values) if wanted in value.casefold()]
    fitting.sort(key=lambda value: not value.casefold().startswith(wanted))
    return fitting[:MOST_VALUES], len(fitting)


def _values(
    session: Session, reference: str, argument: str, others: Mapping[str, str]
) -> Iterable[str]:
    if reference == MODULE_TEMPLATE:
        from kb.project.overview import module_names

        return module_names(session.project) if argument == "name" else ()
    places = _places(session)
    if argument == "collection":
        return [file.names.called(row).collection for file, row in places]
    named = others.get("collection", "")
    chosen = [(file, row) for file, row in places if row["name"] == file.names.stored(named)]
    if argument == "document":
        return [path for place in chosen or places for path in _documents(*place)]
    if argument == "section" and chosen:
        file, row = chosen[0]
        with file.database.read() as connection:
            document = file.names.document(connection, row, others.get("document", ""), named)
            return [one["heading"] for one in sections_of(connection, document["document_id"])]
    return ()


def _places(session: Session) -> list[tuple[SearchedFile, Row]]:
    """The collections of all files, each with its file; one that cannot be read has none."""
    found: list[tuple[SearchedFile, Row]] = []
    for file in session.files:
        with contextlib.suppress(FileError), file.database.read() as connection:
            found += [(file, row) for row in visible_collections(session, file, connection)]
    return found


def _documents(file: SearchedFile, row: Row) -> list[str]:
    with file.database.read() as connection:
        return document_paths(connection, row["collection_id"])

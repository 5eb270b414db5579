"""What somebody may be typing: collections, ids of documents, headings, modules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kb.errors import KbError
from kb.server.prompts import PROMPTS
from kb.server.resources import MODULE_TEMPLATE, TEMPLATES, visible_collections
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
    with session.database.read() as connection:
        collections = {row["name"]: row for row in visible_collections(session, connection)}
        if argument == "collection":
            return [session.names.called(row).collection for row in collections.values()]
        named = others.get("collection", "")
        row = collections.get(session.names.aliases.get(named, named))
        if argument == "document":
            rows = collections.values() if row is None else [row]
            return [
                path for one in rows for path in document_paths(connection, one["collection_id"])
            ]
        if argument == "section" and row is not None:
            document = session.names.document(connection, row, others.get("document", ""), named)
            return [one["heading"] for one in sections_of(connection, document["document_id"])]
    return ()

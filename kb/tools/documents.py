"""The documents family: browse, search and read collections; kb/tools/related.py belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from kb.search.files import SearchedFile, Together
from kb.search.sections import find_section
from kb.store.addresses import address_of
from kb.store.connection import Connection, Row
from kb.store.contents import count_documents, documents_page, sections_of
from kb.store.places import places_of
from kb.text.counted import counted
from kb.tools.call import Call
from kb.tools.document_types import (
    BatchQuery,
    BatchResults,
    BatchRow,
    CollectionName,
    CollectionNames,
    CollectionRow,
    Collections,
    DocumentContent,
    DocumentId,
    DocumentList,
    DocumentRow,
    HybridSearch,
    MaximumDistance,
    Outline,
    OutlineRow,
    QueryText,
    SearchResults,
    SearchRow,
    SectionAlternative,
    SectionContent,
    find_document,
)
from kb.tools.parameters import (
    LAST_POSITION,
    LONGEST_NAME,
    EndLine,
    StartCharacter,
    StartLine,
)
from kb.tools.reading import first_line, read_lines
from kb.tools.registry import tool
from kb.tools.replies import cost_of, rows_within, said, shared_rows
from kb.tools.searches import search_all

MOST_ALTERNATIVES = 20


@tool(family="documents", title="List collections", example={})
def documents_list_collections(call: Call) -> Collections:
    """List the collections of documents with their sizes and descriptions.

    Start here to learn what is known and which names the other tools accept.
    """
    together = Together(call.session.files)
    with together.read():
        listed = together.each(lambda file, connection: _collection_rows(file, connection))
    rows = [row for own in listed.values() for row in own]
    rows.sort(key=lambda row: row.collection_id or row.collection)
    fitted = call.fit(
        rows,
        "collections left out: {left}; `kb list` on the command line shows them all, and every "
        "tool takes their names.",
    )
    return Collections(
        collections=fitted.rows,
        truncated=fitted.truncated,
        notice=said(fitted.notice, *together.lost, call.session.lost),
    )


def _collection_rows(file: SearchedFile, connection: Connection) -> list[CollectionRow]:
    rows = []
    for row in file.names.collections(connection):
        called = file.names.called(row)
        rows.append(
            CollectionRow(
                collection=called.collection,
                collection_id=called.collection_id,
                document_count=count_documents(connection, row["collection_id"]),
                description=row["description"] or None,
                version=row["version"] or None,
            )
        )
    return rows


@tool(family="documents", title="List documents", example={"collection": "windrose", "limit": 5})
def documents_list_documents(
    call: Call,
    collection: CollectionName,
    limit: Annotated[int, Field(description="Most documents to return.", ge=1, le=1000)] = 100,
    offset: Annotated[int, Field(description="How many to skip.", ge=0, le=LAST_POSITION)] = 0,
) -> DocumentList:
    """List a collection's documents by id, with title and size in characters.

    Use it to browse what there is before searching; page with offset.
    """
    with call.read_collection(collection) as (connection, found, file):
        key = found["collection_id"]
        documents = documents_page(connection, key, limit, offset)
        total = count_documents(connection, key)
    fitted = call.fit(
        [DocumentRow(**row) for row in documents], "go on with offset {next}.", start=offset
    )
    called = file.names.called(found)
    return DocumentList(
        collection=called.collection,
        collection_id=called.collection_id,
        documents=fitted.rows,
        total=total,
        has_more=offset + len(fitted.rows) < total,
        truncated=fitted.truncated,
        notice=said(fitted.notice),
    )


@tool(
    family="documents",
    title="Search documents",
    example={"query": "how do I calibrate the wind vane?", "limit": 3},
)
def documents_search(
    call: Call,
    query: QueryText,
    collections: CollectionNames = [],  # noqa: B006 - never changed
    limit: Annotated[int, Field(description="Most rows to return.", ge=1, le=100)] = 10,
    max_distance: MaximumDistance = 2.0,
    hybrid_search: HybridSearch = True,
    rerank: Annotated[
        bool, Field(description="Spend more time on a finer order of the best candidates.")
    ] = False,
) -> SearchResults:
    """Find the passages that answer a question or hold some words, best first.

    Each row is one passage with its document, section, lines and a relevance score from 0 to 1
    (0.7 and above: most likely relevant). Read more around it with documents_get_section or
    documents_get_document. Several questions at once: documents_search_batch.
    """
    asked = [(query, collections)]
    (rows,), notice = search_all(call.session, asked, limit, max_distance, hybrid_search, rerank)
    fitted = call.fit(
        _search_rows(rows),
        "the best {kept} of {total} rows. For others narrow the query or the collections.",
    )
    return SearchResults(
        results=fitted.rows, truncated=fitted.truncated, notice=said(fitted.notice, notice)
    )


@tool(
    family="documents",
    title="Search documents, several queries at once",
    example={"queries": [{"query": "battery life in winter"}, {"query": "E417"}], "limit": 2},
)
def documents_search_batch(
    call: Call,
    queries: Annotated[
        list[BatchQuery], Field(description="The queries, 1 to 10.", min_length=1, max_length=10)
    ],
    limit: Annotated[int, Field(description="Most rows for each query.", ge=1, le=100)] = 5,
    max_distance: MaximumDistance = 2.0,
    hybrid_search: HybridSearch = True,
) -> BatchResults:
    """Run up to ten searches in one call, each as documents_search does.

    Use it to look into several matters without a round trip for each.
    """
    asked = [(one.query, one.collections) for one in queries]
    found, notice = search_all(call.session, asked, limit, max_distance, hybrid_search)
    rows = [_search_rows(own) for own in found]
    empty = [BatchRow(query=one.query, results=[]) for one in queries]
    lists = shared_rows(rows, call.reply_tokens - cost_of(empty))
    less = sum(kept != own for kept, own in zip(lists, rows, strict=True))
    full = (
        f"The reply is full: rows of {counted(less, 'query', 'queries')} were left out or cut; ask "
        "fewer at once, or with a lower limit."
    )
    return BatchResults(
        results=[
            BatchRow(query=one.query, results=kept)
            for one, kept in zip(queries, lists, strict=True)
        ],
        truncated=less > 0 or None,
        notice=said(full if less else "", notice),
    )


@tool(
    family="documents",
    title="Read a document",
    example={"collection": "windrose", "document": "guide/wind.md", "startLine": 1, "endLine": 20},
)
def documents_get_document(
    call: Call,
    collection: CollectionName,
    document: DocumentId,
    start_line: StartLine = 0,
    end_line: EndLine = 0,
    start_character: StartCharacter = 0,
) -> DocumentContent:
    """Read a document, or a range of its lines.

    For one section use documents_get_section, for the headings documents_get_outline.
    """
    with call.read_collection(collection) as (connection, found, file):
        row = find_document(file, connection, found, document)
        called, total = file.names.called(found), row["line_count"]
        first = first_line(start_line, end_line, total, "document")
        part = read_lines(
            row["content"], first, end_line, call.reply_tokens, skipped=start_character
        )
        last = min(part.end_line, max(total, first))
        is_part = bool(start_line or end_line or part.rest)
        place = {}
        if is_part:
            places = places_of(connection, [row["document_id"]])
            place = places.fields(row["document_id"], first, last)
    return DocumentContent(
        **place,
        url=address_of(row, row["path"]),
        collection=called.collection,
        collection_id=called.collection_id,
        document=row["path"],
        title=row["title"],
        content=part.content,
        total_lines=total,
        start_line=first if is_part else None,
        end_line=last if is_part else None,
        truncated=bool(part.rest) or None,
        notice=f"The reply is full: go on with {part.rest}." if part.rest else None,
    )


@tool(
    family="documents",
    title="Outline of a document",
    example={"collection": "windrose", "document": "guide/wind.md"},
)
def documents_get_outline(
    call: Call,
    collection: CollectionName,
    document: DocumentId,
    max_depth: Annotated[
        int, Field(description="Deepest heading level to return.", ge=1, le=6)
    ] = 3,
    start_line: Annotated[
        int,
        Field(description="Leave out headings before this line.", ge=0, le=LAST_POSITION),
    ] = 0,
) -> Outline:
    """List a document's headings with their levels and lines.

    Use it before reading single sections with documents_get_section.
    """
    with call.read_collection(collection) as (connection, found, file):
        row = find_document(file, connection, found, document)
        sections = sections_of(connection, row["document_id"])
        places = places_of(connection, [row["document_id"]])
    outline = [
        OutlineRow(
            **places.fields(row["document_id"], one["start_line"], one["start_line"]),
            level=one["level"],
            text=one["heading"],
            line=one["start_line"],
        )
        for one in sections
        if one["level"] <= max_depth and one["start_line"] >= start_line
    ]
    kept = rows_within(outline, call.reply_tokens)
    notice = None
    if len(kept) < len(outline):
        notice = (
            f"The reply is full: {len(kept)} of {counted(len(outline), 'heading')}. Go on with "
            f"startLine {outline[len(kept)].line}, or ask for a lower maxDepth."
        )
    called = file.names.called(found)
    return Outline(
        collection=called.collection,
        collection_id=called.collection_id,
        document=row["path"],
        title=row["title"],
        outline=kept,
        truncated=notice is not None or None,
        notice=notice,
    )


@tool(
    family="documents",
    title="Read a section",
    example={"collection": "windrose", "document": "guide/wind.md", "section": "Gusts"},
)
def documents_get_section(
    call: Call,
    collection: CollectionName,
    document: DocumentId,
    section: Annotated[
        str,
        Field(
            description='Heading, or path of headings such as "Install > Linux".',
            min_length=1,
            max_length=LONGEST_NAME,
        ),
    ],
    include_subsections: Annotated[
        bool, Field(description="Include the sections below it.")
    ] = True,
) -> SectionContent:
    """Read one section of a document by its heading.

    The heading may be given loosely: case and punctuation do not matter, and a part is enough. An
    anchor does as well, such as the `#fragment` of a link.
    """
    with call.read_collection(collection) as (connection, collection_row, file):
        row = find_document(file, connection, collection_row, document)
        sections = sections_of(connection, row["document_id"])
        found, alternatives = find_section(sections, section, row["path"], row["content"])
        end = found["end_line"] if include_subsections else found["body_end_line"]
        part = read_lines(row["content"], found["start_line"], end, call.reply_tokens)
        places = places_of(connection, [row["document_id"]])
        place = places.fields(row["document_id"], part.start_line, part.end_line)
    more = len(alternatives) - MOST_ALTERNATIVES
    called = file.names.called(collection_row)
    return SectionContent(
        **place,
        url=address_of(row, row["path"]),
        collection=called.collection,
        collection_id=called.collection_id,
        document=row["path"],
        section=found["heading"],
        level=found["level"],
        content=part.content,
        start_line=part.start_line,
        end_line=part.end_line,
        alternatives=[
            SectionAlternative(
                section=other["heading"], level=other["level"], start_line=other["start_line"]
            )
            for other in alternatives[:MOST_ALTERNATIVES]
        ]
        or None,
        truncated=bool(part.rest) or None,
        notice=said(
            f"{counted(more, 'more heading matches', 'more headings match')}: name the one meant "
            'by its path, such as "Install > Linux".'
            if more > 0
            else "",
            f"The reply is full: go on with documents_get_document, {part.rest}."
            if part.rest
            else "",
        ),
    )


def _search_rows(rows: Sequence[Row]) -> list[SearchRow]:
    return [SearchRow(**row) for row in rows]

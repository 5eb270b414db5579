"""The documents family: browse, search and read collections of documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from kb.model_in_use import calibration_of
from kb.models.embedder import BUNDLED_CALIBRATION
from kb.search.files import SearchedFile, Together
from kb.search.hybrid import Hit
from kb.search.passages import nearest_documents, passage_rows
from kb.search.ranking import shown as shown_score
from kb.search.sections import find_section
from kb.store.addresses import address_of
from kb.store.chunks import count_waiting
from kb.store.contents import count_documents, documents_page, sections_of
from kb.store.database import Connection, Row
from kb.store.ids import collection_range
from kb.store.places import place_fields, place_of_lines
from kb.store.vectors import chunk_vectors, mean_vector, nearest_chunks
from kb.tools.call import Call
from kb.tools.parameters import (
    LAST_POSITION,
    LONGEST_NAME,
    MOST_NAMES,
    EndLine,
    StartCharacter,
    StartLine,
)
from kb.tools.reading import first_line, read_lines
from kb.tools.registry import tool
from kb.tools.replies import CamelReply, CamelRow, cost_of, rows_within, said, shared_rows
from kb.tools.searches import search_all
from kb.tools.session import Session

MOST_ALTERNATIVES = 20
MOST_DESCRIBED = 20  # collections that the server's instructions name

LONGEST_CHUNK = 100_000  # characters of a passage that a client gives; our own have some 1,500

CollectionName = Annotated[
    str, Field(description="Collection id or alias.", min_length=1, max_length=LONGEST_NAME)
]
CollectionNames = Annotated[
    list[Annotated[str, Field(max_length=LONGEST_NAME)]],
    Field(description="Collections to search; empty: all of them.", max_length=MOST_NAMES),
]
DocumentId = Annotated[
    str,
    Field(
        description="Document id, as a rule its path in the collection.",
        min_length=1,
        max_length=LONGEST_NAME,
    ),
]
QueryText = Annotated[
    str,
    Field(
        description="What to find: words or a question. Operators: +must, -mustnot, "
        '"exact phrase", prefix*, tag:NAME (documents with that tag in their front matter).'
    ),
]
MaximumDistance = Annotated[
    float, Field(description="Leave out rows with a greater cosine distance.", ge=0, le=2)
]
HybridSearch = Annotated[
    bool, Field(description="Rank by keywords and meaning together; false: meaning alone.")
]


class CollectionRow(CamelRow):
    collection: str
    collection_id: str | None = None
    document_count: int
    description: str | None = None
    version: str | None = None


class Collections(CamelReply):
    collections: list[CollectionRow]
    truncated: bool | None = None
    notice: str | None = None


class DocumentRow(CamelRow):
    id: str
    title: str
    size: int


class DocumentList(CamelReply):
    collection: str
    collection_id: str | None = None
    documents: list[DocumentRow]
    total: int
    has_more: bool
    truncated: bool | None = None
    notice: str | None = None


class Placed(CamelRow):
    """Where the text stands in a file that was converted; the end where it is another one."""

    page: int | None = None
    end_page: int | None = None
    slide: int | None = None
    end_slide: int | None = None
    sheet: str | None = None
    end_sheet: str | None = None
    cell: int | None = None
    end_cell: int | None = None


class SearchRow(Placed):
    collection: str
    collection_id: str | None = None
    document_id: str
    document_title: str
    url: str | None = None  # where it is read on the web, if it is known
    section_heading: str | None = None
    content: str
    relevance_score: float
    distance: float | None = None
    chunk_index: int
    total_chunks: int
    start_line: int
    end_line: int


class SearchResults(CamelReply):
    results: list[SearchRow]
    truncated: bool | None = None
    notice: str | None = None


class BatchRow(CamelReply):
    query: str
    results: list[SearchRow]


class BatchResults(CamelReply):
    results: list[BatchRow]
    truncated: bool | None = None
    notice: str | None = None


class DocumentContent(Placed):
    collection: str
    collection_id: str | None = None
    document: str
    url: str | None = None
    title: str
    content: str
    total_lines: int
    start_line: int | None = None
    end_line: int | None = None
    notice: str | None = None


class OutlineRow(Placed):
    level: int
    text: str
    line: int


class Outline(CamelReply):
    collection: str
    collection_id: str | None = None
    document: str
    title: str
    outline: list[OutlineRow]
    truncated: bool | None = None
    notice: str | None = None


class SectionAlternative(CamelReply):
    section: str
    level: int
    start_line: int


class SectionContent(Placed):
    collection: str
    collection_id: str | None = None
    document: str
    url: str | None = None
    section: str
    level: int
    content: str
    start_line: int
    end_line: int
    alternatives: list[SectionAlternative] | None = None
    notice: str | None = None


class Source(CamelReply):
    collection: str
    collection_id: str | None = None
    document: str


class RelatedRow(SearchRow):
    document: str


class RelatedResults(CamelReply):
    source: Source
    related: list[RelatedRow]
    truncated: bool | None = None
    notice: str | None = None


class BatchQuery(BaseModel):
    """One query of a batch."""

    model_config = ConfigDict(extra="forbid")

    query: QueryText
    collections: CollectionNames = []


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
        "{left} more collections; `kb list` on the command line shows them all, and every tool "
        "takes their names.",
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
        f"The reply is full: rows of {less} queries were left out or cut; ask fewer at once, or "
        "with a lower limit."
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
        row = _find_document(file, connection, found, document)
        called, total = file.names.called(found), row["line_count"]
        first = first_line(start_line, end_line, total, "document")
        part = read_lines(
            row["content"], first, end_line, call.reply_tokens, skipped=start_character
        )
        last = min(part.end_line, max(total, first))
        is_part = bool(start_line or end_line or part.rest)
        place = {}
        if is_part:
            place = place_of_lines(connection, row["document_id"], first, last)
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
        row = _find_document(file, connection, found, document)
        sections = sections_of(connection, row["document_id"])
    outline = [
        OutlineRow(
            **place_fields(one),
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
            f"The reply is full: {len(kept)} of {len(outline)} headings. Go on with startLine "
            f"{outline[len(kept)].line}, or ask for a lower maxDepth."
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
        row = _find_document(file, connection, collection_row, document)
        sections = sections_of(connection, row["document_id"])
        found, alternatives = find_section(sections, section, row["path"], row["content"])
        end = found["end_line"] if include_subsections else found["body_end_line"]
        part = read_lines(row["content"], found["start_line"], end, call.reply_tokens)
        place = place_of_lines(connection, row["document_id"], part.start_line, part.end_line)
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
            f"{more} more headings match: name the one meant by its path, such as "
            '"Install > Linux".'
            if more > 0
            else "",
            f"The reply is full: go on with documents_get_document, {part.rest}."
            if part.rest
            else "",
        ),
    )


@tool(
    family="documents",
    title="Find related documents",
    example={"collection": "windrose", "document": "guide/wind.md", "limit": 3},
)
def documents_find_related(
    call: Call,
    collection: CollectionName,
    document: DocumentId,
    chunk: Annotated[
        str,
        Field(
            description="Text of a passage to relate to; empty: the whole document.",
            max_length=LONGEST_CHUNK,
        ),
    ] = "",
    limit: Annotated[int, Field(description="Most rows to return.", ge=1, le=100)] = 5,
    same_document: Annotated[
        bool, Field(description="Include other passages of the same document.")
    ] = False,
) -> RelatedResults:
    """Find documents of the same collection that are close in meaning to a document or passage.

    One row a document, at its closest passage; with sameDocument one row a passage.
    """
    # A wrong name is told before the model is loaded.
    with call.read_collection(collection) as (connection, found, file):
        _find_document(file, connection, found, document)
    vector = file.model.embed_passage(chunk) if chunk.strip() else None
    with call.read_collection(collection) as (connection, found, file):
        row = _find_document(file, connection, found, document)
        called = file.names.called(found)
        source = Source(
            collection=called.collection,
            collection_id=called.collection_id,
            document=row["path"],
        )
        own = chunk_vectors(connection, row["document_id"])
        if own and not chunk.strip():
            vector = mean_vector(list(own.values()))
        if vector is None:
            notice = "The document has no embeddings yet: run `kb sync`."
            return RelatedResults(source=source, related=[], notice=notice)
        place = collection_range(found["collection_id"])
        calibration = calibration_of(connection) or BUNDLED_CALIBRATION
        if same_document:
            # One more than asked for: the passage itself may be among them.
            nearest = nearest_chunks(connection, vector, [place], limit + 1)
            hits = [
                Hit(chunk_id, shown_score(calibration.score(distance)), distance)
                for chunk_id, distance in nearest
            ]
        else:
            without = list(own)
            hits = nearest_documents(
                connection, vector, place, limit, without=without, calibration=calibration
            )
        rows = passage_rows(connection, hits, {found["collection_id"]: file.names.shown(found)})
    passage = (row["path"], chunk.strip())
    rows = [one for one in rows if (one["documentId"], one["content"].strip()) != passage]
    fitted = call.fit(
        [RelatedRow(document=one["documentId"], **one) for one in rows[:limit]],
        "the nearest {kept} of {total} rows. Relate to a single passage with `chunk` for others.",
    )
    return RelatedResults(
        source=source,
        related=fitted.rows,
        truncated=fitted.truncated,
        notice=said(fitted.notice),
    )


def _find_document(
    file: SearchedFile, connection: Connection, collection: Row, document: str
) -> Row:
    """A document of a collection with its text."""
    shown = file.names.called(collection).collection
    return file.names.document(connection, collection, document, shown)


def _search_rows(rows: Sequence[Row]) -> list[SearchRow]:
    return [SearchRow(**row) for row in rows]


def describe(session: Session) -> str:
    """What the files hold, for the server's instructions."""

    def look(file: SearchedFile, connection: Connection) -> tuple[list[str], int]:
        rows = file.names.collections(connection)
        names = [
            f"{file.names.called(row).collection} "
            f"({count_documents(connection, row['collection_id'])} documents"
            + (f": {row['description']}" if row["description"] else "")
            + ")"
            for row in rows[:MOST_DESCRIBED]
        ]
        waiting = count_waiting(connection)
        return [*names, *("" for _ in rows[MOST_DESCRIBED:])], waiting

    together = Together(session.files)
    with together.read():
        seen = together.each(look).values()
    names = [name for own, _ in seen for name in own]
    waiting = sum(count for _, count in seen)
    notices = [*session.names.notices, *together.lost, session.lost]
    wrong = "".join(f" Notice: {notice.rstrip('.')}." for notice in notices if notice)
    if not names:
        return (
            "The file holds no documents yet; `kb add FOLDER` on the command line adds some."
            f"{wrong}"
        )
    shown = [name for name in names if name][:MOST_DESCRIBED]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    pending = f" {waiting} passages are not embedded yet: found by keywords." if waiting else ""
    return f"Collections: {', '.join(shown)}{more}.{pending}{wrong}"

"""The documents family: browse, search and read collections of documents."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kb.knowledge_base import KnowledgeBase
from kb.model_in_use import calibration_of
from kb.models.embedder import BUNDLED_CALIBRATION
from kb.search.hybrid import Hit
from kb.search.passages import nearest_documents, passage_rows, search_passages
from kb.search.ranking import shown as shown_score
from kb.search.sections import find_section
from kb.store.collections import count_documents
from kb.store.database import Connection, Row
from kb.store.ids import WHOLE_FILE, collection_range
from kb.store.places import place_fields, place_of_lines
from kb.store.vectors import mean_vector, nearest_chunks
from kb.tools.call import Call
from kb.tools.parameters import LAST_POSITION, EndLine, StartCharacter, StartLine
from kb.tools.reading import first_line, read_lines
from kb.tools.registry import tool
from kb.tools.replies import (
    BatchResults,
    Collections,
    DocumentContent,
    DocumentList,
    Outline,
    RelatedResults,
    SearchResults,
    SectionContent,
    add_notice,
    cut,
    rows_within,
)

MOST_ALTERNATIVES = 20

CollectionName = Annotated[str, Field(description="Collection id or alias.", min_length=1)]
DocumentId = Annotated[
    str, Field(description="Document id, as a rule its path in the collection.", min_length=1)
]
QueryText = Annotated[
    str,
    Field(
        description="What to find: words or a question. Operators: +must, -mustnot, "
        '"exact phrase", prefix*.'
    ),
]
MaximumDistance = Annotated[
    float, Field(description="Leave out rows with a greater cosine distance.", ge=0, le=2)
]
HybridSearch = Annotated[
    bool, Field(description="Rank by keywords and meaning together; false: meaning alone.")
]


class BatchQuery(BaseModel):
    """One query of a batch."""

    model_config = ConfigDict(extra="forbid")

    query: QueryText
    collections: Annotated[
        list[str], Field(description="Collections to search; empty: all of them.")
    ] = []


@tool(family="documents", title="List collections", example={})
def documents_list_collections(call: Call) -> Collections:
    """List the collections of documents with their sizes and descriptions.

    Start here to learn what is known and which names the other tools accept.
    """
    with call.read() as connection:
        rows = [
            {
                **call.names.shown(row),
                "documentCount": count_documents(connection, row["collection_id"]),
                **{key: row[key] for key in ("description", "version") if row[key]},
            }
            for row in call.names.collections(connection)
        ]
    kept = call.fit(rows)
    result: Any = {"collections": kept}
    if len(kept) < len(rows):
        cut(
            result,
            f"The reply is full: {len(rows) - len(kept)} more collections; `kb list` on the "
            "command line shows them all, and every tool takes their names.",
        )
    return result  # type: ignore[no-any-return]


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
    with call.read() as connection:
        found = call.names.collection(connection, collection)
        key = found["collection_id"]
        documents = connection.rows(
            "collection_documents", collection_id=key, limit=limit, offset=offset
        )
        total = connection.value("count_documents", collection_id=key)
    kept = call.fit(documents)
    result: Any = {
        **call.names.shown(found),
        "documents": kept,
        "total": total,
        "hasMore": offset + len(kept) < total,
    }
    if len(kept) < len(documents):
        cut(result, f"The reply is full: go on with offset {offset + len(kept)}.")
    return result  # type: ignore[no-any-return]


@tool(
    family="documents",
    title="Search documents",
    example={"query": "how do I calibrate the wind vane?", "limit": 3},
)
def documents_search(
    call: Call,
    query: QueryText,
    collections: Annotated[
        list[str], Field(description="Collections to search; empty: all of them.")
    ] = [],  # noqa: B006 - never changed
    limit: Annotated[int, Field(description="Most rows to return.", ge=1, le=100)] = 10,
    maxDistance: MaximumDistance = 2.0,  # noqa: N803 - the contract's name
    hybridSearch: HybridSearch = True,  # noqa: N803
    rerank: Annotated[
        bool, Field(description="Spend more time on a finer order of the best candidates.")
    ] = False,
) -> SearchResults:
    """Find the passages that answer a question or hold some words, best first.

    Each row is one passage with its document, section, lines and a relevance score from 0 to 1
    (0.7 and above: most likely relevant). Read more around it with documents_get_section or
    documents_get_document. Several questions at once: documents_search_batch.
    """
    found = search_passages(
        call.model, call.names, [(query, collections)], limit, maxDistance, hybridSearch, rerank
    )
    result: Any = {"results": call.fit(found.rows[0])}
    if len(result["results"]) < len(found.rows[0]):
        cut(
            result,
            f"The reply is full: the best {len(result['results'])} of {len(found.rows[0])} rows. "
            "For others narrow the query or the collections.",
        )
    add_notice(result, found.notice)
    return result  # type: ignore[no-any-return]


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
    maxDistance: MaximumDistance = 2.0,  # noqa: N803
    hybridSearch: HybridSearch = True,  # noqa: N803
) -> BatchResults:
    """Run up to ten searches in one call, each as documents_search does.

    Use it to look into several matters without a round trip for each.
    """
    asked: list[Any] = list(queries)
    found = search_passages(
        call.model,
        call.names,
        [(one["query"], one["collections"]) for one in asked],
        limit,
        maxDistance,
        hybridSearch,
        False,
    )
    result: Any = {"results": []}
    share = call.reply_tokens // len(asked)
    shortened = 0
    for one, rows in zip(asked, found.rows, strict=True):
        kept = rows_within(rows, share)
        shortened += len(kept) < len(rows)
        result["results"].append({"query": one["query"], "results": kept})
    if shortened:
        cut(
            result,
            f"The reply is full: rows of {shortened} queries were left out; ask fewer at once.",
        )
    add_notice(result, found.notice)
    return result  # type: ignore[no-any-return]


@tool(
    family="documents",
    title="Read a document",
    example={"collection": "windrose", "document": "guide/wind.md", "startLine": 1, "endLine": 20},
)
def documents_get_document(
    call: Call,
    collection: CollectionName,
    document: DocumentId,
    startLine: StartLine = 0,  # noqa: N803
    endLine: EndLine = 0,  # noqa: N803
    startCharacter: StartCharacter = 0,  # noqa: N803
) -> DocumentContent:
    """Read a document, or a range of its lines.

    For one section use documents_get_section, for the headings documents_get_outline.
    """
    with call.read() as connection:
        _, row, shown = _find_document(call, connection, collection, document)
    total = row["line_count"]
    first = first_line(startLine, endLine, total, "document")
    part = read_lines(row["content"], first, endLine, call.reply_tokens, skipped=startCharacter)
    result: Any = {
        **shown,
        "document": row["path"],
        "title": row["title"],
        "content": part.content,
        "totalLines": total,
    }
    if startLine or endLine or part.rest:
        last = min(part.end_line, max(total, first))
        with call.read() as connection:
            place = place_of_lines(connection, row["document_id"], first, last)
        result |= {"startLine": first, "endLine": last, **place}
    if part.rest:
        cut(result, f"The reply is full: go on with {part.rest}.")
    return result  # type: ignore[no-any-return]


@tool(
    family="documents",
    title="Outline of a document",
    example={"collection": "windrose", "document": "guide/wind.md"},
)
def documents_get_outline(
    call: Call,
    collection: CollectionName,
    document: DocumentId,
    maxDepth: Annotated[  # noqa: N803
        int, Field(description="Deepest heading level to return.", ge=1, le=6)
    ] = 3,
    startLine: Annotated[  # noqa: N803
        int,
        Field(description="Leave out headings before this line.", ge=0, le=LAST_POSITION),
    ] = 0,
) -> Outline:
    """List a document's headings with their levels and lines.

    Use it before reading single sections with documents_get_section.
    """
    with call.read() as connection:
        _, row, shown = _find_document(call, connection, collection, document)
        sections = connection.rows("document_sections", document_id=row["document_id"])
    outline = [
        {
            "level": section["level"],
            "text": section["heading"],
            "line": section["start_line"],
            **place_fields(section),
        }
        for section in sections
        if section["level"] <= maxDepth and section["start_line"] >= startLine
    ]
    kept = call.fit(outline)
    result: Any = {**shown, "document": row["path"], "title": row["title"], "outline": kept}
    if len(kept) < len(outline):
        following = outline[len(kept)]["line"]
        cut(
            result,
            f"The reply is full: {len(kept)} of {len(outline)} headings. Go on with startLine "
            f"{following}, or ask for a lower maxDepth.",
        )
    return result  # type: ignore[no-any-return]


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
        Field(description='Heading, or path of headings such as "Install > Linux".', min_length=1),
    ],
    includeSubsections: Annotated[  # noqa: N803
        bool, Field(description="Include the sections below it.")
    ] = True,
) -> SectionContent:
    """Read one section of a document by its heading.

    The heading may be given loosely: case and punctuation do not matter, and a part is enough.
    """
    with call.read() as connection:
        _, row, shown = _find_document(call, connection, collection, document)
        sections = connection.rows("document_sections", document_id=row["document_id"])
    found, alternatives = find_section(sections, section, row["path"])
    end = found["end_line"] if includeSubsections else found["body_end_line"]
    part = read_lines(row["content"], found["start_line"], end, call.reply_tokens)
    with call.read() as connection:
        place = place_of_lines(connection, row["document_id"], part.start_line, part.end_line)
    result: Any = {
        **shown,
        "document": row["path"],
        "section": found["heading"],
        "level": found["level"],
        "content": part.content,
        "startLine": part.start_line,
        "endLine": part.end_line,
        **place,
    }
    if alternatives:
        result["alternatives"] = [
            {"section": other["heading"], "level": other["level"], "startLine": other["start_line"]}
            for other in alternatives[:MOST_ALTERNATIVES]
        ]
    if len(alternatives) > MOST_ALTERNATIVES:
        add_notice(
            result,
            f"{len(alternatives) - MOST_ALTERNATIVES} more headings match: name the one meant by "
            'its path, such as "Install > Linux".',
        )
    if part.rest:
        cut(result, f"The reply is full: go on with documents_get_document, {part.rest}.")
    return result  # type: ignore[no-any-return]


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
        str, Field(description="Text of a passage to relate to; empty: the whole document.")
    ] = "",
    limit: Annotated[int, Field(description="Most rows to return.", ge=1, le=100)] = 5,
    sameDocument: Annotated[  # noqa: N803
        bool, Field(description="Include other passages of the same document.")
    ] = False,
) -> RelatedResults:
    """Find documents of the same collection that are close in meaning to a document or passage.

    One row a document, at its closest passage; with sameDocument one row a passage.
    """
    with call.read() as connection:  # a wrong name is told before the model is loaded
        _find_document(call, connection, collection, document)
    vector = call.model.embed_passage(chunk) if chunk.strip() else None
    with call.read() as connection:
        found, row, shown = _find_document(call, connection, collection, document)
        own = connection.tuples("document_vectors", document_id=row["document_id"])
        if own and not chunk.strip():
            vector = mean_vector([blob for _, blob in own])
        result: Any = {"source": {**shown, "document": row["path"]}, "related": []}
        if vector is None:
            add_notice(result, "The document has no embeddings yet: run `kb sync`.")
            return result  # type: ignore[no-any-return]
        place = collection_range(found["collection_id"])
        calibration = calibration_of(connection) or BUNDLED_CALIBRATION
        if sameDocument:
            # One more than asked for: the passage itself may be among them.
            nearest = nearest_chunks(connection, vector, [place], limit + 1)
            hits = [
                Hit(chunk_id, shown_score(calibration.score(distance)), distance)
                for chunk_id, distance in nearest
            ]
        else:
            without = [chunk_id for chunk_id, _ in own]
            hits = nearest_documents(
                connection, vector, place, limit, without=without, calibration=calibration
            )
        rows = passage_rows(connection, hits, {found["collection_id"]: call.names.shown(found)})
    passage = (row["path"], chunk.strip())
    rows = [one for one in rows if (one["documentId"], one["content"].strip()) != passage]
    related = [{**one, "document": one["documentId"]} for one in rows[:limit]]
    result["related"] = call.fit(related)
    if len(result["related"]) < len(related):
        cut(
            result,
            f"The reply is full: the nearest {len(result['related'])} of {len(related)} rows. "
            "Relate to a single passage with `chunk` for others.",
        )
    return result  # type: ignore[no-any-return]


def _find_document(
    call: Call, connection: Connection, collection: str, document: str
) -> tuple[Row, Row, dict[str, str]]:
    """The collection, the document with its text, and how the collection is shown."""
    found = call.names.collection(connection, collection)
    shown = call.names.shown(found)
    return found, call.names.document(connection, found, document, shown["collection"]), shown


def describe(knowledge: KnowledgeBase) -> str:
    """What this file holds, for the server's instructions."""
    with knowledge.database.read() as connection:
        rows = knowledge.names.collections(connection)
        sizes = {
            row["name"]: count_documents(connection, row["collection_id"]) for row in rows[:20]
        }
        first, last = WHOLE_FILE
        waiting = connection.value("count_chunks_without_vector", first=first, last=last)
    if not rows:
        return "The file holds no documents yet; `kb add FOLDER` on the command line adds some."
    names = [
        f"{knowledge.names.shown(row)['collection']} ({sizes[row['name']]} documents"
        + (f": {row['description']}" if row["description"] else "")
        + ")"
        for row in rows[:20]
    ]
    more = f" and {len(rows) - 20} more" if len(rows) > 20 else ""
    pending = f" {waiting} passages are not embedded yet: found by keywords." if waiting else ""
    wrong = "".join(f" Notice: {notice}." for notice in knowledge.names.notices)
    return f"Collections: {', '.join(names)}{more}.{pending}{wrong}"

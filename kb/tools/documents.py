"""The documents family: browse, search and read collections."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Annotated, Literal, Unpack

from pydantic import Field

from kb.results.context import MAX_CHARACTERS, MIN_CHARACTERS, ContextResults
from kb.results.documents import DocumentContent, DocumentList, Outline, SectionContent
from kb.results.filters import FilterOptions
from kb.results.search import BatchResults, RelatedResults, SearchResults
from kb.text.counted import counted
from kb.tools.call import Call, cost_of, join, shared_rows
from kb.tools.parameters import (
    LAST_POSITION,
    LONGEST_NAME,
    BatchQuery,
    CollectionName,
    CollectionNames,
    CollectionRow,
    Collections,
    DocumentId,
    EndLine,
    HybridSearch,
    MaximumDistance,
    QueryText,
    StartCharacter,
    StartLine,
)
from kb.tools.registry import tool

LONGEST_SECTION = 12_000  # characters that are given whole if there are subsections
LONGEST_CHUNK = 100_000  # characters of a client's passage; our own have some 1,500


@tool(title="List collections", example={})
def documents_list_collections(call: Call) -> Collections:
    """List the collections with their sizes and descriptions: the names that other tools take."""
    info = call.base.list_collections()
    rows = [CollectionRow.from_dict(row.to_dict()) for row in info]
    rows.sort(key=lambda row: row.collection_id or row.collection)
    return call.shorten(
        Collections(collections=rows, notice=info.notice),
        "collections left out: {left}; `kb list` on the command line shows them all, and every "
        "tool takes their names.",
    )


@tool(title="List documents", example={"collection": "windrose", "limit": 5})
def documents_list_documents(
    call: Call,
    collection: CollectionName,
    limit: Annotated[int, Field(description="Most documents.", ge=1, le=1000)] = 100,
    offset: Annotated[int, Field(description="How many to skip.", ge=0, le=LAST_POSITION)] = 0,
    sort: Annotated[
        Literal["id", "date"], Field(description="date: newest first, with dates.")
    ] = "id",
) -> DocumentList:
    """List a collection's documents by id, with title and size in characters."""
    page = call.base.list_documents(collection, limit=limit, offset=offset, sort=sort)
    page = call.shorten(page, "go on with offset {next}.", start=offset)
    return replace(page, has_more=offset + len(page) < page.total)


@tool(title="Search documents", example={"query": "how do I calibrate the wind vane?", "limit": 3})
def documents_search(
    call: Call,
    query: QueryText,
    collections: CollectionNames = [],  # noqa: B006 - never changed
    limit: Annotated[int, Field(description="Most rows.", ge=1, le=100)] = 10,
    max_distance: MaximumDistance = 2.0,
    hybrid_search: HybridSearch = True,
    rerank: Annotated[bool, Field(description="Slower, a finer order of the best rows.")] = False,
    **filters: Unpack[FilterOptions],
) -> SearchResults:
    """Find the passages that answer a question or hold some words, best first.

    A relevanceScore of 0.7 and above: most likely relevant. Read around a passage with
    documents_get_section or documents_get_document.
    """
    rows = call.base.search(
        query,
        collections=collections,
        limit=limit,
        max_distance=max_distance,
        hybrid=hybrid_search,
        rerank=rerank,
        **filters,
    )
    return call.shorten(
        rows, "the best {kept} of {total} rows. For others narrow the query or the collections."
    )


@tool(
    title="Answer from documents",
    example={"query": "how do I calibrate the wind vane?", "maxCharacters": 1500},
)
def documents_context(
    call: Call,
    query: QueryText,
    collections: CollectionNames = [],  # noqa: B006 - never changed
    max_characters: Annotated[
        int, Field(description="Length of the reply.", ge=MIN_CHARACTERS, le=MAX_CHARACTERS)
    ] = 3000,
    **filters: Unpack[FilterOptions],
) -> ContextResults:
    """Get the best evidence for a question, packed into few characters. Begin here.

    `more` lists what found no room: read it with documents_get_document by its lines.
    """
    context = call.base.context(
        query, collections=collections, max_characters=max_characters, **filters
    )
    if (cost := cost_of(context)) <= call.reply_tokens:
        return context
    # In dense text, such as Chinese, every character may be a token.
    characters = sum(len(part.content) for document in context for part in document.parts)
    fitting = max(MIN_CHARACTERS, characters * call.reply_tokens // cost)
    context = call.base.context(query, collections=collections, max_characters=fitting, **filters)
    full = "The reply is full: `more` says where to read on."
    return replace(context, notice=join(full, context.notice or ""))


@tool(
    title="Search documents, several queries at once",
    example={"queries": [{"query": "battery life in winter"}, {"query": "E417"}], "limit": 2},
)
def documents_search_batch(
    call: Call,
    queries: Annotated[
        list[BatchQuery],
        Field(description="Each as in documents_search.", min_length=1, max_length=10),
    ],
    limit: Annotated[int, Field(description="Most rows of each.", ge=1, le=100)] = 5,
    max_distance: MaximumDistance = 2.0,
    hybrid_search: HybridSearch = True,
) -> BatchResults:
    """Run up to ten searches in one call, each as documents_search does."""
    batch = call.base.search_batch(
        [(query.query, query.collections, query.filters()) for query in queries],
        limit=limit,
        max_distance=max_distance,
        hybrid=hybrid_search,
    )
    rows = [answer.results for answer in batch]
    empty = [replace(answer, results=[]) for answer in batch]
    lists = shared_rows(rows, call.reply_tokens - cost_of(empty))
    less = sum(map(operator.ne, lists, rows))
    full = (
        f"The reply is full: rows of {counted(less, 'query', 'queries')} were left out or cut; ask "
        "fewer at once, or with a lower limit."
    )
    return BatchResults(
        results=[replace(answer, results=kept) for answer, kept in zip(batch, lists, strict=True)],
        truncated=less > 0 or None,
        notice=join(full if less else "", batch.notice or ""),
    )


@tool(
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
    """Read a document, or a range of its lines."""
    return call.base.get(
        document,
        collection=collection,
        start_line=start_line,
        end_line=end_line,
        start_character=start_character,
        max_tokens=call.reply_tokens,
    )


@tool(
    title="Outline of a document", example={"collection": "windrose", "document": "guide/wind.md"}
)
def documents_get_outline(
    call: Call,
    collection: CollectionName,
    document: DocumentId,
    max_depth: Annotated[int, Field(description="Deepest heading level.", ge=1, le=6)] = 3,
    start_line: Annotated[
        int, Field(description="Headings from this line on.", ge=0, le=LAST_POSITION)
    ] = 0,
) -> Outline:
    """List a document's headings with their levels and lines."""
    outline = call.base.outline(
        document, collection=collection, max_depth=max_depth, start_line=start_line
    )
    return call.shorten(
        outline,
        f"{{kept}} of {counted(len(outline), 'heading')}. Go on with startLine {{row.line}}, or "
        "ask for a lower maxDepth.",
    )


@tool(
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
            description='Heading or path: "Install > Linux".', min_length=1, max_length=LONGEST_NAME
        ),
    ],
    include_subsections: Annotated[bool, Field(description="With the sections below it.")] = True,
) -> SectionContent:
    """Read one section of a document by its heading.

    Case and punctuation do not matter, a part of the heading is enough, and so is an anchor: the
    `#fragment` of a link. Of more than 12,000 characters come the beginning and the subsections.
    """
    return call.base.section(
        document,
        section,
        collection=collection,
        include_subsections=include_subsections,
        max_characters=LONGEST_SECTION,
        max_tokens=call.reply_tokens,
    )


@tool(
    title="Find related documents",
    example={"collection": "windrose", "document": "guide/wind.md", "limit": 3},
)
def documents_find_related(
    call: Call,
    collection: CollectionName,
    document: DocumentId,
    chunk: Annotated[
        str, Field(description="Text of a passage; empty: the document.", max_length=LONGEST_CHUNK)
    ] = "",
    limit: Annotated[int, Field(description="Most rows.", ge=1, le=100)] = 5,
    same_document: Annotated[
        bool, Field(description="With other passages of this document.")
    ] = False,
) -> RelatedResults:
    """Find documents of a collection that are close in meaning to one of them, or to a passage.

    One row a document, at its closest passage; with sameDocument one a passage.
    """
    rows = call.base.related(
        document, collection=collection, passage=chunk, limit=limit, same_document=same_document
    )
    return call.shorten(
        rows,
        "the nearest {kept} of {total} rows. Relate to a single passage with `chunk` for others.",
    )

"""What the documents tools take and give, and how they find a document."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from kb.search.files import SearchedFile
from kb.store.connection import Connection, Row
from kb.tools.parameters import (
    LONGEST_NAME,
    MOST_NAMES,
)
from kb.tools.replies import CamelReply, CamelRow

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


def find_document(
    file: SearchedFile, connection: Connection, collection: Row, document: str
) -> Row:
    """A document of a collection with its text."""
    shown = file.names.called(collection).collection
    return file.names.document(connection, collection, document, shown)

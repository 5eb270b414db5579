"""The index family: named indexes that an assistant fills and searches itself."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kb.disk.read import MAXIMUM_DOCUMENT
from kb.ingest.indexes import (
    BLANK_CONTENT,
    Index,
    create_index,
    find_index,
)
from kb.search.bm25 import IndexOptions, Ranking, rank_documents
from kb.search.files import SearchedFile, Together
from kb.search.highlight import excerpts, spans
from kb.search.query import Operand, Query, parse_query
from kb.store.connection import Connection
from kb.store.contents import texts_of
from kb.store.names import DEFAULT_INDEX
from kb.tools.call import Call
from kb.tools.parameters import LONGEST_NAME
from kb.tools.registry import tool
from kb.tools.replies import Reply, Row, said

MOST_HIGHLIGHTS = 3

IndexName = Annotated[str, Field(description="Name of the index.", max_length=LONGEST_NAME)]


class IndexRow(Row):
    doc_id: str
    score: float
    highlights: list[str]
    metadata: dict[str, Any]


class ParsedQuery(Reply):
    terms: list[str]
    must: list[str]
    must_not: list[str]
    phrases: list[str]


class IndexResults(Reply):
    results: list[IndexRow]
    total_matches: int
    query_parsed: ParsedQuery
    truncated: bool | None = None
    notice: str | None = None


class AddedDocument(Reply):
    status: str
    doc_id: str
    token_count: int
    notice: str | None = None


class CreatedIndex(Reply):
    status: str
    index_name: str
    backend: str
    notice: str | None = None


class TokenizerConfig(BaseModel):
    """How an index takes words."""

    model_config = ConfigDict(extra="forbid")

    lowercase: Annotated[
        bool, Field(description="Upper and lower case are the same; false: words match as written.")
    ] = True
    min_length: Annotated[
        int, Field(description="Words of fewer characters are left out.", ge=1, le=100)
    ] = 2


@tool(
    family="index",
    title="Search an index",
    example={"query": '+gauge "rain gauge" calib*', "k": 3},
)
def search_index(
    call: Call,
    query: Annotated[
        str,
        Field(
            description='Words to find. Operators: +must, -mustnot, "exact phrase", prefix*. '
            "Bare words are optional and rank."
        ),
    ],
    k: Annotated[int, Field(description="Most documents to return.", ge=1, le=100)] = 10,
    index_name: IndexName = DEFAULT_INDEX,
) -> IndexResults:
    """Find documents of a named index by their words, best first, with excerpts round matches.

    For documents that were put in with search_add_document. total_matches counts all documents
    that match, of which at most k are returned. To search by meaning as well use
    documents_search.
    """
    index = _index_to_search(call, index_name)
    parsed = parse_query(query)
    if index is None or parsed.is_blank:
        shown = IndexOptions() if index is None else index.options
        return IndexResults(results=[], total_matches=0, query_parsed=_shown(parsed, shown))
    with index.database.read() as connection:
        ranking = rank_documents(connection, parsed, index.collection_id, index.options)
        best = ranking.documents[:k]
        stored = {
            row["document_id"]: row
            for row in texts_of(connection, [document_id for document_id, _ in best])
        }
        rows: list[IndexRow] = []
        for document_id, score in best:
            row = stored[document_id]
            case = not index.options.lowercase
            found = spans(connection, row["content"], ranking.query, case=case)
            rows.append(
                IndexRow(
                    doc_id=row["path"],
                    score=score,
                    highlights=excerpts(row["content"], found, most=MOST_HIGHLIGHTS, mark=False),
                    metadata=json.loads(row["metadata"]),
                )
            )
    fitted = call.fit(rows, "{total} documents were found; lower k.")
    return IndexResults(
        results=fitted.rows,
        total_matches=len(ranking.documents),
        query_parsed=_shown(ranking.query, index.options),
        truncated=fitted.truncated,
        notice=said(fitted.notice, parsed.notice, _ignored_words(ranking, index)),
    )


@tool(
    family="index",
    title="Add a document to an index",
    read_only=False,
    destructive=True,
    messages={
        ("content", "missing"): BLANK_CONTENT,
        ("content", "string_type"): BLANK_CONTENT,
    },
    example={
        "doc_id": "rain-gauge",
        "content": "The rain gauge tips once for every 0.2 mm of rain.",
        "metadata": {"topic": "rain"},
    },
)
def search_add_document(
    call: Call,
    doc_id: Annotated[
        str,
        Field(
            description="Id of the document, of your choice.", min_length=1, max_length=LONGEST_NAME
        ),
    ],
    content: Annotated[
        str, Field(description="Its text, plain or Markdown.", max_length=MAXIMUM_DOCUMENT)
    ],
    metadata: Annotated[
        dict[str, Any], Field(description="Whatever you want back with it in results.")
    ] = {},  # noqa: B006 - never changed
    index_name: IndexName = DEFAULT_INDEX,
) -> AddedDocument:
    """Put a document into a named index, or replace the one with the same id wholly.

    It is found by its words at once, by search_index and by documents_search; by its meaning a
    little later.
    """
    from kb.ingest.index_documents import add_document  # here: it brings all that parses

    added = add_document(call.knowledge, index_name, doc_id, content, metadata)
    if added.waits_for_vectors:
        call.session.activity.note_addition()
    status = "re-indexed" if added.replaced else "indexed"
    return AddedDocument(status=status, doc_id=doc_id, token_count=added.token_count)


@tool(
    family="index",
    title="Create an index",
    read_only=False,
    idempotent=False,
    example={"index_name": "project_docs", "tokenizer_config": {"min_length": 3}},
)
def search_create_index(
    call: Call,
    index_name: Annotated[
        str,
        Field(
            description="Name of the new index: 1 to 64 letters, digits, - and _.",
            pattern="^[A-Za-z0-9_-]{1,64}$",
        ),
    ],
    backend: Annotated[
        str,
        Field(
            description='"sqlite": kept in the file; "memory": gone when the server ends.',
            max_length=LONGEST_NAME,
        ),
    ] = "sqlite",
    tokenizer_config: Annotated[
        TokenizerConfig, Field(description="How the index takes words.")
    ] = TokenizerConfig(),  # noqa: B008 - never changed
) -> CreatedIndex:
    """Create an empty named index for search_add_document and search_index.

    The index "default" is always there; make others to keep matters apart.
    """
    options = IndexOptions(tokenizer_config.lowercase, tokenizer_config.min_length)
    create_index(call.knowledge, index_name, backend, options)
    return CreatedIndex(status="created", index_name=index_name, backend=backend)


def _index_to_search(call: Call, name: str) -> Index | None:
    """An index of any file, by its name; None for the default one while nothing is in it."""

    def look(file: SearchedFile, connection: Connection) -> Index | None:
        row = file.names.find(connection, name, ("index",))
        if row is None:
            return None
        options = IndexOptions.from_json(row["options"])
        return Index(name, file.database, row["collection_id"], options)

    together = Together(call.session.files)
    with together.read():
        found = together.each(look)
    # Raises with what there is.
    return next(filter(None, found.values()), None) or find_index(call.knowledge, name)


def _shown(query: Query, options: IndexOptions) -> ParsedQuery:
    """A query as it was searched."""

    def text(operand: Operand) -> str:
        written = operand.text.lower() if options.lowercase else operand.text
        return written + ("*" if operand.is_prefix else "")

    return ParsedQuery(
        terms=[text(operand) for operand in query.terms],
        must=[text(operand) for operand in query.must if not operand.is_phrase],
        must_not=[text(operand) for operand in query.must_not],
        phrases=[text(operand) for operand in query.must if operand.is_phrase],
    )


def _ignored_words(ranking: Ranking, index: Index) -> str:
    if not ranking.ignored:
        return ""
    words = ", ".join(f'"{word}"' for word in dict.fromkeys(ranking.ignored))
    return (
        f'The index "{index.name}" leaves out words of fewer than {index.options.min_length} '
        f"characters: {words} matches nothing."
    )

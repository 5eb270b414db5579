"""The index family: named indexes that an assistant fills and searches itself."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kb.disk.read import MAXIMUM_DOCUMENT
from kb.results.memory import BLANK_CONTENT, AddedDocument, CreatedIndex, IndexResults
from kb.settings import DEFAULT_INDEX
from kb.tools.call import Call
from kb.tools.parameters import LONGEST_NAME
from kb.tools.registry import tool

IndexName = Annotated[str, Field(description="Its name.", max_length=LONGEST_NAME)]


class TokenizerConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")

    lowercase: Annotated[bool, Field(description="false: words match as written.")] = True
    min_length: Annotated[int, Field(description="Shorter words are left out.", ge=1, le=100)] = 2


@tool(title="Search an index", example={"query": '+gauge "rain gauge" calib*', "k": 3})
def search_index(
    call: Call,
    query: Annotated[
        str,
        Field(description='Words, which rank. Operators: +must -mustnot "exact phrase" prefix*.'),
    ],
    k: Annotated[int, Field(description="Most documents.", ge=1, le=100)] = 10,
    index_name: IndexName = DEFAULT_INDEX,
) -> IndexResults:
    """Find documents of a named index by their words, best first, with excerpts round matches.

    For what search_add_document put in; total_matches counts beyond k. By meaning too:
    documents_search.
    """
    rows = call.base.search_index(query, index=index_name, limit=k)
    return call.shorten(rows, "{total} documents were found; lower k.")


@tool(
    title="Add a document to an index",
    read_only=False,
    destructive=True,
    messages={("content", "missing"): BLANK_CONTENT, ("content", "string_type"): BLANK_CONTENT},
    example={
        "doc_id": "rain-gauge",
        "content": "The rain gauge tips once for every 0.2 mm of rain.",
        "metadata": {"topic": "rain"},
    },
)
def search_add_document(
    call: Call,
    doc_id: Annotated[
        str, Field(description="Of your choice.", min_length=1, max_length=LONGEST_NAME)
    ],
    content: Annotated[
        str, Field(description="Plain text or Markdown.", max_length=MAXIMUM_DOCUMENT)
    ],
    metadata: Annotated[dict[str, Any], Field(description="Comes back in results.")] = {},  # noqa: B006 - never changed
    index_name: IndexName = DEFAULT_INDEX,
) -> AddedDocument:
    """Put a document into a named index, or replace the one with the same id.

    search_index and documents_search find it by words at once, by meaning a little later.
    """
    added = call.base.add_document(doc_id, content, metadata=metadata, index=index_name)
    call.session.activity.added.set()
    return added


@tool(
    title="Create an index",
    read_only=False,
    idempotent=False,
    example={"index_name": "project_docs", "tokenizer_config": {"min_length": 3}},
)
def search_create_index(
    call: Call,
    index_name: Annotated[
        str, Field(description="Letters, digits, - and _.", pattern="^[A-Za-z0-9_-]{1,64}$")
    ],
    backend: Annotated[
        str,
        Field(description='"sqlite", or "memory": gone with the server.', max_length=LONGEST_NAME),
    ] = "sqlite",
    tokenizer_config: Annotated[
        TokenizerConfig, Field(description="How words are taken.")
    ] = TokenizerConfig(),  # noqa: B008 - never changed
) -> CreatedIndex:
    """Create an empty named index for search_add_document and search_index.

    The index "default" is always there.
    """
    return call.base.create_index(
        index_name,
        backend=backend,
        lowercase=tokenizer_config.lowercase,
        min_length=tokenizer_config.min_length,
    )

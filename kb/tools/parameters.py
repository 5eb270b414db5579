"""Parameters of tools of several families."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from kb.results.base import InCollection, Listing, Row
from kb.results.context import MAX_CHARACTERS
from kb.results.filters import FilterOptions

LAST_POSITION = 1_000_000_000  # no list or document is longer
LONGEST_NAME = 4096  # characters; no system's paths are longer
LONGEST_GLOB = 1000
MOST_NAMES = 1000  # in one list

StartLine = Annotated[int, Field(description="From 1; 0: the start.", ge=0, le=LAST_POSITION)]
EndLine = Annotated[int, Field(description="0: the end.", ge=0, le=LAST_POSITION)]
ReplyLength = Annotated[
    int, Field(description="Length of the reply, from 500; 0: all rows.", ge=0, le=MAX_CHARACTERS)
]
StartCharacter = Annotated[
    int, Field(description="To skip, in a long first line.", ge=0, le=LAST_POSITION)
]

_Names = list[Annotated[str, Field(max_length=LONGEST_NAME)]]


class Filtered(BaseModel):
    """The filters of a search; see `kb.search.filters`."""

    model_config = ConfigDict(extra="forbid")

    paths: Annotated[_Names, Field(description="Globs: guide/**.", max_length=MOST_NAMES)] = []
    tags: Annotated[_Names, Field(description="All of these.", max_length=MOST_NAMES)] = []
    metadata: Annotated[
        _Names, Field(description="key=value; of one key any.", max_length=MOST_NAMES)
    ] = []
    since: Annotated[str, Field(description="First date: 2026[-01[-31]].", max_length=10)] = ""
    until: Annotated[str, Field(description="Last date.", max_length=10)] = ""
    min_score: Annotated[float, Field(description="Least score.", ge=0, le=1)] = 0.0
    max_per_document: Annotated[int, Field(description="0: no bound.", ge=0, le=100)] = 0
    sort: Annotated[Literal["score", "date"], Field(description="date: newest first.")] = "score"

    def filters(self) -> FilterOptions:
        return cast(FilterOptions, {name: getattr(self, name) for name in Filtered.model_fields})


CollectionName = Annotated[
    str, Field(description="Id or alias.", min_length=1, max_length=LONGEST_NAME)
]

CollectionNames = Annotated[
    list[Annotated[str, Field(max_length=LONGEST_NAME)]],
    Field(description="Empty: all.", max_length=MOST_NAMES),
]

DocumentId = Annotated[
    str, Field(description="Id, as a rule its path.", min_length=1, max_length=LONGEST_NAME)
]

QueryText = Annotated[
    str,
    Field(
        description="Words or a question. Operators: +must -mustnot "
        '"exact phrase" prefix* tag:NAME.'
    ),
]

MaximumDistance = Annotated[float, Field(description="Greatest cosine distance.", ge=0, le=2)]

HybridSearch = Annotated[bool, Field(description="false: meaning alone.")]


class CollectionRow(InCollection, Row):
    document_count: int
    description: str | None = None
    version: str | None = None


class Collections(Listing[CollectionRow]):
    listed = "collections"

    collections: list[CollectionRow]
    truncated: bool | None = None
    notice: str | None = None


class BatchQuery(Filtered):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)

    query: Annotated[str, Field(description="Words or a question.")]
    collections: CollectionNames = []

"""The external family: a project's own documentation folder, searched and never written."""

from __future__ import annotations

from typing import Annotated, Unpack

from pydantic import Field

from kb.library.external import DEFAULT_LIMIT
from kb.results.external import ActivationResult, ExternalResults
from kb.results.filters import FilterOptions
from kb.tools.call import Call
from kb.tools.parameters import LONGEST_NAME, ReplyLength
from kb.tools.registry import tool

EMBEDDING_SECONDS = 10.0  # that an activation waits for vectors


@tool(title="Activate a project", example={}, read_only=False)
def activate_project(
    call: Call,
    config_path: Annotated[
        str,
        Field(
            description="The project's folder or config.json; empty: the nearest one upwards.",
            max_length=LONGEST_NAME,
        ),
    ] = "",
    branch_name: Annotated[
        str, Field(description="Empty: as git says.", max_length=LONGEST_NAME)
    ] = "",
) -> ActivationResult:
    """Make a project the active one and sync its external documentation.

    Call it again for another project or a changed configuration; changes of files are followed.
    """
    return call.base.activate(
        config_path, branch=branch_name, progress=call.progress, seconds=EMBEDDING_SECONDS
    )


@tool(
    title="Search external documentation",
    example={"query": "how is a request authenticated?", "limit": 5},
)
def search_external_docs(
    call: Call,
    query: Annotated[
        str, Field(description="Words or a question.", min_length=1, max_length=10_000)
    ],
    limit: Annotated[
        int,
        Field(
            description="Most documents.",
            ge=1,
            le=100,
            # 0 stands for "not asked for": then the configuration's default_limit applies.
            json_schema_extra={"default": DEFAULT_LIMIT},
        ),
    ] = 0,
    min_relevance_score: Annotated[
        float,
        Field(description="The project's semantic_search.min_relevance_score wins.", ge=0, le=1),
    ] = 0.7,
    max_characters: ReplyLength = 0,
    **filters: Unpack[FilterOptions],
) -> ExternalResults:
    """Search external project documentation (read-only). Requires `external_docs` to be configured in project config.

    One row a document, at its best passage. Call activate_project first.
    """  # noqa: E501 - the first line is what clients of the founding specification know
    rows = call.base.search_external(
        query, limit=limit, min_relevance_score=min_relevance_score, **filters
    )
    return call.pack(call.shorten(rows, "lower the limit."), max_characters, "max_characters")

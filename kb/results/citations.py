"""Citations between documents, and broken links."""

from __future__ import annotations

from dataclasses import field

from kb.results.base import Listing, Result


class CitationRow(Result):
    """A citation of a document, or by it.

    `document` is the other one as COLLECTION/path, "" if it is not in the file; `confidence` is 1
    for a link, less for documents that only resemble each other.
    """

    way: str  # "cites" or "cited by"
    line: int
    document: str
    target: str  # as it is written
    url: str | None = None
    kind: str
    confidence: float
    context: str


_ENDS = {"source": "from", "target": "to"}


class GraphNode(Result, kw_only=False):
    """A document, or a cited page that is not in the file."""

    unsent = ("is_external", "state")

    id: str  # COLLECTION/path, even of a missing file; else the address as written
    label: str  # title, or the address
    type: str  # "source" cites, "target" is cited, "both"; a lone document is a source
    is_external: bool = False
    state: str = ""  # of the links to it: see `BrokenLinks`; "" unless asked for


class GraphEdge(Result, kw_only=False):
    """From a document to what it cites, by the surest of its citations."""

    unsent = ("state",)
    __pydantic_config__ = {"alias_generator": lambda name: _ENDS.get(name, name)}  # noqa: RUF012

    source: str
    target: str
    confidence: float
    state: str = ""  # the worst of its links'


class Graph(Result, kw_only=False):
    """Nodes (documents first, in the order of their ids) and edges, one per ordered pair."""

    unsent = ("notice",)

    nodes: list[GraphNode]
    edges: list[GraphEdge]
    notice: str = ""


class Citations(Listing[CitationRow]):
    """What a document cites, then what cites it; the graph if more than one step is asked for."""

    listed = "citations"

    document: str
    url: str | None = None
    citations: list[CitationRow]
    citation_graph: Graph | None = None


class BrokenLink(Result):
    """A link whose target, or the section of it that the link names, does not exist."""

    unsent = ("file",)

    collection: str
    document: str
    line: int
    target: str
    kind: str
    missing: str  # "target" or "section"
    file: str = ""  # where the document was read


class BrokenLinks(Listing[BrokenLink]):
    """The broken links, and how many links are in each state.

    The states: "resolved", "external", "not in the tree" (a generator makes the target, or it
    belongs to another project), "broken".
    """

    listed, unsent = "broken", ("notice",)

    broken: list[BrokenLink]
    states: dict[str, int] = field(default_factory=dict)
    notice: str = ""

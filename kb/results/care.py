"""The state of files, and the outcome of syncs, copies, bundles and moved collections."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kb.results.base import Listing, Result
from kb.results.findings import Finding


class CollectionStatus(Result):
    collection: str
    kind: str
    documents: int
    passages: int
    embedded: int  # passages with a vector
    source: str
    synced: str | None  # None: it has no source, or no sync has ended yet

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class ReadFile(Result):
    """A file that assistants read; `score` falls with time."""

    path: str
    score: float
    reads: int
    last_read: str


class FileStatus(Result):
    """What a file holds, what waits in it, and what is wrong with it."""

    file: str
    bytes: int
    documents: int
    characters: int
    chunks: int
    vectors: int  # of distinct texts
    embedded_chunks: int
    waiting: int  # passages without a vector
    tokens: dict[str, int] | None  # how many are valid, expired and revoked
    problems: list[Finding]
    replication: dict[str, Any] | None  # how far its copy elsewhere is
    model: str | None
    width: int | None
    collections: list[CollectionStatus]
    top_files: list[ReadFile]

    def to_dict(self) -> dict[str, Any]:
        sent = super().to_dict()
        return {
            **sent,
            "embedded_chunks": sent.pop("embeddedChunks"),
            "problems": [finding.as_dict() for finding in self.problems],
            "replication": self.replication,
            "model": self.model,
        }


class ToolCalls(Result):
    """How often a tool was called, how well it went and how long it took, in milliseconds."""

    tool: str
    calls: int
    success_rate: float
    p50: float
    p95: float
    p99: float
    errors: dict[str, int]  # by code


class Copied(Result):
    copy: str
    bytes: int
    without_source: list[str] | None = None  # collections, in a copy for others


class Packed(Result):
    unsent = ("left_out",)

    bundle: str
    documents: int
    bytes: int
    left_out: list[str]  # path and reason each


class MovedCollection(Result):
    collection: str
    name: str  # in the other file, where its own may be taken
    documents: int
    waiting: int  # passages without a vector there


class MovedCollections(Listing[MovedCollection]):
    unsent = ("file",)
    listed = "moved"

    moved: list[MovedCollection]
    file: str  # that contains them now


class ShardFile(Result):
    file: str
    documents: int
    bytes: int


class CutFile(Listing[ShardFile]):
    """The shards that a file was cut into."""

    listed = "shards"

    shards: list[ShardFile]


class TokenStatus(Result):
    """A person's or program's token for the file over HTTP, without the secret itself."""

    name: str
    role: str  # "read" or "write"
    state: str  # "valid", "expired" or "revoked"
    created: str
    expires: str | None
    revoked: str | None
    requests_per_minute: int | None  # None: the server's

    def to_dict(self) -> dict[str, Any]:
        return dict.fromkeys(("expires", "revoked", "requestsPerMinute")) | super().to_dict()


class SyncedCollection(Result):
    """What a sync of one collection did, in documents, and what it could not do."""

    unsent = ("is_stored",)

    collection: str
    added: int
    updated: int
    removed: int
    unchanged: int
    total: int
    renamed: int  # counted under `updated` too
    errors: list[dict[str, str]]  # path and message; the path "" is the whole collection
    notices: list[dict[str, str]]
    is_stored: bool  # False: a new collection had nothing, so it was not made


class SyncResults(Listing[SyncedCollection]):
    """What syncs did, and the embedding after them, in passages."""

    unsent = ("model", "embedding_error", "has_failed")
    listed = "collections"

    collections: list[SyncedCollection]
    embedded: int
    reused: int  # whose text already has a vector
    notice: str | None = None
    model: str = ""  # of the vectors, if any were made
    embedding_error: str = ""  # why no vectors could be made
    has_failed: bool = False  # a whole collection could not be synced


class Embedded(Result):
    """What an embedding run did, in passages."""

    model: str
    embedded: int
    reused: int  # whose text already has a vector


class Removed(Result):
    """A collection that was removed, or a document of one."""

    collection: str
    document: str | None = None
    documents: int = 1  # how many were removed

    def to_dict(self) -> dict[str, Any]:
        if self.document is None:
            return {"removed": self.collection, "documents": self.documents}
        return {"removed": self.document, "collection": self.collection}

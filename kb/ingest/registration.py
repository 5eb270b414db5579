"""What becomes of a collection when a folder is added: planned first, stored by its first sync.

So an addition that is refused changes nothing, whatever was wrong with it, and one that is
interrupted keeps what it has read, with the globs and the name that it was read by.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kb.errors import UsageError
from kb.sources.address import is_remote, local
from kb.sources.manifest import Manifest
from kb.store.collections import (
    all_collections,
    free_name,
    insert_collection_like,
    unstored_row,
    update_collection,
    update_options,
    update_source,
)
from kb.store.connection import Connection, Row
from kb.store.documents import forget_content_hashes

__all__ = ["MovedSource", "Plan", "Registration", "SourceRegistration", "as_told"]

KINDS_WITHOUT_SOURCE = ("index", "discoveries")
# Settings that no document depends on: the manifest's metadata, and what may be fetched.
UNREAD_SETTINGS = {"manifest", "allow_private"}


@dataclass(frozen=True, slots=True)
class Plan:
    """A collection as it will be."""

    row: Row  # as of `collections`; collection_id is 0 for one that is still to be made
    reads_anew: bool = False  # what is stored of its files no longer fits
    # It is so already, and a sync that finds nothing changed need not note its time: it writes
    # nothing, and waits for nobody who does.
    is_stored: bool = False

    @property
    def is_new(self) -> bool:
        return not self.row["collection_id"]


class Registration(Protocol):
    """A collection that is to be made or changed."""

    @property
    def keeps_empty(self) -> bool:
        """Whether it is made although there is no document for it."""

    def plan(self, connection: Connection) -> Plan:
        """What it will be.

        Raises:
            UsageError: it cannot be.
        """

    def store(self, connection: Connection) -> int:
        """Make or change it; its row id. Call it inside a write transaction.

        Raises:
            UsageError: as `plan`; another process may have been first.
        """


@dataclass(frozen=True, slots=True)
class SourceRegistration:
    """A source that somebody adds.

    Globs that are given replace all earlier ones; without any the earlier ones stay. So does the
    kind, which is "documents" of a new collection unless another one is given.
    """

    source: str  # as it is stored: see `kb.sources.address`
    called: str  # what it is called where nobody names it
    name: str | None = None
    kind: str | None = None
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    description: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # None takes one away
    keeps_empty: bool = False

    def plan(self, connection: Connection) -> Plan:
        name, known = self._named(connection)
        given = {
            "kind": self.kind,
            "description": self.description,
            "include": self._json(self.include) if self._globs_given else None,
            "exclude": self._json(self.exclude) if self._globs_given else None,
        }
        fields = {key: value for key, value in given.items() if value is not None}
        if known is None:
            options = self._options({})
            text = json.dumps(options, ensure_ascii=False)
            return Plan(unstored_row(name, source=self.source, options=text, **fields))
        old = json.loads(known["options"])
        options = self._options(old)
        row = {**known, **fields, "options": json.dumps(options, ensure_ascii=False)}
        changed = {key for key in {*old, *options} if old.get(key) != options.get(key)}
        is_read_otherwise = bool(changed - UNREAD_SETTINGS) or row["kind"] != known["kind"]
        return Plan(row, reads_anew=is_read_otherwise)

    def store(self, connection: Connection) -> int:
        plan = self.plan(connection)
        row = plan.row
        if plan.is_new:
            return insert_collection_like(connection, row, row["name"])
        collection_id = int(row["collection_id"])
        update_collection(
            connection,
            collection_id,
            **{key: row[key] for key in ("kind", "include", "exclude", "description")},
        )
        update_options(connection, collection_id, row["options"])
        if plan.reads_anew:
            # What the kind and the settings make of the documents, other links among it.
            forget_content_hashes(connection, collection_id)
        return collection_id

    def _options(self, old: Mapping[str, Any]) -> dict[str, Any]:
        options = {**old, **self.settings}
        return {key: value for key, value in options.items() if value is not None}

    def _named(self, connection: Connection) -> tuple[str, Row | None]:
        """The collection's name, and its row if it exists."""
        rows = all_collections(connection)
        by_name = {row["name"]: row for row in rows}
        # The same folder as a project's external docs is another matter.
        same = [r for r in rows if r["source"] == self.source and r["project_id"] is None]
        name = self.name
        if name is None:
            name = same[0]["name"] if same else free_name(self.called or "root", by_name)
        if self.name is None and not same:
            self._require_not_moved(by_name.get(self.called))
        known = by_name.get(name)
        if known is not None and known["kind"] in KINDS_WITHOUT_SOURCE:
            raise UsageError(
                f'the collection "{name}" is filled by tool calls: choose another --name'
            )
        if known is None and same and not self._globs_given:
            raise UsageError(
                f'{self.source} is the collection "{same[0]["name"]}" already and every hit would '
                "come twice: give globs that tell the two apart, or `kb remove` it first"
            )
        if known is not None and known["source"] != self.source:
            self._require_not_moved(known)
            raise UsageError(
                f'the collection "{name}" holds {known["source"]}: choose another --name, or '
                f"`kb remove {name}` first"
            )
        return name, known

    def _require_not_moved(self, namesake: Row | None) -> None:
        """Refuse to store documents twice because their folder is somewhere else now."""
        if namesake is None or not namesake["source"] or is_remote(namesake["source"]):
            return
        if namesake["project_id"] is None and not local(namesake["source"]).exists():
            name = namesake["name"]
            raise UsageError(
                f'the collection "{name}" was read from {namesake["source"]}, which is gone: if '
                f"this is the same, `kb move {name} {self.source}`, else give it another --name"
            )

    @property
    def _globs_given(self) -> bool:
        return bool(self.include or self.exclude)

    @staticmethod
    def _json(globs: Sequence[str]) -> str:
        return json.dumps(list(globs), ensure_ascii=False)


def as_told(registration: Registration | None, row: Row, manifest: Manifest) -> Registration | None:
    """What is to become of a collection, once its manifest is read.

    Args:
        registration: what was to become of it so far; None when it was to stay as it is.
        row: the collection as it would be by that.
    """
    if registration is not None and not isinstance(registration, SourceRegistration):
        return registration
    options = json.loads(row["options"])
    told = {"base_url": manifest.base_url, "manifest": dict(manifest.metadata) or None}
    changed = {key: value for key, value in told.items() if options.get(key) != value}
    if registration is None:
        if not changed:
            return None
        return SourceRegistration(row["source"], row["name"], row["name"], settings=changed)
    called = manifest.name or registration.called
    if not changed and called == registration.called:
        return registration
    return replace(registration, called=called, settings={**registration.settings, **changed})


@dataclass(frozen=True, slots=True)
class MovedSource:
    """A collection whose documents lie somewhere else now; its first sync there stores that."""

    name: str
    source: str  # as it is stored
    keeps_empty: bool = False

    def plan(self, connection: Connection) -> Plan:
        rows = all_collections(connection)
        row = next((row for row in rows if row["name"] == self.name), None)
        if row is None:
            raise UsageError(f'the collection "{self.name}" is gone')
        if row["kind"] in KINDS_WITHOUT_SOURCE:
            raise UsageError(f'the collection "{self.name}" is filled by tool calls')
        if row["project_id"] is not None:
            raise UsageError(
                f'"{self.name}" is the documentation that a project\'s configuration names: change '
                "external_docs there"
            )
        for other in rows:
            if (
                other["source"] == self.source
                and other["name"] != self.name
                and (other["include"], other["exclude"]) == (row["include"], row["exclude"])
            ):
                raise UsageError(f'{self.source} is the collection "{other["name"]}" already')
        return Plan({**row, "source": self.source})

    def store(self, connection: Connection) -> int:
        collection_id = int(self.plan(connection).row["collection_id"])
        update_source(connection, collection_id, self.source)
        return collection_id

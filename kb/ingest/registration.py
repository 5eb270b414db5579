"""What becomes of a collection when a folder is added: planned first, stored by its first sync.

So a refused addition changes nothing, and an interrupted one keeps what it has read, with the globs
and the name that it was read by.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kb.errors import UsageError
from kb.sources.address import is_remote, local
from kb.sources.manifest import Manifest
from kb.store.collections import all_collections, free_name, store_collection, unstored_row
from kb.store.connection import Connection, Row
from kb.store.documents import forget_content_hashes

KINDS_WITHOUT_SOURCE = ("index", "discoveries")
# Settings that no document depends on: the manifest's metadata, and what may be fetched.
UNREAD_SETTINGS = {"manifest", "allow_private", "generators"}


@dataclass(frozen=True, slots=True)
class Plan:
    """A collection as it will be."""

    row: Row  # as of `collections`; collection_id is 0 for one that is still to be made
    reads_anew: bool = False  # what is stored of its files no longer fits
    # It is so already: a sync that finds nothing changed writes nothing, and waits for no writer.
    is_stored: bool = False


class Registration(ABC):
    """A collection that is to be made or changed."""

    keeps_empty: bool  # whether it is made although there is no document for it

    @abstractmethod
    def plan(self, connection: Connection) -> Plan:
        """What it will be; UsageError if it cannot be made so."""

    def store(self, connection: Connection) -> int:
        """Make or change it in a write transaction; its row id. Raises UsageError as `plan`."""
        plan = self.plan(connection)
        if plan.reads_anew:
            # What the kind and the settings make of the documents, other links among it.
            forget_content_hashes(connection, plan.row["collection_id"])
        return store_collection(connection, plan.row)


@dataclass(frozen=True, slots=True)
class SourceRegistration(Registration):
    """A source that somebody adds.

    New globs replace all earlier ones; without any the earlier ones stay. So does the kind, which
    is "documents" of a new collection by default.
    """

    source: str  # as it is stored: see `kb.sources.address`
    default_name: str
    name: str | None = None
    kind: str | None = None
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    description: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # None takes one away
    keeps_empty: bool = False

    def plan(self, connection: Connection) -> Plan:
        name, old = self._find(connection)
        fields: dict[str, Any] = {"kind": self.kind, "description": self.description}
        if self.include or self.exclude:
            globs = {"include": self.include, "exclude": self.exclude}
            fields |= {k: json.dumps([*v], ensure_ascii=False) for k, v in globs.items()}
        fields = {key: value for key, value in fields.items() if value is not None}
        old_options = json.loads(old["options"]) if old else {}
        options = {**old_options, **self.settings}
        options = {key: value for key, value in options.items() if value is not None}
        fields["options"] = json.dumps(options, ensure_ascii=False)
        if old is None:
            return Plan(unstored_row(name, source=self.source, **fields))
        row = {**old, **fields}
        changed = {k for k in {*old_options, *options} if old_options.get(k) != options.get(k)}
        is_read_otherwise = bool(changed - UNREAD_SETTINGS) or row["kind"] != old["kind"]
        return Plan(row, reads_anew=is_read_otherwise)

    def _find(self, connection: Connection) -> tuple[str, Row | None]:
        rows = all_collections(connection)
        by_name = {row["name"]: row for row in rows}
        # The same folder as a project's external docs is another matter.
        same = [r for r in rows if r["source"] == self.source and r["project_id"] is None]
        name = self.name
        if name is None and same:
            name = same[0]["name"]
        elif name is None:
            self._require_not_moved(by_name.get(self.default_name))
            name = free_name(self.default_name or "root", by_name)
        old = by_name.get(name)
        if old is None:
            if same and not (self.include or self.exclude):
                raise UsageError(
                    f'{self.source} is the collection "{same[0]["name"]}" already and every hit '
                    "would come twice: give globs that tell the two apart, or `kb remove` it first"
                )
            return name, None
        if old["kind"] in KINDS_WITHOUT_SOURCE:
            raise UsageError(
                f'the collection "{name}" is filled by tool calls: choose another --name'
            )
        if old["source"] != self.source:
            self._require_not_moved(old)
            raise UsageError(
                f'the collection "{name}" holds {old["source"]}: choose another --name, or '
                f"`kb remove {name}` first"
            )
        return name, old

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


def with_manifest(
    registration: Registration | None, row: Row, manifest: Manifest
) -> Registration | None:
    """What is to become of a collection, once its manifest is read.

    So far that was `registration`, None to stay as it is, which would make it `row`.
    """
    if registration is not None and not isinstance(registration, SourceRegistration):
        return registration
    options = json.loads(row["options"])
    facts = {"base_url": manifest.base_url, "manifest": dict(manifest.metadata) or None}
    changed = {key: value for key, value in facts.items() if options.get(key) != value}
    if registration is None:
        if not changed:
            return None
        return SourceRegistration(row["source"], row["name"], row["name"], settings=changed)
    name = manifest.name or registration.default_name
    if not changed and name == registration.default_name:
        return registration
    return replace(registration, default_name=name, settings={**registration.settings, **changed})


@dataclass(frozen=True, slots=True)
class MovedSource(Registration):
    """A collection whose documents have moved; its first sync there stores that."""

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

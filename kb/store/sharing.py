"""What a copy for others leaves out. Call inside a write transaction."""

from __future__ import annotations

from kb.sources.address import is_absolute
from kb.store.collections import update_source
from kb.store.connection import Connection

__all__ = ["forget_paths", "forget_use"]


def forget_use(connection: Connection) -> None:
    """Leave out who asked and read what, and who may: sessions, reads, counts of calls, tokens."""
    for statement in (
        "delete_all_events",
        "delete_all_sessions",
        "delete_all_accesses",
        "delete_all_calls",
        "delete_all_tokens",
    ):
        connection.run(statement)


def forget_paths(connection: Connection) -> list[str]:
    """Leave out where on this machine documents come from; the names of what has no source now.

    Documentation of a project belongs to the whole copy from now on: a project is a folder of this
    machine.
    """
    connection.run("detach_from_projects")
    connection.run("delete_all_projects")
    lost = []
    for collection_id, name, source in connection.tuples("sources_as_kept"):
        if is_absolute(source):
            update_source(connection, collection_id, "")
            lost.append(name)
    return lost

"""The look that every command has at the file it opened."""

from __future__ import annotations

import sys

from kb.models.embedder import BUILDS
from kb.store.database import Database
from kb.store.findings import Finding, quick


def problems(database: Database) -> list[Finding]:
    """What keeps the file from answering as it should; cheap."""
    with database.read() as connection:
        return quick(connection, BUILDS)


def warn_of_waiting_log(database: Database) -> None:
    """Say on stderr when what this command wrote is not in the `.db` alone."""
    if not database.log_waits:
        return
    from kb.store.waiting_log import waiting_log

    if waiting := waiting_log(database):
        print(f"kb: {waiting.sentence(with_commands=True)}; {waiting.remedy}", file=sys.stderr)


def warn(database: Database) -> None:
    """Say it on stderr, whatever the command is."""
    for finding in problems(database):
        print(f"kb: {finding.message}; {finding.remedy}", file=sys.stderr)

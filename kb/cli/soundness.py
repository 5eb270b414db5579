"""The look that every command has at the file it opened."""

from __future__ import annotations

import sys

from kb.models.choose import packaged_sha256
from kb.store.database import Database
from kb.store.health import Finding, quick


def problems(database: Database) -> list[Finding]:
    """What keeps the file from answering as it should; cheap."""
    with database.read() as connection:
        return quick(connection, packaged_sha256())


def warn(database: Database) -> None:
    """Say it on stderr, whatever the command is."""
    for finding in problems(database):
        print(f"kb: {finding.message}; {finding.remedy}", file=sys.stderr)

"""The look that every command has at the file it opened."""

from __future__ import annotations

from kb.cli import render
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
        render.say(f"{waiting.sentence(with_commands=True)}; {waiting.remedy}")


def warn(database: Database) -> None:
    """Say it on stderr, whatever the command is."""
    for finding in problems(database):
        render.say(f"{finding.message}; {finding.remedy}")

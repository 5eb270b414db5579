"""Secrets that a sync meets: what is said of them, and taking back what is stored of them."""

from __future__ import annotations

from collections.abc import Sequence

from kb.ingest.forget import erase_documents, write_anew
from kb.store.contents import stored_file
from kb.store.database import Database
from kb.text.counted import some_of
from kb.text.secrets import secrets_in

__all__ = ["erase_secret_files", "named", "tokens_notice"]


def erase_secret_files(database: Database, collection_id: int, paths: Sequence[str]) -> str:
    """Take back what is stored of secret files, with every trace; the notice about it."""
    with database.write() as connection:
        rows = [stored_file(connection, collection_id, path) for path in paths]
        # None where another process was first.
        erase_documents(connection, [row["document_id"] for row in rows if row is not None])
    problem = write_anew(database)
    message = f"removed, since it is never stored: {named(paths)}"
    return f"{message}; {problem}" if problem else message


def named(paths: Sequence[str]) -> str:
    """Some of the secret files, and why they are."""
    return f"{some_of(sorted(paths))} (secret by name, or a private key)"


def tokens_notice(text: str) -> str:
    """What to say of a document that shows what looks like secrets: it is stored all the same."""
    found = [f"line {secret.line} ({secret.kind})" for secret in secrets_in(text)]
    return f"stored, though it seems to hold a secret: {some_of(found)}" if found else ""

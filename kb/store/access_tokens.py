"""Access tokens of people whom a server answers over HTTP, kept by their hash."""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from kb.errors import TokenNotFound, UsageError
from kb.results.care import TokenStatus
from kb.results.roles import Role
from kb.store.connection import Connection
from kb.text.nearest import nearest
from kb.text.times import stored_time, utc_now

PREFIX = "kb_"  # by which people, and programs that look for secrets, know one
RANDOM_BYTES = 32
LONGEST_NAME = 64
VALID, EXPIRED = "valid", "expired"


def hash_of(token: str) -> bytes:
    """The key under which a token is stored. One round is enough: nobody can try 2^256 tokens."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def add_token(
    connection: Connection,
    name: str,
    role: Role,
    *,
    days: int | None = None,
    requests_per_minute: int | None = None,
) -> str:
    """As `AccessTokens.add_token`. The token is returned this once, and stored nowhere."""
    if not name or len(name) > LONGEST_NAME or not name.isprintable() or " " in name:
        raise UsageError(
            f"{name[:LONGEST_NAME]!r} names nobody: give 1 to {LONGEST_NAME} letters, digits and "
            "signs without blanks, such as anna or ci@build-7"
        )
    if any(token.name == name and token.state == VALID for token in all_tokens(connection)):
        raise UsageError(
            f"{name} has a token already: `kb token revoke {name}` ends it, or give another name, "
            "such as that of the machine"
        )
    connection.run("revoke_token", name=name, now=utc_now())  # one that has expired
    token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    expires = datetime.now(UTC) + timedelta(days=days) if days is not None else None
    connection.run(
        "insert_token",
        token_hash=hash_of(token),
        name=name,
        role=role,
        requests_per_minute=requests_per_minute,
        created_at=utc_now(),
        expires_at=expires and stored_time(expires),
    )
    return token


def find_token(connection: Connection, token: str) -> TokenStatus | None:
    """The token with this secret; None if it is not valid here."""
    row = connection.row("token_by_hash", token_hash=hash_of(token), now=utc_now())
    return TokenStatus(**row) if row else None


def has_tokens(connection: Connection) -> bool:
    """Whether the file asks for tokens: once it has had one, even if all are revoked."""
    return bool(connection.value("has_tokens"))


def all_tokens(connection: Connection) -> list[TokenStatus]:
    """Whose tokens there are and what they may do, valid ones first, by name."""
    return [TokenStatus(**row) for row in connection.rows("all_tokens", now=utc_now())]


def count_tokens(connection: Connection) -> Counter[str]:
    return Counter(token.state for token in all_tokens(connection))


def valid_hashes(connection: Connection, hashes: Collection[bytes]) -> set[bytes]:
    """Which of some tokens are valid, by their hashes."""
    written = [token_hash.hex() for token_hash in hashes]
    valid = connection.column("valid_tokens", hashes=written, now=utc_now())
    return {bytes.fromhex(token_hash) for token_hash in valid}


def revoke_token(connection: Connection, name: str) -> None:
    """End the token of a name. Raises TokenNotFound if it has no valid one."""
    if connection.run("revoke_token", name=name, now=utc_now()):
        return
    names = [token.name for token in all_tokens(connection) if not token.revoked]
    raise TokenNotFound(
        f"{name} has no token that could be revoked.", near=lambda: nearest(name, names)
    )


def forget_tokens(connection: Connection) -> int:
    """Delete revoked and expired tokens; how many. With none left, the file asks for none."""
    return connection.run("forget_tokens", now=utc_now())


def copy_tokens(old: Connection, new: Connection) -> None:
    """Let those who may use one file use another, where nobody has a token yet."""
    for row in old.rows("unrevoked_tokens"):
        new.run("insert_token", **row)

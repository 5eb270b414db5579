"""Tokens of the people and programs that may use a file over HTTP."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kb.library.workspace import Workspace
from kb.results.care import TokenStatus
from kb.results.roles import READ, Role
from kb.store import access_tokens


class AccessTokens(Workspace):
    def add_token(
        self,
        name: str,
        role: Role = READ,
        *,
        days: int | None = None,
        requests_per_minute: int | None = None,
    ) -> str:
        """Make a token for a person or program that uses the file over HTTP; shown this once.

        Raises:
            UsageError: the name is blank, too long, or has a valid token already.
        """
        with self.database.write() as connection:
            return access_tokens.add_token(
                connection, name, role, days=days, requests_per_minute=requests_per_minute
            )

    def list_tokens(self) -> list[TokenStatus]:
        """Whose tokens there are and what they may do, valid ones first, by name."""
        with self.database.read() as connection:
            return access_tokens.all_tokens(connection)

    def revoke_tokens(self, *names: str) -> None:
        """End the tokens of these names at once, also for a running server; all or none."""
        with self.database.write() as connection:
            for name in names:
                access_tokens.revoke_token(connection, name)

    def forget_tokens(self) -> int:
        """Forget the tokens that are revoked or have expired, and count them."""
        with self.database.write() as connection:
            return access_tokens.forget_tokens(connection)

    def asks_for_tokens(self) -> bool:
        """Whether the file has or had a token, so that a server asks for one."""
        with self.database.read() as connection:
            return access_tokens.has_tokens(connection)

    def find_holder(self, shown: Sequence[str]) -> tuple[tuple[TokenStatus, bytes] | None, bool]:
        """The holder of the first valid token with the token's hash, and whether the file asks for
        tokens: it does once it has had one, even if all are revoked.
        """
        with self.database.read() as connection:
            for token in shown:
                if (holder := access_tokens.find_token(connection, token)) is not None:
                    return (holder, access_tokens.hash_of(token)), True
            return None, access_tokens.has_tokens(connection)

    def valid_hashes(self, hashes: Collection[bytes]) -> set[bytes]:
        """Which of some access tokens are still valid, by their hashes."""
        with self.database.read() as connection:
            return access_tokens.valid_hashes(connection, hashes)

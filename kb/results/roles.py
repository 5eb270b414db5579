"""What the owner of a token may do with the file; apart, since every command imports it."""

from __future__ import annotations

from typing import Literal

Role = Literal["read", "write"]
READ: Role = "read"
WRITE: Role = "write"
ROLES: tuple[Role, ...] = (READ, WRITE)
